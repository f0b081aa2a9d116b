//! Segments whose merge failed; the policy then chooses others.
//!
//! When a merge of several segments fails, the one that caused it is unknown. So at most half of them are
//! merged together again, down to two; a segment that failed with two others is excluded. Must stay true:
//! failures are kept in memory, for a limited time (attempts that ended with the process: [`super::merge_attempts`]), so that every segment is retried; the number of entries is
//! bounded.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::manifest::SegmentEntry;

/// How long a failure is kept.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);
/// Most failures that are kept.
const REMEMBERED: usize = 1024;

/// Failed merges of this process. Segment ids are unique over all projects.
#[derive(Debug, Default)]
pub(crate) struct MergeFailures(Mutex<Vec<(Instant, Vec<String>)>>);

/// A snapshot of the failures.
#[derive(Debug, Default)]
pub(crate) struct FailedMerges(Vec<Vec<String>>);

impl MergeFailures {
    /// Records that these segments could not be merged.
    pub(crate) fn record(&self, entries: &[SegmentEntry]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.remove(0);
        }
        known.push((Instant::now(), entries.iter().map(|entry| entry.id.clone()).collect()));
    }

    /// The failures that have not expired, and the merges of `unfinished` attempts.
    pub(crate) fn failed_with(&self, unfinished: Vec<Vec<String>>) -> FailedMerges {
        let mut failed = self.failed();
        failed.0.extend(unfinished);
        failed
    }

    /// The failures that have not expired.
    pub(crate) fn failed(&self) -> FailedMerges {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(at, _)| at.elapsed() < REMEMBERED_FOR);
        FailedMerges(known.iter().map(|(_, ids)| ids.clone()).collect())
    }
}

impl FailedMerges {
    /// Whether these segments may be merged together.
    pub(crate) fn may_merge_together(&self, entries: &[&SegmentEntry]) -> bool {
        let of = |ids: &Vec<String>| entries.iter().filter(|entry| ids.contains(&entry.id)).count();
        self.0.iter().all(|ids| of(ids) <= (ids.len() / 2).max(1))
    }

    /// Whether the segment is excluded: it failed alone, or with two others in turn.
    pub(crate) fn is_excluded(&self, id: &str) -> bool {
        let few = self.0.iter().filter(|ids| ids.len() <= 3 && ids.iter().any(|other| other == id));
        few.clone().any(|ids| ids.len() == 1) || few.count() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges neighbours, the most that may meet at once, until nothing changes. Returns the segments that are left, by what
    /// they were made of, and how often it failed.
    fn merge_until_stable(count: usize, fails: impl Fn(&[usize]) -> bool) -> (Vec<Vec<usize>>, usize) {
        let merge_failures = MergeFailures::default();
        let mut left = (0..count).map(|n| vec![n]).collect::<Vec<_>>();
        let mut failures = 0;
        loop {
            let failed = merge_failures.failed();
            let id = |of: &Vec<usize>| format!("{of:?}");
            let entry = |of: &Vec<usize>| SegmentEntry::empty(id(of), 0);
            let open = left.iter().filter(|of| !failed.is_excluded(&id(of))).cloned().collect::<Vec<_>>();
            let entries = open.iter().map(entry).collect::<Vec<_>>();
            let entries = entries.iter().collect::<Vec<_>>();
            let stretch = |first: usize| {
                let ends = first + 2..=entries.len();
                ends.take_while(|end| failed.may_merge_together(&entries[first..*end]))
                    .last()
                    .map(|end| first..end)
            };
            let Some(chosen) = (0..entries.len()).filter_map(stretch).max_by_key(|stretch| stretch.len())
            else {
                return (left, failures);
            };
            let all = open[chosen.clone()].concat();
            if fails(&all) {
                failures += 1;
                assert!(failures < 100, "it never ends");
                merge_failures
                    .record(&entries[chosen].iter().map(|entry| (*entry).clone()).collect::<Vec<_>>());
            } else {
                left.retain(|of| !open[chosen.clone()].contains(of));
                left.push(all);
            }
        }
    }

    #[test]
    fn one_that_fails_with_whomever_is_found_and_the_others_become_one() {
        for bad in [0, 13, 31] {
            let (mut left, failures) = merge_until_stable(32, |of| of.contains(&bad));
            left.sort_by_key(Vec::len);
            assert_eq!(left.iter().map(Vec::len).collect::<Vec<_>>(), [1, 31], "{bad}: {left:?}");
            assert_eq!(left[0], [bad]);
            assert!(failures <= 10, "{bad}: {failures} failures");
        }
    }

    #[test]
    fn those_that_are_too_large_together_become_as_few_as_fit() {
        let (left, failures) = merge_until_stable(16, |of| of.len() > 4);
        assert!(left.iter().all(|of| of.len() <= 4) && left.len() <= 8, "{left:?}");
        assert!(failures <= 20, "{failures} failures");
        let (left, failures) = merge_until_stable(8, |of| of.len() > 1);
        assert_eq!(left.len(), 8);
        assert!(failures <= 16, "{failures} failures");
    }

    #[test]
    fn nothing_failed_and_all_may_meet() {
        let (left, failures) = merge_until_stable(32, |_| false);
        assert_eq!((left.len(), failures), (1, 0));
    }
}
