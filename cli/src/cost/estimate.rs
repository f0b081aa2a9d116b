//! Calculates the monthly bill of a usage, from measured units and published prices.
//!
//! Must stay true: pure arithmetic; every quantity that is multiplied by a price is in [`Quantities`], so that it can be
//! verified by hand.

use super::prices::{ComparedProduct, CostAssumptions, OperationUnits, Prices, Units};

/// The usage of a month.
#[derive(Debug, Clone, PartialEq)]
pub struct MonthlyUsage {
    /// Captured events.
    pub events: f64,
    /// Events per capture request.
    pub batch: u32,
    /// Events per block of the capture buffer, if there is one.
    pub buffer: Option<u32>,
    /// Requests of SDKs for unchanged flag definitions.
    pub polls: f64,
    /// Evaluations of the flags of one person by the server.
    pub evaluations: f64,
    /// Calculated queries.
    pub queries: f64,
    /// Reads of saved insights with a stored result.
    pub views: f64,
    /// Changes of flags.
    pub changes: f64,
    /// The retention of events in months.
    pub months: f64,
    /// Most events that a query reads.
    pub query_events: f64,
    /// Whether the stack has its alarms.
    pub alarms: bool,
}

/// The billed quantities, in the units of the price list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quantities {
    /// Requests to the HTTP API.
    pub http_api: f64,
    /// Requests to the REST API.
    pub rest_api: f64,
    /// Invocations of functions.
    pub invocations: f64,
    /// Memory times duration of functions.
    pub gb_seconds: f64,
    /// Read units of DynamoDB.
    pub reads: f64,
    /// Write units of DynamoDB.
    pub writes: f64,
    /// DynamoDB storage in GB.
    pub table_gb: f64,
    /// S3 storage in GB.
    pub object_gb: f64,
    /// S3 PUT and LIST requests.
    pub puts: f64,
    /// S3 GET requests.
    pub gets: f64,
    /// Requests to SQS.
    pub queue_requests: f64,
    /// Log lines in GB.
    pub log_gb: f64,
    /// Metrics with an alarm.
    pub alarm_metrics: f64,
}

/// A line of a bill.
#[derive(Debug, Clone, PartialEq)]
pub struct BillLine {
    /// The item.
    pub what: &'static str,
    /// The quantity.
    pub quantity: f64,
    /// The unit of the quantity.
    pub unit: &'static str,
    /// The total price.
    pub dollars: f64,
}

/// What invokes a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// The HTTP API, which has the documented routes.
    HttpApi,
    /// The REST API, which has the routes to which SDKs send bodies.
    RestApi,
    /// The schedule, or the stream of a table.
    Background,
}

const MILLION: f64 = 1e6;
const GB: f64 = 1e9;

impl Quantities {
    /// Estimates the quantities of `usage`.
    pub fn estimate(usage: &MonthlyUsage, units: &Units) -> Quantities {
        let mut all = Quantities::default();
        let assumed = &units.assumed;
        let batches = usage.events / f64::from(usage.batch);
        let request = if usage.buffer.is_some() { &units.buffered_batch } else { units.batch(usage.batch) };
        all.add(batches, request, f64::from(usage.batch) * assumed.event_cpu_ms, assumed, Caller::RestApi);
        let block_events = usage.buffer.map_or(usage.batch, |events| events.max(usage.batch));
        let blocks = usage.events / f64::from(block_events);
        if usage.buffer.is_some() {
            let cpu_ms = f64::from(block_events) * assumed.event_cpu_ms;
            all.add(blocks, units.consumed(block_events), cpu_ms, assumed, Caller::Background);
            all.queue_requests += batches * assumed.queue_requests_a_delivery + assumed.queue_polls_a_month;
        }
        all.add(usage.polls, &units.poll, 0.0, assumed, Caller::HttpApi);
        all.add(usage.evaluations, &units.evaluation, 0.0, assumed, Caller::RestApi);
        let read = usage.events.min(usage.query_events);
        let query_ms = read * assumed.query_event_cpu_ms;
        all.add(usage.queries, &units.query, query_ms, assumed, Caller::HttpApi);
        all.add(usage.views, &units.view, 0.0, assumed, Caller::HttpApi);
        all.add(usage.changes, &units.change, 0.0, assumed, Caller::HttpApi);
        all.add(blocks.min(assumed.wakes_a_month), &units.wake, 0.0, assumed, Caller::Background);
        all.add(assumed.ticks_a_month, &units.tick, 0.0, assumed, Caller::Background);
        // The units are for a hundred blocks, without the scheduled invocation that finds them.
        let operation = units.compaction(block_events);
        let cpu_ms = 100.0 * f64::from(block_events) * assumed.compacted_event_cpu_ms;
        let compaction = Quantities::of_operation(operation, cpu_ms, assumed);
        all.add_scaled(blocks / 100.0, &compaction);
        all.table_gb += assumed.records_gb;
        // Segments that merges replaced are stored for another month, as old versions.
        let stored_months = usage.months + assumed.rewritten;
        all.object_gb += usage.events * stored_months * assumed.stored_event_bytes / GB;
        if usage.alarms {
            let of_buffer = if usage.buffer.is_some() { assumed.buffer_alarm_metrics } else { 0.0 };
            all.alarm_metrics = assumed.alarm_metrics + of_buffer;
        }
        all
    }

    fn of_operation(operation: &OperationUnits, more_cpu_ms: f64, assumed: &CostAssumptions) -> Quantities {
        Quantities {
            gb_seconds: billed_seconds(operation, more_cpu_ms, assumed) * f64::from(operation.memory_mb)
                / 1024.0,
            reads: operation.reads,
            writes: operation.writes,
            puts: operation.puts,
            gets: operation.gets,
            queue_requests: operation.queue_requests,
            ..Quantities::default()
        }
    }

    fn add_scaled(&mut self, times: f64, one: &Quantities) {
        self.gb_seconds += times * one.gb_seconds;
        self.reads += times * one.reads;
        self.writes += times * one.writes;
        self.puts += times * one.puts;
        self.gets += times * one.gets;
        self.queue_requests += times * one.queue_requests;
    }

    fn add(
        &mut self,
        times: f64,
        operation: &OperationUnits,
        more_cpu_ms: f64,
        assumed: &CostAssumptions,
        caller: Caller,
    ) {
        self.add_scaled(times, &Quantities::of_operation(operation, more_cpu_ms, assumed));
        match caller {
            Caller::HttpApi => self.http_api += times,
            Caller::RestApi => self.rest_api += times,
            Caller::Background => {}
        }
        self.invocations += times;
        self.log_gb += times * assumed.log_bytes / GB;
    }

    /// The bill, without lines of quantity 0.
    pub fn bill(&self, prices: &Prices) -> Vec<BillLine> {
        let line = |what, quantity: f64, unit, dollars: f64| BillLine { what, quantity, unit, dollars };
        let requests = self.http_api + self.rest_api;
        let cloudfront_million = prices.cloudfront_request_million + prices.cloudfront_function_million;
        let lines = [
            line("CloudFront, requests", requests, "requests", requests / MILLION * cloudfront_million),
            line("HTTP API", self.http_api, "requests", self.http_api / MILLION * prices.http_api_million),
            line("REST API", self.rest_api, "requests", self.rest_api / MILLION * prices.rest_api_million),
            line(
                "Lambda, calls",
                self.invocations,
                "calls",
                self.invocations / MILLION * prices.lambda_request_million,
            ),
            line("Lambda, time", self.gb_seconds, "GB-s", self.gb_seconds * prices.lambda_gb_second),
            line("DynamoDB, reads", self.reads, "units", self.reads / MILLION * prices.dynamodb_read_million),
            line(
                "DynamoDB, writes",
                self.writes,
                "units",
                self.writes / MILLION * prices.dynamodb_write_million,
            ),
            line(
                "DynamoDB, storage",
                self.table_gb,
                "GB",
                self.table_gb * (prices.dynamodb_gb_month + prices.dynamodb_recovery_gb_month),
            ),
            line("S3, storage", self.object_gb, "GB", self.object_gb * prices.s3_gb_month),
            line("S3, writes", self.puts, "calls", self.puts / 1000.0 * prices.s3_put_thousand),
            line("S3, reads", self.gets, "calls", self.gets / 1000.0 * prices.s3_get_thousand),
            line(
                "SQS",
                self.queue_requests,
                "requests",
                self.queue_requests / MILLION * prices.sqs_request_million,
            ),
            line("CloudWatch, logs", self.log_gb, "GB", self.log_gb * prices.logs_gb),
            line(
                "CloudWatch, alarms",
                self.alarm_metrics,
                "metrics",
                self.alarm_metrics * prices.alarm_metric,
            ),
        ];
        lines.into_iter().filter(|line| line.quantity > 0.0).collect()
    }
}

/// The billed duration of one invocation in seconds, rounded up to milliseconds. A function has one vCPU at `processor_mb` of
/// memory and a share of it below; the duration of waits does not depend on memory.
fn billed_seconds(operation: &OperationUnits, more_cpu_ms: f64, assumed: &CostAssumptions) -> f64 {
    let share = (f64::from(operation.memory_mb) / assumed.processor_mb).min(1.0);
    let waits = operation.trips * assumed.trip_ms
        + operation.object_trips * assumed.object_trip_ms
        + operation.queue_requests * assumed.queue_trip_ms;
    ((operation.cpu_ms + more_cpu_ms) / share + waits).ceil() / 1000.0
}

/// The total of all lines.
pub fn total(bill: &[BillLine]) -> f64 {
    bill.iter().map(|line| line.dollars).sum()
}

impl ComparedProduct {
    /// The monthly price with the events of `usage`. Servers cost the same with and without requests.
    pub fn month(&self, usage: &MonthlyUsage, prices: &Prices) -> f64 {
        let machines = self.machines.iter().map(|machine| f64::from(machine.count) * machine.hour);
        machines.sum::<f64>() * prices.hours_a_month + self.disk(usage) * self.disk_gb_month
    }

    /// The disk size in GB.
    pub fn disk(&self, usage: &MonthlyUsage) -> f64 {
        self.disk_gb + usage.events * usage.months * self.bytes_an_event / GB
    }
}
