//! A range of persons, by the first bits of their ids: what one part of a calculation counts.
//!
//! Must stay true: the ranges of a split are disjoint and hold every person, so the results of their parts can be merged.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Bits of an id that select a range, as many as those of the ranges of a segment at most.
const BITS: u32 = 16;

/// The persons whose ids begin with the 16 bits `from`, included, to `until`, excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct PersonRange {
    from: u32,
    until: u32,
}

impl PersonRange {
    /// All persons.
    pub const ALL: Self = Self { from: 0, until: 1 << BITS };

    /// Most ranges that it can be split into.
    pub fn width(self) -> u32 {
        self.until - self.from
    }

    /// Splits it into so many ranges of about the same size, or as many as there can be.
    pub fn split(self, parts: u32) -> Vec<Self> {
        let width = u64::from(self.width());
        let parts = u64::from(parts).clamp(1, width.max(1));
        let bound = |part: u64| self.from + u32::try_from(width * part / parts).unwrap_or(u32::MAX);
        (0..parts).map(|part| Self { from: bound(part), until: bound(part + 1) }).collect()
    }

    /// Whether it holds all persons.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// Whether it holds this person.
    pub fn contains(self, person: Uuid) -> bool {
        (self.from..self.until).contains(&first_bits(person))
    }

    /// Whether this person comes before all of its persons.
    pub fn starts_after(self, person: Uuid) -> bool {
        first_bits(person) < self.from
    }

    /// The places of its persons in a sorted list.
    pub fn places(self, persons: &[Uuid]) -> Range<usize> {
        let place = |bound: u32| persons.partition_point(|person| first_bits(*person) < bound);
        place(self.from)..place(self.until)
    }

    /// Whether it shares persons with range `number` of `2^bits` equal ranges of all persons.
    pub fn overlaps(self, number: u64, bits: u32) -> bool {
        let (first, end) = bounds(number, bits);
        first < u64::from(self.until) && end > u64::from(self.from)
    }

    /// Whether it holds all persons of range `number` of `2^bits` equal ranges of all persons.
    pub fn covers(self, number: u64, bits: u32) -> bool {
        let (first, end) = bounds(number, bits);
        first >= u64::from(self.from) && end <= u64::from(self.until)
    }
}

/// The bounds of range `number` of `2^bits` equal ranges of all persons.
fn bounds(number: u64, bits: u32) -> (u64, u64) {
    let width = 1_u64 << (BITS - bits.min(BITS));
    let first = number.saturating_mul(width);
    (first, first.saturating_add(width))
}

/// The bits of an id that select its range.
fn first_bits(person: Uuid) -> u32 {
    u32::try_from(person.as_u64_pair().0 >> (64 - BITS)).unwrap_or(u32::MAX)
}

impl From<PersonRange> for (u32, u32) {
    fn from(range: PersonRange) -> Self {
        (range.from, range.until)
    }
}

impl TryFrom<(u32, u32)> for PersonRange {
    type Error = String;

    fn try_from((from, until): (u32, u32)) -> Result<Self, String> {
        let is_valid = from < until && until <= Self::ALL.until;
        is_valid.then_some(Self { from, until }).ok_or(format!("{from} to {until} is no range of persons"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_split_into_too_many_ranges_has_as_many_as_there_can_be() {
        let two = PersonRange::try_from((5, 7)).unwrap();
        assert_eq!(two.split(9).len(), 2);
        assert_eq!(two.split(0), [two]);
        assert_eq!(PersonRange::ALL.split(u32::MAX).len(), 65_536);
        assert!(PersonRange::try_from((7, 7)).is_err() && PersonRange::try_from((0, 65_537)).is_err());
    }

    proptest! {
        #[test]
        fn each_person_is_in_one_range_of_a_split(ids in prop::collection::vec(any::<u128>(), 1..50), parts in 1..200_u32) {
            let mut persons: Vec<Uuid> = ids.into_iter().map(Uuid::from_u128).collect();
            persons.sort_unstable();
            let ranges = PersonRange::ALL.split(parts);
            prop_assert_eq!(ranges.len(), parts as usize);
            let mut next = 0;
            for range in &ranges {
                let places = range.places(&persons);
                prop_assert_eq!(places.start, next);
                prop_assert!(persons[places.clone()].iter().all(|person| range.contains(*person)));
                next = places.end;
            }
            prop_assert_eq!(next, persons.len());
        }

        #[test]
        fn ranges_overlap_if_they_share_a_person(from in 0..65_536_u32, width in 1..3000_u32, bits in 0..17_u32, id in any::<u64>()) {
            let range = PersonRange::try_from((from, (from + width).min(65_536))).unwrap();
            let number = if bits == 0 { 0 } else { id >> (64 - bits) };
            let first = if bits == 0 { 0 } else { u128::from(number) << (128 - bits) };
            let last = first | (u128::MAX >> bits.min(127));
            let last = if bits == 0 { u128::MAX } else { last };
            let (first, last) = ((first >> 112) as u32, (last >> 112) as u32);
            prop_assert_eq!(range.overlaps(number, bits), first < range.until && last >= range.from);
            prop_assert_eq!(range.covers(number, bits), first >= range.from && last < range.until);
        }
    }
}
