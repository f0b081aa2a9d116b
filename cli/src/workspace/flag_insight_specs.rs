//! Flags and insights in a workspace file.
//!
//! Their fields are those of the HTTP API, with the same names and the same validation when they are written. A file has also
//! fields that cannot be set over HTTP: the id, the short id, the tiles on dashboards, the roles.

use chrono::{DateTime, Utc};
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::Flag;
use pennon_flag_rules::conditions::payloads;
use pennon_flag_rules::flag::field_table::{FieldValue, FlagField, WorkspaceRule, workspace_fields};
use pennon_insights::{Insight, workspace_field_names};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use pennon_core::model::project_numbers::{number, text};

/// A flag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlagSpec {
    /// The project.
    #[serde(deserialize_with = "number", serialize_with = "text")]
    pub project: u64,
    /// Number, unique in the installation.
    pub id: u64,
    /// Mail address of its creator, as whom it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// The roles that may edit it; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<Uuid>>,
    /// The dashboard that was created for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_dashboard: Option<i64>,
    /// The fields of the HTTP API.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// An insight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InsightSpec {
    /// The project.
    #[serde(deserialize_with = "number", serialize_with = "text")]
    pub project: u64,
    /// Number, unique in the installation.
    pub id: u64,
    /// Short id, unique in the project; generated if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_id: Option<String>,
    /// Mail address of its creator, as whom it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<DateTime<Utc>>,
    /// Its tiles on dashboards; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiles: Option<Vec<TileSpec>>,
    /// The fields of the HTTP API.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// A tile of an insight on a dashboard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TileSpec {
    /// The dashboard.
    pub dashboard: u64,
    /// The layouts, by screen size.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub layouts: Map<String, Value>,
    /// Its colour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
}

/// Whether a workspace file may have this field of an insight.
pub(super) fn is_insight_field(name: &str) -> bool {
    workspace_field_names().any(|known| known == name)
}

/// The declaration of a stored flag. The payloads of `flag` are in clear, or masked.
pub fn flag_to_spec(project: ProjectId, flag: &Flag, roles: Vec<Uuid>, creator: Option<String>) -> FlagSpec {
    let is_left_out = |field: &FlagField, value: FieldValue<'_>| {
        matches!(field.workspace, WorkspaceRule::IfSetAt(_)) && value.is_unset()
    };
    let fields = workspace_fields().iter().filter_map(|field| {
        let value = (field.stored)(flag);
        if is_left_out(field, value) { None } else { Some((field.name.to_owned(), value.to_json())) }
    });
    FlagSpec {
        project,
        id: flag.id.unsigned_abs(),
        created_by: creator,
        roles: Some(roles),
        usage_dashboard: flag.usage_dashboard,
        fields: fields.collect(),
    }
}

/// The declaration of a stored insight, with its tiles on dashboards for which `is_exported` is true.
pub fn insight_to_spec(
    project: ProjectId,
    insight: &Insight,
    is_exported: impl Fn(u64) -> bool,
    creator: Option<String>,
) -> Result<InsightSpec, serde_json::Error> {
    let mut fields = to_map(insight)?;
    fields.retain(|name, _| is_insight_field(name) && name != "deleted");
    let live = insight.tiles.iter().filter(|tile| tile.is_kept() && is_exported(tile.dashboard_id));
    let tiles = live.map(|tile| TileSpec {
        dashboard: tile.dashboard_id,
        layouts: tile.layouts.as_object().cloned().unwrap_or_default(),
        color: tile.color.clone(),
    });
    Ok(InsightSpec {
        project,
        id: insight.id,
        short_id: Some(insight.short_id.clone()),
        created_by: creator,
        created_at: Some(insight.created_at),
        tiles: Some(tiles.collect()),
        fields,
    })
}

/// Removes masked payloads from the fields of a new flag, which has no stored payloads to keep. True if there were any.
pub(super) fn remove_masked_payloads(fields: &mut Map<String, Value>) -> bool {
    let Some(Value::Object(filters)) = fields.get_mut("filters") else { return false };
    let Some(Value::Object(stored)) = filters.get_mut("payloads") else { return false };
    let all = stored.len();
    stored.retain(|_, payload| *payload != payloads::MASK);
    stored.len() < all
}

fn to_map(record: &impl Serialize) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::to_value(record)? {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}
