//! The Lambda events that invoke the worker: EventBridge schedules and DynamoDB stream batches.

use pennon_core::store::Key;
use pennon_eventstore::CompactionTask;
use serde_json::Value;

/// The event of an invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// A schedule of EventBridge: compact and sweep.
    Schedule,
    /// A batch of the records table's stream.
    Stream(Vec<StreamRecord>),
    /// Any other event.
    Unknown,
}

/// A record of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRecord {
    /// The sequence number, by which a failed record is reported.
    pub sequence_number: String,
    /// The key of an inserted item; `None` for a changed or removed one.
    pub inserted: Option<Key>,
}

impl StreamRecord {
    /// The part of compaction that the inserted item wakes, if it does.
    pub fn compaction_task(&self) -> Option<CompactionTask> {
        CompactionTask::of_wake(self.inserted.as_ref()?)
    }
}

/// Parses an event: a schedule has a `source` of EventBridge, a stream batch has `Records`.
pub fn parse_trigger(event: &Value) -> Trigger {
    if let Some(records) = event.get("Records").and_then(Value::as_array) {
        // A record that cannot be parsed must not block the others.
        let parsed: Vec<StreamRecord> = records.iter().filter_map(parse_record).collect();
        return if parsed.is_empty() { Trigger::Unknown } else { Trigger::Stream(parsed) };
    }
    match event.get("source").and_then(Value::as_str) {
        Some("aws.events" | "aws.scheduler") => Trigger::Schedule,
        _ => Trigger::Unknown,
    }
}

fn parse_record(record: &Value) -> Option<StreamRecord> {
    if record["eventSource"] != "aws:dynamodb" {
        return None;
    }
    let change = &record["dynamodb"];
    let key = |name: &str| change["Keys"][name]["S"].as_str();
    let inserted = (record["eventName"] == "INSERT").then(|| Some(Key::new(key("pk")?, key("sk")?)));
    let sequence_number = change["SequenceNumber"].as_str()?.to_owned();
    Some(StreamRecord { sequence_number, inserted: inserted.flatten() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A stream record with keys only, as in DynamoDB's documentation.
    fn record_json(name: &str, pk: &str, number: &str) -> Value {
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
    fn schedules_and_stream_batches_are_recognized() {
        let scheduled = json!({
            "version": "0", "id": "1", "detail-type": "Scheduled Event", "source": "aws.events", "account": "1",
            "time": "2024-01-01T00:00:00Z", "region": "eu-west-1", "resources": [], "detail": {},
        });
        assert_eq!(parse_trigger(&scheduled), Trigger::Schedule);
        let stream = json!({"Records": [
            record_json("INSERT", "JOB#3", "13021600000000001596893679"), record_json("MODIFY", "JOB#3", "2"), record_json("REMOVE", "P", "3"),
        ]});
        let record = |number: &str, inserted| StreamRecord { sequence_number: number.to_owned(), inserted };
        let records = vec![
            record("13021600000000001596893679", Some(Key::new("JOB#3", "s"))),
            record("2", None),
            record("3", None),
        ];
        assert_eq!(parse_trigger(&stream), Trigger::Stream(records));
        let odd = json!({"Records": [{"eventSource": "aws:dynamodb", "eventName": "INSERT",
            "dynamodb": {"SequenceNumber": "4", "Keys": {"pk": {"N": "1"}}}}]});
        assert_eq!(parse_trigger(&odd), Trigger::Stream(vec![record("4", None)]));
        let mixed = json!({"Records": [null, record_json("INSERT", "JOB#3", "5")]});
        assert_eq!(parse_trigger(&mixed), Trigger::Stream(vec![record("5", Some(Key::new("JOB#3", "s")))]));
        let strange = [
            json!(null),
            json!({}),
            json!([1]),
            json!({"Records": [{"eventSource": "aws:s3"}]}),
            json!({"Records": [{"eventSource": "aws:dynamodb", "dynamodb": {}}]}),
        ];
        for other in strange {
            assert_eq!(parse_trigger(&other), Trigger::Unknown);
        }
    }
}
