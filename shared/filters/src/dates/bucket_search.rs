//! Interpolation search in ascending bucket starts: finds the last start that is not after an instant.
//!
//! Must stay true: bucket starts are about evenly spaced, so the index estimated from the average spacing is off by few
//! steps, mostly none.

use crate::dates::Micros;

/// Ascending start instants of buckets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketStarts {
    starts: Vec<Micros>,
    rate: u64,
}

impl BucketStarts {
    /// Prepares the search; `starts` are ascending.
    pub fn new(starts: Vec<Micros>) -> Self {
        let rate = match (starts.first(), starts.last()) {
            (Some(first), Some(last)) if last > first => {
                let whole = ((starts.len() - 1) as u128) << 64;
                u64::try_from(whole / u128::from(last.abs_diff(*first))).unwrap_or(0)
            }
            _ => 0,
        };
        Self { starts, rate }
    }

    /// The starts, ascending.
    #[inline]
    pub fn starts(&self) -> &[Micros] {
        &self.starts
    }

    /// The bucket index of an instant; none if all starts are after it.
    #[inline]
    pub fn find(&self, at: Micros) -> Option<usize> {
        (at >= *self.starts.first()?).then(|| BucketFinder { starts: &self.starts, rate: self.rate }.find(at))
    }

    /// A finder for loops over many instants; none without buckets.
    #[inline]
    pub fn finder(&self) -> Option<BucketFinder<'_>> {
        (!self.starts.is_empty()).then_some(BucketFinder { starts: &self.starts, rate: self.rate })
    }
}

/// Finds bucket indexes.
#[derive(Debug, Clone, Copy)]
pub struct BucketFinder<'a> {
    /// At least one.
    starts: &'a [Micros],
    /// Average number of buckets per microsecond, times 2^64.
    rate: u64,
}

impl BucketFinder<'static> {
    /// A single bucket for all time.
    pub const SINGLE: Self = Self { starts: &[Micros::MIN], rate: 0 };
}

impl BucketFinder<'_> {
    /// The first start.
    #[inline]
    pub fn first(self) -> Micros {
        self.starts.first().copied().unwrap_or(Micros::MAX)
    }

    /// The bucket index of an instant; 0 if all starts are after it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "loops over rows keep its few numbers in registers")]
    pub fn find(self, at: Micros) -> usize {
        let Self { starts, rate } = self;
        let last = starts.len() - 1;
        let passed = at.wrapping_sub(starts[0]) as u64;
        let mut index = ((u128::from(passed) * u128::from(rate)) >> 64) as usize;
        index = index.min(last);
        while index > 0 && starts[index] > at {
            index -= 1;
        }
        while index < last && starts[index + 1] <= at {
            index += 1;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_the_same_index_as_binary_search(
            mut starts in prop::collection::btree_set(prop_oneof![-50_i64..50, any::<i64>()], 0..12),
            near in -60_i64..60, far in any::<i64>(),
        ) {
            starts.retain(|start| *start > Micros::MIN / 2 && *start < Micros::MAX / 2);
            let starts: Vec<Micros> = starts.into_iter().collect();
            let bucket_starts = BucketStarts::new(starts.clone());
            for at in starts.iter().copied().chain([near, far, Micros::MIN, Micros::MAX]) {
                let want = starts.partition_point(|start| *start <= at).checked_sub(1);
                prop_assert_eq!(bucket_starts.find(at), want);
                if let Some(finder) = bucket_starts.finder() {
                    prop_assert_eq!(finder.find(at), want.unwrap_or(0));
                }
                prop_assert_eq!(BucketFinder::SINGLE.find(at), 0);
            }
        }
    }

    #[test]
    fn days_are_found_at_their_edges() {
        let day = 86_400_000_000;
        let bucket_starts =
            BucketStarts::new((0..400).map(|index| 1_767_225_600_000_000 + index * day).collect());
        for (index, start) in bucket_starts.starts().iter().enumerate() {
            assert_eq!(bucket_starts.find(*start), Some(index));
            assert_eq!(bucket_starts.find(start + day - 1), Some(index));
            assert_eq!(bucket_starts.find(start - 1), index.checked_sub(1));
        }
    }
}
