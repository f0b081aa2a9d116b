//! Spans in OTLP's JSON encoding: ids in hexadecimal digits, 64-bit numbers as strings, kinds as numbers.
//!
//! Attribute names follow OpenTelemetry's semantic conventions for HTTP servers and databases.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::trace_context::{TraceContext, hex};
use crate::ids::random_bytes;

/// Span kinds.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// The status code of a failed span.
const ERROR: u8 = 2;

/// The span of a request, from its arrival to its response.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    pub context: TraceContext,
    /// Start and end.
    pub times: (SystemTime, SystemTime),
    pub method: String,
    /// The route; empty if none matched.
    pub route: String,
    pub status: u16,
    pub project: Option<u64>,
    pub key: String,
    pub request_id: String,
    pub calls: Vec<CallSpan>,
}

/// The span of a call to DynamoDB.
#[derive(Debug, Clone)]
pub struct CallSpan {
    /// Such as `GetItem`.
    pub operation: String,
    /// Start and end.
    pub times: (SystemTime, SystemTime),
    /// Whether it returned an error.
    pub has_failed: bool,
}

impl RequestSpan {
    /// The export request: this span and its child spans.
    pub fn export_request(&self, resource: &Value) -> Value {
        let span_id: [u8; 8] = random_bytes();
        let trace = hex(&self.context.trace);
        let mut spans = vec![self.to_json(&span_id)];
        spans.extend(self.calls.iter().map(|call| call.to_json(&trace, &span_id)));
        let scope = json!({"name": "pennon", "version": env!("CARGO_PKG_VERSION")});
        json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]})
    }

    fn to_json(&self, id: &[u8; 8]) -> Value {
        let name = format!("{} {}", self.method, self.route);
        let mut attributes = vec![text("http.request.method", &self.method)];
        attributes.push(json!({
            "key": "http.response.status_code", "value": {"intValue": self.status.to_string()},
        }));
        let texts =
            [("http.route", &self.route), ("pennon.key", &self.key), ("pennon.request_id", &self.request_id)];
        attributes.extend(
            texts.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| text(name, value)),
        );
        let project = |id: u64| json!({"key": "pennon.project", "value": {"intValue": id.to_string()}});
        attributes.extend(self.project.map(project));
        let status = if self.status >= 500 { json!({"code": ERROR}) } else { json!({}) };
        json!({
            "traceId": hex(&self.context.trace), "spanId": hex(id),
            "parentSpanId": self.context.parent_span.map_or(String::new(), |span| hex(&span)),
            "name": name.trim(), "kind": SERVER,
            "startTimeUnixNano": nanos(self.times.0), "endTimeUnixNano": nanos(self.times.1),
            "attributes": attributes, "status": status,
        })
    }
}

impl CallSpan {
    fn to_json(&self, trace: &str, parent: &[u8; 8]) -> Value {
        let id: [u8; 8] = random_bytes();
        let attributes = [text("db.system.name", "aws.dynamodb"), text("db.operation.name", &self.operation)];
        let status = if self.has_failed { json!({"code": ERROR}) } else { json!({}) };
        json!({
            "traceId": trace, "spanId": hex(&id), "parentSpanId": hex(parent),
            "name": format!("DynamoDB.{}", self.operation), "kind": CLIENT,
            "startTimeUnixNano": nanos(self.times.0), "endTimeUnixNano": nanos(self.times.1),
            "attributes": attributes, "status": status,
        })
    }
}

fn text(name: &str, value: &str) -> Value {
    json!({"key": name, "value": {"stringValue": value}})
}

fn nanos(at: SystemTime) -> String {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    /// The fields of `opentelemetry/proto/trace/v1/trace.proto`, in the JSON of the OTLP specification.
    #[test]
    fn calls_are_child_spans_of_their_request() {
        let at = |millis: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        let call = |operation: &str, has_failed| CallSpan {
            operation: operation.to_owned(),
            times: (at(2), at(3)),
            has_failed,
        };
        let span = RequestSpan {
            context: TraceContext { trace: [0xab; 16], parent_span: None, is_sampled: false },
            times: (at(1), at(4)),
            method: "GET".to_owned(),
            route: "/flags".to_owned(),
            status: 503,
            project: None,
            key: String::new(),
            request_id: "r".to_owned(),
            calls: vec![call("GetItem", false), call("Query", true)],
        };
        let sent = span.export_request(&json!({}));
        let spans = sent["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        let values = |field: &str| spans.iter().map(|span| span[field].clone()).collect::<Vec<_>>();
        assert_eq!(values("name"), ["GET /flags", "DynamoDB.GetItem", "DynamoDB.Query"]);
        assert_eq!(values("kind"), [2, 3, 3]);
        assert_eq!(values("traceId"), vec![json!("ab".repeat(16)); 3]);
        let own = spans[0]["spanId"].clone();
        assert_eq!(own.as_str().unwrap().len(), 16);
        assert_eq!(values("parentSpanId"), [json!(""), own.clone(), own]);
        assert_eq!(values("startTimeUnixNano"), ["1000000", "2000000", "2000000"]);
        assert_eq!(values("status"), [json!({"code": 2}), json!({}), json!({"code": 2})]);
    }
}
