//! The table of the fields of an insight: one row for each field of the record, and for each other field of the API.
//!
//! Must stay true: spelling check, activity log, responses and workspace files take their names from this table; a row that
//! does not decide about each of them does not compile. A new field is one row here, a field of [`Insight`] and its rule in
//! [`super::InsightInput`]. Tests name what was forgotten, the API document included.

use pennon_core::clock::timestamp;
use serde_json::{Value, json};

use super::record::Insight;
use FieldResponse::{Absent, Both, Full, Short};
use FieldWrite::{Ignored, Parameter, Stored, Tiles};
use LogRule::{LoggedAt, NotLogged};

/// What a write does with a field of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldWrite {
    /// It is accepted and ignored.
    Ignored,
    /// It is a parameter of the write.
    Parameter,
    /// It is validated and stored as tiles.
    Tiles,
    /// It is validated and stored under its name. Workspace files have it.
    Stored,
}

/// The JSON of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseForm {
    /// With the result.
    Full,
    /// Without the result, for lists.
    Short,
}

/// The responses that have a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldResponse {
    Absent,
    Full,
    Short,
    Both,
}

/// Whether the activity log compares a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogRule {
    NotLogged,
    /// At this position of an entry.
    LoggedAt(u8),
}

/// A field of an insight.
#[derive(Debug)]
pub struct InsightField {
    /// Its name in the API, the record and the log.
    pub name: &'static str,
    /// The value in responses and in the log; `None` for a field that is not in the record.
    value: Option<fn(&Insight) -> Value>,
    /// What a write does with it.
    pub write: FieldWrite,
    response: FieldResponse,
    log: LogRule,
}

impl InsightField {
    fn is_in(&self, form: ResponseForm) -> bool {
        match self.response {
            Absent => false,
            Full => form == ResponseForm::Full,
            Short => form == ResponseForm::Short,
            Both => true,
        }
    }
}

/// A field of the record.
const fn record_field(
    name: &'static str,
    value: fn(&Insight) -> Value,
    write: FieldWrite,
    response: FieldResponse,
    log: LogRule,
) -> InsightField {
    InsightField { name, value: Some(value), write, response, log }
}

/// A field that is not in the record: computed for a response, or a parameter of a request.
const fn other_field(name: &'static str, write: FieldWrite, response: FieldResponse) -> InsightField {
    InsightField { name, value: None, write, response, log: NotLogged }
}

/// A field of other versions of the API, which clients may send.
const fn unused_field(name: &'static str) -> InsightField {
    other_field(name, Ignored, Absent)
}

/// All fields. Responses have them in this order.
pub static INSIGHT_FIELDS: [InsightField; 65] = [
    record_field("id", |it| json!(it.id), Ignored, Both, NotLogged),
    record_field("short_id", |it| json!(it.short_id), Ignored, Both, NotLogged),
    record_field("name", |it| json!(it.name), Stored, Both, LoggedAt(2)),
    record_field("derived_name", |it| json!(it.derived_name), Stored, Both, LoggedAt(3)),
    record_field("filters", |it| json!(it.filters), Stored, Both, LoggedAt(5)),
    record_field("query", |it| json!(it.query), Stored, Both, LoggedAt(6)),
    record_field("order", |it| json!(it.order), Stored, Full, NotLogged),
    record_field("deleted", |it| json!(it.deleted), Stored, Full, LoggedAt(1)),
    other_field("dashboards", Tiles, Both),
    other_field("dashboard_tiles", Ignored, Both),
    other_field("last_refresh", Ignored, Both),
    other_field("refreshing", Ignored, Short),
    other_field("cache_target_age", Ignored, Full),
    other_field("next_allowed_client_refresh", Ignored, Full),
    other_field("result", Ignored, Full),
    other_field("hasMore", Ignored, Full),
    other_field("columns", Ignored, Full),
    record_field("created_at", |it| json!(timestamp(it.created_at)), Ignored, Both, NotLogged),
    record_field("created_by", |it| json!(it.created_by), Ignored, Both, NotLogged),
    record_field("description", |it| json!(it.description), Stored, Both, LoggedAt(4)),
    record_field("updated_at", |it| json!(timestamp(it.updated_at)), Ignored, Both, NotLogged),
    record_field("tags", |it| json!(it.tags), Stored, Both, LoggedAt(8)),
    record_field("favorited", |it| json!(it.favorited), Stored, Both, LoggedAt(7)),
    record_field("saved", |it| json!(it.saved), Stored, Both, NotLogged),
    record_field("last_modified_at", |it| json!(timestamp(it.last_modified_at)), Ignored, Both, NotLogged),
    record_field("last_modified_by", |it| json!(it.last_modified_by), Ignored, Full, NotLogged),
    other_field("is_sample", Ignored, Full),
    other_field("effective_restriction_level", Ignored, Full),
    other_field("effective_privilege_level", Ignored, Full),
    other_field("user_access_level", Ignored, Both),
    other_field("timezone", Ignored, Full),
    other_field("is_cached", Ignored, Full),
    other_field("query_status", Ignored, Full),
    other_field("hogql", Ignored, Full),
    other_field("types", Ignored, Full),
    other_field("filters_hash", Ignored, Full),
    other_field("alerts", Ignored, Full),
    other_field("last_viewed_at", Ignored, Both),
    // Part of the full JSON on a dashboard only.
    other_field("color", Ignored, Absent),
    other_field("layouts", Ignored, Absent),
    // Shown as `dashboards` and `dashboard_tiles`.
    record_field("tiles", |it| json!(it.tiles), Ignored, Absent, NotLogged),
    // Internal.
    record_field("row_version", |it| json!(it.row_version), Ignored, Absent, NotLogged),
    // A parameter of a write.
    other_field("refresh", Parameter, Absent),
    unused_field("uuid"),
    unused_field("dashboard"),
    unused_field("dashboard_id"),
    unused_field("dive_dashboard"),
    unused_field("refresh_attempt"),
    unused_field("results"),
    unused_field("is_shared"),
    unused_field("shared"),
    unused_field("restriction_level"),
    unused_field("type"),
    unused_field("filters_override"),
    unused_field("variables_override"),
    unused_field("tile_filters_override"),
    unused_field("resolved_date_range"),
    unused_field("_create_in_folder"),
    unused_field("client_query_id"),
    unused_field("from_dashboard"),
    unused_field("insight"),
    unused_field("team"),
    unused_field("team_id"),
    unused_field("project_id"),
    unused_field("personal_api_key"),
];

/// The names of the fields that workspace files have: those that a body sets and the record stores.
pub fn workspace_field_names() -> impl Iterator<Item = &'static str> {
    INSIGHT_FIELDS.iter().filter(|field| field.write == Stored).map(|field| field.name)
}

/// The JSON of these fields: those in `computed` have that value, the others that of the record.
pub fn fields_json(insight: &Insight, form: ResponseForm, mut computed: Value) -> Value {
    let value = |field: &InsightField| {
        let computed = computed.get_mut(field.name).map(Value::take);
        let value = computed.or_else(|| Some((field.value?)(insight)))?;
        Some((field.name.to_owned(), value))
    };
    Value::Object(INSIGHT_FIELDS.iter().filter(|field| field.is_in(form)).filter_map(value).collect())
}

/// The fields that the activity log compares, in its order.
pub fn logged_fields(insight: &Insight) -> Vec<(&'static str, Value)> {
    let logged = |field: &'static InsightField| match field.log {
        NotLogged => None,
        LoggedAt(position) => Some((position, field.name, (field.value?)(insight))),
    };
    let mut logged: Vec<(u8, &'static str, Value)> = INSIGHT_FIELDS.iter().filter_map(logged).collect();
    logged.sort_unstable_by_key(|(position, ..)| *position);
    logged.into_iter().map(|(_, name, value)| (name, value)).collect()
}

#[cfg(test)]
mod tests;
