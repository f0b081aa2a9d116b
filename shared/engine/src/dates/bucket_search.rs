//! The place of an instant among others that ascend: the last of them that is not after it.
//!
//! Must stay true: they stand about as dense everywhere, so that a place is guessed by their rate and moved to the right
//! one; there are few steps to go, mostly none.

use crate::scan::Micros;

/// Instants that ascend.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BucketStarts {
    starts: Vec<Micros>,
    rate: u64,
}

impl BucketStarts {
    pub(crate) fn new(starts: Vec<Micros>) -> Self {
        let rate = match (starts.first(), starts.last()) {
            (Some(first), Some(last)) if last > first => {
                let whole = ((starts.len() - 1) as u128) << 64;
                u64::try_from(whole / u128::from(last.abs_diff(*first))).unwrap_or(0)
            }
            _ => 0,
        };
        Self { starts, rate }
    }

    pub(crate) fn starts(&self) -> &[Micros] {
        &self.starts
    }

    /// The place of an instant; none when all are after it.
    #[inline]
    pub(crate) fn find(&self, at: Micros) -> Option<usize> {
        (at >= *self.starts.first()?).then(|| BucketFinder { starts: &self.starts, rate: self.rate }.find(at))
    }

    /// For loops over many instants; none when there are no places.
    pub(crate) fn finder(&self) -> Option<BucketFinder<'_>> {
        (!self.starts.is_empty()).then_some(BucketFinder { starts: &self.starts, rate: self.rate })
    }
}

/// Finds places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BucketFinder<'a> {
    /// One at least.
    starts: &'a [Micros],
    /// How many there are a microsecond, on average, times 2^64.
    rate: u64,
}

impl BucketFinder<'static> {
    /// One place for all time.
    pub(crate) const SINGLE: Self = Self { starts: &[Micros::MIN], rate: 0 };
}

impl BucketFinder<'_> {
    pub(crate) fn first(self) -> Micros {
        self.starts.first().copied().unwrap_or(Micros::MAX)
    }

    /// The place of an instant; the first one when all are after it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "loops over rows keep its few numbers in registers")]
    pub(crate) fn find(self, at: Micros) -> usize {
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
        fn a_place_is_where_a_search_ends(
            mut starts in prop::collection::btree_set(prop_oneof![-50_i64..50, any::<i64>()], 0..12),
            near in -60_i64..60, far in any::<i64>(),
        ) {
            starts.retain(|start| *start > Micros::MIN / 2 && *start < Micros::MAX / 2);
            let starts: Vec<Micros> = starts.into_iter().collect();
            let places = BucketStarts::new(starts.clone());
            for at in starts.iter().copied().chain([near, far, Micros::MIN, Micros::MAX]) {
                let want = starts.partition_point(|start| *start <= at).checked_sub(1);
                prop_assert_eq!(places.find(at), want);
                if let Some(finder) = places.finder() {
                    prop_assert_eq!(finder.find(at), want.unwrap_or(0));
                }
                prop_assert_eq!(BucketFinder::SINGLE.find(at), 0);
            }
        }
    }

    #[test]
    fn days_are_found_at_their_edges() {
        let day = 86_400_000_000;
        let places = BucketStarts::new((0..400).map(|index| 1_767_225_600_000_000 + index * day).collect());
        for (index, start) in places.starts().iter().enumerate() {
            assert_eq!(places.find(*start), Some(index));
            assert_eq!(places.find(start + day - 1), Some(index));
            assert_eq!(places.find(start - 1), index.checked_sub(1));
        }
    }
}
