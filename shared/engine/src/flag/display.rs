//! A flag as an answer shows it.
//!
//! Must stay true: the fields come in the order of the contract's example; nothing shown here is stored back (names of
//! cohorts, computed fields); an integral percentage has no `.0`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::{
    Flag, UserRef, fields, filter_view as view, filters, json::Object, references, status::Reason, timestamp,
};

/// What a caller may do with a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLevel {
    /// Everything: its creator, and administrators of the organisation.
    Manager,
    /// Edit it.
    Editor,
    /// See it.
    Viewer,
}

/// The caller for whom a flag is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewer {
    /// Whether he may edit the flag.
    pub can_edit: bool,
    /// His right in one word.
    pub level: AccessLevel,
}

#[derive(Serialize)]
struct Shown<'a> {
    id: i64,
    name: &'a str,
    key: &'a str,
    filters: Object,
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
    /// Experiments, surveys and early access features are no records of this product: always empty lists.
    experiment_set: [i64; 0],
    surveys: [Value; 0],
    features: [Value; 0],
    rollback_conditions: &'a Value,
    performed_rollback: Option<bool>,
    can_edit: bool,
    tags: &'a [String],
    /// Two names of one thing that is never written.
    evaluation_tags: [String; 0],
    evaluation_contexts: [String; 0],
    usage_dashboard: Option<i64>,
    analytics_dashboards: &'a [i64],
    has_enriched_analytics: Option<bool>,
    user_access_level: AccessLevel,
    creation_context: Option<&'a str>,
    is_remote_configuration: Option<bool>,
    has_encrypted_payloads: Option<bool>,
    status: &'static str,
    evaluation_runtime: Option<&'a str>,
    bucketing_identifier: Option<&'a str>,
    #[serde(with = "timestamp::nullable")]
    last_called_at: Option<DateTime<Utc>>,
}

impl Flag {
    /// The full record as an answer shows it to `viewer`. `cohort_names` has the live cohorts that the flag names.
    pub fn response(
        &self,
        viewer: Viewer,
        cohort_names: &BTreeMap<i64, String>,
        now: DateTime<Utc>,
    ) -> Value {
        let shown = Shown {
            id: self.id,
            name: &self.name,
            key: &self.key,
            filters: self.shown_filters(cohort_names),
            deleted: self.deleted,
            active: self.active,
            created_by: &self.created_by,
            created_at: self.created_at,
            updated_at: self.updated_at,
            version: self.version,
            last_modified_by: &self.last_modified_by,
            is_simple_flag: self.is_simple(),
            rollout_percentage: self.rollout_percentage(),
            ensure_experience_continuity: self.ensure_experience_continuity,
            experiment_set: [],
            surveys: [],
            features: [],
            rollback_conditions: &self.rollback_conditions,
            performed_rollback: self.performed_rollback,
            can_edit: viewer.can_edit,
            tags: &self.tags,
            evaluation_tags: [],
            evaluation_contexts: [],
            usage_dashboard: self.usage_dashboard,
            analytics_dashboards: &self.analytics_dashboards,
            has_enriched_analytics: self.has_enriched_analytics,
            user_access_level: viewer.level,
            creation_context: self.creation_context.as_deref(),
            is_remote_configuration: self.is_remote_configuration,
            has_encrypted_payloads: self.has_encrypted_payloads,
            status: Reason::of(self.usage(), now).status().in_records(),
            evaluation_runtime: self.evaluation_runtime.as_deref(),
            bucketing_identifier: self.bucketing_identifier.as_deref(),
            last_called_at: self.last_called_at,
        };
        // Every part is JSON already, so this cannot fail; null would be the honest answer if it did.
        serde_json::to_value(shown).unwrap_or_default()
    }

    /// The filters as reads show them: the default when none were ever sent, and names at properties of type `cohort`
    /// (null for a cohort that is gone).
    pub fn shown_filters(&self, cohort_names: &BTreeMap<i64, String>) -> Object {
        if self.filters.is_empty() {
            return filters::default_shown();
        }
        let mut shown = self.filters.clone();
        filters::for_each_property_mut(&mut shown, |property| {
            if property.get("type").is_some_and(|kind| kind == "cohort") {
                let name =
                    property.get("value").and_then(fields::as_integer).and_then(|id| cohort_names.get(&id));
                property.insert(filters::COHORT_NAME.to_owned(), name.cloned().into());
            }
        });
        shown
    }

    /// The ids of the cohorts whose names [`Flag::response`] wants.
    pub fn cohort_ids(&self) -> Vec<i64> {
        references::cohort_ids(&self.filters)
    }

    /// Whether one percentage says it all: exactly one condition, without properties, on persons.
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
            return view::groups(&filters::default_shown()).first().cloned();
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
