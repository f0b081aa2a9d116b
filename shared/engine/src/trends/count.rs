//! The inner loops of trends: rows of runs into buckets.

use crate::dates::bucket_search::BucketFinder;
use crate::dates::buckets::Buckets;
use crate::filter::Mask;
use crate::scan::{Micros, Run};

/// The rows of one series in one partition.
pub(super) struct Counted<'a> {
    /// Runs and which of their rows count.
    pub(super) rows: &'a [(&'a Run, &'a Mask)],
    /// None: one number over everything.
    pub(super) buckets: Option<&'a Buckets>,
    /// First and last instant that count; the scan keeps to them already.
    pub(super) bounds: (Micros, Micros),
}

/// How often a person may count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Per {
    /// Once in each bucket.
    Bucket,
    /// Once, in its first bucket.
    Person,
}

/// Bits that may be spent on who was seen in which bucket: 32 MiB.
const SEEN_BITS: usize = 1 << 28;

fn add_one(counts: &mut [u64], bucket: usize) {
    if let Some(count) = counts.get_mut(bucket) {
        *count += 1;
    }
}

/// Tells which bucket an instant lies in, without a branch on it, which nobody could foretell.
#[derive(Clone, Copy)]
pub(super) struct Bucketing<'a> {
    finder: BucketFinder<'a>,
    first: Micros,
    last: Micros,
    outside: usize,
}

impl<'a> Bucketing<'a> {
    /// Instants between the bounds, both included, lie in their bucket, others `outside`. One bucket where none are given.
    pub(super) fn new(buckets: Option<&'a Buckets>, bounds: (Micros, Micros), outside: usize) -> Self {
        let nowhere = Self { finder: BucketFinder::SINGLE, first: Micros::MAX, last: Micros::MIN, outside };
        match buckets.map_or(Some(BucketFinder::SINGLE), Buckets::finder) {
            Some(finder) => Self { finder, first: bounds.0.max(finder.first()), last: bounds.1, outside },
            None => nowhere,
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "loops over rows keep its few numbers in registers")]
    pub(super) fn of(self, time: Micros) -> usize {
        let inside = (time >= self.first) & (time <= self.last);
        let found = self.finder.find(time.max(self.first).min(self.last)).min(self.outside);
        if inside { found } else { self.outside }
    }
}

impl Counted<'_> {
    /// Adds the number of events to each bucket.
    pub(super) fn events(&self, counts: &mut Vec<u64>) {
        let outside = counts.len();
        // Rows that do not count are counted too, behind the last bucket: without a branch that nobody can foretell.
        counts.push(0);
        for (run, mask) in self.rows {
            self.each_bucket(run, mask, outside, |_, bucket| counts[bucket] += 1);
        }
        counts.truncate(outside);
    }

    /// Adds the number of distinct persons to each bucket. `actors` are how many the partition has.
    pub(super) fn persons(&self, per: Per, actors: usize, counts: &mut Vec<u64>) {
        match (per, self.rows) {
            (Per::Person, rows) => self.first_buckets(rows, actors, counts),
            (Per::Bucket, [(run, mask)]) => {
                let outside = counts.len();
                counts.push(0);
                // Within a run rows come by actor and time, so that equal pairs of those that count are neighbours.
                let mut last = (0, outside);
                self.each_bucket(run, mask, outside, |actor, bucket| {
                    let next = if bucket == outside { last } else { (actor, bucket) };
                    counts[bucket] += u64::from(next != last);
                    last = next;
                });
                counts.truncate(outside);
            }
            (Per::Bucket, _) if actors.saturating_mul(counts.len()) <= SEEN_BITS => self.seen(actors, counts),
            (Per::Bucket, _) => self.sorted(counts),
        }
    }

    /// Each person in the first of its buckets.
    fn first_buckets(&self, rows: &[(&Run, &Mask)], actors: usize, counts: &mut [u64]) {
        let mut first = vec![usize::MAX; actors];
        for (run, mask) in rows {
            self.each(run, mask, |actor, bucket| {
                if let Some(first) = first.get_mut(actor as usize) {
                    *first = bucket.min(*first);
                }
            });
        }
        first.into_iter().for_each(|bucket| add_one(counts, bucket));
    }

    /// One bit for each person and bucket.
    fn seen(&self, actors: usize, counts: &mut [u64]) {
        let width = counts.len();
        let mut bits = vec![0_u64; (actors * width).div_ceil(64)];
        for (run, mask) in self.rows {
            self.each(run, mask, |actor, bucket| {
                let place = actor as usize * width + bucket;
                let (word, bit) = (place / 64, 1 << (place % 64));
                if let Some(word) = bits.get_mut(word)
                    && *word & bit == 0
                {
                    *word |= bit;
                    add_one(counts, bucket);
                }
            });
        }
    }

    /// Where bits would take too much room: all pairs, sorted.
    fn sorted(&self, counts: &mut [u64]) {
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (run, mask) in self.rows {
            let mut last = None;
            self.each(run, mask, |actor, bucket| {
                let pair = (actor, u32::try_from(bucket).unwrap_or(u32::MAX));
                if last.replace(pair) != Some(pair) {
                    pairs.push(pair);
                }
            });
        }
        // The pairs of each run are in order already; a stable sort merges them.
        pairs.sort();
        pairs.dedup();
        pairs.into_iter().for_each(|(_, bucket)| add_one(counts, bucket as usize));
    }

    /// Calls back with actor and bucket of each row: `outside` for those that do not count.
    fn each_bucket(&self, run: &Run, mask: &Mask, outside: usize, mut back: impl FnMut(u32, usize)) {
        if *mask == Mask::Nothing || self.bounds.0 > self.bounds.1 {
            return;
        }
        let bucketing = Bucketing::new(self.buckets, self.bounds, outside);
        let rows = run.actors.iter().zip(&run.times);
        match mask {
            Mask::Rows(passes) => {
                for ((actor, time), passes) in rows.zip(passes) {
                    back(*actor, if *passes { bucketing.of(*time) } else { outside });
                }
            }
            _ => rows.for_each(|(actor, time)| back(*actor, bucketing.of(*time))),
        }
    }

    /// Calls back with actor and bucket of each row that counts.
    fn each(&self, run: &Run, mask: &Mask, mut back: impl FnMut(u32, usize)) {
        let (first, last) = self.bounds;
        let mut row = |actor: u32, time: Micros| {
            if time < first || time > last {
                return;
            }
            match self.buckets {
                None => back(actor, 0),
                Some(buckets) => {
                    if let Some(bucket) = buckets.index(time) {
                        back(actor, bucket);
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
