//! Insights as JSON of responses.

use pennon_analytics::kinds::DEFAULT_INSIGHT_NAME;
use pennon_core::auth::Access;
use pennon_core::clock::timestamp;
use serde_json::{Map, Value, json};

use super::{InsightResult, redaction};
use crate::insight::{Insight, ResponseForm, fields_json};
use crate::placement::Placement;
use crate::placement::tiles::Tile;
use crate::resource::access_level;

/// The caller of a request, and how the response is formatted.
#[derive(Debug, Clone, Copy)]
pub struct InsightViewer<'a> {
    /// The caller and the project.
    pub access: &'a Access,
    /// Whether `refresh` was sent.
    pub explicit_refresh: bool,
}

impl<'a> InsightViewer<'a> {
    /// The viewer of a request.
    pub fn new(access: &'a Access, explicit_refresh: bool) -> InsightViewer<'a> {
        InsightViewer { access, explicit_refresh }
    }

    /// The response as far as the caller may read it.
    fn redact(&self, mut response: Value) -> Value {
        if self.access.is_shared_link() {
            redaction::redact(&mut response);
        }
        response
    }

    /// The `user_access_level` of the caller. It depends on the creator and the membership only.
    fn access_level(&self, insight: &Insight) -> &'static str {
        if self.access.is_shared_link() {
            return "viewer";
        }
        access_level(Some(&insight.created_by), self.access)
    }
}

/// The full JSON. With `tile` it is part of that tile's dashboard.
pub fn full_json(
    insight: &Insight,
    result: &InsightResult,
    placement: &Placement,
    viewer: &InsightViewer<'_>,
    tile: Option<&Tile>,
) -> Value {
    let calculated = result.calculated.as_ref();
    let timezone = match viewer.explicit_refresh {
        true => Some(&viewer.access.project.timezone),
        false => calculated.map(|it| &it.timezone),
    };
    let (project, dashboard) = (viewer.access.project.id, tile.map(|tile| tile.dashboard_id));
    let status = result.status.as_ref();
    let query_status = status.map(|status| status.to_json(project, Some(insight.id), dashboard));
    let computed = json!({
        "filters": shown_filters(insight),
        "dashboards": placement.dashboards,
        "dashboard_tiles": placement.tiles,
        "last_refresh": calculated.map(|it| timestamp(it.last_refresh)),
        "cache_target_age": calculated.map(|it| timestamp(it.cache_target_age)),
        "next_allowed_client_refresh": calculated.map(|it| timestamp(it.next_allowed_client_refresh)),
        "result": calculated.map(|it| &it.result),
        "hasMore": calculated.and_then(|it| it.has_more),
        "columns": null,
        "is_sample": false,
        "effective_restriction_level": placement.restriction_level,
        "effective_privilege_level": placement.privilege_level,
        "user_access_level": viewer.access_level(insight),
        "timezone": timezone,
        "is_cached": calculated.is_some_and(|it| it.is_cached),
        "query_status": query_status,
        "hogql": calculated.map(|it| &it.hogql),
        "types": null,
        "filters_hash": result.key,
        "alerts": [],
        "last_viewed_at": null,
    });
    let mut response = fields_json(insight, ResponseForm::Full, computed);
    if let Some(tile) = tile {
        response["color"] = json!(tile.color);
        response["layouts"] = tile.layouts.clone();
    }
    viewer.redact(response)
}

/// The short JSON, without a result.
pub fn short_json(insight: &Insight, placement: &Placement, viewer: &InsightViewer<'_>) -> Value {
    let computed = json!({
        "filters": shown_filters(insight),
        "dashboards": placement.dashboards,
        "dashboard_tiles": placement.tiles,
        "last_refresh": null,
        "refreshing": false,
        "user_access_level": viewer.access_level(insight),
        "last_viewed_at": null,
    });
    viewer.redact(fields_json(insight, ResponseForm::Short, computed))
}

/// The filters. An insight without a query and without a kind is of the default kind.
fn shown_filters(insight: &Insight) -> Map<String, Value> {
    let mut filters = insight.filters.clone();
    if insight.query.is_none() {
        filters.entry("insight").or_insert_with(|| json!(DEFAULT_INSIGHT_NAME));
    }
    filters
}
