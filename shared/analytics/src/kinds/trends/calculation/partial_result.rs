//! The partial result of a trend: one accumulator per series, period and breakdown value.
//!
//! Must stay true: partial results merge in any order to the same result. Groups and sessions occur in several partitions,
//! so their distinct counts are kept as sets until the end. Memory is bounded: a result over the limit drops its data and
//! sets `over_budget` instead of growing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ahash::RandomState;
use serde::{Deserialize, Serialize};

use super::accumulator::Accumulator;
use super::breakdown_values::BreakdownValue;
use crate::kinds::trends::limits;

/// Accumulators by series and period (see `CompiledTrend::period_series`) and breakdown value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PartialResult {
    pub(super) accumulators: HashMap<(usize, BreakdownValue), Accumulator, RandomState>,
    bytes: usize,
    /// The memory limit was exceeded and the data dropped.
    pub(super) over_budget: bool,
}

impl PartialResult {
    /// Merges an accumulator.
    pub(super) fn add(&mut self, period_series: usize, key: BreakdownValue, accumulator: Accumulator) {
        if self.over_budget {
            return;
        }
        let size_bytes = accumulator.size_bytes();
        match self.accumulators.entry((period_series, key)) {
            Entry::Vacant(entry) => {
                entry.insert(accumulator);
                self.bytes += size_bytes;
            }
            Entry::Occupied(mut entry) => {
                let before = entry.get().size_bytes();
                entry.get_mut().merge(accumulator);
                self.bytes = self.bytes + entry.get().size_bytes() - before;
            }
        }
        self.enforce_budget();
    }

    fn enforce_budget(&mut self) {
        if self.bytes > limits::TREND_MEMORY_BYTES {
            *self = Self { over_budget: true, ..Self::default() };
        }
    }

    /// Deduplicates the sets, so that exceeding the memory limit does not depend on how partial results were merged.
    pub(super) fn consolidate(&mut self) {
        let mut bytes = 0;
        for accumulator in self.accumulators.values_mut() {
            if let Accumulator::Distinct(set) = accumulator {
                set.dedup();
            }
            bytes += accumulator.size_bytes();
        }
        self.bytes = bytes;
        self.enforce_budget();
    }

    /// The largest number of breakdown values of any series in a period.
    pub(super) fn max_values(&self) -> usize {
        let mut values: HashMap<usize, usize> = HashMap::new();
        self.accumulators
            .keys()
            .for_each(|(period_series, _)| *values.entry(*period_series).or_default() += 1);
        values.into_values().max().unwrap_or(0)
    }

    /// Merges two partial results.
    pub(crate) fn merge(mut self, mut other: Self) -> Self {
        if self.accumulators.len() < other.accumulators.len() {
            std::mem::swap(&mut self, &mut other);
        }
        if self.over_budget || other.over_budget {
            return Self { over_budget: true, ..Self::default() };
        }
        for ((period_series, key), accumulator) in other.accumulators {
            self.add(period_series, key, accumulator);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::super::accumulator::{DistinctEntry, DistinctSet};
    use super::super::bucket_mapping::BucketSpan;
    use super::*;
    use crate::part_format::decoded;

    #[test]
    fn exceeding_the_memory_limit_drops_the_data() {
        let fits = u128::try_from((limits::TREND_MEMORY_BYTES - 96) / size_of::<DistinctEntry>()).unwrap();
        let mut sum = PartialResult::default();
        sum.add(0, BreakdownValue::NoBreakdown, distinct(0..fits));
        sum.consolidate();
        assert!(!sum.over_budget);
        sum.add(0, BreakdownValue::NoBreakdown, distinct(fits..fits + 1));
        sum.consolidate();
        assert!(sum.over_budget && sum.accumulators.is_empty());
        assert_eq!(decoded(&sum), sum);
        assert!(PartialResult::default().merge(decoded(&sum)).over_budget);
    }

    /// A set with duplicates that are not removed yet: removing them later takes what was counted before.
    #[test]
    fn decoded_sets_are_merged_as_before() {
        let mut sum = PartialResult::default();
        sum.add(0, BreakdownValue::NoBreakdown, distinct(0..100));
        sum.add(0, BreakdownValue::NoBreakdown, distinct(80..120));
        let mut again = decoded(&sum);
        assert_eq!(again, sum);
        for sum in [&mut sum, &mut again] {
            sum.add(0, BreakdownValue::NoBreakdown, distinct(90..101));
        }
        assert_eq!(again, sum);
        again.consolidate();
        assert_eq!(again.bytes, 96 + 120 * size_of::<DistinctEntry>());
    }

    fn distinct(ids: std::ops::Range<u128>) -> Accumulator {
        let one = |id| DistinctEntry { id, span: BucketSpan { from: 0, until: 1 }, number: None };
        Accumulator::Distinct(DistinctSet::new(ids.map(one).collect()))
    }

    #[test]
    fn entries_in_every_partial_result_are_stored_once() {
        let mut sum = PartialResult::default();
        for _ in 0..1_000 {
            sum.add(0, BreakdownValue::NoBreakdown, distinct(0..1_000));
            let Some(Accumulator::Distinct(set)) = sum.accumulators.values().next() else {
                panic!("no entries")
            };
            assert!(set.entries.len() <= 1_500, "{}", set.entries.len());
        }
        sum.consolidate();
        assert_eq!(sum.bytes, 96 + 1_000 * size_of::<DistinctEntry>());
    }
}
