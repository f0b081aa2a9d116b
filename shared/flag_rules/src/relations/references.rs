//! The records that a flag refers to: the flags that it depends on, and cohorts.
//!
//! Must stay true: an id maps to `None` when it was looked up and does not exist (or is deleted, or belongs to another
//! project); an id without an entry was never looked up and is treated the same way.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cohort::FlagCohort;
use crate::conditions::filter_view as view;
use crate::conditions::record_ids::{cohort_id, is_cohort};

/// A live flag that another flag may depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagReference {
    /// Its key.
    pub key: String,
    /// Whether it is enabled.
    pub active: bool,
    /// The ids of the flags that it depends on directly.
    pub depends_on: Vec<i64>,
}

/// A live cohort that a flag may refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CohortReference {
    /// Its name.
    pub name: String,
    /// Whether it has a criterion on events (a behavioral cohort).
    pub has_event_criterion: bool,
    /// The ids of the cohorts that its criteria name.
    pub cohorts: Vec<i64>,
}

impl From<&FlagCohort> for CohortReference {
    /// A static cohort is a list of members: its filters are ignored.
    fn from(cohort: &FlagCohort) -> Self {
        let mut reference =
            Self { name: cohort.name.clone(), has_event_criterion: false, cohorts: Vec::new() };
        if !cohort.is_static {
            reference.walk(cohort.filters.get("properties").unwrap_or(&Value::Null));
        }
        reference
    }
}

impl CohortReference {
    /// Visits groups and criteria iteratively, so that deep nesting cannot overflow the stack.
    fn walk(&mut self, criteria: &Value) {
        let mut pending = vec![criteria];
        while let Some(criterion) = pending.pop() {
            self.has_event_criterion |= view::text(criterion, "type") == Some("behavioral");
            self.cohorts.extend(is_cohort(criterion).then(|| cohort_id(criterion)).flatten());
            let children = criterion.get("values").and_then(Value::as_array);
            pending.extend(children.into_iter().flatten().rev());
            if let Value::Array(items) = criterion {
                pending.extend(items.iter().rev());
            }
        }
    }
}

/// The records that a flag refers to, directly and transitively, as far as they were loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Flags by id; `None` for an id without a live flag in the project.
    pub flags: BTreeMap<i64, Option<FlagReference>>,
    /// Cohorts by id; `None` for an id without a live cohort in the project.
    pub cohorts: BTreeMap<i64, Option<CohortReference>>,
}

impl References {
    /// The live flag with this id.
    pub fn flag(&self, id: i64) -> Option<&FlagReference> {
        self.flags.get(&id)?.as_ref()
    }

    /// The live cohort with this id.
    pub fn cohort(&self, id: i64) -> Option<&CohortReference> {
        self.cohorts.get(&id)?.as_ref()
    }

    /// The names of the live cohorts, for rendering a flag.
    pub fn cohort_names(&self) -> BTreeMap<i64, String> {
        let live = self.cohorts.iter().filter_map(|(id, cohort)| Some((*id, cohort.as_ref()?)));
        live.map(|(id, cohort)| (id, cohort.name.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_cohort_is_read_at_any_depth() {
        let filters = json!({"properties": {"type": "OR", "values": [
            {"type": "AND", "values": [{"key": "id", "type": "cohort", "value": "4"}, {"type": "OR", "values": [
                {"key": "id", "type": "cohort", "value": 2},
                {"key": "$pageview", "type": "behavioral", "value": "performed_event"},
            ]}]},
            {"key": "email", "type": "person", "value": "x"},
        ]}});
        let read = |record: Value| CohortReference::from(&FlagCohort::read(&record).unwrap());
        let cohort = read(json!({"id": 1, "name": "c", "filters": filters}));
        assert!(cohort.has_event_criterion);
        assert_eq!(cohort.cohorts, [4, 2]);
        let members = read(json!({"id": 1, "name": "c", "is_static": true, "filters": filters}));
        assert!(!members.has_event_criterion && members.cohorts.is_empty());
        assert!(read(json!({"id": 1, "name": "c", "filters": null})).cohorts.is_empty());
        // The older form.
        let older = json!([{"properties": [{"key": "id", "type": "cohort", "value": 9}]}]);
        let older = read(json!({"id": 1, "name": "c", "groups": older}));
        assert!(!older.has_event_criterion);
        assert_eq!(older.cohorts, [9]);
        let older = read(json!({"id": 1, "name": "c", "groups": [{"event_id": "$pageview", "days": 7}]}));
        assert!(older.has_event_criterion);
    }
}
