//! Behaviour patterns: conditions on the sequence of events of one person.
//!
//! Must stay true: the events of a person are ordered by time; a person without events matches no pattern.

use chrono::{Days, Months};
use chrono_tz::Tz;
use pennon_filters::dates::zone;

use crate::scan::Micros;

/// An event that matches the first or second event of a criterion.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchedEvent {
    pub(super) actor: u32,
    pub(super) time: Micros,
    /// Matches the criterion's event.
    pub(super) first: bool,
    /// Matches the event that has to follow, in a sequence.
    pub(super) second: bool,
}

/// A condition on the number of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountCondition {
    Exactly(u64),
    AtLeast(u64),
    AtMost(u64),
}

impl CountCondition {
    fn holds(self, count: usize) -> bool {
        let count = count as u64;
        match self {
            Self::Exactly(number) => count == number,
            Self::AtLeast(number) => count >= number,
            Self::AtMost(number) => count <= number,
        }
    }
}

/// A condition on the events within the time range of the scan.
#[derive(Debug, Clone)]
pub(super) enum BehaviourPattern {
    /// The number of events meets the condition.
    Times(CountCondition),
    /// No event before `since`.
    First { since: Micros },
    /// A first event, then a second event after it and at most `within` later.
    Sequence { within: CalendarDuration },
    /// No event from `since` on.
    Stopped { since: Micros },
    /// Events before `from`, none from there to `again`, and events from `again` on.
    Restarted { from: Micros, again: Micros },
    /// The count condition holds in at least `periods` of the periods between `edges`. It may hold for zero events.
    Regularly { edges: Vec<Micros>, count: CountCondition, periods: usize },
}

impl BehaviourPattern {
    /// Whether the events of one person match. `rows` is not empty.
    pub(super) fn matches(&self, rows: &[MatchedEvent]) -> bool {
        let before = |instant: Micros| rows.partition_point(|event| event.time < instant);
        match self {
            Self::Times(count) => count.holds(rows.len()),
            Self::First { since } => before(*since) == 0,
            Self::Sequence { within } => has_sequence(rows, within),
            Self::Stopped { since } => before(*since) == rows.len(),
            Self::Restarted { from, again } => {
                let old = before(*from);
                old > 0 && before(*again) == old && old < rows.len()
            }
            Self::Regularly { edges, count, periods } => {
                let until = |edge: Micros| rows.partition_point(|event| event.time <= edge);
                let full = edges.windows(2).filter(|edges| count.holds(until(edges[1]) - until(edges[0])));
                full.count() >= *periods
            }
        }
    }
}

/// A calendar duration in a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CalendarDuration {
    pub(super) months: u32,
    pub(super) days: u32,
    pub(super) zone: Tz,
}

impl CalendarDuration {
    /// The instant this duration after another: the same wall-clock time, clamped to the last day of the month.
    fn after(self, instant: Micros) -> Micros {
        let local = zone::from_micros(instant, self.zone).naive_local();
        let end = local
            .checked_add_months(Months::new(self.months))
            .and_then(|local| local.checked_add_days(Days::new(self.days.into())));
        end.map_or(Micros::MAX, |local| zone::at(local, self.zone).timestamp_micros())
    }
}

/// Whether a second event follows a first event within the duration. Events of the same instant do not follow each other.
fn has_sequence(rows: &[MatchedEvent], within: &CalendarDuration) -> bool {
    let mut until = Micros::MIN;
    rows.chunk_by(|left, right| left.time == right.time).any(|instant| {
        let time = instant[0].time;
        let found = time <= until && instant.iter().any(|event| event.second);
        if instant.iter().any(|event| event.first) {
            // When clocks go back, a later event may have an earlier end.
            until = until.max(within.after(time));
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(rows: &[(Micros, &str)]) -> Vec<MatchedEvent> {
        let row = |(time, kinds): &(Micros, &str)| MatchedEvent {
            actor: 0,
            time: *time,
            first: kinds.contains('a'),
            second: kinds.contains('b'),
        };
        rows.iter().map(row).collect()
    }

    const DAY: Micros = 86_400_000_000;

    fn days(days: u32) -> BehaviourPattern {
        BehaviourPattern::Sequence { within: CalendarDuration { months: 0, days, zone: Tz::UTC } }
    }

    #[test]
    fn a_sequence_needs_two_events_within_the_duration() {
        for (rows, shown) in [
            (vec![(0, "a"), (10, "b")], true),
            (vec![(0, "a"), (11, "b")], false),
            (vec![(0, "b"), (5, "a")], false),
            (vec![(0, "a"), (20, "a"), (25, "b")], true),
            (vec![(0, "ab")], false),
            (vec![(0, "ab"), (3, "ab")], true),
            (vec![(0, "ab"), (0, "ab")], false),
            (vec![(4, "b"), (4, "a")], false),
            (vec![(4, "b"), (4, "a"), (5, "b")], true),
            (vec![(0, "a")], false),
        ] {
            let rows: Vec<_> = rows.into_iter().map(|(day, kinds)| (day * DAY, kinds)).collect();
            assert_eq!(days(10).matches(&seen(&rows)), shown, "{rows:?}");
        }
    }

    #[test]
    fn a_sequence_uses_calendar_durations() {
        let at =
            |text: &str| chrono::DateTime::parse_from_rfc3339(text).unwrap_or_default().timestamp_micros();
        for (months, days, zone, first, second, shown) in [
            (1, 0, Tz::UTC, "2023-02-01T00:00:00Z", "2023-03-01T00:00:00Z", true),
            (1, 0, Tz::UTC, "2023-02-01T00:00:00Z", "2023-03-01T00:00:01Z", false),
            (1, 0, Tz::UTC, "2024-01-31T10:00:00Z", "2024-02-29T10:00:00Z", true),
            (1, 0, Tz::UTC, "2024-01-31T10:00:00Z", "2024-03-01T10:00:00Z", false),
            (12, 0, Tz::UTC, "2024-01-15T00:00:00Z", "2025-01-15T00:00:00Z", true),
            // A day of 23 hours.
            (0, 1, Tz::America__New_York, "2024-03-09T17:00:00Z", "2024-03-10T16:00:00Z", true),
            (0, 1, Tz::America__New_York, "2024-03-09T17:00:00Z", "2024-03-10T16:00:01Z", false),
            (u32::MAX, u32::MAX, Tz::UTC, "2024-01-01T00:00:00Z", "9999-01-01T00:00:00Z", true),
        ] {
            let pattern = BehaviourPattern::Sequence { within: CalendarDuration { months, days, zone } };
            assert_eq!(
                pattern.matches(&seen(&[(at(first), "a"), (at(second), "b")])),
                shown,
                "{first} {second}"
            );
        }
    }

    #[test]
    fn stops_and_restarts_look_at_three_times() {
        let shown = |pattern: &BehaviourPattern, times: &[Micros]| {
            pattern.matches(&seen(&times.iter().map(|time| (*time, "a")).collect::<Vec<_>>()))
        };
        let stopped = BehaviourPattern::Stopped { since: 10 };
        assert!(shown(&stopped, &[3]) && shown(&stopped, &[9]));
        assert!(!shown(&stopped, &[10]) && !shown(&stopped, &[3, 11]));
        let restarted = BehaviourPattern::Restarted { from: 10, again: 20 };
        assert!(shown(&restarted, &[9, 20]) && shown(&restarted, &[1, 2, 30]));
        for times in [&[9][..], &[20], &[9, 10, 20], &[9, 19, 20], &[10, 20], &[9, 19]] {
            assert!(!shown(&restarted, times), "{times:?}");
        }
        let first = BehaviourPattern::First { since: 10 };
        assert!(shown(&first, &[10, 11]) && !shown(&first, &[9, 11]));
    }

    #[test]
    fn regular_events_fill_periods() {
        let regular =
            |count, periods| BehaviourPattern::Regularly { edges: vec![0, 10, 20, 30], count, periods };
        let rows = seen(&[(1, "a"), (10, "a"), (11, "a"), (30, "a")]);
        // Two, one and one.
        assert!(regular(CountCondition::AtLeast(1), 3).matches(&rows));
        assert!(regular(CountCondition::AtLeast(2), 1).matches(&rows));
        assert!(!regular(CountCondition::AtLeast(2), 2).matches(&rows));
        assert!(regular(CountCondition::Exactly(1), 2).matches(&rows));
        assert!(!regular(CountCondition::Exactly(1), 3).matches(&rows));
        // A period without any event is one with few.
        assert!(regular(CountCondition::AtMost(1), 3).matches(&seen(&[(1, "a")])));
        assert!(regular(CountCondition::AtMost(0), 2).matches(&seen(&[(1, "a")])));
        assert!(!regular(CountCondition::AtMost(0), 3).matches(&seen(&[(1, "a")])));
    }

    proptest! {
        #[test]
        fn a_sequence_is_a_pair_of_different_events(
            mut rows in prop::collection::vec((0..12_i64, prop::sample::select(vec!["a", "b", "ab"])), 1..8),
            within in 1..6_u32,
        ) {
            rows.sort_by_key(|row| row.0);
            let pair = (0..rows.len()).any(|one| (0..rows.len()).any(|other| {
                let apart = rows[other].0 - rows[one].0;
                one != other && rows[one].1.contains('a') && rows[other].1.contains('b') && (1..=i64::from(within)).contains(&apart)
            }));
            let rows: Vec<_> = rows.into_iter().map(|(day, kinds)| (day * DAY, kinds)).collect();
            prop_assert_eq!(days(within).matches(&seen(&rows)), pair);
        }
    }
}
