//! Reading one insight, and the deletion that is none.

use axum::extract::State;
use axum::response::Response;
use pennon_calculation::require_json;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};

use crate::dashboards::{self, Dashboard, Dashboards};
use crate::listing::is_true;
use crate::numbers::{self, Wish};
use crate::placement::Placement;
use crate::record::Insight;
use crate::shown::{self, Viewer};
use crate::{Insights, overrides, store, tiles};

pub(crate) const READ: &str = "insight:read";
pub(crate) const WRITE: &str = "insight:write";
const ALLOWED: &str = "GET, HEAD, OPTIONS, PATCH";

/// `GET P/insights/{id}/`
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let number = call.id("id");
    // The dashboard in whose context the insight is wanted comes with the insight.
    let context = call.query_value("from_dashboard").and_then(|id: &str| id.parse::<u64>().ok());
    let wanted = |project| match (number, context) {
        (None, _) => Vec::new(),
        (Some(id), None) => vec![store::key(project, id)],
        (Some(id), Some(context)) => vec![store::key(project, id), dashboards::key(project, context)],
    };
    let (access, found) = state.app.project_with(&call, READ, wanted).await?;
    require_json(&call)?;
    let mut found = found.into_iter();
    let insight: Insight = found.next().flatten().ok_or_else(ApiError::not_found)?.body()?;
    if insight.deleted {
        return Err(ApiError::not_found());
    }
    let context = Dashboard::read(found.next().flatten().as_ref())?.zip(context);
    let (refresh, explicit) = numbers::wanted(&call)?;
    let over = overrides::of(&call)?;
    let viewer = Viewer::new(&access, explicit);
    let records = &state.app.store.records;
    let dashboards = Dashboards::load(records, access.project.id, tiles::kept_dashboards(&insight.tiles));
    if call.query_value("basic").is_some_and(is_true) {
        let placement = Placement::of(&insight, &dashboards.await?, &access);
        return Ok(json(shown::short(&insight, &placement, &viewer)));
    }
    let on = |id: u64| insight.tiles.iter().find(|tile| tile.dashboard_id == id && tile.is_kept()).cloned();
    let context = context.and_then(|(dashboard, id)| Some((dashboard, on(id)?)));
    let (over, tile) = match context {
        Some((dashboard, tile)) => (overrides::with_dashboard(dashboard.filters(), over), Some(tile)),
        None => (over, None),
    };
    let insight = over.map_or_else(|| insight.clone(), |over| overrides::apply(&insight, &over));
    let dashboard_id = tile.as_ref().map(|tile| tile.dashboard_id);
    let wish = Wish { dashboard_id, ..Wish::of(&call, &access.project, refresh) };
    let (numbers, dashboards) = tokio::try_join!(state.numbers(&insight, wish), dashboards)?;
    let placement = Placement::of(&insight, &dashboards, &access);
    Ok(json(shown::full(&insight, &numbers, &placement, &viewer, tile.as_ref())))
}

/// `DELETE P/insights/{id}/`: not served, whether or not there is such an insight.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    state.app.project(&call, WRITE, |_| []).await?;
    Err(ApiError::method_not_allowed(call.method.as_str(), ALLOWED).without_body())
}
