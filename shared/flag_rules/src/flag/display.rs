//! Renders a flag as JSON for responses.
//!
//! Must stay true: the fields are in the order of [`FLAG_FIELDS`], that of the contract's example; cohort names and computed fields, which are
//! only added here, are never stored; an integral percentage has no `.0`.

use std::{borrow::Cow, collections::BTreeMap};

use chrono::{DateTime, Utc};
use pennon_filters::body::json::Object;
use pennon_filters::body::{fields, timestamp};
use serde::Serialize;
use serde_json::Value;

use super::Flag;
use super::field_table::{FLAG_FIELDS, RequestValue, ResponseValue};
use super::status::{FlagUsage, StatusReason};
use crate::calls::{CallTimes, CalledFlag};
use crate::conditions::record_ids;
use crate::conditions::{filter_view as view, filters};

/// What a caller may do with a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserAccessLevel {
    /// Everything: the creator, and administrators of the organization.
    Manager,
    /// Edit it.
    Editor,
    /// View it.
    Viewer,
}

impl UserAccessLevel {
    /// All names, the highest level first.
    pub const NAMES: [&str; 3] = [Self::Manager.name(), Self::Editor.name(), Self::Viewer.name()];

    /// The value of the field `user_access_level`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Editor => "editor",
            Self::Viewer => "viewer",
        }
    }
}

/// The caller for whom a flag is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagViewer {
    /// Whether the caller may edit the flag.
    pub can_edit: bool,
    /// The access level of the caller.
    pub level: UserAccessLevel,
}

/// A flag rendered except for the fields that depend on the caller and on the time, which are inserted between its
/// parts. It is valid for one version of the flag and one set of cohort names.
#[derive(Debug, Clone)]
pub struct FlagTemplate {
    /// The text before each inserted value.
    parts: Vec<(String, RequestValue)>,
    /// The text after the last one.
    end: String,
    id: i64,
    key: String,
    usage: FlagUsage,
    /// The cohorts that it refers to, and the names in the text.
    cohorts: Vec<(i64, Option<String>)>,
}

impl FlagTemplate {
    /// Renders `flag`. `cohort_names` has the live cohorts that it refers to.
    pub fn new(flag: &Flag, cohort_names: &BTreeMap<i64, String>) -> Self {
        let (mut parts, mut text) = (Vec::new(), Vec::new());
        let mut separator = "{\"";
        for field in &FLAG_FIELDS {
            if matches!(field.response, ResponseValue::Absent) {
                continue;
            }
            for name in [separator, field.name, "\":"] {
                text.extend_from_slice(name.as_bytes());
            }
            separator = ",\"";
            match field.response {
                ResponseValue::Absent => {}
                ResponseValue::Stored => push_json(&mut text, &(field.stored)(flag)),
                ResponseValue::Filters => push_json(&mut text, &flag.filters_with_cohort_names(cohort_names)),
                ResponseValue::Computed(compute) => push_json(&mut text, &compute(flag)),
                ResponseValue::PerRequest(value) => parts.push((take_text(&mut text), value)),
            }
        }
        text.push(b'}');
        let name = |id: i64| (id, cohort_names.get(&id).cloned());
        Self {
            parts,
            end: take_text(&mut text),
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
        let parts = self.parts.iter().map(|(text, _)| text.len()).sum::<usize>();
        parts + self.end.len() + self.key.len() + 200
    }

    /// Renders the record for `viewer` at an instant, given the known calls.
    pub fn render(&self, viewer: FlagViewer, now: DateTime<Utc>, calls: &CallTimes) -> String {
        let FlagUsage { deleted, last_called_at: recorded, .. } = self.usage;
        let last_called_at =
            calls.last_called_at(CalledFlag { id: self.id, key: &self.key, deleted, recorded });
        let usage = FlagUsage { last_called_at, ..self.usage };
        let mut text = String::with_capacity(self.bytes());
        for (before, value) in &self.parts {
            text.push_str(before);
            match value {
                RequestValue::CanEdit => text.push_str(if viewer.can_edit { "true" } else { "false" }),
                RequestValue::UserAccessLevel => text.extend(["\"", viewer.level.name(), "\""]),
                RequestValue::Status => {
                    text.extend(["\"", StatusReason::of(usage, now).status().record_value(), "\""]);
                }
                RequestValue::LastCalledAt => match last_called_at {
                    Some(at) => text.extend(["\"", &timestamp::format(at), "\""]),
                    None => text.push_str("null"),
                },
            }
        }
        text.push_str(&self.end);
        text
    }
}

/// Appends a value as JSON.
fn push_json(text: &mut Vec<u8>, value: &impl Serialize) {
    // Every value is JSON already, and writing to memory cannot fail.
    let _ = serde_json::to_writer(text, value);
}

fn take_text(text: &mut Vec<u8>) -> String {
    // JSON is written as UTF-8, so this cannot fail.
    String::from_utf8(std::mem::take(text)).unwrap_or_default()
}

impl Flag {
    /// The full record for `viewer`. `cohort_names` has the live cohorts that the flag refers to.
    pub fn response(
        &self,
        viewer: FlagViewer,
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
        record_ids::cohort_ids(&self.filters)
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
