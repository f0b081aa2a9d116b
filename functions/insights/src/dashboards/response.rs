//! Dashboards as answers show them.

use pennon_calculation::Refresh;
use pennon_core::auth::Access;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use serde_json::{Map, Value, json};

use super::content::Placed;
use super::record::DashboardRecord;
use super::{COLLABORATORS_EDIT, Dashboards};
use crate::numbers::Wish;
use crate::placement::Placement;
use crate::resource::access_level;
use crate::shown::{self, Viewer};
use crate::{Insights, numbers, overrides, tiles};

/// Levels of what a caller may do: look, edit.
const MAY_VIEW: u8 = 21;
const MAY_EDIT: u8 = 37;

/// The form of lists, without tiles and filters.
pub fn basic(dashboard: &DashboardRecord, access: &Access) -> Value {
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
        "is_shared": false,
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

/// How a request wants the insights of a dashboard. Whoever writes reads it before, so that what is refused has changed nothing.
pub struct View<'a> {
    call: &'a Call,
    refresh: Refresh,
    explicit: bool,
    over: Option<Map<String, Value>>,
}

impl View<'_> {
    /// As the query of `call` says.
    pub fn of(call: &Call) -> ApiResult<View<'_>> {
        let (refresh, explicit) = numbers::wanted(call)?;
        Ok(View { call, refresh, explicit, over: overrides::of(call)? })
    }
}

/// The full form, with the insights on it and their numbers as the request wants them.
pub async fn full(
    state: &Insights,
    view: &View<'_>,
    access: &Access,
    dashboard: &DashboardRecord,
    placed: &[Placed],
) -> ApiResult<Value> {
    let filters = dashboard.filters();
    let over = overrides::with_dashboard(filters.clone(), view.over.clone());
    let asked = placed.iter().map(|placed| match &over {
        Some(over) => overrides::apply(&placed.insight, over),
        None => placed.insight.clone(),
    });
    let asked: Vec<_> = asked.collect();
    let on = placed.iter().flat_map(|placed| tiles::kept_dashboards(&placed.insight.tiles));
    let wish =
        Wish { dashboard_id: Some(dashboard.id), ..Wish::of(view.call, &access.project, view.refresh) };
    let records = &state.app.store.records;
    let numbers = async {
        if asked.is_empty() { Ok(Vec::new()) } else { Box::pin(state.numbers_of_page(&asked, wish)).await }
    };
    let (numbers, others) = tokio::try_join!(numbers, Dashboards::load(records, access.project.id, on))?;
    let viewer = Viewer::new(access, view.explicit);
    let tile = |(order, placed): (usize, &Placed)| {
        let (insight, tile) = (asked.get(order)?, &placed.tile);
        let placement = Placement::of(&placed.insight, &others, access);
        let insight = shown::full(insight, numbers.get(order)?, &placement, &viewer, Some(tile));
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
    let shown: Vec<Value> = placed.iter().enumerate().filter_map(tile).collect();
    let mut answer = basic(dashboard, access);
    let persisted = (!filters.is_empty()).then_some(&filters);
    answer["filters"] = json!(filters);
    answer["persisted_filters"] = json!(persisted);
    answer["variables"] = json!({});
    answer["persisted_variables"] = Value::Null;
    answer["breakdown_colors"] = json!([]);
    answer["data_color_theme_id"] = Value::Null;
    answer["tiles"] = json!(shown);
    Ok(answer)
}

/// What is said where the insights of a dashboard do not go through a gateway together.
pub fn too_long() -> ApiError {
    let detail = "The dashboard's insights and their results are too large for one answer. Read them one by one, or \
                  let them be packed (Accept-Encoding: gzip).";
    ApiError::invalid("invalid_input", detail, None)
}
