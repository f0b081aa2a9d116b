//! Insights on dashboards: tiles, pointers, and the permissions that follow from the dashboards of an insight.
//!
//! [`Placement`] is the door: the dashboards of one insight in responses, and what its caller may do. The folder knows neither
//! insights nor the endpoints of dashboards.

pub mod dashboards;
pub mod pointers;
pub mod tiles;

pub use dashboards::{COLLABORATORS_EDIT, DashboardFields, Dashboards, MEMBERS_EDIT};

use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use serde_json::{Value, json};

use tiles::Tile;

/// Privilege level of a caller who may only view.
pub const MAY_VIEW: u8 = 21;
/// Privilege level of a caller who may edit.
pub const MAY_EDIT: u8 = 37;

/// The dashboards of an insight, and the permissions of one caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Ids of its dashboards, in the order of responses.
    pub dashboards: Vec<u64>,
    /// Its tiles on them, in the order of their creation.
    pub tiles: Vec<Value>,
    /// Who may edit it: 21 every member, 37 collaborators only.
    pub restriction_level: u8,
    /// What the caller may do: 21 view, 37 edit.
    pub privilege_level: u8,
}

impl Placement {
    /// The placement of an insight with these tiles for the caller of `access`.
    pub fn new(tiles: &[Tile], dashboards: &Dashboards, access: &Access) -> Placement {
        let visible = || tiles::visible(tiles, dashboards);
        let on_dashboards: Vec<&DashboardFields> =
            visible().filter_map(|tile| dashboards.get(tile.dashboard_id)).collect();
        let is_open = on_dashboards.is_empty()
            || on_dashboards.iter().any(|dashboard| dashboard.is_editable_by(access));
        let may_edit = is_open && !access.is_shared_link();
        let tile_json =
            |tile: &Tile| json!({"id": tile.id, "dashboard_id": tile.dashboard_id, "deleted": tile.deleted});
        Placement {
            dashboards: visible().map(|tile| tile.dashboard_id).collect(),
            tiles: visible().map(tile_json).collect(),
            restriction_level: on_dashboards
                .iter()
                .map(|it| it.restriction_level)
                .max()
                .unwrap_or(MEMBERS_EDIT),
            privilege_level: if may_edit { MAY_EDIT } else { MAY_VIEW },
        }
    }

    /// The same with its dashboards in the order of a write.
    #[must_use]
    pub fn sorted_as_sent(mut self, sent: Option<&Vec<u64>>) -> Placement {
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

/// Validates the dashboards of a write: 400 for one that does not exist, 403 where the insight would be added to one that
/// the caller may not edit. `current` are the tiles before the write.
pub fn validate(
    requested: &[u64],
    current: &[Tile],
    dashboards: &Dashboards,
    access: &Access,
) -> ApiResult<()> {
    if let Some(id) = requested.iter().find(|id| !dashboards.has(**id)) {
        let detail = format!("Invalid pk \"{id}\" - object does not exist.");
        return Err(ApiError::invalid("does_not_exist", detail, Some("dashboards")));
    }
    let is_on = |id: u64| tiles::current_dashboards(current).any(|on| on == id);
    let is_forbidden =
        |id: &&u64| !is_on(**id) && !dashboards.get(**id).is_some_and(|it| it.is_editable_by(access));
    match requested.iter().find(is_forbidden) {
        Some(id) => {
            Err(ApiError::forbidden(format!("You don't have permission to add insights to dashboard: {id}")))
        }
        None => Ok(()),
    }
}
