//! Maps a page of a log to ranges of the monthly partitions, by the number of entries per day.
//!
//! Must stay true: the concatenated ranges are the page, newest first; at most half of a day's entries are skipped, because
//! offsets are counted from the nearer end of the day.

use std::ops::Range;

use crate::store::RangeEnd;
use crate::store::keys::MONTH_CHARS;

/// A day and its number of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Day {
    /// The day, as `2026-01-05`.
    pub day: String,
    /// Its number of entries.
    pub count: usize,
}

/// Consecutive entries of one month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonthRange {
    /// The month, as `2026-01`.
    pub month: String,
    /// First day of the range; the first of the month if `None`.
    pub from: Option<String>,
    /// Last day of the range.
    pub to: String,
    /// From which end entries are counted.
    pub end: RangeEnd,
    /// Number of entries to skip.
    pub skip: usize,
    /// Number of entries to read.
    pub take: usize,
    /// Whether they are the newest entries of the month.
    pub is_newest: bool,
}

/// The ranges with the entries at `page`, where 0 is the newest. `days` are sorted newest first.
pub fn month_ranges(days: &[Day], page: Range<usize>) -> Vec<MonthRange> {
    let mut ranges = Vec::new();
    let mut newer = 0;
    for month in days.chunk_by(|a, b| month_of(&a.day) == month_of(&b.day)) {
        let count: usize = month.iter().map(|day| day.count).sum();
        let start = page.start.saturating_sub(newer).min(count);
        let end = page.end.saturating_sub(newer).min(count);
        if start < end {
            push_month_ranges(month, start..end, &mut ranges);
        }
        newer += count;
    }
    ranges
}

/// Adds the ranges with the entries at `page` of one month, which has all of them.
fn push_month_ranges(days: &[Day], page: Range<usize>, ranges: &mut Vec<MonthRange>) {
    let mut newer = 0;
    for (index, day) in days.iter().enumerate() {
        if newer + day.count <= page.start {
            newer += day.count;
            continue;
        }
        let skip = page.start - newer;
        let from_newest = |to: &Day, skip, take| MonthRange {
            month: month_of(&to.day).to_owned(),
            from: None,
            to: to.day.clone(),
            end: RangeEnd::Last,
            skip,
            take,
            is_newest: page.start == 0,
        };
        if skip <= day.count / 2 {
            return ranges.push(from_newest(day, skip, page.len()));
        }
        let left = day.count - skip;
        let here = left.min(page.len());
        ranges.push(MonthRange {
            from: Some(day.day.clone()),
            end: RangeEnd::First,
            skip: left - here,
            ..from_newest(day, 0, here)
        });
        let rest = page.len() - here;
        if let Some(older) = days.get(index + 1).filter(|_| rest > 0) {
            ranges.push(from_newest(older, 0, rest));
        }
        return;
    }
}

fn month_of(day: &str) -> &str {
    day.get(..MONTH_CHARS).unwrap_or(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: [(&str, usize); 5] =
        [("2026-02-03", 2), ("2026-02-01", 7), ("2026-01-31", 1), ("2026-01-30", 10), ("2025-12-31", 3)];

    fn days() -> Vec<Day> {
        LOG.iter().map(|(day, count)| Day { day: (*day).to_owned(), count: *count }).collect()
    }

    /// All entries of the log by day and index in the day, newest first.
    fn all() -> Vec<(String, usize)> {
        let of_day = |(day, count): &(&str, usize)| {
            let day = (*day).to_owned();
            (0..*count).rev().map(move |place| (day.clone(), place)).collect::<Vec<_>>()
        };
        LOG.iter().flat_map(of_day).collect()
    }

    /// The entries of a range, newest first.
    fn read(range: &MonthRange) -> Vec<(String, usize)> {
        let within = |day: &str| {
            month_of(day) == range.month
                && day <= range.to.as_str()
                && range.from.as_deref().is_none_or(|from| day >= from)
        };
        let newest_first = all().into_iter().filter(|(day, _)| within(day));
        match range.end {
            RangeEnd::Last => newest_first.skip(range.skip).take(range.take).collect(),
            RangeEnd::First => {
                let mut taken: Vec<_> = newest_first.rev().skip(range.skip).take(range.take).collect();
                taken.reverse();
                taken
            }
        }
    }

    #[test]
    fn the_ranges_of_a_page_are_the_page() {
        let all = all();
        for start in 0..=all.len() + 2 {
            for end in start..=all.len() + 4 {
                let ranges = month_ranges(&days(), start..end);
                let read: Vec<_> = ranges.iter().flat_map(read).collect();
                let expected = &all[start.min(all.len())..end.min(all.len())];
                assert_eq!(read, expected, "{start}..{end}: {ranges:?}");
            }
        }
    }

    #[test]
    fn offsets_are_counted_from_the_nearer_end() {
        for start in 0..all().len() {
            for range in month_ranges(&days(), start..start + 4) {
                assert!(range.skip <= 5, "{start}: {range:?}");
            }
        }
        assert_eq!(month_ranges(&[], 0..10), []);
    }
}
