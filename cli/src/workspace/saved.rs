//! Flags and insights in a workspace file.
//!
//! What may be said of one is what may be sent over HTTP, under the same names, and is judged by the same rules when it is
//! written. Beside that a file says what HTTP never does: the number, the short id, the places on dashboards, the roles.

use chrono::{DateTime, Utc};
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::Flag;
use pennon_engine::flag::payloads;
use pennon_insights::Insight;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::check::require;
use super::file::{Workspace, number, text};

/// A flag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlagSpec {
    /// The project.
    #[serde(deserialize_with = "number", serialize_with = "text")]
    pub project: u64,
    /// Number, unique in the installation.
    pub id: u64,
    /// Mail address of its creator, in whose name it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// The roles that may edit it; left out, those that may stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<Uuid>>,
    /// The dashboard that was made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_dashboard: Option<i64>,
    /// What may be sent over HTTP.
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
    /// Short id, unique in the project; made when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_id: Option<String>,
    /// Mail address of its creator, in whose name it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<DateTime<Utc>>,
    /// Its places on dashboards; left out, they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiles: Option<Vec<TileSpec>>,
    /// What may be sent over HTTP.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// A place of an insight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TileSpec {
    /// The dashboard.
    pub dashboard: u64,
    /// Where it stands, by size of the screen.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub layouts: Map<String, Value>,
    /// Its colour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
}

const FLAG_FIELDS: [&str; 17] = [
    "key",
    "name",
    "filters",
    "active",
    "deleted",
    "created_at",
    "tags",
    "ensure_experience_continuity",
    "rollback_conditions",
    "performed_rollback",
    "analytics_dashboards",
    "has_enriched_analytics",
    "creation_context",
    "is_remote_configuration",
    "has_encrypted_payloads",
    "evaluation_runtime",
    "bucketing_identifier",
];
/// What is told by applications, and is no matter of how a flag is set.
const LAST_CALLED: &str = "last_called_at";
const INSIGHT_FIELDS: [&str; 10] = [
    "name",
    "derived_name",
    "description",
    "filters",
    "query",
    "order",
    "deleted",
    "favorited",
    "saved",
    "tags",
];
/// Most bytes of a layout, as of those that are sent over HTTP.
const LAYOUT_BYTES_MAX: usize = 4096;
/// Most characters of a short id, which are letters and digits.
const SHORT_ID_CHARS_MAX: usize = 12;
/// Insights have no numbers of eight digits: clients take these for short ids.
const SKIPPED: std::ops::Range<u64> = 10_000_000..100_000_000;

/// The first thing that is wrong with the flags and insights of `workspace` before they are judged one by one.
pub(super) fn check(workspace: &Workspace) -> Result<(), String> {
    for (at, flag) in workspace.flags.iter().enumerate() {
        let is_known = |name: &str| FLAG_FIELDS.contains(&name) || name == LAST_CALLED;
        known_fields("flags", at, &flag.fields, is_known)?;
        require(flag.id > 0 && i64::try_from(flag.id).is_ok(), || format!("flags[{at}].id: no number"))?;
        let has_key = flag.fields.get("key").is_some_and(Value::is_string);
        require(has_key, || format!("flags[{at}].key: a text is needed"))?;
    }
    for (at, insight) in workspace.insights.iter().enumerate() {
        known_fields("insights", at, &insight.fields, |name| INSIGHT_FIELDS.contains(&name))?;
        let is_number = insight.id > 0 && !SKIPPED.contains(&insight.id) && i64::try_from(insight.id).is_ok();
        require(is_number, || format!("insights[{at}].id: no number that an insight can have"))?;
        let is_short = |id: &String| {
            (1..=SHORT_ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_alphanumeric())
        };
        require(insight.short_id.as_ref().is_none_or(is_short), || {
            format!("insights[{at}].short_id: one to {SHORT_ID_CHARS_MAX} letters and digits")
        })?;
        for tile in insight.tiles.iter().flatten() {
            let bytes = serde_json::to_vec(&tile.layouts).map_or(0, |text| text.len());
            require(bytes <= LAYOUT_BYTES_MAX, || {
                format!("insights[{at}].tiles: layouts have at most {LAYOUT_BYTES_MAX} bytes")
            })?;
        }
    }
    Ok(())
}

/// A misspelt field would do nothing, without a word.
fn known_fields(
    section: &str,
    at: usize,
    fields: &Map<String, Value>,
    is_known: impl Fn(&str) -> bool,
) -> Result<(), String> {
    match fields.keys().find(|name| !is_known(name)) {
        Some(name) => Err(format!("{section}[{at}]: unknown field \"{name}\"")),
        None => Ok(()),
    }
}

/// How a file says a stored flag; payloads of `flag` are in clear, or masked where they are to be left out.
pub fn of_flag(
    project: ProjectId,
    flag: &Flag,
    roles: Vec<Uuid>,
    creator: Option<String>,
) -> Result<FlagSpec, serde_json::Error> {
    let mut stored = to_map(flag)?;
    let names = FLAG_FIELDS.iter().chain([&LAST_CALLED]);
    let fields = names.filter_map(|name| Some(((*name).to_owned(), stored.remove(*name)?)));
    let mut fields: Map<String, Value> = fields.collect();
    // What nobody ever asked for, or set, is said by leaving it out.
    for name in [LAST_CALLED, "deleted", "rollback_conditions"] {
        if fields.get(name).is_some_and(|value| value.is_null() || *value == false) {
            fields.remove(name);
        }
    }
    // Filters that were never sent; as a body they would be refused.
    if flag.filters.is_empty() {
        fields.remove("filters");
    }
    Ok(FlagSpec {
        project,
        id: flag.id.unsigned_abs(),
        created_by: creator,
        roles: Some(roles),
        usage_dashboard: flag.usage_dashboard,
        fields,
    })
}

/// How a file says a stored insight, with its places on the dashboards of which `is_there` is true.
pub fn of_insight(
    project: ProjectId,
    insight: &Insight,
    is_there: impl Fn(u64) -> bool,
    creator: Option<String>,
) -> Result<InsightSpec, serde_json::Error> {
    let mut stored = to_map(insight)?;
    let fields = INSIGHT_FIELDS.iter().filter_map(|name| Some(((*name).to_owned(), stored.remove(*name)?)));
    let mut fields: Map<String, Value> = fields.collect();
    fields.remove("deleted");
    let live = insight.tiles.iter().filter(|tile| tile.is_kept() && is_there(tile.dashboard_id));
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

/// Takes masks out of what a new flag is sent with: there is nothing yet that they could stand for. True if there were any.
pub(super) fn without_masks(fields: &mut Map<String, Value>) -> bool {
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
