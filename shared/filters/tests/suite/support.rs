//! Reads the cases of the corpus.

use chrono::{DateTime, Utc};
use serde_json::Value;

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
