//! The time and the price of one query in parts: the caller before, the simulated parts, the caller after.

use pennon_calculation::parts::{PartSettings, TASK_BYTES_MAX};

use super::attempts::{PartRules, SimulatedParts, simulate};
use super::work::{LargeQuery, SegmentWork, part_times, ranges_of_part};
use crate::args::FunctionState;
use crate::cost::estimate::Quantities;
use crate::cost::large_query_units::LargeQueryUnits;
use crate::cost::prices::Units;

/// Simulations of a query: enough for the 95th of a hundred.
const RUNS: u64 = 101;
/// Most bytes that DynamoDB returns at a time.
const PAGE_BYTES: f64 = 1e6;
/// Bytes of a read unit.
const READ_UNIT_BYTES: f64 = 4096.0;

/// The estimate of one query.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QueryEstimate {
    pub rows: f64,
    pub segments: f64,
    /// Person ranges that all parts decode, for each that there is.
    pub decoded: f64,
    pub parts: u32,
    /// Invocations of parts, the mean of all simulations.
    pub attempts: f64,
    /// Times at which as many parts as allowed run at one time, if each takes the same.
    pub waves: u32,
    /// The caller, until it invokes parts.
    pub before_ms: f64,
    /// The parts, in the median.
    pub parts_ms: f64,
    /// The least time in which a prefix of the bucket serves all requests of the parts.
    pub bucket_ms: f64,
    /// The caller, after the last result.
    pub after_ms: f64,
    /// All of these, in the median and in the 95th of a hundred.
    pub ms: f64,
    pub slow_ms: f64,
    pub quantities: Quantities,
    /// Limits that the query exceeds.
    pub exceeded: Vec<&'static str>,
}

/// What a query has beside its parts.
struct Caller {
    before_ms: f64,
    after_ms: f64,
    gets: f64,
}

impl QueryEstimate {
    /// Estimates a query that is split by these settings.
    pub(super) fn of(query: &LargeQuery, settings: &PartSettings, all: &Units) -> QueryEstimate {
        let units = &all.large_query;
        let work = query.segment_work(units);
        let rows = query.rows(units);
        // A number of rows is far below what a u64 holds, and not negative.
        let parts = settings.parts(rows as u64);
        let caller = Caller::of(query, units, &work, parts);
        let runs = simulated_parts(query, settings, units, &work, parts);
        let median = runs.get(runs.len() / 2).map_or(0.0, |run| run.ms);
        let slow = runs.get(runs.len() * 95 / 100).map_or(0.0, |run| run.ms);
        let beside = caller.before_ms + caller.after_ms;
        let mean =
            |of: fn(&SimulatedParts) -> f64| runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64;
        let ranges = (0..parts).map(|part| f64::from(ranges_of_part(part, parts, work.ranges))).sum::<f64>();
        let openings = if parts > 1 { mean(|run| f64::from(run.openings)) } else { 0.0 };
        let part_gets =
            openings * work.segments * units.measured.opened_gets + part_gets(&runs, &work, parts);
        let mut estimate = QueryEstimate {
            rows,
            segments: work.segments,
            decoded: ranges / f64::from(work.ranges),
            parts,
            attempts: if parts > 1 { mean(|run| f64::from(run.attempts)) } else { 0.0 },
            waves: parts.div_ceil(u32::try_from(settings.at_once.max(1)).unwrap_or(u32::MAX)),
            before_ms: caller.before_ms,
            parts_ms: median,
            bucket_ms: part_gets / units.published.gets_a_second * 1e3,
            after_ms: caller.after_ms,
            ms: beside + median,
            slow_ms: beside + slow,
            quantities: Quantities::default(),
            exceeded: Vec::new(),
        };
        let billed_ms = if parts > 1 { mean(|run| run.billed_ms) } else { 0.0 };
        estimate.quantities = estimate.quantities_of(query, all, billed_ms, caller.gets + part_gets);
        estimate.exceeded = estimate.exceeded_limits(query, settings, units, billed_ms);
        estimate
    }

    fn quantities_of(&self, query: &LargeQuery, all: &Units, billed_ms: f64, gets: f64) -> Quantities {
        let units = &all.large_query;
        let gb = query.memory_mb / 1024.0;
        let environment =
            if query.functions == FunctionState::Cold { units.assumed.environment_ms } else { 0.0 };
        let invocations = 1.0 + self.attempts;
        let beats = billed_ms / units.product.beat_ms + self.attempts;
        // With the first and the last state of the lease.
        let lease_writes = if self.parts > 1 { 2.0 + self.ms / units.product.beat_ms } else { 0.0 };
        Quantities {
            http_api: 1.0,
            invocations,
            gb_seconds: (self.ms - environment + billed_ms) / 1e3 * gb,
            reads: all.query.reads + self.segments * units.measured.entry_bytes / READ_UNIT_BYTES + beats,
            writes: all.query.writes + lease_writes,
            gets,
            log_gb: invocations * all.assumed.log_bytes / 1e9,
            ..Quantities::default()
        }
    }

    fn exceeded_limits(
        &self,
        query: &LargeQuery,
        settings: &PartSettings,
        units: &LargeQueryUnits,
        billed_ms: f64,
    ) -> Vec<&'static str> {
        let payload_mb = TASK_BYTES_MAX as f64 / 1e6;
        let task_mb = self.segments * units.measured.entry_bytes / 1e6;
        let fits = units.product.rows_that_fit * query.processors(units);
        let gb_seconds = billed_ms / 1e3 * query.memory_mb / 1024.0;
        let is_split = self.parts > 1;
        let limits = [
            (self.ms > units.product.response_ms, "25 s of a request"),
            (self.rows / f64::from(self.parts) > fits, "memory of a part"),
            (is_split && task_mb > payload_mb, "size of a task"),
            (is_split && query.result_mb(units, self.parts) > payload_mb, "size of a result"),
            (gb_seconds > settings.gb_seconds_max, "GB-seconds of a query"),
        ];
        limits.into_iter().filter(|(is_exceeded, _)| *is_exceeded).map(|(_, text)| text).collect()
    }
}

impl Caller {
    fn of(query: &LargeQuery, units: &LargeQueryUnits, work: &SegmentWork, parts: u32) -> Caller {
        let (measured, assumed) = (&units.measured, &units.assumed);
        let has_segments = query.functions != FunctionState::Cold && caches_segments(units, work);
        let start = match query.functions {
            FunctionState::Cold => assumed.environment_ms + units.published.init_ms,
            FunctionState::Warm | FunctionState::Cached => 0.0,
        };
        let manifest = (work.segments * measured.entry_bytes / PAGE_BYTES).floor() * assumed.trip_ms;
        let opening = if has_segments { 0.0 } else { query.opening_ms(units, work.segments) };
        let opened_gets = if has_segments { 0.0 } else { work.segments * measured.opened_gets };
        let before_ms = start + measured.beside_ms + manifest + opening;
        let gets = opened_gets + (measured.other_gets - measured.opened_gets);
        if parts < 2 {
            return Caller { before_ms, after_ms: 0.0, gets };
        }
        let parts_sent = f64::from(parts);
        let tasks_mb = parts_sent * work.segments * measured.entry_bytes / 1e6;
        let speed = 1.0 / assumed.pack_mb_s + assumed.packed / units.published.function_mb_s;
        let results_mb = parts_sent * query.result_mb(units, parts);
        Caller {
            // The lease, and all tasks.
            before_ms: before_ms + assumed.trip_ms + tasks_mb * speed * 1e3,
            after_ms: results_mb / assumed.merge_mb_s * 1e3,
            gets,
        }
    }
}

/// Whether a process that opened all segments has them for its next query.
fn caches_segments(units: &LargeQueryUnits, work: &SegmentWork) -> bool {
    work.segments <= units.product.files_cached
}

/// All simulations, by their time. A query that is not split is one part, which its caller calculates.
fn simulated_parts(
    query: &LargeQuery,
    settings: &PartSettings,
    units: &LargeQueryUnits,
    work: &SegmentWork,
    parts: u32,
) -> Vec<SimulatedParts> {
    if parts < 2 {
        let ms = work.part_ms(units, work.ranges);
        return vec![SimulatedParts { ms, attempts_of: vec![1], ..SimulatedParts::default() }];
    }
    let result_mb = query.result_mb(units, parts);
    let ranges = (0..parts).map(|part| ranges_of_part(part, parts, work.ranges));
    let times = ranges.map(|ranges| part_times(query, units, ranges, result_mb)).collect::<Vec<_>>();
    let rules = PartRules {
        units,
        at_once: settings.at_once.max(1),
        is_cold: query.functions == FunctionState::Cold,
        caches_segments: caches_segments(units, work),
    };
    let mut runs = (0..RUNS)
        .map(|seed| limited_by_bucket(simulate(&times, rules, seed), units, work))
        .collect::<Vec<_>>();
    runs.sort_by(|one, other| one.ms.total_cmp(&other.ms));
    runs
}

/// A simulation in which all attempts together read no faster than a prefix of the bucket allows.
fn limited_by_bucket(mut run: SimulatedParts, units: &LargeQueryUnits, work: &SegmentWork) -> SimulatedParts {
    let parts = u32::try_from(run.attempts_of.len()).unwrap_or(u32::MAX);
    let opened = f64::from(run.openings) * work.segments * units.measured.opened_gets;
    let gets = opened + part_gets(std::slice::from_ref(&run), work, parts);
    let least_ms = gets / units.published.gets_a_second * 1e3;
    if run.ms > 0.0 && least_ms > run.ms {
        run.billed_ms *= least_ms / run.ms;
        run.ms = least_ms;
    }
    run
}

/// The requests of all attempts for person ranges, the mean of some simulations.
fn part_gets(runs: &[SimulatedParts], work: &SegmentWork, parts: u32) -> f64 {
    let gets = |run: &SimulatedParts| {
        let attempts = (0..parts).zip(&run.attempts_of);
        attempts
            .map(|(part, times)| f64::from(*times) * work.gets(ranges_of_part(part, parts, work.ranges)))
            .sum::<f64>()
    };
    runs.iter().map(gets).sum::<f64>() / runs.len().max(1) as f64
}
