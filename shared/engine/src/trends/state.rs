//! The partial result of a trend: one accumulator per series, period and breakdown value.
//!
//! Must stay true: partial results merge in any order to the same result. Groups and sessions occur in several partitions,
//! so their distinct counts are kept as sets until the end. Memory is bounded: a result over the limit drops its data and
//! sets `over_budget` instead of growing.

use std::collections::{BTreeMap, HashMap};

use super::counter::Counter;
use super::keys::Key;
use super::numbers::Numbers;
use super::slot::Slot;
use super::texts::TextCounts;
use crate::limits;
use crate::sql;
use crate::work::WorkBudget;

/// Accumulators by series and period ([`CompiledTrend::channel`](super::CompiledTrend)) and breakdown value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sum {
    pub(super) tallies: HashMap<(usize, Key), Tally>,
    /// Event counts of the fast path, by text; [`PartialResult::settle`] moves them to the accumulators.
    texts: BTreeMap<usize, TextCounts>,
    held: usize,
    /// The memory limit was exceeded and the data dropped.
    pub(super) burst: bool,
}

/// The aggregation state of one breakdown value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tally {
    /// A count per bucket.
    Counts(Vec<u64>),
    /// State of a statistic by bucket.
    Numbers(HashMap<u32, Numbers>),
    /// State of an aggregate expression by bucket.
    Aggregates(HashMap<u32, sql::Tally>),
    /// Distinct groups or sessions, and their buckets.
    Seen(Crowd),
}

/// A set of distinct groups or sessions with their buckets. Duplicates are removed only when it has grown by half.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Crowd {
    seen: Vec<Seen>,
    /// Number of distinct entries after the last deduplication.
    distinct: usize,
}

/// A group or session in some buckets, with the session's duration where that is aggregated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    /// 128-bit hash of its key; collisions are practically impossible.
    pub(super) id: u128,
    pub(super) slot: Slot,
    pub(super) number: Option<f64>,
}

impl Sum {
    /// Merges an accumulator.
    pub(super) fn add(&mut self, channel: usize, key: Key, tally: Tally) {
        if self.burst {
            return;
        }
        let weight = tally.weight();
        match self.tallies.entry((channel, key)) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(tally);
                self.held += weight;
            }
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                let before = entry.get().weight();
                entry.get_mut().merge(tally);
                self.held = self.held + entry.get().weight() - before;
            }
        }
        self.check();
    }

    /// Merges event counts of the fast path.
    pub(super) fn add_texts(&mut self, channel: usize, counts: TextCounts) {
        if self.burst {
            return;
        }
        let weight = |counts: &TextCounts| counts.len() * weight_of_counts(counts.width());
        match self.texts.entry(channel) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                self.held += weight(entry.insert(counts));
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let before = weight(entry.get());
                entry.get_mut().merge(counts);
                self.held = self.held + weight(entry.get()) - before;
            }
        }
        self.check();
    }

    fn check(&mut self) {
        if self.held > limits::HELD_BYTES {
            *self = Self { burst: true, ..Self::default() };
        }
    }

    /// Deduplicates the sets, so that exceeding the memory limit does not depend on how partial results were merged, and
    /// moves the fast path's counts to the accumulators.
    pub(super) fn settle(&mut self) {
        for (channel, counts) in std::mem::take(&mut self.texts) {
            for (key, counts) in counts.keyed() {
                self.add(channel, key, Tally::Counts(counts));
            }
        }
        let mut held = 0;
        for tally in self.tallies.values_mut() {
            if let Tally::Seen(crowd) = tally {
                crowd.dedup();
            }
            held += tally.weight();
        }
        self.held = held;
        self.check();
    }

    /// The largest number of breakdown values of any series in a period.
    pub(super) fn values(&self) -> usize {
        let mut values: HashMap<usize, usize> = HashMap::new();
        self.tallies.keys().for_each(|(channel, _)| *values.entry(*channel).or_default() += 1);
        values.into_values().max().unwrap_or(0)
    }

    /// Merges two partial results.
    pub(crate) fn merge(mut self, mut other: Self) -> Self {
        if self.tallies.len() < other.tallies.len() {
            std::mem::swap(&mut self, &mut other);
        }
        if self.burst || other.burst {
            return Self { burst: true, ..Self::default() };
        }
        for ((channel, key), tally) in other.tallies {
            self.add(channel, key, tally);
        }
        for (channel, counts) in other.texts {
            self.add_texts(channel, counts);
        }
        self
    }
}

impl Tally {
    fn weight(&self) -> usize {
        96 + match self {
            Self::Counts(counts) => return weight_of_counts(counts.len()),
            Self::Numbers(buckets) => buckets.values().map(Numbers::weight).sum(),
            Self::Aggregates(buckets) => buckets.values().map(sql::Tally::weight).sum(),
            Self::Seen(crowd) => size_of::<Seen>() * crowd.distinct,
        }
    }

    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Counts(counts), Self::Counts(more)) => {
                counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
            }
            (Self::Numbers(buckets), Self::Numbers(more)) => {
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
            (Self::Seen(crowd), Self::Seen(more)) => crowd.merge(more),
            // Partial results of one plan use the same accumulators.
            _ => {}
        }
    }

    /// The final numbers by bucket. With `first`, an entry counts only in its first bucket.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(super) fn finish(
        self,
        width: usize,
        counter: &Counter,
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
            (Self::Numbers(buckets), Some(statistic)) => {
                buckets.into_iter().for_each(|(bucket, numbers)| put(bucket, numbers.finish(statistic)));
            }
            (Self::Seen(Crowd { seen, .. }), Some(statistic)) => {
                let mut buckets: HashMap<u32, Numbers> = HashMap::new();
                for one in seen {
                    if let Some(number) = one.number {
                        let numbers = buckets.entry(one.slot.from);
                        numbers.or_insert_with(|| Numbers::new(statistic)).push(number);
                    }
                }
                buckets.into_iter().for_each(|(bucket, numbers)| put(bucket, numbers.finish(statistic)));
            }
            (Self::Seen(Crowd { seen, .. }), None) => {
                let mut counts = vec![0_u64; width];
                for of_one in seen.chunk_by(|left, right| left.id == right.id) {
                    count_one(of_one.iter().map(|seen| seen.slot), first, &mut counts);
                }
                (0..).zip(counts).for_each(|(bucket, count)| put(bucket, count as f64));
            }
            (Self::Aggregates(buckets), _) => {
                if let Some(aggregation) = &counter.aggregation {
                    buckets.iter().for_each(|(bucket, tally)| put(*bucket, aggregation.finish(tally, work)));
                }
            }
            (Self::Numbers(_), None) => {}
        }
        data
    }
}

impl Crowd {
    pub(super) fn new(seen: Vec<Seen>) -> Self {
        let mut crowd = Self { seen, distinct: 0 };
        crowd.dedup();
        crowd
    }

    /// Sorts the entries and removes duplicates.
    fn dedup(&mut self) {
        self.seen.sort_by_key(|one| (one.id, one.slot));
        self.seen.dedup_by_key(|one| (one.id, one.slot));
        self.distinct = self.seen.len();
    }

    /// Merges another set, and deduplicates once the set has grown by half.
    fn merge(&mut self, more: Self) {
        self.seen.extend(more.seen);
        if self.seen.len() > self.distinct + self.distinct / 2 {
            self.dedup();
        }
    }
}

/// Bytes of an accumulator with a count per bucket.
fn weight_of_counts(width: usize) -> usize {
    96 + 8 * width
}

/// Adds one to every bucket of the ascending spans, once per bucket; with `first` only to the first bucket.
pub(super) fn count_one(slots: impl Iterator<Item = Slot>, first: bool, counts: &mut [u64]) {
    let mut done = 0;
    for slot in slots {
        if first {
            if let Some(count) = counts.get_mut(slot.from as usize) {
                *count += 1;
            }
            return;
        }
        for bucket in slot.from.max(done)..slot.until {
            if let Some(count) = counts.get_mut(bucket as usize) {
                *count += 1;
            }
        }
        done = done.max(slot.until);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    #[test]
    fn a_sum_that_would_hold_too_much_holds_nothing_and_says_so() {
        let fits = u128::try_from((limits::HELD_BYTES - 96) / size_of::<Seen>()).unwrap();
        let mut sum = Sum::default();
        sum.add(0, Key::Whole, seen(0..fits));
        sum.settle();
        assert!(!sum.burst);
        sum.add(0, Key::Whole, seen(fits..fits + 1));
        sum.settle();
        assert!(sum.burst && sum.tallies.is_empty());
        assert!(Sum::default().merge(sum).burst);
    }

    fn seen(ids: std::ops::Range<u128>) -> Tally {
        let one = |id| Seen { id, slot: Slot { from: 0, until: 1 }, number: None };
        Tally::Seen(Crowd::new(ids.map(one).collect()))
    }

    #[test]
    fn who_is_in_every_part_is_held_once() {
        let mut sum = Sum::default();
        for _ in 0..1_000 {
            sum.add(0, Key::Whole, seen(0..1_000));
            let Some(Tally::Seen(crowd)) = sum.tallies.values().next() else { panic!("nobody") };
            assert!(crowd.seen.len() <= 1_500, "{}", crowd.seen.len());
        }
        sum.settle();
        assert_eq!(sum.held, 96 + 1_000 * size_of::<Seen>());
    }
}
