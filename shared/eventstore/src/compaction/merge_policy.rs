//! Merge policy: which segments are merged next. Size-tiered, neighbours in time first.
//!
//! Segments of similar size are a tier; each tier is four times the one below. [`FAN`] segments of a tier
//! become one of the next, so an event is rewritten once per tier and a project keeps a few segments of each.
//! Must stay true: a merged segment has at most [`MERGED_ROWS_MAX`] rows and the bytes that fit into memory; every
//! merge reduces the number of segments, so merging ends.

use crate::compaction::merge_failures::FailedMerges;
use crate::manifest::SegmentEntry;

/// Most rows of a merged segment: 10 million events are one segment, 100 million about nine.
pub(crate) const MERGED_ROWS_MAX: u64 = 12_000_000;
/// Segments of a tier that trigger a merge (fan-in).
pub(crate) const FAN: usize = 4;
/// Most segments that are merged at once.
const AT_ONCE: usize = 32;
/// Rows of the first tier.
const FIRST_ROWS: u64 = 65_536;

/// The limits of a merge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeLimits {
    pub effort: MergeMode,
    /// Most bytes of the merged segments: the new one is built in memory.
    pub bytes: u64,
}

/// How eagerly segments are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeMode {
    /// Only what keeps the number of segments low while events arrive.
    Due,
    /// Any merge that reduces the number of segments.
    Fewest,
}

fn tier(entry: &SegmentEntry) -> u32 {
    (entry.rows / FIRST_ROWS).max(1).ilog(FAN as u64)
}

/// Segments above half of a limit are not merged: no two of them fit into one.
fn is_full(entry: &SegmentEntry, bytes_max: u64) -> bool {
    entry.rows > MERGED_ROWS_MAX / 2 || entry.bytes > bytes_max / 2
}

/// The segments to merge next, at least two, skipping those that `failed`; empty when there is no work.
pub(crate) fn next(
    segments: &[SegmentEntry],
    limits: MergeLimits,
    failed: &FailedMerges,
) -> Vec<SegmentEntry> {
    let MergeLimits { effort, bytes } = limits;
    let open = segments.iter().filter(|entry| effort == MergeMode::Fewest || !is_full(entry, bytes));
    let mut open = open.filter(|entry| !failed.is_excluded(&entry.id)).collect::<Vec<_>>();
    open.sort_by(|a, b| (a.min_time, &a.id).cmp(&(b.min_time, &b.id)));
    if effort == MergeMode::Fewest {
        return merge_candidates(&open, 2, bytes, failed);
    }
    let highest = open.iter().map(|entry| tier(entry)).max().unwrap_or(0);
    for at in 0..=highest {
        let of_tier = open.iter().copied().filter(|entry| tier(entry) == at).collect::<Vec<_>>();
        // If four of the highest tier do not fit into one segment, two do.
        let least = if of_tier.len() >= FAN { 2 } else { continue };
        let found = merge_candidates(&of_tier, least, bytes, failed);
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// The longest run of neighbours that fits into one segment; of several, the one that spans the shortest time.
fn merge_candidates(
    entries: &[&SegmentEntry],
    least: usize,
    bytes_max: u64,
    failed: &FailedMerges,
) -> Vec<SegmentEntry> {
    let stretch = |first: usize| {
        let (mut rows, mut bytes) = (0, 0);
        let fits = (first..entries.len()).take(AT_ONCE).take_while(|last| {
            rows += entries[*last].rows;
            bytes += entries[*last].bytes;
            rows <= MERGED_ROWS_MAX
                && bytes <= bytes_max
                && failed.may_merge_together(&entries[first..=*last])
        });
        first..first + fits.count()
    };
    let stretches = (0..entries.len()).map(stretch).filter(|stretch| stretch.len() >= least);
    let span = |stretch: &std::ops::Range<usize>| {
        let of = || entries[stretch.clone()].iter();
        let last = of().map(|entry| entry.max_time).max().unwrap_or(0);
        last.saturating_sub(of().map(|entry| entry.min_time).min().unwrap_or(0))
    };
    let best = stretches.min_by_key(|stretch| (std::cmp::Reverse(stretch.len()), span(stretch)));
    best.map(|stretch| entries[stretch].iter().map(|entry| (*entry).clone()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough for every merge of the tests.
    const BYTES_MAX: u64 = 512 << 20;

    fn next(segments: &[SegmentEntry], effort: MergeMode, failed: &FailedMerges) -> Vec<SegmentEntry> {
        super::next(segments, MergeLimits { effort, bytes: BYTES_MAX }, failed)
    }

    fn is_full(entry: &SegmentEntry) -> bool {
        super::is_full(entry, BYTES_MAX)
    }

    fn entries(rows: &[u64]) -> Vec<SegmentEntry> {
        let entry = |(at, rows): (i64, &u64)| SegmentEntry {
            id: format!("{at:05}"),
            min_time: at * 10,
            max_time: at * 10 + 9,
            ..crate::segments::tests::entry("h", *rows)
        };
        (0..).zip(rows).map(entry).collect()
    }

    /// Merges until nothing is due. Returns the rows left and how many rows were written for it.
    fn merge_until_stable(mut segments: Vec<SegmentEntry>, effort: MergeMode) -> (Vec<u64>, u64) {
        let mut written = 0;
        loop {
            let found = next(&segments, effort, &FailedMerges::default());
            if found.is_empty() {
                break;
            }
            assert!(found.len() >= 2);
            let rows = found.iter().map(|entry| entry.rows).sum::<u64>();
            assert!(rows <= MERGED_ROWS_MAX);
            written += rows;
            segments.retain(|entry| !found.contains(entry));
            let first = found[0].clone();
            let max_time = found.iter().map(|entry| entry.max_time).max().unwrap_or(0);
            segments.push(SegmentEntry { rows, max_time, id: format!("{}+", first.id), ..first });
        }
        let mut rows = segments.iter().map(|entry| entry.rows).collect::<Vec<_>>();
        rows.sort_unstable();
        (rows, written)
    }

    #[test]
    fn history_imported_in_pieces_ends_as_few_segments() {
        for pieces in [20, 5] {
            let (rows, _) =
                merge_until_stable(entries(&vec![10_000_000 / pieces; pieces as usize]), MergeMode::Due);
            assert!(rows.len() <= 3, "{rows:?}");
        }
        for pieces in [200, 50, 25] {
            let (rows, _) =
                merge_until_stable(entries(&vec![100_000_000 / pieces; pieces as usize]), MergeMode::Due);
            assert!(rows.len() <= 13, "{rows:?}");
        }
        let (rows, _) = merge_until_stable(entries(&[2_500_000; 4]), MergeMode::Fewest);
        assert_eq!(rows, [10_000_000]);
    }

    #[test]
    fn a_steady_stream_leaves_few_segments_and_writes_each_event_a_few_times() {
        let mut segments = Vec::new();
        let (mut written, mut most) = (0, 0);
        let runs = 2000;
        for at in 0..runs {
            let mut new = entries(&[100_000]);
            new[0].id = format!("{at:05}");
            (new[0].min_time, new[0].max_time) = (at * 10, at * 10 + 30);
            segments.extend(new);
            loop {
                let found = next(&segments, MergeMode::Due, &FailedMerges::default());
                if found.is_empty() {
                    break;
                }
                let rows = found.iter().map(|entry| entry.rows).sum::<u64>();
                written += rows;
                segments.retain(|entry| !found.contains(entry));
                let max_time = found.iter().map(|entry| entry.max_time).max().unwrap_or(0);
                segments.push(SegmentEntry { rows, max_time, ..found[0].clone() });
            }
            most = most.max(segments.len());
        }
        let events = 100_000 * runs as u64;
        assert!(written <= events * 5, "{} times", written as f64 / events as f64);
        let full = segments.iter().filter(|entry| is_full(entry)).count();
        assert!(most - full <= 16, "{most} segments, {full} of them full");
    }

    #[test]
    fn no_more_bytes_are_merged_than_fit_into_memory() {
        let mut segments = entries(&[100_000; 8]);
        segments.iter_mut().for_each(|entry| entry.bytes = 30 << 20);
        let merged = |bytes| {
            let limits = MergeLimits { effort: MergeMode::Due, bytes };
            super::next(&segments, limits, &FailedMerges::default()).len()
        };
        assert_eq!(merged(512 << 20), 8);
        assert_eq!(merged(100 << 20), 3);
        assert_eq!(merged(50 << 20), 0, "no two of them");
    }

    #[test]
    fn nothing_is_due_where_nothing_gets_fewer() {
        assert!(next(&[], MergeMode::Fewest, &FailedMerges::default()).is_empty());
        assert!(next(&entries(&[5, 5, 5]), MergeMode::Due, &FailedMerges::default()).is_empty());
        assert!(
            next(
                &entries(&[7_000_000, 8_000_000, 9_000_000, 7_000_000]),
                MergeMode::Due,
                &FailedMerges::default()
            )
            .is_empty()
        );
        assert!(
            next(&entries(&[7_000_000, 8_000_000]), MergeMode::Fewest, &FailedMerges::default()).is_empty()
        );
        assert_eq!(
            next(&entries(&[5, 9_000_000, 5, 5, 5]), MergeMode::Due, &FailedMerges::default()).len(),
            4
        );
    }
}
