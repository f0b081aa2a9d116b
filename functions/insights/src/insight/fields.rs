//! The table of the fields of an insight: one row for each field of the record, and for each other field of the API.
//!
//! Must stay true: spelling check, activity log, responses and workspace files take their names from this table. A new field is
//! one row here, a field of [`Insight`] and its rule in [`super::InsightInput`]. Tests name what was forgotten.

use pennon_core::clock::timestamp;
use serde_json::{Value, json};

use super::record::Insight;
use FieldUse::{Full, Short, Workspace, Write};

/// A place where a field is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldUse {
    /// The body of a write may set it.
    Write,
    /// The full JSON has it.
    Full,
    /// The short JSON has it.
    Short,
    /// Workspace files have it.
    Workspace,
}

/// A field of an insight.
#[derive(Debug)]
pub struct InsightField {
    /// Its name in the API, the record and the log.
    pub name: &'static str,
    /// The value in responses and in the log; `None` for a field that is not in the record.
    value: Option<fn(&Insight) -> Value>,
    uses: &'static [FieldUse],
    /// Its position in an entry of the activity log; `None` where the log does not compare it.
    log_position: Option<u8>,
}

impl InsightField {
    /// Whether the field is used there.
    pub fn is_used(&self, at: FieldUse) -> bool {
        self.uses.contains(&at)
    }

    /// The same field, compared by the activity log.
    const fn logged(mut self, position: u8) -> InsightField {
        self.log_position = Some(position);
        self
    }
}

const fn stored(name: &'static str, value: fn(&Insight) -> Value, uses: &'static [FieldUse]) -> InsightField {
    InsightField { name, value: Some(value), uses, log_position: None }
}

/// A field that is not in the record: computed for a response, of a request, or of another version of the API.
const fn other(name: &'static str, uses: &'static [FieldUse]) -> InsightField {
    InsightField { name, value: None, uses, log_position: None }
}

/// All fields. Responses have them in this order.
pub static INSIGHT_FIELDS: [InsightField; 65] = [
    stored("id", |it| json!(it.id), &[Full, Short]),
    stored("short_id", |it| json!(it.short_id), &[Full, Short]),
    stored("name", |it| json!(it.name), &[Write, Full, Short, Workspace]).logged(2),
    stored("derived_name", |it| json!(it.derived_name), &[Write, Full, Short, Workspace]).logged(3),
    stored("filters", |it| json!(it.filters), &[Write, Full, Short, Workspace]).logged(5),
    stored("query", |it| json!(it.query), &[Write, Full, Short, Workspace]).logged(6),
    stored("order", |it| json!(it.order), &[Write, Full, Workspace]),
    stored("deleted", |it| json!(it.deleted), &[Write, Full, Workspace]).logged(1),
    other("dashboards", &[Write, Full, Short]),
    other("dashboard_tiles", &[Full, Short]),
    other("last_refresh", &[Full, Short]),
    other("refreshing", &[Short]),
    other("cache_target_age", &[Full]),
    other("next_allowed_client_refresh", &[Full]),
    other("result", &[Full]),
    other("hasMore", &[Full]),
    other("columns", &[Full]),
    stored("created_at", |it| json!(timestamp(it.created_at)), &[Full, Short]),
    stored("created_by", |it| json!(it.created_by), &[Full, Short]),
    stored("description", |it| json!(it.description), &[Write, Full, Short, Workspace]).logged(4),
    stored("updated_at", |it| json!(timestamp(it.updated_at)), &[Full, Short]),
    stored("tags", |it| json!(it.tags), &[Write, Full, Short, Workspace]).logged(8),
    stored("favorited", |it| json!(it.favorited), &[Write, Full, Short, Workspace]).logged(7),
    stored("saved", |it| json!(it.saved), &[Write, Full, Short, Workspace]),
    stored("last_modified_at", |it| json!(timestamp(it.last_modified_at)), &[Full, Short]),
    stored("last_modified_by", |it| json!(it.last_modified_by), &[Full]),
    other("is_sample", &[Full]),
    other("effective_restriction_level", &[Full]),
    other("effective_privilege_level", &[Full]),
    other("user_access_level", &[Full, Short]),
    other("timezone", &[Full]),
    other("is_cached", &[Full]),
    other("query_status", &[Full]),
    other("hogql", &[Full]),
    other("types", &[Full]),
    other("filters_hash", &[Full]),
    other("alerts", &[Full]),
    other("last_viewed_at", &[Full, Short]),
    // Part of the full JSON on a dashboard only.
    other("color", &[]),
    other("layouts", &[]),
    // Shown as `dashboards` and `dashboard_tiles`.
    stored("tiles", |it| json!(it.tiles), &[]),
    // Internal.
    stored("row_version", |it| json!(it.row_version), &[]),
    // A parameter of a write.
    other("refresh", &[Write]),
    // Sent by clients that know other versions of the API; ignored.
    other("uuid", &[]),
    other("dashboard", &[]),
    other("dashboard_id", &[]),
    other("dive_dashboard", &[]),
    other("refresh_attempt", &[]),
    other("results", &[]),
    other("is_shared", &[]),
    other("shared", &[]),
    other("restriction_level", &[]),
    other("type", &[]),
    other("filters_override", &[]),
    other("variables_override", &[]),
    other("tile_filters_override", &[]),
    other("resolved_date_range", &[]),
    other("_create_in_folder", &[]),
    other("client_query_id", &[]),
    other("from_dashboard", &[]),
    other("insight", &[]),
    other("team", &[]),
    other("team_id", &[]),
    other("project_id", &[]),
    other("personal_api_key", &[]),
];

/// The names of the fields that are used there.
pub fn field_names(at: FieldUse) -> impl Iterator<Item = &'static str> {
    INSIGHT_FIELDS.iter().filter(move |field| field.is_used(at)).map(|field| field.name)
}

/// The JSON of these fields: those in `computed` have that value, the others that of the record.
pub fn fields_json(insight: &Insight, form: FieldUse, mut computed: Value) -> Value {
    let used = INSIGHT_FIELDS.iter().filter(|field| field.is_used(form));
    let value = |field: &InsightField| {
        let computed = computed.get_mut(field.name).map(Value::take);
        let value = computed.or_else(|| Some((field.value?)(insight)))?;
        Some((field.name.to_owned(), value))
    };
    Value::Object(used.filter_map(value).collect())
}

/// The fields that the activity log compares, in its order.
pub fn logged_fields(insight: &Insight) -> Vec<(&'static str, Value)> {
    let mut logged: Vec<(u8, &'static str, Value)> = INSIGHT_FIELDS
        .iter()
        .filter_map(|field| Some((field.log_position?, field.name, (field.value?)(insight))))
        .collect();
    logged.sort_unstable_by_key(|(position, ..)| *position);
    logged.into_iter().map(|(_, name, value)| (name, value)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::insight::record::tests::insight;

    /// The names of all fields of the record. A field that is missing here does not compile.
    macro_rules! record_fields {
        ($($name:ident),* $(,)?) => {{
            let Insight { $($name: _),* } = insight(1, json!({}));
            [$(stringify!($name)),*]
        }};
    }

    #[test]
    fn each_field_of_the_record_has_a_row() {
        let record = record_fields!(
            id,
            short_id,
            name,
            derived_name,
            description,
            filters,
            query,
            order,
            deleted,
            favorited,
            saved,
            tags,
            tiles,
            created_at,
            created_by,
            updated_at,
            last_modified_at,
            last_modified_by,
            row_version,
        );
        for name in record {
            let row = INSIGHT_FIELDS.iter().find(|field| field.name == name);
            assert!(row.is_some_and(|field| field.value.is_some()), "no row in INSIGHT_FIELDS: {name}");
        }
        let stored = INSIGHT_FIELDS.iter().filter(|field| field.value.is_some());
        assert_eq!(stored.count(), record.len(), "a row for a field that the record does not have");
        let names: std::collections::BTreeSet<&str> = INSIGHT_FIELDS.iter().map(|field| field.name).collect();
        assert_eq!(names.len(), INSIGHT_FIELDS.len(), "two rows for one field");
    }

    #[test]
    fn each_writable_field_of_the_record_is_written() {
        let body = json!({
            "name": "a", "derived_name": "b", "description": "c", "filters": {"insight": "FUNNELS"},
            "query": {"kind": "TrendsQuery", "series": []}, "order": 3, "deleted": true, "favorited": true,
            "saved": true, "tags": ["x"],
        });
        let written = insight(1, body.clone());
        for field in INSIGHT_FIELDS.iter().filter(|field| field.is_used(Write)) {
            let Some(value) = field.value else { continue };
            assert_eq!(Some(&value(&written)), body.get(field.name), "not written: {}", field.name);
        }
    }
}
