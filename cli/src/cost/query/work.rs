//! What a part of a query reads and calculates, and how long that takes without spread.
//!
//! Must stay true: a part decodes every person range of a segment that has one of its persons, as the product does.

use super::attempts::PartTimes;
use crate::args::{FunctionState, QueryKind};
use crate::cost::large_query_units::{LargeQueryUnits, MeasuredQuery};

/// Memory with which a function has one processor.
const PROCESSOR_MB: f64 = 1769.0;

/// A query over many events.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LargeQuery {
    pub kind: QueryKind,
    /// Events of the dates of the query, of all names.
    pub events: f64,
    /// Memory of the functions in MB.
    pub memory_mb: f64,
    pub functions: FunctionState,
}

/// What a query needs of each segment; all segments have the same size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SegmentWork {
    pub segments: f64,
    /// Person ranges of a segment.
    pub ranges: u32,
    /// Column bytes of a segment.
    mb: f64,
    /// Time to decode and calculate a segment, or only to calculate it, on the processors of a function.
    compute_ms: f64,
    /// Requests for a range.
    gets: f64,
}

impl LargeQuery {
    /// Rows with the names of the events of the query.
    pub(super) fn rows(&self, units: &LargeQueryUnits) -> f64 {
        (self.events * self.measured(units).rows / units.measured.events).ceil()
    }

    /// The bytes of each of `parts` partial results.
    pub(super) fn result_mb(&self, units: &LargeQueryUnits, parts: u32) -> f64 {
        let measured = self.measured(units);
        measured.result_mb + measured.more_result_mb * self.events / units.measured.events / f64::from(parts)
    }

    /// Processors of a function, or the share of one.
    pub(super) fn processors(&self, units: &LargeQueryUnits) -> f64 {
        (self.memory_mb / PROCESSOR_MB).min(units.published.vcpus_max)
    }

    fn measured(&self, units: &LargeQueryUnits) -> MeasuredQuery {
        units.measured.of(self.kind)
    }

    /// What it needs of each segment.
    pub(super) fn segment_work(&self, units: &LargeQueryUnits) -> SegmentWork {
        let (whole, measured) = (&units.measured, self.measured(units));
        let segments = (self.events / whole.events).ceil().max(1.0);
        let share = self.events / segments / whole.events;
        let is_cached = self.functions == FunctionState::Cached;
        let beside = whole.start_cpu_ms + units.assumed.opening_cpu_ms;
        let cpu_ms = if is_cached { measured.cached_cpu_ms } else { measured.cpu_ms - beside };
        let full_ranges = ranges_of(whole.events, whole.range_rows);
        SegmentWork {
            segments,
            ranges: ranges_of(self.events / segments, whole.range_rows),
            mb: if is_cached { 0.0 } else { (measured.mb - whole.opened_mb) * share },
            compute_ms: cpu_ms * share / self.processors(units),
            gets: if is_cached { 0.0 } else { (measured.gets - whole.other_gets) / f64::from(full_ranges) },
        }
    }

    /// The time in which a function opens all segments.
    pub(super) fn opening_ms(&self, units: &LargeQueryUnits, segments: f64) -> f64 {
        let (published, product) = (&units.published, &units.product);
        // Checksums, and then the end of each segment.
        let rounds = 2.0 * (segments / product.opened_at_once).ceil();
        let connections = segments.min(product.opened_at_once);
        let reading = segments * units.measured.opened_mb / speed_mb_s(units, connections) * 1e3;
        let cpu = segments * units.assumed.opening_cpu_ms / self.processors(units);
        rounds * published.first_byte_ms + reading + cpu
    }
}

impl SegmentWork {
    /// The requests of a part that decodes so many ranges of each segment.
    pub(super) fn gets(&self, ranges: u32) -> f64 {
        self.segments * f64::from(ranges) * self.gets
    }

    /// The time in which a function reads, decodes and calculates so many ranges of each segment.
    pub(super) fn part_ms(&self, units: &LargeQueryUnits, ranges: u32) -> f64 {
        let share = f64::from(ranges) / f64::from(self.ranges);
        let compute = self.segments * share * self.compute_ms;
        if self.gets == 0.0 {
            return compute;
        }
        let ranges = self.segments * f64::from(ranges);
        let at_once = ranges.min(units.product.ranges_at_once);
        let speed = speed_mb_s(units, at_once * self.gets);
        let rounds = (ranges / units.product.ranges_at_once).ceil();
        let reading = rounds * units.published.first_byte_ms + self.segments * share * self.mb / speed * 1e3;
        // What is read first is waited for; the rest is read while it is decoded.
        let first = reading * at_once / ranges;
        first + compute.max(reading - first)
    }
}

/// The times of a part that decodes so many ranges of each segment and returns a result.
pub(super) fn part_times(
    query: &LargeQuery,
    units: &LargeQueryUnits,
    ranges: u32,
    result_mb: f64,
) -> PartTimes {
    let work = query.segment_work(units);
    let sent = work.segments * units.measured.entry_bytes / 1e6 + result_mb;
    let sending = sent * units.assumed.packed / units.published.function_mb_s * 1e3;
    let opened_ms = work.part_ms(units, ranges) + sending;
    PartTimes { opened_ms, first_ms: opened_ms + query.opening_ms(units, work.segments) }
}

/// Person ranges of a segment with so many rows: a power of two.
fn ranges_of(rows: f64, range_rows: f64) -> u32 {
    let mut ranges = 1;
    while f64::from(ranges) * range_rows < rows && ranges < 1 << 16 {
        ranges *= 2;
    }
    ranges
}

/// The ranges of a segment with persons of part `part` of `parts`.
pub(super) fn ranges_of_part(part: u32, parts: u32, ranges: u32) -> u32 {
    let (part, parts, ranges) = (u64::from(part), u64::from(parts.max(1)), u64::from(ranges));
    let touched = ((part + 1) * ranges).div_ceil(parts) - part * ranges / parts;
    u32::try_from(touched).unwrap_or(u32::MAX)
}

/// The speed of a function that reads over so many connections.
fn speed_mb_s(units: &LargeQueryUnits, connections: f64) -> f64 {
    (connections * units.published.connection_mb_s).min(units.published.function_mb_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_decodes_every_range_that_it_shares() {
        // Two parts of four ranges have two each; three parts share the two in the middle; eight have half of one each.
        let ranges =
            |parts, ranges| (0..parts).map(|part| ranges_of_part(part, parts, ranges)).collect::<Vec<_>>();
        assert_eq!(ranges(2, 4), [2, 2]);
        assert_eq!(ranges(3, 4), [2, 2, 2]);
        assert_eq!(ranges(8, 4), [1; 8]);
        assert_eq!(ranges(1, 32), [32]);
        // Each bound of a part within a range adds one: parts + ranges - their greatest common divisor.
        assert_eq!(ranges(20, 32).iter().sum::<u32>(), 20 + 32 - 4);
        assert_eq!(ranges(125, 32).iter().sum::<u32>(), 125 + 32 - 1);
    }

    #[test]
    fn ranges_are_a_power_of_two_of_half_a_million_rows() {
        let counts = [0.0, 1.0, 524_288.0, 524_289.0, 10e6, 12e6].map(|rows| ranges_of(rows, 524_288.0));
        assert_eq!(counts, [1, 1, 1, 2, 32, 32]);
    }
}
