//! How much of the definitions feed's room a project's flags take.
//!
//! Must stay true: beside a project's version stands a number that the feed does not exceed, as far as writes of flags can
//! tell, and no write makes it exceed the room. A write adds the length of what it puts into the feed, before any
//! compression, which costs no reading; only where that does not fit, the feed is made and measured. Whoever makes the
//! feed anyway corrects the number.

use pennon_core::model::FEED_ROOM;
use pennon_core::store::VersionBump;
use pennon_engine::flag::Flag;

/// What a cohort may add for each byte of its rules: they are sent beside the flags, and spelled out in conditions.
const COHORT_TIMES: usize = 4;
/// What is taken for a cohort that nobody looked up.
const COHORT_BYTES: usize = 64 * 1024;

/// What a change of a flag takes of the feed's room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// At most the flag's own length and this.
    Estimated {
        /// What other records add: bytes.
        beside: usize,
    },
    /// With the change made, so much is used at this version.
    Measured {
        /// The number of the version.
        number: i64,
        /// What is used.
        used: i64,
    },
}

impl Default for Room {
    fn default() -> Room {
        Room::Estimated { beside: 0 }
    }
}

impl Room {
    /// Whether other records may take more than there ever is.
    pub fn is_too_much(self) -> bool {
        matches!(self, Room::Estimated { beside } if i64::try_from(beside).is_ok_and(|beside| beside > FEED_ROOM))
    }

    /// Has `raise` take the room that `after`, of `length` bytes as a record, needs in the place of `before`.
    pub(super) fn take(self, raise: &mut VersionBump, before: Option<&Flag>, after: &Flag, length: usize) {
        match self {
            Room::Measured { number, used } => {
                raise.when.number = Some(number);
                raise.used = Some(used);
            }
            Room::Estimated { beside } => {
                let more = added(before, after, length, beside);
                if more > 0 {
                    raise.by.used = more;
                    raise.when.used_at_most = Some(FEED_ROOM - more);
                }
            }
        }
    }
}

/// What cohorts of these lengths, and `unknown` others, add to a flag that names them.
pub fn of_cohorts(lengths: impl IntoIterator<Item = usize>, unknown: usize) -> usize {
    lengths.into_iter().map(|length| length.saturating_mul(COHORT_TIMES)).sum::<usize>()
        + unknown.saturating_mul(COHORT_BYTES)
}

/// The most that the feed may grow by.
pub fn added(before: Option<&Flag>, after: &Flag, length: usize, beside: usize) -> i64 {
    if after.deleted {
        return 0;
    }
    let bytes = match before.filter(|before| !before.deleted) {
        Some(before) if before.filters == after.filters => after
            .name
            .len()
            .saturating_sub(before.name.len())
            .saturating_add(after.key.len().saturating_sub(before.key.len())),
        _ => length.saturating_add(beside),
    };
    i64::try_from(bytes).unwrap_or(FEED_ROOM)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pennon_core::store::Precondition;
    use serde_json::json;

    fn flag(name: &str, value: &str, deleted: bool) -> Flag {
        serde_json::from_value(json!({
            "id": 1, "key": "a", "name": name, "deleted": deleted, "active": true,
            "filters": {"groups": [], "payloads": {"true": value}},
            "version": 1, "created_at": "2026-01-05T10:00:00Z", "updated_at": "2026-01-05T10:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn a_change_takes_what_it_may_add_and_a_deletion_nothing() {
        let (old, new) = (flag("a", "x", false), flag("a", "y", false));
        assert_eq!(added(None, &old, 500, 30), 530);
        assert_eq!(added(Some(&old), &new, 500, 30), 530, "other filters may be packed less well");
        assert_eq!(added(Some(&old), &old, 500, 30), 0);
        assert_eq!(added(Some(&old), &flag("abcd", "x", false), 500, 30), 3);
        assert_eq!(
            added(Some(&flag("a", "x", true)), &old, 500, 30),
            530,
            "a restored one is new to the feed"
        );
        assert_eq!(added(Some(&old), &flag("a", "z", true), 500, 30), 0);
    }

    #[test]
    fn what_is_estimated_is_added_below_the_room_and_what_is_measured_is_set() {
        let new = flag("a", "x", false);
        let mut raise = VersionBump::default();
        Room::Estimated { beside: 0 }.take(&mut raise, None, &new, 700);
        assert_eq!((raise.by.used, raise.used), (700, None));
        assert_eq!(
            raise.when,
            Precondition { used_at_most: Some(4_500_000 - 700), ..Precondition::default() }
        );
        let mut raise = VersionBump::default();
        Room::Measured { number: 8, used: 9 }.take(&mut raise, None, &new, 700);
        assert_eq!((raise.by.used, raise.used), (0, Some(9)));
        assert_eq!(raise.when, Precondition { number: Some(8), ..Precondition::default() });
    }
}
