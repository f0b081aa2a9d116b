//! A flag as an answer shows it.
//!
//! Must stay true: the fields come in the order of the contract's example; nothing shown here is stored back (names of
//! cohorts, computed fields); an integral percentage has no `.0`.

use std::{borrow::Cow, collections::BTreeMap};

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Flag, UserRef,
    calls::{CallTimes, CalledFlag},
    fields, filter_view as view, filters,
    json::Object,
    references,
    status::{Reason, Usage},
    timestamp,
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

/// The fields before `can_edit`.
#[derive(Serialize)]
struct Head<'a> {
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
    /// Experiments, surveys and early access features are no records of this product: always empty lists.
    experiment_set: [i64; 0],
    surveys: [Value; 0],
    features: [Value; 0],
    rollback_conditions: &'a Value,
    performed_rollback: Option<bool>,
}

/// The fields between `can_edit` and `user_access_level`.
#[derive(Serialize)]
struct Middle<'a> {
    tags: &'a [String],
    /// Two names of one thing that is never written.
    evaluation_tags: [String; 0],
    evaluation_contexts: [String; 0],
    usage_dashboard: Option<i64>,
    analytics_dashboards: &'a [i64],
    has_enriched_analytics: Option<bool>,
}

/// The fields between `user_access_level` and `status`.
#[derive(Serialize)]
struct Late<'a> {
    creation_context: Option<&'a str>,
    is_remote_configuration: Option<bool>,
    has_encrypted_payloads: Option<bool>,
}

/// The fields between `status` and `last_called_at`.
#[derive(Serialize)]
struct Tail<'a> {
    evaluation_runtime: Option<&'a str>,
    bucketing_identifier: Option<&'a str>,
}

/// The text of a flag's record for every caller at any time: what depends on them is put between its pieces. Made once
/// for a version of the flag and the names of its cohorts.
#[derive(Debug, Clone)]
pub struct Prepared {
    head: String,
    middle: String,
    late: String,
    tail: String,
    id: i64,
    key: String,
    usage: Usage,
    /// The cohorts that it names, and the names that are in the text.
    cohorts: Vec<(i64, Option<String>)>,
}

impl Prepared {
    /// The text of `flag`. `cohort_names` has the live cohorts that it names.
    pub fn new(flag: &Flag, cohort_names: &BTreeMap<i64, String>) -> Self {
        let filters = flag.shown_filters(cohort_names);
        let head = Head {
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
        let middle = Middle {
            tags: &flag.tags,
            evaluation_tags: [],
            evaluation_contexts: [],
            usage_dashboard: flag.usage_dashboard,
            analytics_dashboards: &flag.analytics_dashboards,
            has_enriched_analytics: flag.has_enriched_analytics,
        };
        let late = Late {
            creation_context: flag.creation_context.as_deref(),
            is_remote_configuration: flag.is_remote_configuration,
            has_encrypted_payloads: flag.has_encrypted_payloads,
        };
        let tail = Tail {
            evaluation_runtime: flag.evaluation_runtime.as_deref(),
            bucketing_identifier: flag.bucketing_identifier.as_deref(),
        };
        let name = |id: i64| (id, cohort_names.get(&id).cloned());
        Self {
            head: fields_of(&head),
            middle: fields_of(&middle),
            late: fields_of(&late),
            tail: fields_of(&tail),
            id: flag.id,
            key: flag.key.clone(),
            usage: flag.usage(),
            cohorts: flag.cohort_ids().into_iter().map(name).collect(),
        }
    }

    /// Whether the text has these names.
    pub fn has_names(&self, cohort_names: &BTreeMap<i64, String>) -> bool {
        self.cohorts.iter().all(|(id, name)| cohort_names.get(id) == name.as_ref())
    }

    /// The names of the cohorts in it.
    pub fn cohort_names(&self) -> BTreeMap<i64, String> {
        self.cohorts.iter().filter_map(|(id, name)| Some((*id, name.clone()?))).collect()
    }

    /// Whether it names cohorts at all.
    pub fn names_cohorts(&self) -> bool {
        !self.cohorts.is_empty()
    }

    /// About how long a text is.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.middle.len() + self.late.len() + self.tail.len() + self.key.len() + 200
    }

    /// The record as `viewer` sees it at an instant, with the calls that are known then.
    pub fn text(&self, viewer: Viewer, now: DateTime<Utc>, calls: &CallTimes) -> String {
        let Usage { deleted, last_called_at: recorded, .. } = self.usage;
        let last_called_at =
            calls.last_called_at(CalledFlag { id: self.id, key: &self.key, deleted, recorded });
        let usage = Usage { last_called_at, ..self.usage };
        let last_called_at = json!(last_called_at.map(timestamp::format)).to_string();
        let level = match viewer.level {
            AccessLevel::Manager => "manager",
            AccessLevel::Editor => "editor",
            AccessLevel::Viewer => "viewer",
        };
        let can_edit = if viewer.can_edit { "true" } else { "false" };
        let pieces = [
            "{",
            &self.head,
            ",\"can_edit\":",
            can_edit,
            ",",
            &self.middle,
            ",\"user_access_level\":\"",
            level,
            "\",",
            &self.late,
            ",\"status\":\"",
            Reason::of(usage, now).status().in_records(),
            "\",",
            &self.tail,
            ",\"last_called_at\":",
            &last_called_at,
            "}",
        ];
        pieces.concat()
    }
}

/// The fields of an object's text, without its braces.
fn fields_of(part: &impl Serialize) -> String {
    // Every part is JSON already, so this cannot fail.
    let mut text = serde_json::to_string(part).unwrap_or_default();
    text.pop();
    if !text.is_empty() {
        text.remove(0);
    }
    text
}

impl Flag {
    /// The full record as an answer shows it to `viewer`. `cohort_names` has the live cohorts that the flag names.
    pub fn response(
        &self,
        viewer: Viewer,
        cohort_names: &BTreeMap<i64, String>,
        now: DateTime<Utc>,
    ) -> Value {
        let text = Prepared::new(self, cohort_names).text(viewer, now, &CallTimes::none());
        // It is JSON, being made of JSON; null would be the honest answer if it were not.
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The filters as reads show them: the default when none were ever sent, and names at properties of type `cohort`
    /// (null for a cohort that is gone).
    pub fn shown_filters(&self, cohort_names: &BTreeMap<i64, String>) -> Cow<'_, Object> {
        if self.filters.is_empty() {
            return Cow::Owned(filters::default_shown());
        }
        if !self.names_cohorts() {
            return Cow::Borrowed(&self.filters);
        }
        let mut shown = self.filters.clone();
        filters::for_each_property_mut(&mut shown, |property| {
            if property.get("type").is_some_and(|kind| kind == "cohort") {
                let name =
                    property.get("value").and_then(fields::as_integer).and_then(|id| cohort_names.get(&id));
                property.insert(filters::COHORT_NAME.to_owned(), name.cloned().into());
            }
        });
        Cow::Owned(shown)
    }

    /// Whether a property has the type `cohort`, to which reads add a name.
    fn names_cohorts(&self) -> bool {
        let mut properties = view::all_conditions(&self.filters).flat_map(view::properties);
        properties.any(|property| property.get("type").is_some_and(|kind| kind == "cohort"))
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
