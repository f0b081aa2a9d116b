//! Request metrics in CloudWatch's embedded metric format: a line of JSON on standard output, from which CloudWatch extracts
//! metrics.
//!
//! Source: "Specification: Embedded metric format" in the CloudWatch user guide. Must stay true: one dimension set, the
//! function, because each set and metric is charged for every month in which it is written.

use std::io::Write;

use chrono::Utc;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::http::REQUEST_TARGET;

/// The CloudWatch namespace.
const NAMESPACE: &str = "Pennon";
/// Fields of the request log line, the names of their metrics, and their units.
const METRICS: [(&str, &str, &str); 5] = [
    ("duration_ms", "Duration", "Milliseconds"),
    ("round_trips", "RoundTrips", "Count"),
    ("read_units", "ReadUnits", "Count"),
    ("write_units", "WriteUnits", "Count"),
    ("bytes_read", "BytesRead", "Bytes"),
];
/// 1 for a status of 500 and above, else 0.
const FAULTS: &str = "Faults";

/// A `tracing` layer that writes the metrics of each request log line.
#[derive(Debug)]
pub(super) struct MetricsLayer {
    function: String,
}

impl MetricsLayer {
    /// A layer for the function with this name.
    pub fn new(function: String) -> MetricsLayer {
        MetricsLayer { function }
    }

    fn line(&self, fields: &Map<String, Value>, now_ms: i64) -> Value {
        let definitions = METRICS.iter().map(|(_, name, unit)| json!({"Name": name, "Unit": unit}));
        let definitions: Vec<Value> = definitions.chain([json!({"Name": FAULTS, "Unit": "Count"})]).collect();
        let directive = json!({"Namespace": NAMESPACE, "Dimensions": [["Function"]], "Metrics": definitions});
        let mut line = Map::new();
        line.insert("_aws".to_owned(), json!({"Timestamp": now_ms, "CloudWatchMetrics": [directive]}));
        line.insert("Function".to_owned(), json!(self.function));
        for (field, name, _) in METRICS {
            line.insert(name.to_owned(), fields.get(field).cloned().unwrap_or(json!(0)));
        }
        let is_fault = fields.get("status").and_then(Value::as_u64).is_some_and(|status| status >= 500);
        line.insert(FAULTS.to_owned(), json!(u8::from(is_fault)));
        // Not metrics, but useful when reading the line.
        for field in ["request_id", "route", "status"] {
            line.insert(field.to_owned(), fields.get(field).cloned().unwrap_or_default());
        }
        Value::Object(line)
    }
}

impl<S: Subscriber> Layer<S> for MetricsLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if event.metadata().target() != REQUEST_TARGET {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = self.line(&fields.0, Utc::now().timestamp_millis());
        // A closed standard output is not an error of the request.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field, json!(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, json!(value));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// By the specification, dimensions and metrics are members of the root, and metrics are numbers.
    #[test]
    fn a_line_has_the_embedded_metric_format() {
        let fields = json!({"duration_ms": 12.5, "round_trips": 2, "read_units": 1.5, "status": 503, "route": "/flags"});
        let line = MetricsLayer::new("flags".to_owned()).line(fields.as_object().unwrap(), 1_700_000_000_000);
        assert_eq!(line["_aws"]["Timestamp"], 1_700_000_000_000_i64);
        let directive = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(directive["Dimensions"], json!([["Function"]]));
        assert_eq!(line["Function"], "flags");
        let units = ["Milliseconds", "Count", "Bytes"];
        for metric in directive["Metrics"].as_array().unwrap() {
            assert!(line[metric["Name"].as_str().unwrap()].is_number(), "{metric}");
            assert!(units.contains(&metric["Unit"].as_str().unwrap()), "{metric}");
        }
        let values =
            ["Duration", "ReadUnits", "WriteUnits", "Faults"].map(|name| line[name].as_f64().unwrap());
        assert_eq!(values, [12.5, 1.5, 0.0, 1.0]);
        assert_eq!(line["route"], "/flags");
    }
}
