//! `GET P/feature_flags/`: a page of the flags that are not deleted.

use std::collections::HashSet;

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, Page};
use pennon_core::store::{StoreError, keys};
use pennon_engine::flag::listing::FlagQuery;
use pennon_engine::flag::{CallTimes, FlagRow};

use crate::Flags;
use crate::calls::with_calls;
use crate::store::{RECORDS_KIB_MAX, Rows, Shown, Version, early, load, shown};
use pennon_role_access::refused;
use pennon_role_access::viewer::{Owned, Viewers};

/// How often a page is read of which flags are deleted meanwhile, or pass a key on. Clients take a page that is short for the
/// last one, and two flags of one key are never there.
const TRIES: u32 = 5;

/// Lists flags. Filters and order work on the summary rows; only the page's records are read in full.
pub async fn list(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let (access, mut rows, calls) = access_and_rows(&state, &call).await?;
    let query = FlagQuery::parse(call.query()).map_err(refused)?;
    for _ in 1..TRIES {
        if let Some(reply) = answer(&state, &call, &access, &query, (&rows, &calls)).await? {
            return Ok(reply);
        }
        let project = access.project.id;
        let version = state.app.store.records.get(&keys::project_version(project)).await?;
        rows = load(&state, project, Version::of(version.as_ref()), None).await?;
    }
    let last = answer(&state, &call, &access, &query, (&rows, &calls)).await?;
    last.ok_or_else(|| StoreError::Conflict.into())
}

/// The page of what `query` selects from `rows`; none when flags of it were deleted since the rows were read, or one has a
/// key that another one had when that was read.
async fn answer(
    state: &Flags,
    call: &Call,
    access: &Access,
    query: &FlagQuery,
    (rows, calls): (&Rows, &CallTimes),
) -> ApiResult<Option<Response>> {
    let selected = query.select(rows.all(), call.now, calls);
    let page = Page::of(call);
    let wanted: &[&FlagRow] = page.slice(&selected);
    // Of a page that nobody could take, only as much is read as tells how much somebody could.
    let fits = fitting(wanted);
    let (project, number) = (access.project.id, rows.version.number);
    let (shown, viewers) = tokio::try_join!(
        shown(state, project, number, &wanted[..fits]),
        Viewers::rights(&state.app, access, wanted[..fits].iter().map(|row| Owned::from(*row))),
    )?;
    let mut keys = HashSet::with_capacity(shown.len());
    if shown.len() < fits || !shown.iter().all(|flag| keys.insert(flag.key.as_str())) {
        return Ok(None);
    }
    let text = |flag: &Shown| {
        let owned = Owned { id: flag.id, creator: flag.creator };
        flag.prepared.text(viewers.viewer(owned), call.now, calls)
    };
    let results: Vec<String> = shown.iter().map(text).collect();
    if fits < wanted.len() {
        return Err(page.refusal(call, selected.len(), &results));
    }
    page.reply(call, selected.len(), &results).map(Some)
}

/// How many of the first rows have records that one answer could hold, generously.
fn fitting(rows: &[&FlagRow]) -> usize {
    let mut kib = 0;
    rows.iter()
        .take_while(|row| {
            kib += row.kib;
            kib <= RECORDS_KIB_MAX
        })
        .count()
}

/// The project, the summary rows of its flags, and when they were last called.
///
/// Where the path names the project by its number, the rows are read beside the key and not after it, which saves a
/// wait; nothing of them is shown unless the key opens the project.
async fn access_and_rows(state: &Flags, call: &Call) -> ApiResult<(Access, Rows, CallTimes)> {
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let early = async {
        match named {
            Some(project) => early(state, project).await,
            None => Ok(None),
        }
    };
    let version = |project| [keys::project_version(project)];
    let access = with_calls(state, call, state.app.project(call, crate::READ, version));
    let (access, early) = tokio::join!(access, early);
    let (access, [version], calls) = access?;
    let rows = load(state, access.project.id, Version::of(version.as_ref()), early?).await?;
    Ok((access, rows, calls))
}
