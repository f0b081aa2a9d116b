//! `GET P/feature_flags/`: a page of the live flags.

use std::collections::HashSet;

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, Page};
use pennon_core::store::{StoreError, keys};
use pennon_flag_rules::flag::listing::FlagQuery;
use pennon_flag_rules::{CallTimes, FlagRow};

use crate::Flags;
use crate::call_times::authorize_with_call_times;
use crate::store::{
    FlagRows, ListedFlag, ProjectVersion, RECORDS_KIB_MAX, load_rows, load_templates, prefetch_rows,
};
use pennon_role_access::permissions::{FlagOwnership, FlagPermissions};
use pennon_role_access::validation_error;

/// How many times a page is read when flags on it are deleted or hand over a key meanwhile. Clients treat a short page
/// as the last one, and two flags must never have the same key.
const MAX_ATTEMPTS: u32 = 5;

/// Lists flags. Filters and order use the summary rows; only the records of the page are read in full.
pub async fn list(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let (access, mut rows, calls) = authorize_and_load_rows(&state, &call).await?;
    let query = FlagQuery::parse(call.query()).map_err(validation_error)?;
    for _ in 1..MAX_ATTEMPTS {
        if let Some(reply) = list_page(&state, &call, &access, &query, (&rows, &calls)).await? {
            return Ok(reply);
        }
        let project = access.project.id;
        let version = state.app.store.records.get(&keys::project_version(project)).await?;
        rows = load_rows(&state, project, ProjectVersion::from_item(version.as_ref()), None).await?;
    }
    let last = list_page(&state, &call, &access, &query, (&rows, &calls)).await?;
    last.ok_or_else(|| StoreError::Conflict.into())
}

/// The page of the flags that `query` selects from `rows`. `None` when flags on it were deleted after the rows were
/// read, or when two flags have the same key because a key changed hands; the caller retries then.
async fn list_page(
    state: &Flags,
    call: &Call,
    access: &Access,
    query: &FlagQuery,
    (rows, calls): (&FlagRows, &CallTimes),
) -> ApiResult<Option<Response>> {
    let selected = query.select(rows.all(), call.now, calls);
    let page = Page::of(call);
    let page_rows: &[&FlagRow] = page.slice(&selected);
    // Of a page that is too large for a response, only as many records are read as are needed to report how many fit.
    let fits = count_fitting(page_rows);
    let (project, number) = (access.project.id, rows.version.number);
    let (listed, permissions) = tokio::try_join!(
        load_templates(state, project, number, &page_rows[..fits]),
        FlagPermissions::load(
            &state.app,
            access,
            page_rows[..fits].iter().map(|row| FlagOwnership::from(*row))
        ),
    )?;
    let mut keys = HashSet::with_capacity(listed.len());
    if listed.len() < fits || !listed.iter().all(|flag| keys.insert(flag.key.as_str())) {
        return Ok(None);
    }
    let render = |flag: &ListedFlag| {
        let owned = FlagOwnership { id: flag.id, creator_id: flag.creator_id };
        flag.template.render(permissions.viewer(owned), call.now, calls)
    };
    let results: Vec<String> = listed.iter().map(render).collect();
    if fits < page_rows.len() {
        return Err(page.refusal(call, selected.len(), &results));
    }
    page.reply(call, selected.len(), &results).map(Some)
}

/// How many of the first rows have records that fit one response, with a generous margin.
fn count_fitting(rows: &[&FlagRow]) -> usize {
    let mut kib = 0;
    rows.iter()
        .take_while(|row| {
            kib += row.kib;
            kib <= RECORDS_KIB_MAX
        })
        .count()
}

/// Authorizes the request and loads the summary rows of the project and the call times.
///
/// When the path has the numeric project id, the rows are read in parallel with the API key, which saves a round trip;
/// they are not used unless the key has access to the project.
async fn authorize_and_load_rows(state: &Flags, call: &Call) -> ApiResult<(Access, FlagRows, CallTimes)> {
    let path_project = call.id("project_id").filter(|_| call.credential().is_some());
    let prefetch = async {
        match path_project {
            Some(project) => prefetch_rows(state, project).await,
            None => Ok(None),
        }
    };
    let version = |project| [keys::project_version(project)];
    let access = authorize_with_call_times(state, call, state.app.project(call, crate::READ_SCOPE, version));
    let (access, prefetched) = tokio::join!(access, prefetch);
    let (access, [version], calls) = access?;
    let rows =
        load_rows(state, access.project.id, ProjectVersion::from_item(version.as_ref()), prefetched?).await?;
    Ok((access, rows, calls))
}
