//! The data of the estimate: prices, which a file can replace, and measured units per operation, which tests verify.

use serde::Deserialize;

use super::large_query_units::LargeQueryUnits;

/// The published prices.
const PRICES: &str = include_str!("prices.json");
/// The measured units, and assumptions for what cannot be measured.
const UNITS: &str = include_str!("units.json");

/// Prices in dollars.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The AWS region.
    pub region: String,
    /// The currency.
    pub currency: String,
    /// The month of the prices.
    pub as_of: String,
    /// The sources.
    pub published: Vec<String>,
    /// A million read units.
    pub dynamodb_read_million: f64,
    /// A million write units.
    pub dynamodb_write_million: f64,
    /// A GB in a table.
    pub dynamodb_gb_month: f64,
    /// A GB of a table with point-in-time recovery.
    pub dynamodb_recovery_gb_month: f64,
    /// A million requests to an HTTP API.
    pub http_api_million: f64,
    /// A million requests to a REST API.
    pub rest_api_million: f64,
    /// A million requests to CloudFront over HTTPS, from Europe or North America.
    pub cloudfront_request_million: f64,
    /// A million calls of a function of CloudFront; every request is one.
    pub cloudfront_function_million: f64,
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
    /// A million requests to a standard queue; 64 KB of messages are one.
    pub sqs_request_million: f64,
    /// A GB of log lines.
    pub logs_gb: f64,
    /// A metric that an alarm watches.
    pub alarm_metric: f64,
    /// Hours per month of servers.
    pub hours_a_month: f64,
    /// Other products, for comparison.
    pub peers: Vec<ComparedProduct>,
}

/// A product that runs on servers, in its smallest deployment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparedProduct {
    /// Its name.
    pub name: String,
    /// A description of the deployment.
    pub what: String,
    /// Its servers.
    pub machines: Vec<Server>,
    /// GB of disk without any events.
    pub disk_gb: f64,
    /// The price of a GB of disk.
    pub disk_gb_month: f64,
    /// Bytes of an event on disk.
    pub bytes_an_event: f64,
}

/// Servers of one type.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The type.
    pub name: String,
    /// The number of servers.
    pub count: u32,
    /// The price of one per hour.
    pub hour: f64,
}

/// The units of all operations.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Units {
    /// Assumptions that tests do not measure.
    pub assumed: CostAssumptions,
    /// A batch of one event.
    pub batch_1: OperationUnits,
    /// A batch of ten.
    pub batch_10: OperationUnits,
    /// A batch of a hundred.
    pub batch_100: OperationUnits,
    /// Compaction of a hundred batches of one event, sweeping included.
    pub compaction_1: OperationUnits,
    /// Compaction of a hundred batches of ten.
    pub compaction_10: OperationUnits,
    /// Compaction of a hundred batches of a hundred.
    pub compaction_100: OperationUnits,
    /// A batch that is sent to the capture buffer.
    pub buffered_batch: OperationUnits,
    /// A block of one event from the capture buffer.
    pub consumed_1: OperationUnits,
    /// A block of ten, from messages of one event.
    pub consumed_10: OperationUnits,
    /// A block of a hundred, from messages of one event.
    pub consumed_100: OperationUnits,
    /// A request for unchanged flag definitions.
    pub poll: OperationUnits,
    /// An evaluation of the flags of one person.
    pub evaluation: OperationUnits,
    /// A calculation of a trend by a process with cold caches.
    pub query: OperationUnits,
    /// A read of an insight with its stored result.
    pub view: OperationUnits,
    /// A change of a flag.
    pub change: OperationUnits,
    /// A minute with captured events: the row that wakes the worker, and an invocation that finds too few of them.
    pub wake: OperationUnits,
    /// A scheduled invocation of the worker without work.
    pub tick: OperationUnits,
    /// A query that reads many events.
    pub large_query: LargeQueryUnits,
}

/// The units of one operation. All but memory, CPU time and S3 waits are measured by a test.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationUnits {
    /// Memory of the function.
    pub memory_mb: u32,
    /// CPU time of one full vCPU, besides that per event; from docs/performance.md.
    pub cpu_ms: f64,
    /// Sequential round trips to DynamoDB.
    pub trips: f64,
    /// Sequential round trips to S3; assumed.
    pub object_trips: f64,
    /// DynamoDB read units.
    pub reads: f64,
    /// DynamoDB write units.
    pub writes: f64,
    /// S3 GET requests.
    pub gets: f64,
    /// S3 PUT and LIST requests.
    pub puts: f64,
    /// Requests to SQS, one after the other.
    #[serde(default)]
    pub queue_requests: f64,
}

/// Assumptions that tests do not measure; docs/cost.md has the source of each.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostAssumptions {
    /// The memory size at which a function has one vCPU.
    pub processor_mb: f64,
    /// Time of a round trip to DynamoDB.
    pub trip_ms: f64,
    /// Time of a round trip to S3.
    pub object_trip_ms: f64,
    /// Time of a request to SQS.
    pub queue_trip_ms: f64,
    /// CPU time of a captured event, and of one that the capture buffer delivers.
    pub event_cpu_ms: f64,
    /// CPU time of compaction per event.
    pub compacted_event_cpu_ms: f64,
    /// CPU time of a query per event that it reads.
    pub query_event_cpu_ms: f64,
    /// Scheduled invocations per month.
    pub ticks_a_month: f64,
    /// Minutes with captured events per month, at most.
    pub wakes_a_month: f64,
    /// Bytes of log lines per invocation.
    pub log_bytes: f64,
    /// Bytes of a stored event.
    pub stored_event_bytes: f64,
    /// Write amplification: how often an event is rewritten by merges of segments.
    pub rewritten: f64,
    /// GB in tables besides events.
    pub records_gb: f64,
    /// Requests to SQS with which Lambda receives and deletes a message: ten messages in each.
    pub queue_requests_a_delivery: f64,
    /// Requests per month with which Lambda finds the queue empty, at most.
    pub queue_polls_a_month: f64,
    /// The number of metrics with an alarm in the template.
    pub alarm_metrics: f64,
    /// Those of the capture buffer.
    pub buffer_alarm_metrics: f64,
}

impl Prices {
    /// The published prices.
    pub fn published() -> Result<Prices, String> {
        Prices::parse(PRICES)
    }

    /// Parses a price file.
    pub fn parse(text: &str) -> Result<Prices, String> {
        serde_json::from_str(text).map_err(|error| format!("the prices cannot be read: {error}"))
    }
}

impl Units {
    /// The measured units.
    pub fn measured() -> Result<Units, String> {
        serde_json::from_str(UNITS).map_err(|error| format!("the units cannot be read: {error}"))
    }

    /// The units of a batch of 1, 10 or 100 events.
    pub fn batch(&self, events: u32) -> &OperationUnits {
        match events {
            1 => &self.batch_1,
            10 => &self.batch_10,
            _ => &self.batch_100,
        }
    }

    /// The units of a block of 1, 10 or 100 events from the capture buffer.
    pub fn consumed(&self, events: u32) -> &OperationUnits {
        match events {
            1 => &self.consumed_1,
            10 => &self.consumed_10,
            _ => &self.consumed_100,
        }
    }

    /// The units of the compaction of a hundred such batches.
    pub fn compaction(&self, events: u32) -> &OperationUnits {
        match events {
            1 => &self.compaction_1,
            10 => &self.compaction_10,
            _ => &self.compaction_100,
        }
    }
}
