//! What wakes the function.

use pennon_core::store::Key;
use serde_json::{Value, json};

/// Why the function was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// The clock: time to compact.
    Schedule,
    /// Changes of the records table.
    Stream(Vec<Record>),
    /// Something that nobody has agreed upon.
    Unknown,
}

/// A record of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is called when it has to come again.
    pub number: String,
    /// Where the item lies that came; none where one was changed or removed.
    pub inserted: Option<Key>,
}

/// Tells events apart: a scheduled one comes from EventBridge, one of the table's stream is a list of its records.
pub fn trigger(event: &Value) -> Trigger {
    if let Some(records) = event.get("Records").and_then(Value::as_array) {
        // One that cannot be read does not keep the others from their turn.
        let known: Vec<Record> = records.iter().filter_map(record).collect();
        return if known.is_empty() { Trigger::Unknown } else { Trigger::Stream(known) };
    }
    match event.get("source").and_then(Value::as_str) {
        Some("aws.events" | "aws.scheduler") => Trigger::Schedule,
        _ => Trigger::Unknown,
    }
}

fn record(record: &Value) -> Option<Record> {
    if record["eventSource"] != "aws:dynamodb" {
        return None;
    }
    let told = &record["dynamodb"];
    let key = |name: &str| told["Keys"][name]["S"].as_str();
    let inserted = (record["eventName"] == "INSERT").then(|| Some(Key::new(key("pk")?, key("sk")?)));
    Some(Record { number: told["SequenceNumber"].as_str()?.to_owned(), inserted: inserted.flatten() })
}

/// What the caller of a stream is told: which records have to come again.
pub fn answer(again: Vec<String>) -> Value {
    let failures: Vec<Value> = again.into_iter().map(|number| json!({"itemIdentifier": number})).collect();
    json!({"batchItemFailures": failures})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record in the form that DynamoDB documents, keys only.
    fn told(name: &str, pk: &str, number: &str) -> Value {
        json!({
            "eventID": "c4ca4238a0b923820dcc509a6f75849b", "eventName": name, "eventVersion": "1.1",
            "eventSource": "aws:dynamodb", "awsRegion": "eu-west-1",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_479_499_740, "Keys": {"pk": {"S": pk}, "sk": {"S": "s"}},
                "SequenceNumber": number, "SizeBytes": 59, "StreamViewType": "KEYS_ONLY",
            },
            "eventSourceARN": "arn:aws:dynamodb:eu-west-1:123456789012:table/T/stream/2016-11-16T20:42:48.104",
        })
    }

    #[test]
    fn events_are_told_apart() {
        let scheduled = json!({
            "version": "0", "id": "1", "detail-type": "Scheduled Event", "source": "aws.events", "account": "1",
            "time": "2024-01-01T00:00:00Z", "region": "eu-west-1", "resources": [], "detail": {},
        });
        assert_eq!(trigger(&scheduled), Trigger::Schedule);
        let stream = json!({"Records": [
            told("INSERT", "JOB#3", "13021600000000001596893679"), told("MODIFY", "JOB#3", "2"), told("REMOVE", "P", "3"),
        ]});
        let number = |number: &str, inserted| Record { number: number.to_owned(), inserted };
        let records = vec![
            number("13021600000000001596893679", Some(Key::new("JOB#3", "s"))),
            number("2", None),
            number("3", None),
        ];
        assert_eq!(trigger(&stream), Trigger::Stream(records));
        let odd = json!({"Records": [{"eventSource": "aws:dynamodb", "eventName": "INSERT",
            "dynamodb": {"SequenceNumber": "4", "Keys": {"pk": {"N": "1"}}}}]});
        assert_eq!(trigger(&odd), Trigger::Stream(vec![number("4", None)]));
        let mixed = json!({"Records": [null, told("INSERT", "JOB#3", "5")]});
        assert_eq!(trigger(&mixed), Trigger::Stream(vec![number("5", Some(Key::new("JOB#3", "s")))]));
        let strange = [
            json!(null),
            json!({}),
            json!([1]),
            json!({"Records": [{"eventSource": "aws:s3"}]}),
            json!({"Records": [{"eventSource": "aws:dynamodb", "dynamodb": {}}]}),
        ];
        for other in strange {
            assert_eq!(trigger(&other), Trigger::Unknown);
        }
    }

    #[test]
    fn what_has_to_come_again_is_named_by_its_number() {
        assert_eq!(answer(Vec::new()), json!({"batchItemFailures": []}));
        let two = answer(vec!["1".to_owned(), "2".to_owned()]);
        assert_eq!(two, json!({"batchItemFailures": [{"itemIdentifier": "1"}, {"itemIdentifier": "2"}]}));
    }
}
