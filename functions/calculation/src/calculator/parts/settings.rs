//! When a query is calculated in parts, and what that may cost.

use std::time::Duration;

/// Most parts of a query.
pub const PARTS_MAX: u32 = 256;

/// Bounds of calculations in parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartSettings {
    /// A query that reads more rows is split, into parts of at most about so many. 0: every query has as many parts as it may.
    pub rows_per_part: u64,
    /// Most parts of a query, at most [`PARTS_MAX`].
    pub parts_max: u32,
    /// Most invocations of a query that run at one time.
    pub at_once: usize,
    /// Most GB-seconds of all invocations of a query.
    pub gb_seconds_max: f64,
    /// Most GB-seconds of all invocations of a project's queries in a day (UTC). A query that begins after that is not split.
    pub gb_seconds_per_day: f64,
}

/// Rows that a part of 2 GB reads in about a second, once it was started.
const ROWS_PER_PART: u64 = 8_000_000;
/// Least time of an invocation.
const PART_SECONDS_MIN: f64 = 0.05;

impl Default for PartSettings {
    fn default() -> PartSettings {
        PartSettings {
            rows_per_part: ROWS_PER_PART,
            parts_max: PARTS_MAX,
            at_once: 64,
            gb_seconds_max: 2_000.0,
            gb_seconds_per_day: 50_000.0,
        }
    }
}

impl PartSettings {
    /// The number of parts of a query that reads so many rows; 1 for a query that is not split. A power of two, as the ranges of
    /// a segment, so that parts do not share a range: each would read and decode all of it.
    pub fn parts(&self, rows: u64) -> u32 {
        let parts = if self.rows_per_part == 0 { u64::MAX } else { rows.div_ceil(self.rows_per_part) };
        let parts = u32::try_from(parts).unwrap_or(u32::MAX).clamp(1, PARTS_MAX).next_power_of_two();
        parts.min(self.parts_max.clamp(1, PARTS_MAX))
    }

    /// The GB-seconds that a query of so many rows is expected to cost.
    pub fn expected_gb_seconds(&self, memory_gb: f64, rows: u64, count: u32) -> f64 {
        memory_gb * (rows as f64 / ROWS_PER_PART as f64).max(f64::from(count) * PART_SECONDS_MIN)
    }

    /// The time after which invocations of `memory_gb` that run all at once have used up what a query may cost.
    pub fn time_max(&self, memory_gb: f64, invocations: usize) -> Duration {
        let gb = memory_gb * invocations.clamp(1, self.at_once.max(1)) as f64;
        Duration::try_from_secs_f64(self.gb_seconds_max / gb).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_parts_follows_the_rows_up_to_the_limit() {
        let settings = PartSettings { rows_per_part: 10, parts_max: 7, ..PartSettings::default() };
        let parts = [0, 1, 10, 11, 70, 71, u64::MAX].map(|rows| settings.parts(rows));
        assert_eq!(parts, [1, 1, 1, 2, 7, 7, 7]);
        assert_eq!([20, 21, 40, 41].map(|rows| settings.parts(rows)), [2, 4, 4, 7]);
        let many = PartSettings { rows_per_part: 0, parts_max: u32::MAX, ..settings };
        assert_eq!(many.parts(0), PARTS_MAX);
        assert_eq!(PartSettings { parts_max: 0, ..settings }.parts(100), 1);
    }

    #[test]
    fn the_expected_cost_follows_rows_and_parts() {
        let expected = |rows, count| PartSettings::default().expected_gb_seconds(2.0, rows, count);
        assert_eq!((expected(80_000_000, 16), expected(0, 100)), (20.0, 10.0));
    }

    #[test]
    fn the_time_of_a_query_follows_its_cost() {
        let settings = PartSettings { gb_seconds_max: 60.0, at_once: 4, ..PartSettings::default() };
        assert_eq!(settings.time_max(2.0, 3), Duration::from_secs(10));
        assert_eq!(settings.time_max(2.0, 100), Duration::from_millis(7_500));
        assert_eq!(settings.time_max(0.0, 1), Duration::MAX);
    }
}
