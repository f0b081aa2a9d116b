//! The endpoints of one insight: reading (here), writing and its activity log.

pub mod activity;
pub mod write;

use axum::extract::State;
use axum::response::Response;
use pennon_calculation::ResponseFormat;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json, sized};
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key};

use crate::insight::{self, Insight, READ, WRITE};
use crate::lists::is_true;
use crate::placement::{DashboardFields, Dashboards, Placement, dashboards, tiles};
use crate::results::response::{self, InsightViewer};
use crate::results::{self, ResultRequest, overrides, permitted_refresh};
use crate::{Insights, resource};

/// The insight id in the path, with or without the extension of a format.
pub(crate) fn path_id(call: &Call) -> Option<u64> {
    let text = call.param("id");
    let text = text.strip_suffix(".csv").or_else(|| text.strip_suffix(".json")).unwrap_or(text);
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Authenticates a reader of insights, by an API key or a sharing token, and fetches the rows of `keys(project)`. A sharing
/// token authenticates no user and opens one insight, whose id is returned.
pub(crate) async fn authenticate_reader(
    state: &Insights,
    call: &Call,
    keys: impl Fn(ProjectId) -> Vec<Key>,
) -> ApiResult<(Access, Option<u64>, Vec<Option<Item>>)> {
    match call.link()? {
        Some(token) => {
            let (access, insight, items) = state.app.by_link(call, token, keys).await?;
            Ok((access, Some(insight), items))
        }
        None => {
            let (access, items) = state.app.authorize_project_with(call, READ, keys).await?;
            Ok((access, None, items))
        }
    }
}

/// `GET P/insights/{id}/`
///
/// With a sharing token, filter overrides are ignored: they would permit any query.
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let id = path_id(&call);
    // The dashboard of `from_dashboard` is fetched together with the insight.
    let dashboard_id = call.query_value("from_dashboard").filter(|_| !matches!(call.link(), Ok(Some(_))));
    let dashboard_id = dashboard_id.and_then(|id: &str| id.parse::<u64>().ok());
    let keys = |project| match (id, dashboard_id) {
        (None, _) => Vec::new(),
        (Some(id), None) => vec![insight::key(project, id)],
        (Some(id), Some(dashboard)) => vec![insight::key(project, id), dashboards::key(project, dashboard)],
    };
    let (access, shared_id, items) = authenticate_reader(&state, &call, keys).await?;
    ResponseFormat::of(&call)?;
    let mut items = items.into_iter();
    let insight: Insight = items.next().flatten().ok_or_else(ApiError::not_found)?.body()?;
    if insight.deleted || shared_id.is_some_and(|id| id != insight.id) {
        return Err(ApiError::not_found());
    }
    let dashboard = DashboardFields::from_item(items.next().flatten().as_ref())?.zip(dashboard_id);
    let (refresh, explicit) = results::parse_refresh(&call)?;
    let overriding = overrides::parse(&call)?.filter(|_| !access.is_shared_link());
    let viewer = InsightViewer::new(&access, explicit);
    let records = &state.app.store.records;
    let dashboards = Dashboards::load(records, access.project.id, tiles::current_dashboards(&insight.tiles));
    if call.query_value("basic").is_some_and(is_true) {
        let placement = Placement::new(&insight.tiles, &dashboards.await?, &access);
        return Ok(json(response::short_json(&insight, &placement, &viewer)));
    }
    let tile_on =
        |id: u64| insight.tiles.iter().find(|tile| tile.dashboard_id == id && tile.is_kept()).cloned();
    let dashboard = dashboard.and_then(|(dashboard, id)| Some((dashboard, tile_on(id)?)));
    let (overriding, tile) = match dashboard {
        Some((dashboard, tile)) => (overrides::with_dashboard(dashboard.filters(), overriding), Some(tile)),
        None => (overriding, None),
    };
    let insight =
        overriding.map_or_else(|| insight.clone(), |overriding| overrides::apply(&insight, &overriding));
    let dashboard_id = tile.as_ref().map(|tile| tile.dashboard_id);
    let request = ResultRequest {
        dashboard_id,
        ..ResultRequest::new(&call, &access.project, permitted_refresh(&access, refresh))
    };
    let (result, dashboards) = tokio::try_join!(state.insight_result(&insight, request), dashboards)?;
    let placement = Placement::new(&insight.tiles, &dashboards, &access);
    sized(&call.headers, &response::full_json(&insight, &result, &placement, &viewer, tile.as_ref()))
}

/// `DELETE P/insights/{id}/`: 405, whether or not the insight exists.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    call.link()?;
    resource::destroy::<Insight>(&state, &call, WRITE).await
}
