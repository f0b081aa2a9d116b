//! Batches of queue messages, as Lambda delivers them, beside the requests of a gateway.
//!
//! Must stay true: an event of neither kind is an error of the function, so that Lambda delivers it again and then gives it to
//! the dead-letter queue.

use lambda_http::request::LambdaRequest;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A message of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct QueueMessage {
    /// The id by which a failed message is reported.
    #[serde(rename = "messageId")]
    pub id: String,
    /// The body.
    pub body: String,
    #[serde(rename = "eventSource")]
    source: String,
}

#[derive(Deserialize)]
struct QueueBatch {
    #[serde(rename = "Records")]
    records: Vec<QueueMessage>,
}

/// An event of a function that handles requests and messages.
pub(super) enum Invocation {
    /// A request of a gateway.
    Request(Box<LambdaRequest>),
    /// A batch of messages.
    Messages(Vec<QueueMessage>),
}

impl<'de> Deserialize<'de> for Invocation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Invocation, D::Error> {
        let event = Box::<RawValue>::deserialize(deserializer)?;
        // Requests first: they are most, and may be large.
        match serde_json::from_str::<LambdaRequest>(event.get()) {
            Ok(request) => Ok(Invocation::Request(Box::new(request))),
            Err(error) => {
                parse_batch(event.get()).map(Invocation::Messages).ok_or_else(|| D::Error::custom(error))
            }
        }
    }
}

/// The messages of an event; `None` if it is no batch of SQS.
fn parse_batch(event: &str) -> Option<Vec<QueueMessage>> {
    let batch: QueueBatch = serde_json::from_str(event).ok()?;
    batch.records.iter().all(|message| message.source == "aws:sqs").then_some(batch.records)
}

/// The response to a batch of a queue or of a stream: the ids of the messages, or sequence numbers of the records, that Lambda has
/// to deliver again.
pub fn batch_item_failures(ids: Vec<String>) -> Value {
    let failures: Vec<Value> = ids.into_iter().map(|id| json!({"itemIdentifier": id})).collect();
    json!({"batchItemFailures": failures})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A record as in Lambda's documentation.
    fn record(id: &str, body: &str, source: &str) -> Value {
        json!({
            "messageId": id, "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a", "body": body,
            "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1545082649183", "SenderId": "AIDAIENQZJOLO23YVJ4VO",
                "ApproximateFirstReceiveTimestamp": "1545082649185"},
            "messageAttributes": {}, "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3", "eventSource": source,
            "eventSourceARN": "arn:aws:sqs:us-east-2:123456789012:my-queue", "awsRegion": "us-east-2",
        })
    }

    #[test]
    fn messages_and_requests_are_distinguished() {
        let batch =
            json!({"Records": [record("1", "a", "aws:sqs"), record("2", "b", "aws:sqs")]}).to_string();
        let Ok(Invocation::Messages(messages)) = serde_json::from_str(&batch) else { panic!("no messages") };
        let messages = messages.iter().map(|it| (it.id.as_str(), it.body.as_str())).collect::<Vec<_>>();
        assert_eq!(messages, [("1", "a"), ("2", "b")]);
        let request = json!({
            "version": "2.0", "routeKey": "$default", "rawPath": "/e/", "rawQueryString": "", "headers": {}, "isBase64Encoded": false,
            "requestContext": {"accountId": "1", "apiId": "a", "stage": "$default", "time": "t", "timeEpoch": 0,
                "http": {"method": "POST", "path": "/e/", "protocol": "HTTP/1.1", "sourceIp": "1.2.3.4", "userAgent": "u"}},
        });
        assert!(matches!(serde_json::from_str(&request.to_string()), Ok(Invocation::Request(_))));
        for other in [
            json!({"hello": "world"}),
            json!({"Records": [record("1", "a", "aws:s3")]}),
            json!({"Records": [{}]}),
        ] {
            let Err(error) = serde_json::from_str::<Invocation>(&other.to_string()) else {
                panic!("{other}")
            };
            assert!(error.to_string().contains("doesn't match"), "{error}");
        }
    }

    #[test]
    fn failed_items_are_reported_by_their_ids() {
        assert_eq!(batch_item_failures(Vec::new()), json!({"batchItemFailures": []}));
        let two = batch_item_failures(vec!["1".to_owned(), "2".to_owned()]);
        assert_eq!(two, json!({"batchItemFailures": [{"itemIdentifier": "1"}, {"itemIdentifier": "2"}]}));
    }
}
