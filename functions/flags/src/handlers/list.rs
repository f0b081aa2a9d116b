//! `GET P/feature_flags/`: a page of the flags that are not deleted.

use axum::extract::State;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, Page, json};
use pennon_core::store::{Item, Key};
use pennon_engine::flag::listing::FlagQuery;
use pennon_engine::flag::{Flag, FlagRow};

use crate::store::{flag_at, number, rows};
use pennon_role_access::refused;
use pennon_role_access::viewer::Viewers;

/// Lists flags. Filters and order work on the summary rows; only the page's records are read in full.
pub async fn list(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, _) = app.project(&call, crate::READ, |_| []).await?;
    let query = FlagQuery::parse(call.query()).map_err(refused)?;
    let all: Vec<FlagRow> = rows(&app.store.records, access.project.id).await?;
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
