//! What the sum is made of: prices, which a file may replace, and units, which tests compare with what requests take.

use serde::Deserialize;

/// The published prices.
const PRICES: &str = include_str!("prices.json");
/// The measured units, and what is assumed where nothing could be measured.
const UNITS: &str = include_str!("units.json");

/// Prices in dollars.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Where.
    pub region: String,
    /// In what.
    pub currency: String,
    /// The month in which they were published so.
    pub as_of: String,
    /// Where they are published.
    pub published: Vec<String>,
    /// A million read units.
    pub dynamodb_read_million: f64,
    /// A million write units.
    pub dynamodb_write_million: f64,
    /// A GB in a table.
    pub dynamodb_gb_month: f64,
    /// A GB of a table that can be restored to any moment.
    pub dynamodb_recovery_gb_month: f64,
    /// A million requests to an HTTP API.
    pub gateway_million: f64,
    /// A million calls of a function.
    pub lambda_request_million: f64,
    /// A GB of a function's memory for a second, on arm64.
    pub lambda_gb_second: f64,
    /// A GB of objects.
    pub s3_gb_month: f64,
    /// A thousand writes and lists.
    pub s3_put_thousand: f64,
    /// A thousand reads.
    pub s3_get_thousand: f64,
    /// A GB of log lines.
    pub logs_gb: f64,
    /// A metric that an alarm watches.
    pub alarm_metric: f64,
    /// Hours of a month of machines.
    pub hours_a_month: f64,
    /// What else could be run.
    pub peers: Vec<Peer>,
}

/// A product that runs on machines, in the smallest set of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// What the set is.
    pub what: String,
    /// Its machines.
    pub machines: Vec<Machine>,
    /// GB of disk without any events.
    pub disk_gb: f64,
    /// A GB of disk.
    pub disk_gb_month: f64,
    /// What an event takes on disk.
    pub bytes_an_event: f64,
}

/// Some machines of one kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The kind.
    pub name: String,
    /// How many.
    pub count: u32,
    /// What one costs an hour.
    pub hour: f64,
}

/// What operations take.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Units {
    /// What was not measured by tests.
    pub assumed: Assumed,
    /// A batch of one event.
    pub batch_1: Operation,
    /// A batch of ten.
    pub batch_10: Operation,
    /// A batch of a hundred.
    pub batch_100: Operation,
    /// What compaction does for a hundred batches of one event, sweeping them included.
    pub compaction_1: Operation,
    /// Of ten.
    pub compaction_10: Operation,
    /// Of a hundred.
    pub compaction_100: Operation,
    /// Unchanged definitions are asked for.
    pub poll: Operation,
    /// The flags of one person.
    pub evaluation: Operation,
    /// A trend is calculated by a process that remembers nothing.
    pub question: Operation,
    /// An insight is shown with its stored result.
    pub view: Operation,
    /// A flag is changed.
    pub change: Operation,
    /// The clock calls the worker, and there is nothing to do.
    pub tick: Operation,
}

/// What one of an operation takes. All but memory and CPU time is measured by a test.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Memory of its function.
    pub memory_mb: u32,
    /// Time of a whole processor, whatever the number of events; from docs/performance.md.
    pub cpu_ms: f64,
    /// Waits for DynamoDB, one after the other.
    pub trips: f64,
    /// Waits for S3, one after the other; assumed.
    pub object_trips: f64,
    /// Read units.
    pub reads: f64,
    /// Write units.
    pub writes: f64,
    /// Objects that are read.
    pub gets: f64,
    /// Objects that are written, or lists of them.
    pub puts: f64,
}

/// What tests do not measure; docs/cost.md says where each comes from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumed {
    /// Memory that comes with one processor.
    pub processor_mb: f64,
    /// A wait for DynamoDB.
    pub trip_ms: f64,
    /// A wait for S3.
    pub object_trip_ms: f64,
    /// CPU time of a captured event.
    pub event_cpu_ms: f64,
    /// CPU time of an event that is compacted.
    pub compacted_event_cpu_ms: f64,
    /// CPU time of an event that a question reads.
    pub question_event_cpu_ms: f64,
    /// How often the clock calls.
    pub ticks_a_month: f64,
    /// Log lines of a call.
    pub log_bytes: f64,
    /// An event at rest.
    pub stored_event_bytes: f64,
    /// How often an event is written again by merges of segments.
    pub rewritten: f64,
    /// What tables keep besides events.
    pub records_gb: f64,
    /// What the alarms of the template watch.
    pub alarm_metrics: f64,
}

impl Prices {
    /// The published ones.
    pub fn published() -> Result<Prices, String> {
        Prices::parse(PRICES)
    }

    /// Those of a file of the same form.
    pub fn parse(text: &str) -> Result<Prices, String> {
        serde_json::from_str(text).map_err(|error| format!("the prices cannot be read: {error}"))
    }
}

impl Units {
    /// The measured ones.
    pub fn measured() -> Result<Units, String> {
        serde_json::from_str(UNITS).map_err(|error| format!("the units cannot be read: {error}"))
    }

    /// A batch of 1, 10 or 100 events.
    pub fn batch(&self, events: u32) -> &Operation {
        match events {
            1 => &self.batch_1,
            10 => &self.batch_10,
            _ => &self.batch_100,
        }
    }

    /// The compaction of a hundred of these.
    pub fn compaction(&self, events: u32) -> &Operation {
        match events {
            1 => &self.compaction_1,
            10 => &self.compaction_10,
            _ => &self.compaction_100,
        }
    }
}
