//! What wakes the function.

use serde_json::{Value, json};

/// Why the function was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The clock: time to compact.
    Schedule,
    /// Changes of the records table. They are taken note of; nothing follows from them yet.
    Stream {
        /// How many.
        records: usize,
    },
    /// Something that nobody has agreed upon.
    Unknown,
}

/// Tells events apart: a scheduled one comes from EventBridge, one of the table's stream is a list of its records.
pub fn trigger(event: &Value) -> Trigger {
    if let Some(records) = event.get("Records").and_then(Value::as_array) {
        let of_table =
            |record: &Value| record.get("eventSource").and_then(Value::as_str) == Some("aws:dynamodb");
        let all = records.iter().all(of_table);
        return if all { Trigger::Stream { records: records.len() } } else { Trigger::Unknown };
    }
    match event.get("source").and_then(Value::as_str) {
        Some("aws.events" | "aws.scheduler") => Trigger::Schedule,
        _ => Trigger::Unknown,
    }
}

impl Trigger {
    /// What the caller is told when the work is done: of a stream, that no record has to be sent again.
    pub fn answer(self) -> Value {
        match self {
            Trigger::Stream { .. } => json!({"batchItemFailures": []}),
            Trigger::Schedule | Trigger::Unknown => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_apart() {
        let scheduled = json!({
            "version": "0", "id": "1", "detail-type": "Scheduled Event", "source": "aws.events", "account": "1",
            "time": "2024-01-01T00:00:00Z", "region": "eu-west-1", "resources": [], "detail": {},
        });
        assert_eq!(trigger(&scheduled), Trigger::Schedule);
        let record =
            json!({"eventID": "1", "eventName": "INSERT", "eventSource": "aws:dynamodb", "dynamodb": {}});
        let stream = trigger(&json!({"Records": [record, record]}));
        assert_eq!(stream, Trigger::Stream { records: 2 });
        assert_eq!(stream.answer(), json!({"batchItemFailures": []}));
        for other in [json!(null), json!({}), json!([1]), json!({"Records": [{"eventSource": "aws:s3"}]})] {
            assert_eq!(trigger(&other), Trigger::Unknown);
            assert_eq!(Trigger::Unknown.answer(), Value::Null);
        }
    }
}
