//! Size accounting of the definitions feed.
//!
//! Must stay true: the project's version records an upper bound of the feed size, and no write lets the feed exceed its
//! limit. A write adds the uncompressed length of what it adds to the feed, which needs no read; only when that exceeds
//! the limit, the feed is built and measured. Whenever a feed is built, the recorded size is corrected.

use pennon_core::model::FEED_BYTES_LIMIT;
use pennon_core::store::VersionBump;
use pennon_flag_rules::Flag;

/// Bytes of feed per byte of a cohort's criteria: they are sent as cohorts, and flattened into conditions.
const COHORT_BYTES_FACTOR: usize = 4;
/// Bytes assumed for a cohort that was not loaded.
const UNKNOWN_COHORT_BYTES: usize = 64 * 1024;

/// The growth of the feed by a write of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedGrowth {
    /// At most the length of the flag plus this.
    Estimated {
        /// Bytes that other records add.
        beside: usize,
    },
    /// The size that was measured with the change applied, at this project version.
    Measured {
        /// The version number.
        number: i64,
        /// The used bytes.
        used: i64,
    },
}

impl Default for FeedGrowth {
    fn default() -> FeedGrowth {
        FeedGrowth::Estimated { beside: 0 }
    }
}

impl FeedGrowth {
    /// Whether the other records alone exceed the limit.
    pub fn exceeds_limit(self) -> bool {
        matches!(self, FeedGrowth::Estimated { beside } if i64::try_from(beside).is_ok_and(|beside| beside > FEED_BYTES_LIMIT))
    }

    /// Adds the growth to the version update `raise`. `length` is the length of the record `after` in bytes; it
    /// replaces `before`.
    pub(super) fn apply_to(
        self,
        raise: &mut VersionBump,
        before: Option<&Flag>,
        after: &Flag,
        length: usize,
    ) {
        match self {
            FeedGrowth::Measured { number, used } => {
                raise.when.number = Some(number);
                raise.used = Some(used);
            }
            FeedGrowth::Estimated { beside } => {
                let growth = max_growth(before, after, length, beside);
                if growth > 0 {
                    raise.by.used = growth;
                    raise.when.used_at_most = Some(FEED_BYTES_LIMIT - growth);
                }
            }
        }
    }
}

/// Feed bytes of cohorts with these record lengths and of `unknown` cohorts that were not loaded.
pub fn cohort_feed_bytes(lengths: impl IntoIterator<Item = usize>, unknown: usize) -> usize {
    lengths.into_iter().map(|length| length.saturating_mul(COHORT_BYTES_FACTOR)).sum::<usize>()
        + unknown.saturating_mul(UNKNOWN_COHORT_BYTES)
}

/// Upper bound of the feed growth in bytes.
pub fn max_growth(before: Option<&Flag>, after: &Flag, length: usize, beside: usize) -> i64 {
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
    i64::try_from(bytes).unwrap_or(FEED_BYTES_LIMIT)
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
    fn a_change_counts_its_maximum_growth_and_a_deletion_nothing() {
        let (old, new) = (flag("a", "x", false), flag("a", "y", false));
        assert_eq!(max_growth(None, &old, 500, 30), 530);
        assert_eq!(max_growth(Some(&old), &new, 500, 30), 530, "other filters may be packed less well");
        assert_eq!(max_growth(Some(&old), &old, 500, 30), 0);
        assert_eq!(max_growth(Some(&old), &flag("abcd", "x", false), 500, 30), 3);
        assert_eq!(
            max_growth(Some(&flag("a", "x", true)), &old, 500, 30),
            530,
            "a restored one is new to the feed"
        );
        assert_eq!(max_growth(Some(&old), &flag("a", "z", true), 500, 30), 0);
    }

    #[test]
    fn an_estimate_is_added_within_the_limit_and_a_measured_size_is_set() {
        let new = flag("a", "x", false);
        let mut raise = VersionBump::default();
        FeedGrowth::Estimated { beside: 0 }.apply_to(&mut raise, None, &new, 700);
        assert_eq!((raise.by.used, raise.used), (700, None));
        assert_eq!(
            raise.when,
            Precondition { used_at_most: Some(4_500_000 - 700), ..Precondition::default() }
        );
        let mut raise = VersionBump::default();
        FeedGrowth::Measured { number: 8, used: 9 }.apply_to(&mut raise, None, &new, 700);
        assert_eq!((raise.by.used, raise.used), (0, Some(9)));
        assert_eq!(raise.when, Precondition { number: Some(8), ..Precondition::default() });
    }
}
