//! What the events of one person have to look like.
//!
//! Must stay true: the events of a person come ordered by time; whoever has no event at all shows nothing.

use crate::scan::Micros;

/// An event that a criterion names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) actor: u32,
    pub(super) time: Micros,
    /// It is the criterion's event.
    pub(super) first: bool,
    /// It is the event that has to follow.
    pub(super) second: bool,
}

/// A number of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Exactly(u64),
    AtLeast(u64),
    AtMost(u64),
}

impl Count {
    /// None is never enough.
    fn holds(self, count: usize) -> bool {
        let count = count as u64;
        count > 0
            && match self {
                Self::Exactly(number) => count == number,
                Self::AtLeast(number) => count >= number,
                Self::AtMost(number) => count <= number,
            }
    }
}

/// What is looked for among events that lie in the time of the scan.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    /// So many.
    Times(Count),
    /// None before an instant.
    First { since: Micros },
    /// One of the one kind and, no later than this after it, another of the other.
    Sequence { within: Micros },
    /// Some, but none from an instant on.
    Stopped { since: Micros },
    /// Some before the one instant, none up to the other, some from there on.
    Restarted { from: Micros, again: Micros },
    /// So many in so many of the periods between edges.
    Regularly { edges: Vec<Micros>, count: Count, periods: usize },
}

impl Pattern {
    /// Whether the events of one person, at least one, show it.
    pub(super) fn is_shown(&self, rows: &[Seen]) -> bool {
        let before = |instant: Micros| rows.partition_point(|seen| seen.time < instant);
        match self {
            Self::Times(count) => count.holds(rows.len()),
            Self::First { since } => before(*since) == 0,
            Self::Sequence { within } => follows(rows, *within),
            Self::Stopped { since } => before(*since) == rows.len(),
            Self::Restarted { from, again } => {
                let old = before(*from);
                old > 0 && before(*again) == old && old < rows.len()
            }
            Self::Regularly { edges, count, periods } => {
                let until = |edge: Micros| rows.partition_point(|seen| seen.time <= edge);
                let full = edges.windows(2).filter(|edges| count.holds(until(edges[1]) - until(edges[0])));
                full.count() >= *periods
            }
        }
    }
}

/// Whether a first event has another one behind it, or at the same time, that is the second.
fn follows(rows: &[Seen], within: Micros) -> bool {
    let mut last_first: Option<Micros> = None;
    rows.chunk_by(|left, right| left.time == right.time).any(|tick| {
        let time = tick[0].time;
        let [first, second, both] = tick.iter().fold([0, 0, 0], |[first, second, both], seen| {
            [
                first + usize::from(seen.first),
                second + usize::from(seen.second),
                both + usize::from(seen.first && seen.second),
            ]
        });
        let after = second > 0 && last_first.is_some_and(|earlier| time.saturating_sub(earlier) <= within);
        // No event follows itself.
        let together = first > 0 && second > 0 && !(first == 1 && second == 1 && both == 1);
        if first > 0 {
            last_first = Some(time);
        }
        after || together
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(rows: &[(Micros, &str)]) -> Vec<Seen> {
        let row = |(time, kinds): &(Micros, &str)| Seen {
            actor: 0,
            time: *time,
            first: kinds.contains('a'),
            second: kinds.contains('b'),
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn a_sequence_wants_two_events_in_time() {
        for (rows, shown) in [
            (vec![(0, "a"), (10, "b")], true),
            (vec![(0, "a"), (11, "b")], false),
            (vec![(0, "b"), (5, "a")], false),
            (vec![(0, "a"), (20, "a"), (25, "b")], true),
            (vec![(0, "ab")], false),
            (vec![(0, "ab"), (3, "ab")], true),
            (vec![(0, "ab"), (0, "ab")], true),
            (vec![(0, "ab"), (0, "a")], true),
            (vec![(4, "b"), (4, "a")], true),
            (vec![(0, "a")], false),
        ] {
            assert_eq!(Pattern::Sequence { within: 10 }.is_shown(&seen(&rows)), shown, "{rows:?}");
        }
    }

    #[test]
    fn stops_and_restarts_look_at_three_times() {
        let shown = |pattern: &Pattern, times: &[Micros]| {
            pattern.is_shown(&seen(&times.iter().map(|time| (*time, "a")).collect::<Vec<_>>()))
        };
        let stopped = Pattern::Stopped { since: 10 };
        assert!(shown(&stopped, &[3]) && shown(&stopped, &[9]));
        assert!(!shown(&stopped, &[10]) && !shown(&stopped, &[3, 11]));
        let restarted = Pattern::Restarted { from: 10, again: 20 };
        assert!(shown(&restarted, &[9, 20]) && shown(&restarted, &[1, 2, 30]));
        for times in [&[9][..], &[20], &[9, 10, 20], &[9, 19, 20], &[10, 20], &[9, 19]] {
            assert!(!shown(&restarted, times), "{times:?}");
        }
        let first = Pattern::First { since: 10 };
        assert!(shown(&first, &[10, 11]) && !shown(&first, &[9, 11]));
    }

    #[test]
    fn regular_events_fill_periods() {
        let regular = |count, periods| Pattern::Regularly { edges: vec![0, 10, 20, 30], count, periods };
        let rows = seen(&[(1, "a"), (10, "a"), (11, "a"), (30, "a")]);
        // Two, one and one.
        assert!(regular(Count::AtLeast(1), 3).is_shown(&rows));
        assert!(regular(Count::AtLeast(2), 1).is_shown(&rows));
        assert!(!regular(Count::AtLeast(2), 2).is_shown(&rows));
        assert!(regular(Count::Exactly(1), 2).is_shown(&rows));
        assert!(!regular(Count::Exactly(1), 3).is_shown(&rows));
        // A period without any event is not one with few.
        assert!(!regular(Count::AtMost(1), 2).is_shown(&seen(&[(1, "a")])));
    }

    proptest! {
        #[test]
        fn a_sequence_is_a_pair_of_different_events(
            mut rows in prop::collection::vec((0..12_i64, prop::sample::select(vec!["a", "b", "ab"])), 1..8),
            within in 1..6_i64,
        ) {
            rows.sort_by_key(|row| row.0);
            let pair = (0..rows.len()).any(|one| (0..rows.len()).any(|other| {
                let apart = rows[other].0 - rows[one].0;
                one != other && rows[one].1.contains('a') && rows[other].1.contains('b') && (0..=within).contains(&apart)
            }));
            prop_assert_eq!(Pattern::Sequence { within }.is_shown(&seen(&rows)), pair);
        }
    }
}
