//! A flag of one condition, evaluated for a person.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use pennon_engine::flag::Flag;
use pennon_engine::flag::evaluate::{Evaluator, Subject};
use serde_json::{Value, json};

/// Whether a flag whose only condition has this property is on for a person with these properties, in UTC.
pub fn flag_matches(property: &Value, properties: &Value, now: DateTime<Utc>) -> bool {
    let flag: Flag = serde_json::from_value(json!({
        "id": 1, "key": "flag", "active": true, "version": 1,
        "created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z",
        "filters": {"groups": [{"properties": [property], "rollout_percentage": 100}]},
    }))
    .unwrap();
    let static_cohorts = BTreeSet::new();
    let subject = Subject::person("someone", properties.as_object().unwrap(), &static_cohorts, now);
    let evaluator = Evaluator::new([&flag], [], chrono_tz::Tz::UTC);
    evaluator.evaluate(1, &subject).unwrap().value.is_on()
}
