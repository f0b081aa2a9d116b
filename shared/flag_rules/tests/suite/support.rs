//! Reads the cases of the corpus, and evaluates a flag of one condition for a person.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use pennon_flag_rules::Flag;
use pennon_flag_rules::evaluate::{Evaluator, Subject};
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
    let subject = Subject::person("person", properties.as_object().unwrap(), &static_cohorts, now);
    let evaluator = Evaluator::new([&flag], [], chrono_tz::Tz::UTC);
    evaluator.evaluate(1, &subject).unwrap().value.is_on()
}

/// The cases of a corpus file.
pub fn cases(file: &str) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/");
    let text = std::fs::read_to_string(format!("{folder}{file}")).unwrap();
    match serde_json::from_str(&text).unwrap() {
        Value::Array(list) => list,
        mut object => serde_json::from_value(object["cases"].take()).unwrap(),
    }
}

pub fn instant(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().with_timezone(&Utc)
}
