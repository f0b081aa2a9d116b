//! The sum: what a month of some use costs, from units that are measured and prices that are published.
//!
//! Must stay true: pure arithmetic; every quantity that is multiplied by a price is in [`Quantities`], where it can be
//! counted by hand.

use super::data::{Assumed, Operation, Peer, Prices, Units};

/// The use of a month.
#[derive(Debug, Clone, PartialEq)]
pub struct Use {
    /// Events that are captured.
    pub events: f64,
    /// How many of them come in one request.
    pub batch: u32,
    /// Requests of SDKs for unchanged flag definitions.
    pub polls: f64,
    /// Requests for the flags of one person, evaluated here and not by an SDK.
    pub evaluations: f64,
    /// Questions that are calculated.
    pub questions: f64,
    /// Saved insights that are shown with the result that is stored.
    pub views: f64,
    /// Changes of flags.
    pub changes: f64,
    /// For how many months events are kept.
    pub months: f64,
    /// How many events a question reads at most.
    pub question_events: f64,
    /// Whether the stack has its alarms.
    pub alarms: bool,
}

/// What is paid for, in the units of the price list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quantities {
    /// Requests to the gateway.
    pub gateway: f64,
    /// Invocations of functions.
    pub invocations: f64,
    /// Memory times time of functions.
    pub gb_seconds: f64,
    /// Read units of DynamoDB.
    pub reads: f64,
    /// Write units of DynamoDB.
    pub writes: f64,
    /// What DynamoDB keeps, in GB.
    pub table_gb: f64,
    /// What S3 keeps, in GB.
    pub object_gb: f64,
    /// Objects that are written or listed.
    pub puts: f64,
    /// Objects, or parts of them, that are read.
    pub gets: f64,
    /// Log lines, in GB.
    pub log_gb: f64,
    /// Metrics that alarms watch.
    pub alarm_metrics: f64,
}

/// A line of a bill.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What for.
    pub what: &'static str,
    /// How much of it.
    pub quantity: f64,
    /// In what.
    pub unit: &'static str,
    /// The price of all.
    pub dollars: f64,
}

const MILLION: f64 = 1e6;
const GB: f64 = 1e9;

impl Quantities {
    /// What `used` comes to.
    pub fn of(used: &Use, units: &Units) -> Quantities {
        let mut all = Quantities::default();
        let assumed = &units.assumed;
        let batches = used.events / f64::from(used.batch);
        let batch = units.batch(used.batch);
        all.add(batches, batch, f64::from(used.batch) * assumed.event_cpu_ms, assumed, true);
        all.add(used.polls, &units.poll, 0.0, assumed, true);
        all.add(used.evaluations, &units.evaluation, 0.0, assumed, true);
        let read = used.events.min(used.question_events);
        all.add(used.questions, &units.question, read * assumed.question_event_cpu_ms, assumed, true);
        all.add(used.views, &units.view, 0.0, assumed, true);
        all.add(used.changes, &units.change, 0.0, assumed, true);
        all.add(assumed.ticks_a_month, &units.tick, 0.0, assumed, false);
        // What compaction does for a hundred batches, less the tick that finds them.
        let compacted = units.compaction(used.batch);
        let cpu_ms = 100.0 * f64::from(used.batch) * assumed.compacted_event_cpu_ms;
        let with_them = Quantities::once(compacted, cpu_ms, assumed);
        all.add_times(batches / 100.0, &with_them);
        all.table_gb += assumed.records_gb;
        // What merges replaced is kept for another month, as old versions.
        let kept = used.months + assumed.rewritten;
        all.object_gb += used.events * kept * assumed.stored_event_bytes / GB;
        all.alarm_metrics = if used.alarms { assumed.alarm_metrics } else { 0.0 };
        all
    }

    fn once(of: &Operation, more_cpu_ms: f64, assumed: &Assumed) -> Quantities {
        Quantities {
            gb_seconds: seconds(of, more_cpu_ms, assumed) * f64::from(of.memory_mb) / 1024.0,
            reads: of.reads,
            writes: of.writes,
            puts: of.puts,
            gets: of.gets,
            ..Quantities::default()
        }
    }

    fn add_times(&mut self, times: f64, one: &Quantities) {
        self.gb_seconds += times * one.gb_seconds;
        self.reads += times * one.reads;
        self.writes += times * one.writes;
        self.puts += times * one.puts;
        self.gets += times * one.gets;
    }

    fn add(&mut self, times: f64, of: &Operation, more_cpu_ms: f64, assumed: &Assumed, is_request: bool) {
        self.add_times(times, &Quantities::once(of, more_cpu_ms, assumed));
        self.gateway += if is_request { times } else { 0.0 };
        self.invocations += times;
        self.log_gb += times * assumed.log_bytes / GB;
    }

    /// The bill, without lines of which there is nothing.
    pub fn bill(&self, prices: &Prices) -> Vec<Line> {
        let of = |what, quantity: f64, unit, dollars: f64| Line { what, quantity, unit, dollars };
        let lines = [
            of("API Gateway", self.gateway, "requests", self.gateway / MILLION * prices.gateway_million),
            of(
                "Lambda, calls",
                self.invocations,
                "calls",
                self.invocations / MILLION * prices.lambda_request_million,
            ),
            of("Lambda, time", self.gb_seconds, "GB-s", self.gb_seconds * prices.lambda_gb_second),
            of("DynamoDB, reads", self.reads, "units", self.reads / MILLION * prices.dynamodb_read_million),
            of(
                "DynamoDB, writes",
                self.writes,
                "units",
                self.writes / MILLION * prices.dynamodb_write_million,
            ),
            of(
                "DynamoDB, storage",
                self.table_gb,
                "GB",
                self.table_gb * (prices.dynamodb_gb_month + prices.dynamodb_recovery_gb_month),
            ),
            of("S3, storage", self.object_gb, "GB", self.object_gb * prices.s3_gb_month),
            of("S3, writes", self.puts, "calls", self.puts / 1000.0 * prices.s3_put_thousand),
            of("S3, reads", self.gets, "calls", self.gets / 1000.0 * prices.s3_get_thousand),
            of("CloudWatch, logs", self.log_gb, "GB", self.log_gb * prices.logs_gb),
            of("CloudWatch, alarms", self.alarm_metrics, "metrics", self.alarm_metrics * prices.alarm_metric),
        ];
        lines.into_iter().filter(|line| line.quantity > 0.0).collect()
    }
}

/// How long a function is billed for one call, in seconds: whole milliseconds. A processor is `processor_mb` of memory, and
/// less memory is a share of one; waiting takes as long with any.
fn seconds(of: &Operation, more_cpu_ms: f64, assumed: &Assumed) -> f64 {
    let share = (f64::from(of.memory_mb) / assumed.processor_mb).min(1.0);
    let waits = of.trips * assumed.trip_ms + of.object_trips * assumed.object_trip_ms;
    ((of.cpu_ms + more_cpu_ms) / share + waits).ceil() / 1000.0
}

/// What all lines come to.
pub fn total(bill: &[Line]) -> f64 {
    bill.iter().map(|line| line.dollars).sum()
}

impl Peer {
    /// What a month costs with these events kept: machines run whether they are asked or not.
    pub fn month(&self, used: &Use, prices: &Prices) -> f64 {
        let machines = self.machines.iter().map(|machine| f64::from(machine.count) * machine.hour);
        machines.sum::<f64>() * prices.hours_a_month + self.disk(used) * self.disk_gb_month
    }

    /// GB of its disks.
    pub fn disk(&self, used: &Use) -> f64 {
        self.disk_gb + used.events * used.months * self.bytes_an_event / GB
    }
}
