//! Renders a flag as JSON for responses.
//!
//! Must stay true: the fields are in the order of the contract's example; cohort names and computed fields, which are
//! only added here, are never stored; an integral percentage has no `.0`.

use std::{borrow::Cow, collections::BTreeMap};

use chrono::{DateTime, Utc};
use pennon_filters::body::json::Object;
use pennon_filters::body::{fields, timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use super::status::{FlagUsage, Reason};
use super::{Flag, UserRef};
use crate::calls::{CallTimes, CalledFlag};
use crate::conditions::{filter_view as view, filters};
use crate::relations::references;

/// What a caller may do with a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLevel {
    /// Everything: the creator, and administrators of the organization.
    Manager,
    /// Edit it.
    Editor,
    /// View it.
    Viewer,
}

/// The caller for whom a flag is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewer {
    /// Whether the caller may edit the flag.
    pub can_edit: bool,
    /// The access level of the caller.
    pub level: AccessLevel,
}

/// The fields before `can_edit`.
#[derive(Serialize)]
struct FieldsBeforeCanEdit<'a> {
    id: i64,
    name: &'a str,
    key: &'a str,
    filters: Cow<'a, Object>,
    deleted: bool,
    active: bool,
    created_by: &'a Option<UserRef>,
    #[serde(with = "timestamp")]
    created_at: DateTime<Utc>,
    #[serde(with = "timestamp")]
    updated_at: DateTime<Utc>,
    version: i64,
    last_modified_by: &'a Option<UserRef>,
    is_simple_flag: bool,
    rollout_percentage: Value,
    ensure_experience_continuity: Option<bool>,
    /// This product has no records of experiments, surveys and early access features: always empty lists.
    experiment_set: [i64; 0],
    surveys: [Value; 0],
    features: [Value; 0],
    rollback_conditions: &'a Value,
    performed_rollback: Option<bool>,
}

/// The fields between `can_edit` and `user_access_level`.
#[derive(Serialize)]
struct FieldsBeforeAccessLevel<'a> {
    tags: &'a [String],
    /// Two names for a field that is never written.
    evaluation_tags: [String; 0],
    evaluation_contexts: [String; 0],
    usage_dashboard: Option<i64>,
    analytics_dashboards: &'a [i64],
    has_enriched_analytics: Option<bool>,
}

/// The fields between `user_access_level` and `status`.
#[derive(Serialize)]
struct FieldsBeforeStatus<'a> {
    creation_context: Option<&'a str>,
    is_remote_configuration: Option<bool>,
    has_encrypted_payloads: Option<bool>,
}

/// The fields between `status` and `last_called_at`.
#[derive(Serialize)]
struct FieldsBeforeLastCalled<'a> {
    evaluation_runtime: Option<&'a str>,
    bucketing_identifier: Option<&'a str>,
}

/// A flag rendered except for the fields that depend on the caller and on the time, which are inserted between its
/// parts. It is valid for one version of the flag and one set of cohort names.
#[derive(Debug, Clone)]
pub struct FlagTemplate {
    before_can_edit: String,
    before_access_level: String,
    before_status: String,
    before_last_called: String,
    id: i64,
    key: String,
    usage: FlagUsage,
    /// The cohorts that it refers to, and the names in the text.
    cohorts: Vec<(i64, Option<String>)>,
}

impl FlagTemplate {
    /// Renders `flag`. `cohort_names` has the live cohorts that it refers to.
    pub fn new(flag: &Flag, cohort_names: &BTreeMap<i64, String>) -> Self {
        let filters = flag.filters_with_cohort_names(cohort_names);
        let before_can_edit = FieldsBeforeCanEdit {
            id: flag.id,
            name: &flag.name,
            key: &flag.key,
            filters,
            deleted: flag.deleted,
            active: flag.active,
            created_by: &flag.created_by,
            created_at: flag.created_at,
            updated_at: flag.updated_at,
            version: flag.version,
            last_modified_by: &flag.last_modified_by,
            is_simple_flag: flag.is_simple(),
            rollout_percentage: flag.rollout_percentage(),
            ensure_experience_continuity: flag.ensure_experience_continuity,
            experiment_set: [],
            surveys: [],
            features: [],
            rollback_conditions: &flag.rollback_conditions,
            performed_rollback: flag.performed_rollback,
        };
        let before_access_level = FieldsBeforeAccessLevel {
            tags: &flag.tags,
            evaluation_tags: [],
            evaluation_contexts: [],
            usage_dashboard: flag.usage_dashboard,
            analytics_dashboards: &flag.analytics_dashboards,
            has_enriched_analytics: flag.has_enriched_analytics,
        };
        let before_status = FieldsBeforeStatus {
            creation_context: flag.creation_context.as_deref(),
            is_remote_configuration: flag.is_remote_configuration,
            has_encrypted_payloads: flag.has_encrypted_payloads,
        };
        let before_last_called = FieldsBeforeLastCalled {
            evaluation_runtime: flag.evaluation_runtime.as_deref(),
            bucketing_identifier: flag.bucketing_identifier.as_deref(),
        };
        let name = |id: i64| (id, cohort_names.get(&id).cloned());
        Self {
            before_can_edit: json_fields(&before_can_edit),
            before_access_level: json_fields(&before_access_level),
            before_status: json_fields(&before_status),
            before_last_called: json_fields(&before_last_called),
            id: flag.id,
            key: flag.key.clone(),
            usage: flag.usage(),
            cohorts: flag.cohort_ids().into_iter().map(name).collect(),
        }
    }

    /// Whether the text contains these cohort names.
    pub fn has_cohort_names(&self, cohort_names: &BTreeMap<i64, String>) -> bool {
        self.cohorts.iter().all(|(id, name)| cohort_names.get(id) == name.as_ref())
    }

    /// The cohort names in it.
    pub fn cohort_names(&self) -> BTreeMap<i64, String> {
        self.cohorts.iter().filter_map(|(id, name)| Some((*id, name.clone()?))).collect()
    }

    /// Whether it refers to cohorts.
    pub fn names_cohorts(&self) -> bool {
        !self.cohorts.is_empty()
    }

    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.before_can_edit.len()
            + self.before_access_level.len()
            + self.before_status.len()
            + self.before_last_called.len()
            + self.key.len()
            + 200
    }

    /// Renders the record for `viewer` at an instant, given the known calls.
    pub fn render(&self, viewer: Viewer, now: DateTime<Utc>, calls: &CallTimes) -> String {
        let FlagUsage { deleted, last_called_at: recorded, .. } = self.usage;
        let last_called_at =
            calls.last_called_at(CalledFlag { id: self.id, key: &self.key, deleted, recorded });
        let usage = FlagUsage { last_called_at, ..self.usage };
        let last_called_at = json!(last_called_at.map(timestamp::format)).to_string();
        let level = match viewer.level {
            AccessLevel::Manager => "manager",
            AccessLevel::Editor => "editor",
            AccessLevel::Viewer => "viewer",
        };
        let can_edit = if viewer.can_edit { "true" } else { "false" };
        let pieces = [
            "{",
            &self.before_can_edit,
            ",\"can_edit\":",
            can_edit,
            ",",
            &self.before_access_level,
            ",\"user_access_level\":\"",
            level,
            "\",",
            &self.before_status,
            ",\"status\":\"",
            Reason::of(usage, now).status().record_value(),
            "\",",
            &self.before_last_called,
            ",\"last_called_at\":",
            &last_called_at,
            "}",
        ];
        pieces.concat()
    }
}

/// The fields of an object as JSON text, without the braces.
fn json_fields(part: &impl Serialize) -> String {
    // Every part is JSON already, so this cannot fail.
    let mut text = serde_json::to_string(part).unwrap_or_default();
    text.pop();
    if !text.is_empty() {
        text.remove(0);
    }
    text
}

impl Flag {
    /// The full record for `viewer`. `cohort_names` has the live cohorts that the flag refers to.
    pub fn response(
        &self,
        viewer: Viewer,
        cohort_names: &BTreeMap<i64, String>,
        now: DateTime<Utc>,
    ) -> Value {
        let text = FlagTemplate::new(self, cohort_names).render(viewer, now, &CallTimes::none());
        // It is valid JSON by construction.
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The filters for responses: the default when none were ever sent, and with names in properties of type `cohort`
    /// (null for a deleted cohort).
    pub fn filters_with_cohort_names(&self, cohort_names: &BTreeMap<i64, String>) -> Cow<'_, Object> {
        if self.filters.is_empty() {
            return Cow::Owned(filters::default_filters());
        }
        if !self.names_cohorts() {
            return Cow::Borrowed(&self.filters);
        }
        let mut with_names = self.filters.clone();
        filters::for_each_property_mut(&mut with_names, |property| {
            if property.get("type").is_some_and(|kind| kind == "cohort") {
                let name =
                    property.get("value").and_then(fields::as_integer).and_then(|id| cohort_names.get(&id));
                property.insert(filters::COHORT_NAME.to_owned(), name.cloned().into());
            }
        });
        Cow::Owned(with_names)
    }

    /// Whether a property has the type `cohort`, to which responses add a name.
    fn names_cohorts(&self) -> bool {
        let mut properties = view::all_conditions(&self.filters).flat_map(view::properties);
        properties.any(|property| property.get("type").is_some_and(|kind| kind == "cohort"))
    }

    /// The ids of the cohorts whose names [`Flag::response`] needs.
    pub fn cohort_ids(&self) -> Vec<i64> {
        references::cohort_ids(&self.filters)
    }

    /// Whether a single percentage describes the flag: exactly one condition, without properties, on persons.
    pub fn is_simple(&self) -> bool {
        self.single_condition().is_some()
    }

    /// The percentage of a simple flag, an integral one as an integer; null for other flags and when none is set.
    pub fn rollout_percentage(&self) -> Value {
        let condition = self.single_condition();
        condition.map_or(Value::Null, |condition| integral(&condition["rollout_percentage"]))
    }

    fn single_condition(&self) -> Option<Value> {
        if self.filters.is_empty() {
            return view::groups(&filters::default_filters()).first().cloned();
        }
        let on_persons = self.filters.get("aggregation_group_type_index").is_none_or(Value::is_null);
        match view::groups(&self.filters) {
            [only] if on_persons && view::properties(only).is_empty() => Some(only.clone()),
            _ => None,
        }
    }
}

/// A number without the fraction `.0`; clients decode percentages into integers.
pub fn integral(value: &Value) -> Value {
    match fields::as_integer(value) {
        Some(integer) if value.is_number() => integer.into(),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests;
