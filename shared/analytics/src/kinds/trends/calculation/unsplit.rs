//! Fast path of trends without a breakdown: counts events or distinct persons per bucket, without keys per row.

use pennon_filters::dates::bucket_search::BucketFinder;
use pennon_filters::dates::buckets::Buckets;

use crate::mask::Mask;
use crate::scan::{EventRun, Micros};

/// The rows of one series in one partition, and the buckets to count them in.
pub(super) struct UnsplitRows<'a> {
    /// Runs and the rows that pass the filters.
    pub(super) rows: &'a [(&'a EventRun, &'a Mask)],
    /// `None` counts everything in one bucket.
    pub(super) buckets: Option<&'a Buckets>,
    /// First and last instant to count; the scan reads no events outside.
    pub(super) bounds: (Micros, Micros),
}

/// How often a person counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CountOnce {
    /// Once in each bucket.
    PerBucket,
    /// Once in the whole range, in its first bucket.
    InRange,
}

/// Maximum size of the bit set over persons and buckets: 2^28 bits, 32 MiB.
const BIT_SET_BITS: usize = 1 << 28;

fn add_one(counts: &mut [u64], bucket: usize) {
    if let Some(count) = counts.get_mut(bucket) {
        *count += 1;
    }
}

/// Maps an instant to its bucket without a branch on the instant, which the CPU could not predict.
#[derive(Clone, Copy)]
pub(super) struct BucketLookup<'a> {
    finder: BucketFinder<'a>,
    first: Micros,
    last: Micros,
    outside: usize,
}

impl<'a> BucketLookup<'a> {
    /// Instants within the inclusive bounds map to their bucket, all others to `outside`. Without buckets there is one.
    pub(super) fn new(buckets: Option<&'a Buckets>, bounds: (Micros, Micros), outside: usize) -> Self {
        let empty = Self { finder: BucketFinder::SINGLE, first: Micros::MAX, last: Micros::MIN, outside };
        match buckets.map_or(Some(BucketFinder::SINGLE), Buckets::finder) {
            Some(finder) => Self { finder, first: bounds.0.max(finder.first()), last: bounds.1, outside },
            None => empty,
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "loops over rows keep its few numbers in registers")]
    pub(super) fn bucket_of(self, time: Micros) -> usize {
        let inside = (time >= self.first) & (time <= self.last);
        let bucket = self.finder.find(time.max(self.first).min(self.last)).min(self.outside);
        if inside { bucket } else { self.outside }
    }
}

impl UnsplitRows<'_> {
    /// Adds the number of events to each bucket.
    pub(super) fn count_events(&self, counts: &mut Vec<u64>) {
        let outside = counts.len();
        // Rows out of bounds are counted in an extra bucket behind the last one, which avoids an unpredictable branch.
        counts.push(0);
        for (run, mask) in self.rows {
            self.each_bucket(run, mask, outside, |_, bucket| counts[bucket] += 1);
        }
        counts.truncate(outside);
    }

    /// Adds the number of distinct persons to each bucket. `actors` is the number of actors in the partition.
    pub(super) fn count_persons(&self, count_once: CountOnce, actors: usize, counts: &mut Vec<u64>) {
        match (count_once, self.rows) {
            (CountOnce::InRange, rows) => self.count_first_buckets(rows, actors, counts),
            (CountOnce::PerBucket, [(run, mask)]) => {
                let outside = counts.len();
                counts.push(0);
                // Rows of a run are sorted by actor and time, so rows with the same actor and bucket are adjacent.
                let mut last = (0, outside);
                self.each_bucket(run, mask, outside, |actor, bucket| {
                    let next = if bucket == outside { last } else { (actor, bucket) };
                    counts[bucket] += u64::from(next != last);
                    last = next;
                });
                counts.truncate(outside);
            }
            (CountOnce::PerBucket, _) if actors.saturating_mul(counts.len()) <= BIT_SET_BITS => {
                self.count_with_bit_set(actors, counts)
            }
            (CountOnce::PerBucket, _) => self.count_by_sorting(counts),
        }
    }

    /// Counts each person in its first bucket.
    fn count_first_buckets(&self, rows: &[(&EventRun, &Mask)], actors: usize, counts: &mut [u64]) {
        let mut first = vec![usize::MAX; actors];
        for (run, mask) in rows {
            self.for_each_counted_row(run, mask, |actor, bucket| {
                if let Some(first) = first.get_mut(actor as usize) {
                    *first = bucket.min(*first);
                }
            });
        }
        first.into_iter().for_each(|bucket| add_one(counts, bucket));
    }

    /// Counts distinct persons per bucket with a bit set.
    fn count_with_bit_set(&self, actors: usize, counts: &mut [u64]) {
        let width = counts.len();
        let mut bits = vec![0_u64; (actors * width).div_ceil(64)];
        for (run, mask) in self.rows {
            self.for_each_counted_row(run, mask, |actor, bucket| {
                let bit_index = actor as usize * width + bucket;
                let (word, bit) = (bit_index / 64, 1 << (bit_index % 64));
                if let Some(word) = bits.get_mut(word)
                    && *word & bit == 0
                {
                    *word |= bit;
                    add_one(counts, bucket);
                }
            });
        }
    }

    /// Counts distinct persons per bucket by sorting the pairs, for when the bit set would be too large.
    fn count_by_sorting(&self, counts: &mut [u64]) {
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (run, mask) in self.rows {
            let mut last = None;
            self.for_each_counted_row(run, mask, |actor, bucket| {
                let pair = (actor, u32::try_from(bucket).unwrap_or(u32::MAX));
                if last.replace(pair) != Some(pair) {
                    pairs.push(pair);
                }
            });
        }
        // The pairs of each run are sorted already; the stable sort merges them.
        pairs.sort();
        pairs.dedup();
        pairs.into_iter().for_each(|(_, bucket)| add_one(counts, bucket as usize));
    }

    /// Calls back with actor and bucket of every row; the bucket is `outside` for rows that do not count.
    fn each_bucket(&self, run: &EventRun, mask: &Mask, outside: usize, mut callback: impl FnMut(u32, usize)) {
        if *mask == Mask::Nothing || self.bounds.0 > self.bounds.1 {
            return;
        }
        let bucket_lookup = BucketLookup::new(self.buckets, self.bounds, outside);
        let rows = run.actors.iter().zip(&run.times);
        match mask {
            Mask::Rows(passes) => {
                for ((actor, time), passes) in rows.zip(passes) {
                    callback(*actor, if *passes { bucket_lookup.bucket_of(*time) } else { outside });
                }
            }
            _ => rows.for_each(|(actor, time)| callback(*actor, bucket_lookup.bucket_of(*time))),
        }
    }

    /// Calls back with actor and bucket of each row that counts.
    fn for_each_counted_row(&self, run: &EventRun, mask: &Mask, mut callback: impl FnMut(u32, usize)) {
        let (first, last) = self.bounds;
        let mut row = |actor: u32, time: Micros| {
            if time < first || time > last {
                return;
            }
            match self.buckets {
                None => callback(actor, 0),
                Some(buckets) => {
                    if let Some(bucket) = buckets.index(time) {
                        callback(actor, bucket);
                    }
                }
            }
        };
        let rows = run.actors.iter().zip(&run.times);
        match mask {
            Mask::Nothing => {}
            Mask::Every => rows.for_each(|(actor, time)| row(*actor, *time)),
            Mask::Rows(passes) => {
                for ((actor, time), passes) in rows.zip(passes) {
                    if *passes {
                        row(*actor, *time);
                    }
                }
            }
        }
    }
}
