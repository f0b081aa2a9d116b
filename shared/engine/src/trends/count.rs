//! The inner loops of trends: rows of runs into buckets.

use crate::dates::buckets::Buckets;
use crate::filter::Mask;
use crate::scan::{Micros, Run};

/// The rows of one series in one partition.
pub(super) struct Counted<'a> {
    /// Runs and which of their rows count.
    pub(super) rows: &'a [(&'a Run, Mask)],
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

impl Counted<'_> {
    /// Adds the number of events to each bucket.
    pub(super) fn events(&self, counts: &mut [u64]) {
        for (run, mask) in self.rows {
            self.each(run, mask, |_, bucket| {
                if let Some(count) = counts.get_mut(bucket) {
                    *count += 1;
                }
            });
        }
    }

    /// Adds the number of distinct persons to each bucket.
    pub(super) fn persons(&self, per: Per, counts: &mut [u64]) {
        let mut last: Option<(u32, usize)> = None;
        let mut count = |actor: u32, bucket: usize| {
            let seen = match per {
                Per::Bucket => last == Some((actor, bucket)),
                Per::Person => last.is_some_and(|(seen, _)| seen == actor),
            };
            if !seen {
                last = Some((actor, bucket));
                if let Some(count) = counts.get_mut(bucket) {
                    *count += 1;
                }
            }
        };
        match self.rows {
            // Within a run rows come by actor and time, so that equal pairs are neighbours.
            [(run, mask)] => self.each(run, mask, count),
            several => {
                let mut pairs: Vec<(u32, usize)> = Vec::new();
                for (run, mask) in several {
                    let mut newest = None;
                    self.each(run, mask, |actor, bucket| {
                        if newest != Some((actor, bucket)) {
                            newest = Some((actor, bucket));
                            pairs.push((actor, bucket));
                        }
                    });
                }
                // The pairs of each run are in order already; the sort merges them.
                pairs.sort();
                pairs.into_iter().for_each(|(actor, bucket)| count(actor, bucket));
            }
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
