//! `GET P/feature_flags/`: a page of the flags that are not deleted.

use axum::extract::State;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, Page, json};
use pennon_core::store::{Item, Key};
use pennon_engine::flag::listing::FlagQuery;
use pennon_engine::flag::{Flag, FlagRow};

use crate::store::{first_rows, flag_at, number, rows};
use pennon_role_access::refused;
use pennon_role_access::viewer::Viewers;

/// Most rows that are read before the key is known to open the project, so that nobody makes us read a large one.
const EARLY_ROWS_MAX: usize = 1000;

/// Lists flags. Filters and order work on the summary rows; only the page's records are read in full.
pub async fn list(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, all) = access_and_rows(&app, &call).await?;
    let query = FlagQuery::parse(call.query()).map_err(refused)?;
    let selected = query.select(&all, call.now);
    let page = Page::of(&call);
    let wanted: Vec<Key> =
        page.slice(&selected).iter().map(|row| flag_at(access.project.id, number(row.id))).collect();
    let items = app.store.records.batch_get(&wanted).await?;
    let flags = items.iter().flatten().map(Item::body).collect::<Result<Vec<Flag>, _>>()?;
    let viewers = Viewers::load(&app, &access, &flags.iter().collect::<Vec<_>>()).await?;
    let results = flags.iter().map(|flag| viewers.show(flag, call.now)).collect();
    Ok(json(page.envelope(&call, selected.len(), results)))
}

/// The project, and the summary rows of its flags.
///
/// Where the path names the project by its number, the rows are read beside the key and not after it, which saves a
/// wait; nothing of them is shown unless the key opens the project.
async fn access_and_rows(app: &App, call: &Call) -> ApiResult<(Access, Vec<FlagRow>)> {
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let early = async {
        match named {
            Some(project) => first_rows(&app.store.records, project, EARLY_ROWS_MAX).await.transpose(),
            None => None,
        }
    };
    let (access, early) = tokio::join!(app.project(call, crate::READ, |_| []), early);
    let (access, _) = access?;
    let all = match early {
        Some(early) if named == Some(access.project.id) => early?,
        _ => rows(&app.store.records, access.project.id).await?,
    };
    Ok((access, all))
}
