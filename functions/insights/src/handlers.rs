//! Reading one insight, and the deletion that is none.

use axum::extract::State;
use axum::response::Response;
use pennon_calculation::{Format, Refresh};
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json, sized};
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key};

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

/// The number of the insight that the path names, with or without an ending that names a form.
pub(crate) fn number(call: &Call) -> Option<u64> {
    let text = call.param("id");
    let text = text.strip_suffix(".csv").or_else(|| text.strip_suffix(".json")).unwrap_or(text);
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Who reads insights, and the records at `wanted(project)`: the owner of a key, or whoever comes by a public link, for
/// whom there is one insight and no other.
pub(crate) async fn reader(
    state: &Insights,
    call: &Call,
    wanted: impl Fn(ProjectId) -> Vec<Key>,
) -> ApiResult<(Access, Option<u64>, Vec<Option<Item>>)> {
    match call.link()? {
        Some(token) => {
            let (access, insight, found) = state.app.by_link(call, token, wanted).await?;
            Ok((access, Some(insight), found))
        }
        None => {
            let (access, found) = state.app.project_with(call, READ, wanted).await?;
            Ok((access, None, found))
        }
    }
}

/// The mode of calculation for whoever reads: by a link nobody has everything calculated again and again.
pub(crate) fn refresh_for(access: &Access, refresh: Refresh) -> Refresh {
    match refresh {
        Refresh::ForceBlocking if access.is_link() => Refresh::Blocking,
        Refresh::ForceAsync if access.is_link() => Refresh::Async,
        other => other,
    }
}

/// `GET P/insights/{id}/`
///
/// By a public link it is shown as it is stored: whose filters are laid over it would be asking questions of their own.
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let number = number(&call);
    // The dashboard in whose context the insight is wanted comes with the insight.
    let context = call.query_value("from_dashboard").filter(|_| !matches!(call.link(), Ok(Some(_))));
    let context = context.and_then(|id: &str| id.parse::<u64>().ok());
    let wanted = |project| match (number, context) {
        (None, _) => Vec::new(),
        (Some(id), None) => vec![store::key(project, id)],
        (Some(id), Some(context)) => vec![store::key(project, id), dashboards::key(project, context)],
    };
    let (access, linked, found) = reader(&state, &call, wanted).await?;
    Format::of(&call)?;
    let mut found = found.into_iter();
    let insight: Insight = found.next().flatten().ok_or_else(ApiError::not_found)?.body()?;
    if insight.deleted || linked.is_some_and(|id| id != insight.id) {
        return Err(ApiError::not_found());
    }
    let context = Dashboard::read(found.next().flatten().as_ref())?.zip(context);
    let (refresh, explicit) = numbers::wanted(&call)?;
    let over = overrides::of(&call)?.filter(|_| !access.is_link());
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
    let wish = Wish { dashboard_id, ..Wish::of(&call, &access.project, refresh_for(&access, refresh)) };
    let (numbers, dashboards) = tokio::try_join!(state.numbers(&insight, wish), dashboards)?;
    let placement = Placement::of(&insight, &dashboards, &access);
    sized(&call.headers, &shown::full(&insight, &numbers, &placement, &viewer, tile.as_ref()))
}

/// `DELETE P/insights/{id}/`: not served, whether or not there is such an insight.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    call.link()?;
    state.app.project(&call, WRITE, |_| []).await?;
    Err(ApiError::method_not_allowed(call.method.as_str(), ALLOWED).without_body())
}
