//! A cohort as flag evaluation and definitions need it: criteria, or a static list of members.
//!
//! Must stay true: parsing never fails on criteria of a wrong shape; they count as absent. A cohort without criteria
//! has no members.

use std::collections::BTreeSet;

use pennon_filters::body::fields;
use pennon_filters::body::json::Object;
use serde_json::{Value, json};

use crate::conditions::record_ids;

/// A cohort of a project, as flags read it.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagCohort {
    /// Unique within its project.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Whether it is a list of members; its criteria are ignored then.
    pub is_static: bool,
    /// Soft deletion.
    pub deleted: bool,
    /// `{"properties": {"type": "AND" | "OR", "values": [...]}}`.
    pub filters: Value,
}

impl FlagCohort {
    /// Parses a stored record: `id, name, is_static, deleted, filters`, or the older `groups` instead of `filters`.
    pub fn read(stored: &Value) -> Option<Self> {
        let flag = |key: &str| stored.get(key).and_then(Value::as_bool).unwrap_or(false);
        let filters = match stored.get("filters") {
            Some(filters) if has_criteria(filters) => filters.clone(),
            filters => match stored.get("groups").and_then(Value::as_array) {
                Some(groups) if !groups.is_empty() => json!({"properties": criteria_from_groups(groups)}),
                _ => filters.cloned().unwrap_or(Value::Null),
            },
        };
        Some(Self {
            id: stored.get("id").and_then(fields::as_integer)?,
            name: stored.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            is_static: flag("is_static"),
            deleted: flag("deleted"),
            filters,
        })
    }

    /// The root group of criteria; `None` for a static cohort, and for one without criteria.
    pub fn criteria(&self) -> Option<&Object> {
        let criteria = self.filters.get("properties").and_then(Value::as_object);
        criteria.filter(|criteria| !self.is_static && criteria.contains_key("values"))
    }

    /// The ids of the cohorts that the criteria refer to.
    pub fn named(&self) -> BTreeSet<i64> {
        self.criteria().map(named_cohorts).unwrap_or_default()
    }
}

fn has_criteria(filters: &Value) -> bool {
    filters.get("properties").is_some_and(|criteria| criteria.get("values").is_some())
}

/// Converts the older form: a list of alternatives, each a list of properties that must all match. Flags cannot
/// evaluate an entry on events; it stays as a behavioral criterion.
fn criteria_from_groups(groups: &[Value]) -> Value {
    let values = groups.iter().map(|group| {
        let values = match group.get("properties") {
            Some(Value::Array(properties)) => properties.clone(),
            Some(Value::Object(properties)) => match properties.get("values").and_then(Value::as_array) {
                Some(_) => return Value::Object(properties.clone()),
                None => properties.iter().map(|(key, value)| criterion_from_short_form(key, value)).collect(),
            },
            _ => {
                let event = group.get("event_id").or_else(|| group.get("action_id"));
                vec![json!({"key": event, "type": "behavioral", "value": "performed_event"})]
            }
        };
        json!({"type": "AND", "values": values})
    });
    json!({"type": "OR", "values": values.collect::<Vec<_>>()})
}

/// `"age__gt": 3` and `"age": 3`.
fn criterion_from_short_form(key: &str, value: &Value) -> Value {
    match key.rsplit_once("__") {
        Some((name, operator)) if !name.is_empty() && !operator.is_empty() => {
            json!({"key": name, "type": "person", "value": value, "operator": operator})
        }
        _ => json!({"key": key, "type": "person", "value": value}),
    }
}

/// The ids of the cohorts that a group of criteria refers to; iterative.
pub fn named_cohorts(group: &Object) -> BTreeSet<i64> {
    let mut ids = BTreeSet::new();
    let mut pending: Vec<&Value> = group.get("values").into_iter().collect();
    while let Some(criterion) = pending.pop() {
        match criterion.as_array().or_else(|| criterion.get("values")?.as_array()) {
            Some(values) => pending.extend(values),
            None if record_ids::is_cohort(criterion) => ids.extend(record_ids::cohort_id(criterion)),
            None => {}
        }
    }
    ids
}
