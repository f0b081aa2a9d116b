//! The aggregation state of one breakdown value of a series.
//!
//! Must stay true: states merge in any order to the same state.

use std::collections::HashMap;

use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};

use super::bucket_mapping::BucketSpan;
use super::statistics::StatisticState;
use crate::query::Statistic;
use crate::sql;

/// The code of each breakdown value that occurs, and its accumulator.
pub(super) type Accumulators = Vec<(u32, Accumulator)>;

/// The aggregation state of one breakdown value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct DistinctSet {
    pub(super) entries: Vec<DistinctEntry>,
    /// Number of distinct entries after the last deduplication.
    distinct_count: usize,
}

/// A group or session in some buckets, with the session's duration where that is aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct DistinctEntry {
    /// 128-bit hash of its key; collisions are practically impossible.
    #[serde(with = "postcard::fixint::le")]
    pub(super) id: u128,
    pub(super) span: BucketSpan,
    pub(super) number: Option<f64>,
}

impl Accumulator {
    pub(super) fn size_bytes(&self) -> usize {
        96 + match self {
            Self::Counts(counts) => 8 * counts.len(),
            Self::Statistics(buckets) => buckets.values().map(StatisticState::size_bytes).sum(),
            Self::Aggregates(buckets) => buckets.values().map(sql::AggregateState::weight).sum(),
            Self::Distinct(set) => size_of::<DistinctEntry>() * set.distinct_count,
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
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

    /// The final numbers by bucket, for a series that aggregates by this statistic or expression. With `first`, an entry
    /// counts only in its first bucket.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(super) fn finish(
        self,
        width: usize,
        (statistic, aggregation): (Option<Statistic>, Option<&sql::CompiledAggregate>),
        first: bool,
        work: &WorkBudget<'_>,
    ) -> Vec<f64> {
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
                if let Some(aggregation) = aggregation {
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
    pub(super) fn dedup(&mut self) {
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
