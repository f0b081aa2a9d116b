//! Dashboards as JSON of responses.

use pennon_calculation::RefreshMode;
use pennon_core::auth::Access;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use serde_json::{Map, Value, json};

use super::content::DashboardInsight;
use super::record::DashboardRecord;
use crate::Insights;
use crate::placement::{COLLABORATORS_EDIT, Dashboards, MAY_EDIT, MAY_VIEW, Placement, tiles};
use crate::resource::access_level;
use crate::results::response::{self, InsightViewer};
use crate::results::{self, ResultRequest, overrides};

/// The JSON of lists, without tiles and filters.
pub fn basic_json(dashboard: &DashboardRecord, access: &Access) -> Value {
    let may_edit = dashboard.is_editable_by(access);
    let level = dashboard.restriction_level;
    json!({
        "id": dashboard.id,
        "name": dashboard.name,
        "description": dashboard.description,
        "pinned": dashboard.pinned,
        "created_at": timestamp(dashboard.created_at),
        "created_by": dashboard.created_by,
        "last_accessed_at": null,
        "last_viewed_at": null,
        "is_shared": dashboard.is_shared,
        "deleted": dashboard.deleted,
        "creation_mode": dashboard.creation_mode,
        "tags": dashboard.tags,
        "restriction_level": level,
        "effective_restriction_level": level,
        "effective_privilege_level": if may_edit { MAY_EDIT } else { MAY_VIEW },
        "user_access_level": access_level(dashboard.created_by.as_ref(), access),
        "access_control_version": if level >= COLLABORATORS_EDIT { "v1" } else { "v2" },
        "last_refresh": null,
        "team_id": access.project.id,
    })
}

/// The query parameters for the insights of a dashboard. An update parses them before it writes, so that an invalid request
/// changes nothing.
pub struct ViewOptions<'a> {
    call: &'a Call,
    refresh: RefreshMode,
    explicit: bool,
    overrides: Option<Map<String, Value>>,
}

impl ViewOptions<'_> {
    /// Parses the query parameters.
    pub fn parse(call: &Call) -> ApiResult<ViewOptions<'_>> {
        let (refresh, explicit) = results::parse_refresh(call)?;
        Ok(ViewOptions { call, refresh, explicit, overrides: overrides::parse(call)? })
    }
}

/// The full JSON, with the insights and their results.
pub async fn full_json(
    state: &Insights,
    view: &ViewOptions<'_>,
    access: &Access,
    dashboard: &DashboardRecord,
    insights: &[DashboardInsight],
) -> ApiResult<Value> {
    let filters = dashboard.filters();
    let over = overrides::with_dashboard(filters.clone(), view.overrides.clone());
    let merged = insights.iter().map(|placed| match &over {
        Some(over) => overrides::apply(&placed.insight, over),
        None => placed.insight.clone(),
    });
    let merged: Vec<_> = merged.collect();
    let dashboard_ids = insights.iter().flat_map(|placed| tiles::current_dashboards(&placed.insight.tiles));
    let request = ResultRequest {
        dashboard_id: Some(dashboard.id),
        ..ResultRequest::new(view.call, &access.project, view.refresh)
    };
    let records = &state.app.store.records;
    let results = async {
        if merged.is_empty() {
            Ok(Vec::new())
        } else {
            Box::pin(state.insight_results(&merged, request)).await
        }
    };
    let (results, others) =
        tokio::try_join!(results, Dashboards::load(records, access.project.id, dashboard_ids))?;
    let viewer = InsightViewer::new(access, view.explicit);
    let tile = |(order, placed): (usize, &DashboardInsight)| {
        let (insight, tile) = (merged.get(order)?, &placed.tile);
        let placement = Placement::new(&placed.insight.tiles, &others, access);
        let insight = response::full_json(insight, results.get(order)?, &placement, &viewer, Some(tile));
        Some(json!({
            "id": tile.id,
            "layouts": tile.layouts,
            "color": tile.color,
            "deleted": tile.deleted,
            "order": order,
            "last_refresh": insight["last_refresh"],
            "is_cached": insight["is_cached"],
            "filters_overrides": {},
            "show_description": null,
            "text": null,
            "button_tile": null,
            "insight": insight,
        }))
    };
    let tiles: Vec<Value> = insights.iter().enumerate().filter_map(tile).collect();
    let mut body = basic_json(dashboard, access);
    let persisted = (!filters.is_empty()).then_some(&filters);
    body["filters"] = json!(filters);
    body["persisted_filters"] = json!(persisted);
    body["variables"] = json!({});
    body["persisted_variables"] = Value::Null;
    body["breakdown_colors"] = json!([]);
    body["data_color_theme_id"] = Value::Null;
    body["tiles"] = json!(tiles);
    Ok(body)
}

/// The error where the response is larger than a gateway permits.
pub fn too_large_error() -> ApiError {
    let detail = "The dashboard's insights and their results are too large for one response. Request the insights one by one, \
                  or send the header Accept-Encoding: gzip.";
    ApiError::invalid("invalid_input", detail, None)
}
