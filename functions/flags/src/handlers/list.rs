//! `GET P/feature_flags/`: a page of the flags that are not deleted.

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, Page, json};
use pennon_core::store::keys;
use pennon_engine::flag::Flag;
use pennon_engine::flag::listing::FlagQuery;

use crate::Flags;
use crate::store::{Rows, Version, early, flags_of, load};
use pennon_role_access::refused;
use pennon_role_access::viewer::Viewers;

/// Lists flags. Filters and order work on the summary rows; only the page's records are read in full.
pub async fn list(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let (access, rows) = access_and_rows(&state, &call).await?;
    let query = FlagQuery::parse(call.query()).map_err(refused)?;
    let selected = query.select(rows.all(), call.now);
    let page = Page::of(&call);
    let wanted: Vec<(i64, u64)> =
        page.slice(&selected).iter().map(|row| (row.id, row.item_version)).collect();
    let stored = flags_of(&state, access.project.id, &wanted).await?;
    let flags: Vec<&Flag> = stored.iter().map(|stored| &stored.flag).collect();
    let viewers = Viewers::load(&state.app, &access, &flags).await?;
    let results = flags.iter().map(|flag| viewers.show(flag, call.now)).collect();
    Ok(json(page.envelope(&call, selected.len(), results)))
}

/// The project, and the summary rows of its flags.
///
/// Where the path names the project by its number, the rows are read beside the key and not after it, which saves a
/// wait; nothing of them is shown unless the key opens the project.
async fn access_and_rows(state: &Flags, call: &Call) -> ApiResult<(Access, Rows)> {
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let early = async {
        match named {
            Some(project) => early(state, project).await,
            None => Ok(None),
        }
    };
    let version = |project| [keys::project_version(project)];
    let (access, early) = tokio::join!(state.app.project(call, crate::READ, version), early);
    let (access, [version]) = access?;
    let rows = load(state, access.project.id, Version::of(version.as_ref()), early?).await?;
    Ok((access, rows))
}
