//! Collects the ids of the actions and cohorts that a record or setting references.
//!
//! Must stay true: collecting never fails, whatever the JSON shape; the result is a superset of what a calculation looks
//! up.

use serde_json::{Map, Value};

use crate::definitions::{Action, Cohort, DefinitionIds};
use crate::query::parse_integer;

/// Types of filters and criteria whose value is a cohort id.
pub const COHORT_TYPES: [&str; 4] = ["cohort", "static-cohort", "dynamic-cohort", "precalculated-cohort"];

impl Action {
    /// The ids that its steps reference.
    pub fn direct_references(&self) -> DefinitionIds {
        let mut referenced = DefinitionIds::default();
        self.steps.iter().for_each(|step| referenced.take(step));
        referenced
    }
}

impl Cohort {
    /// The ids that its rules reference; none for a static cohort.
    pub fn direct_references(&self) -> DefinitionIds {
        let mut referenced = DefinitionIds::default();
        if !self.is_static {
            referenced.take(&self.filters);
            referenced.take(&self.groups);
        }
        referenced
    }
}

impl DefinitionIds {
    /// Adds the ids that filters, steps or criteria reference, at any depth of `value`.
    pub fn take(&mut self, value: &Value) {
        match value {
            Value::Array(list) => list.iter().for_each(|item| self.take(item)),
            Value::Object(object) => {
                self.take_object(object);
                object.values().for_each(|member| self.take(member));
            }
            _ => {}
        }
    }

    /// Adds the ids of `other`.
    pub fn extend(&mut self, other: DefinitionIds) {
        self.actions.extend(other.actions);
        self.cohorts.extend(other.cohorts);
    }

    fn take_object(&mut self, object: &Map<String, Value>) {
        let is = |key: &str, texts: &[&str]| {
            object.get(key).and_then(Value::as_str).is_some_and(|text| texts.contains(&text))
        };
        if is("type", &COHORT_TYPES) {
            for key in ["value", "values"] {
                self.cohorts.extend(ids(object.get(key)));
            }
        }
        for (kind, key) in [("event_type", "key"), ("seq_event_type", "seq_event")] {
            if is(kind, &["actions"]) {
                self.actions.extend(ids(object.get(key)));
            }
        }
        self.actions.extend(ids(object.get("action_id")));
    }
}

/// The ids in a value: a number, a numeric string, or a list of these.
fn ids(value: Option<&Value>) -> Vec<u64> {
    let list = match value {
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    list.iter().filter_map(|id| u64::try_from(parse_integer(id)?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn actions_and_cohorts_are_found_in_every_form() {
        let cohort = Cohort {
            filters: json!({"properties": {"type": "OR", "values": [{"type": "AND", "values": [
                {"type": "cohort", "key": "id", "value": 5, "negation": true},
                {"type": "behavioral", "value": "performed_event", "key": 7, "event_type": "actions",
                 "event_filters": [{"type": "static-cohort", "value": "8"}]},
                {"type": "behavioral", "value": "performed_event_sequence", "key": "a", "event_type": "events",
                 "seq_event": "9", "seq_event_type": "actions"},
                {"type": "person", "key": "age", "value": 33},
            ]}]}}),
            groups: json!([{"action_id": 11, "days": 3}, {"properties": [{"type": "precalculated-cohort", "values": [6]}]}]),
            ..Cohort::default()
        };
        let found = cohort.direct_references();
        assert_eq!(found.cohorts, BTreeSet::from([5, 6, 8]));
        assert_eq!(found.actions, BTreeSet::from([7, 9, 11]));
        assert!(Cohort { is_static: true, ..cohort }.direct_references().is_empty());
        let steps = vec![
            json!({"event": "a", "properties": [{"type": "cohort", "key": "id", "value": [4, -1, "x"]}]}),
        ];
        let action = Action { name: "a".to_owned(), steps };
        assert_eq!(
            action.direct_references(),
            DefinitionIds { cohorts: BTreeSet::from([4]), ..DefinitionIds::default() }
        );
    }
}
