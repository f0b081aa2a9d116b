//! What answers say of an insight's dashboards: where it is, who may edit it.

use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use serde_json::{Value, json};

use crate::dashboards::{Dashboard, Dashboards, EVERYBODY_EDITS};
use crate::record::Insight;
use crate::tiles;

/// Privilege level of a caller who may only look.
const MAY_VIEW: u8 = 21;
/// Privilege level of a caller who may edit.
const MAY_EDIT: u8 = 37;

/// Where an insight is, for one caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Numbers of its dashboards, in the order in which answers show them.
    pub dashboards: Vec<u64>,
    /// Its tiles on them, in the order in which they were made.
    pub tiles: Vec<Value>,
    /// Who may edit it: 21 everybody, 37 collaborators only.
    pub restriction_level: u8,
    /// What the caller may do: 21 look, 37 edit.
    pub privilege_level: u8,
}

impl Placement {
    /// Where `insight` is, for the caller of `access`.
    pub fn of(insight: &Insight, dashboards: &Dashboards, access: &Access) -> Placement {
        let live = || tiles::live(&insight.tiles, dashboards);
        let on: Vec<&Dashboard> = live().filter_map(|tile| dashboards.get(tile.dashboard_id)).collect();
        let is_open = on.is_empty() || on.iter().any(|dashboard| dashboard.is_editable_by(access));
        let may_edit = is_open && !access.is_link();
        let tile = |tile: &tiles::Tile| json!({"id": tile.id, "dashboard_id": tile.dashboard_id, "deleted": tile.deleted});
        Placement {
            dashboards: live().map(|tile| tile.dashboard_id).collect(),
            tiles: live().map(tile).collect(),
            restriction_level: on.iter().map(|it| it.restriction_level).max().unwrap_or(EVERYBODY_EDITS),
            privilege_level: if may_edit { MAY_EDIT } else { MAY_VIEW },
        }
    }

    /// The same with its dashboards in the order in which a write named them.
    #[must_use]
    pub fn in_order(mut self, sent: Option<&Vec<u64>>) -> Placement {
        if let Some(sent) = sent {
            self.dashboards.sort_by_key(|id| sent.iter().position(|named| named == id));
        }
        self
    }

    /// 403 unless the caller may edit the insight.
    pub fn require_edit(&self) -> ApiResult<()> {
        if self.privilege_level == MAY_EDIT {
            return Ok(());
        }
        Err(ApiError::forbidden(
            "This insight is on a dashboard that can only be edited by its owner, team members invited to editing the \
             dashboard, and project admins.",
        ))
    }
}

/// Judges the dashboards that a write names: 400 for one that is not there, 403 where the insight would come new to
/// one that the caller may not edit.
pub fn check(
    wanted: &[u64],
    before: Option<&Insight>,
    dashboards: &Dashboards,
    access: &Access,
) -> ApiResult<()> {
    if let Some(id) = wanted.iter().find(|id| !dashboards.has(**id)) {
        let detail = format!("Invalid pk \"{id}\" - object does not exist.");
        return Err(ApiError::invalid("does_not_exist", detail, Some("dashboards")));
    }
    let is_on =
        |id: u64| before.is_some_and(|before| tiles::kept_dashboards(&before.tiles).any(|on| on == id));
    let closed =
        |id: &&u64| !is_on(**id) && !dashboards.get(**id).is_some_and(|it| it.is_editable_by(access));
    match wanted.iter().find(closed) {
        Some(id) => {
            Err(ApiError::forbidden(format!("You don't have permission to add insights to dashboard: {id}")))
        }
        None => Ok(()),
    }
}
