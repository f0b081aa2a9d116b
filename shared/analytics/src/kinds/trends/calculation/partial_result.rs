//! The partial result of a trend: one accumulator per series, period and breakdown value.
//!
//! Must stay true: partial results merge in any order to the same result. Groups and sessions occur in several partitions,
//! so their distinct counts are kept as sets until the end. Memory is bounded: a result over the limit drops its data and
//! sets `over_budget` instead of growing.

use std::collections::{BTreeMap, HashMap};

use pennon_filters::work_budget::WorkBudget;

use super::breakdown_values::BreakdownValue;
use super::bucket_mapping::BucketSpan;
use super::series_counter::SeriesCounter;
use super::statistics::StatisticState;
use super::text_counts::TextCounts;
use crate::kinds::trends::limits;
use crate::sql;

/// Accumulators by series and period (see `CompiledTrend::period_series`) and breakdown value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartialResult {
    pub(super) accumulators: HashMap<(usize, BreakdownValue), Accumulator>,
    /// Event counts of the fast path, by text; [`PartialResult::consolidate`] moves them to the accumulators.
    texts: BTreeMap<usize, TextCounts>,
    bytes: usize,
    /// The memory limit was exceeded and the data dropped.
    pub(super) over_budget: bool,
}

/// The aggregation state of one breakdown value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Accumulator {
    /// A count per bucket.
    Counts(Vec<u64>),
    /// State of a statistic by bucket.
    Statistics(HashMap<u32, StatisticState>),
    /// State of an aggregate expression by bucket.
    Aggregates(HashMap<u32, sql::AggregateState>),
    /// Distinct groups or sessions, and their buckets.
    Distinct(DistinctSet),
}

/// A set of distinct groups or sessions with their buckets. Duplicates are removed only when it has grown by half.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DistinctSet {
    entries: Vec<DistinctEntry>,
    /// Number of distinct entries after the last deduplication.
    distinct_count: usize,
}

/// A group or session in some buckets, with the session's duration where that is aggregated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DistinctEntry {
    /// 128-bit hash of its key; collisions are practically impossible.
    pub(super) id: u128,
    pub(super) span: BucketSpan,
    pub(super) number: Option<f64>,
}

impl PartialResult {
    /// Merges an accumulator.
    pub(super) fn add(&mut self, period_series: usize, key: BreakdownValue, accumulator: Accumulator) {
        if self.over_budget {
            return;
        }
        let size_bytes = accumulator.size_bytes();
        match self.accumulators.entry((period_series, key)) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(accumulator);
                self.bytes += size_bytes;
            }
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                let before = entry.get().size_bytes();
                entry.get_mut().merge(accumulator);
                self.bytes = self.bytes + entry.get().size_bytes() - before;
            }
        }
        self.enforce_budget();
    }

    /// Merges event counts of the fast path.
    pub(super) fn add_texts(&mut self, period_series: usize, counts: TextCounts) {
        if self.over_budget {
            return;
        }
        let size_bytes = |counts: &TextCounts| counts.len() * counts_size_bytes(counts.width());
        match self.texts.entry(period_series) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                self.bytes += size_bytes(entry.insert(counts));
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let before = size_bytes(entry.get());
                entry.get_mut().merge(counts);
                self.bytes = self.bytes + size_bytes(entry.get()) - before;
            }
        }
        self.enforce_budget();
    }

    fn enforce_budget(&mut self) {
        if self.bytes > limits::TREND_MEMORY_BYTES {
            *self = Self { over_budget: true, ..Self::default() };
        }
    }

    /// Deduplicates the sets, so that exceeding the memory limit does not depend on how partial results were merged, and
    /// moves the fast path's counts to the accumulators.
    pub(super) fn consolidate(&mut self) {
        for (period_series, counts) in std::mem::take(&mut self.texts) {
            for (key, counts) in counts.into_values() {
                self.add(period_series, key, Accumulator::Counts(counts));
            }
        }
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
        for (period_series, counts) in other.texts {
            self.add_texts(period_series, counts);
        }
        self
    }
}

impl Accumulator {
    fn size_bytes(&self) -> usize {
        96 + match self {
            Self::Counts(counts) => return counts_size_bytes(counts.len()),
            Self::Statistics(buckets) => buckets.values().map(StatisticState::size_bytes).sum(),
            Self::Aggregates(buckets) => buckets.values().map(sql::AggregateState::weight).sum(),
            Self::Distinct(set) => size_of::<DistinctEntry>() * set.distinct_count,
        }
    }

    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Counts(counts), Self::Counts(more)) => {
                counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
            }
            (Self::Statistics(buckets), Self::Statistics(more)) => {
                for (bucket, numbers) in more {
                    match buckets.entry(bucket) {
                        std::collections::hash_map::Entry::Vacant(entry) => {
                            entry.insert(numbers);
                        }
                        std::collections::hash_map::Entry::Occupied(mut entry) => {
                            entry.get_mut().merge(numbers);
                        }
                    }
                }
            }
            (Self::Aggregates(buckets), Self::Aggregates(more)) => {
                more.into_iter().for_each(|(bucket, more)| buckets.entry(bucket).or_default().merge(more));
            }
            (Self::Distinct(set), Self::Distinct(more)) => set.merge(more),
            // Partial results of one plan use the same accumulators.
            _ => {}
        }
    }

    /// The final numbers by bucket. With `first`, an entry counts only in its first bucket.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(super) fn finish(
        self,
        width: usize,
        counter: &SeriesCounter,
        first: bool,
        work: &WorkBudget<'_>,
    ) -> Vec<f64> {
        let statistic = counter.statistic();
        let mut data = vec![0.0; width];
        let mut put = |bucket: u32, value: f64| {
            if let Some(place) = data.get_mut(bucket as usize) {
                *place = value;
            }
        };
        match (self, statistic) {
            (Self::Counts(counts), _) => {
                (0..).zip(counts).for_each(|(bucket, count)| put(bucket, count as f64));
            }
            (Self::Statistics(buckets), Some(statistic)) => {
                buckets.into_iter().for_each(|(bucket, numbers)| put(bucket, numbers.finish(statistic)));
            }
            (Self::Distinct(DistinctSet { entries, .. }), Some(statistic)) => {
                let mut buckets: HashMap<u32, StatisticState> = HashMap::new();
                for entry in entries {
                    if let Some(number) = entry.number {
                        let numbers = buckets.entry(entry.span.from);
                        numbers.or_insert_with(|| StatisticState::new(statistic)).push(number);
                    }
                }
                buckets.into_iter().for_each(|(bucket, numbers)| put(bucket, numbers.finish(statistic)));
            }
            (Self::Distinct(DistinctSet { entries, .. }), None) => {
                let mut counts = vec![0_u64; width];
                for duplicates in entries.chunk_by(|left, right| left.id == right.id) {
                    count_spans(duplicates.iter().map(|entry| entry.span), first, &mut counts);
                }
                (0..).zip(counts).for_each(|(bucket, count)| put(bucket, count as f64));
            }
            (Self::Aggregates(buckets), _) => {
                if let Some(aggregation) = &counter.aggregation {
                    buckets.iter().for_each(|(bucket, accumulator)| {
                        put(*bucket, aggregation.finish(accumulator, work))
                    });
                }
            }
            (Self::Statistics(_), None) => {}
        }
        data
    }
}

impl DistinctSet {
    pub(super) fn new(entries: Vec<DistinctEntry>) -> Self {
        let mut set = Self { entries, distinct_count: 0 };
        set.dedup();
        set
    }

    /// Sorts the entries and removes duplicates.
    fn dedup(&mut self) {
        self.entries.sort_by_key(|one| (one.id, one.span));
        self.entries.dedup_by_key(|one| (one.id, one.span));
        self.distinct_count = self.entries.len();
    }

    /// Merges another set, and deduplicates once the set has grown by half.
    fn merge(&mut self, other: Self) {
        self.entries.extend(other.entries);
        if self.entries.len() > self.distinct_count + self.distinct_count / 2 {
            self.dedup();
        }
    }
}

/// Bytes of an accumulator with a count per bucket.
fn counts_size_bytes(width: usize) -> usize {
    96 + 8 * width
}

/// Adds one to every bucket of the ascending spans, once per bucket; with `first` only to the first bucket.
pub(super) fn count_spans(mapping: impl Iterator<Item = BucketSpan>, first: bool, counts: &mut [u64]) {
    let mut done = 0;
    for span in mapping {
        if first {
            if let Some(count) = counts.get_mut(span.from as usize) {
                *count += 1;
            }
            return;
        }
        for bucket in span.from.max(done)..span.until {
            if let Some(count) = counts.get_mut(bucket as usize) {
                *count += 1;
            }
        }
        done = done.max(span.until);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

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
        assert!(PartialResult::default().merge(sum).over_budget);
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
            let Some(Accumulator::Distinct(set)) = sum.accumulators.values().next() else { panic!("nobody") };
            assert!(set.entries.len() <= 1_500, "{}", set.entries.len());
        }
        sum.consolidate();
        assert_eq!(sum.bytes, 96 + 1_000 * size_of::<DistinctEntry>());
    }
}
