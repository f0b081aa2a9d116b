//! Where the entries of a page lie: from the number of entries on each day to stretches of the months' partitions.
//!
//! Must stay true: the stretches, one after the other, are the page, newest first; of a day no more than half is passed
//! over, because a place is counted from the nearer end.

use std::ops::Range;

use crate::store::End;
use crate::store::keys::MONTH_CHARS;

/// A day and its number of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Day {
    /// The day, as `2026-01-05`.
    pub day: String,
    /// How many entries it has.
    pub count: usize,
}

/// Consecutive entries of one month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The month, as `2026-01`.
    pub month: String,
    /// The days among whose entries they are counted: from this one, or from the first of the month ...
    pub from: Option<String>,
    /// ... to this one.
    pub to: String,
    /// From which end.
    pub end: End,
    /// How many entries to pass over.
    pub skip: usize,
    /// How many to take.
    pub take: usize,
    /// Whether they are the newest of their month.
    pub is_newest: bool,
}

/// The stretches that hold the entries `wanted`, where 0 is the newest. `days` come newest first.
pub fn stretches(days: &[Day], wanted: Range<usize>) -> Vec<Stretch> {
    let mut found = Vec::new();
    let mut before = 0;
    for month in days.chunk_by(|a, b| month_of(&a.day) == month_of(&b.day)) {
        let count: usize = month.iter().map(|day| day.count).sum();
        let start = wanted.start.saturating_sub(before).min(count);
        let end = wanted.end.saturating_sub(before).min(count);
        if start < end {
            of_month(month, start..end, &mut found);
        }
        before += count;
    }
    found
}

/// The entries `wanted` of a month that has them.
fn of_month(days: &[Day], wanted: Range<usize>, found: &mut Vec<Stretch>) {
    let mut newer = 0;
    for (index, day) in days.iter().enumerate() {
        if newer + day.count <= wanted.start {
            newer += day.count;
            continue;
        }
        let skip = wanted.start - newer;
        let whole = |to: &Day, skip, take| Stretch {
            month: month_of(&to.day).to_owned(),
            from: None,
            to: to.day.clone(),
            end: End::Last,
            skip,
            take,
            is_newest: wanted.start == 0,
        };
        if skip <= day.count / 2 {
            return found.push(whole(day, skip, wanted.len()));
        }
        let left = day.count - skip;
        let here = left.min(wanted.len());
        found.push(Stretch {
            from: Some(day.day.clone()),
            end: End::First,
            skip: left - here,
            ..whole(day, 0, here)
        });
        let rest = wanted.len() - here;
        if let Some(older) = days.get(index + 1).filter(|_| rest > 0) {
            found.push(whole(older, 0, rest));
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

    /// Every entry of the log by day and place in the day, newest first.
    fn all() -> Vec<(String, usize)> {
        let of_day = |(day, count): &(&str, usize)| {
            let day = (*day).to_owned();
            (0..*count).rev().map(move |place| (day.clone(), place)).collect::<Vec<_>>()
        };
        LOG.iter().flat_map(of_day).collect()
    }

    /// What reading a stretch gives, newest first.
    fn read(stretch: &Stretch) -> Vec<(String, usize)> {
        let within = |day: &str| {
            month_of(day) == stretch.month
                && day <= stretch.to.as_str()
                && stretch.from.as_deref().is_none_or(|from| day >= from)
        };
        let newest_first = all().into_iter().filter(|(day, _)| within(day));
        match stretch.end {
            End::Last => newest_first.skip(stretch.skip).take(stretch.take).collect(),
            End::First => {
                let mut taken: Vec<_> = newest_first.rev().skip(stretch.skip).take(stretch.take).collect();
                taken.reverse();
                taken
            }
        }
    }

    #[test]
    fn the_stretches_of_a_page_are_the_page() {
        let all = all();
        for start in 0..=all.len() + 2 {
            for end in start..=all.len() + 4 {
                let stretches = stretches(&days(), start..end);
                let read: Vec<_> = stretches.iter().flat_map(read).collect();
                let expected = &all[start.min(all.len())..end.min(all.len())];
                assert_eq!(read, expected, "{start}..{end}: {stretches:?}");
            }
        }
    }

    #[test]
    fn a_place_is_counted_from_the_nearer_end() {
        for start in 0..all().len() {
            for stretch in stretches(&days(), start..start + 4) {
                assert!(stretch.skip <= 5, "{start}: {stretch:?}");
            }
        }
        assert_eq!(stretches(&[], 0..10), []);
    }
}
