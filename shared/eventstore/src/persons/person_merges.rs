//! Maps every merged person id to its canonical id (union-find).
//!
//! A sorted table, and above it a small map of later links. So a merge costs a warm process only itself, and
//! each merged id takes about 36 bytes. The table has the same layout in memory as in the object of
//! [`crate::persons::imports::merge_table_object`], so reading it builds nothing. Must stay true: links only
//! ever merge persons; the same links in the same order give the same canonical persons, however they are
//! batched.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use pennon_analytics::PersonRange;
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::person_ids::{PersonLink, root};

/// Most entries above the table; with more the table is rebuilt.
const SINCE_MAX: usize = 4096;

/// Maps every merged person id to its canonical id. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct PersonMerges {
    table: Arc<MergeTable>,
    /// Canonical ids of the table that were merged since, with their canonical ids.
    since: Arc<HashMap<Uuid, Uuid>>,
}

/// Merged persons with their canonical ids, indexed both ways.
#[derive(Debug, Default)]
struct MergeTable {
    /// Pairs of merged id and canonical id, sorted by the merged id.
    pairs: Bytes,
    /// Indices of the pairs, sorted by canonical id; built lazily.
    by_final: OnceLock<Vec<u32>>,
}

/// A merged id and its canonical id.
type MergePair = [u8; 32];

fn linked(pair: &MergePair) -> Uuid {
    ids(pair).0
}

fn last(pair: &MergePair) -> Uuid {
    ids(pair).1
}

fn ids(pair: &MergePair) -> (Uuid, Uuid) {
    let id = |half: &[u8]| Uuid::from_slice(half).unwrap_or_default();
    (id(&pair[..16]), id(&pair[16..]))
}

impl MergeTable {
    fn of(mut finals: Vec<(Uuid, Uuid)>) -> MergeTable {
        finals.sort_unstable();
        let pairs = finals.iter().flat_map(|(linked, last)| [linked.as_bytes(), last.as_bytes()]);
        MergeTable { pairs: pairs.flatten().copied().collect::<Vec<_>>().into(), by_final: OnceLock::new() }
    }

    fn pairs(&self) -> &[MergePair] {
        self.pairs.as_chunks().0
    }

    fn person(&self, person: Uuid) -> Uuid {
        let pairs = self.pairs();
        pairs.binary_search_by_key(&person, linked).map_or(person, |place| last(&pairs[place]))
    }

    /// All other ids that were merged into `person`.
    fn members(&self, person: Uuid) -> impl Iterator<Item = Uuid> {
        let pairs = self.pairs();
        let by_final = self.by_final.get_or_init(|| {
            let mut by_final = (0..pairs.len() as u32).collect::<Vec<_>>();
            by_final.sort_by_key(|place| last(&pairs[*place as usize]));
            by_final
        });
        let last = |place: &u32| last(&pairs[*place as usize]);
        let start = by_final.partition_point(|place| last(place) < person);
        let of = by_final[start..].iter().take_while(move |place| last(place) == person);
        of.map(|place| linked(&pairs[*place as usize]))
    }
}

impl PersonMerges {
    /// Applies `links` in order. Where two groups of persons meet, the canonical id of `to` stays.
    pub(crate) fn of(links: impl IntoIterator<Item = PersonLink>) -> PersonMerges {
        PersonMerges::default().with(links)
    }

    /// A copy with more links applied.
    pub(crate) fn with(&self, links: impl IntoIterator<Item = PersonLink>) -> PersonMerges {
        let mut parents = HashMap::clone(&self.since);
        for link in links {
            let from = root(&mut parents, self.table.person(link.from));
            let to = root(&mut parents, self.table.person(link.to));
            if from != to {
                parents.insert(from, to);
            }
        }
        let linked = parents.keys().copied().collect::<Vec<_>>();
        let since: HashMap<_, _> =
            linked.into_iter().map(|person| (person, root(&mut parents, person))).collect();
        let next = PersonMerges { table: self.table.clone(), since: Arc::new(since) };
        if next.since.len() <= SINCE_MAX {
            return next;
        }
        PersonMerges { table: Arc::new(MergeTable::of(next.linked().collect())), since: Arc::default() }
    }

    /// The canonical id of `person`.
    pub(crate) fn person(&self, person: Uuid) -> Uuid {
        let by_table = self.table.person(person);
        self.since.get(&by_table).copied().unwrap_or(by_table)
    }

    /// Finds the merged ids among `persons` (sorted): their indices, ascending, and canonical ids. Galloping
    /// search: takes about as long as the shorter list.
    pub(crate) fn moved(&self, persons: &[Uuid]) -> Vec<(u32, Uuid)> {
        let (Some(least), Some(most)) = (persons.first(), persons.last()) else { return Vec::new() };
        let pairs = self.table.pairs();
        let pairs = &pairs[pairs.partition_point(|pair| linked(pair) < *least)..];
        let pairs = &pairs[..pairs.partition_point(|pair| linked(pair) <= *most)];
        let mut moved = Vec::new();
        let (mut at, mut pair) = (0, 0);
        while at < persons.len() && pair < pairs.len() {
            let next = linked(&pairs[pair]);
            at += reach(&persons[at..], |person| *person < next);
            let Some(person) = persons.get(at) else { break };
            if *person == next {
                let by_table = last(&pairs[pair]);
                moved.push((at as u32, self.since.get(&by_table).copied().unwrap_or(by_table)));
                pair += 1;
            } else {
                pair += reach(&pairs[pair..], |other| linked(other) < *person);
            }
        }
        // Ids that were linked since are no merged ids of the table.
        let since = self.since.iter().filter_map(|(person, last)| {
            let place = persons.binary_search(person).ok()?;
            Some((place as u32, *last))
        });
        moved.extend(since);
        moved.sort_unstable();
        moved
    }

    /// All ids of the canonical person `person`, including itself.
    pub(crate) fn members(&self, person: Uuid) -> BTreeSet<Uuid> {
        let since = self.since.iter().filter(|(_, last)| **last == person).map(|(linked, _)| *linked);
        let mut members = BTreeSet::from([person]);
        for by_table in since.chain([person]) {
            members.insert(by_table);
            members.extend(self.table.members(by_table));
        }
        members
    }

    /// Whether `person` was merged with any other id.
    pub(crate) fn is_linked(&self, person: Uuid) -> bool {
        self.person(person) != person
            || self.table.members(person).next().is_some()
            || self.since.values().any(|last| *last == person)
    }

    /// All merged ids with their canonical ids.
    pub(crate) fn linked(&self) -> impl Iterator<Item = (Uuid, Uuid)> {
        let by_table = self.table.pairs().iter().map(ids);
        let by_table =
            by_table.map(|(linked, last)| (linked, self.since.get(&last).copied().unwrap_or(last)));
        by_table.chain(self.since.iter().map(|(linked, last)| (*linked, *last)))
    }

    /// Number of merged ids.
    pub(crate) fn count(&self) -> usize {
        self.table.pairs().len() + self.since.len()
    }

    /// Whether there are no merges.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.pairs.is_empty() && self.since.is_empty()
    }

    /// Encodes the pairs of merged id and canonical id, sorted by the merged id.
    pub(crate) fn encode(&self) -> Bytes {
        MergeTable::of(self.linked().collect()).pairs
    }

    /// The encoded pairs whose merged ids are within a range.
    pub(crate) fn encoded_within(pairs: &Bytes, range: PersonRange) -> Bytes {
        let (pairs_of_ids, _) = pairs.as_chunks::<{ size_of::<MergePair>() }>();
        let from = pairs_of_ids.partition_point(|pair| range.starts_after(linked(pair)));
        let within = pairs_of_ids[from..].partition_point(|pair| range.contains(linked(pair)));
        pairs.slice(from * size_of::<MergePair>()..(from + within) * size_of::<MergePair>())
    }

    /// Whether some of these encoded pairs, whose merged ids are within a range, have canonical ids that are not.
    pub(crate) fn lead_out_of(pairs: &[u8], range: PersonRange) -> bool {
        let (pairs, _) = pairs.as_chunks::<{ size_of::<MergePair>() }>();
        pairs.iter().any(|pair| !range.contains(last(pair)))
    }

    /// Decodes the pairs.
    pub(crate) fn decode(pairs: Bytes) -> Result<PersonMerges, EventStoreError> {
        let table = MergeTable { pairs, by_final: OnceLock::new() };
        if !table.pairs.len().is_multiple_of(size_of::<MergePair>())
            || !table.pairs().is_sorted_by(|a, b| a[..16] < b[..16])
        {
            return Err(EventStoreError::corrupt("linked persons are out of order"));
        }
        Ok(PersonMerges { table: Arc::new(table), since: Arc::default() })
    }
}

/// Partition point by galloping search: how many leading entries are `before`.
fn reach<T>(entries: &[T], before: impl Fn(&T) -> bool) -> usize {
    let mut step = 1;
    while entries.get(step - 1).is_some_and(&before) {
        step *= 2;
    }
    let known = step / 2;
    known + entries[known..entries.len().min(step)].partition_point(before)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn person(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn link((from, to): &(u128, u128)) -> PersonLink {
        PersonLink { from: person(*from), to: person(*to) }
    }

    fn resolve(links: &[(u128, u128)]) -> PersonMerges {
        PersonMerges::of(links.iter().map(link))
    }

    #[test]
    fn links_are_followed_to_the_end_in_any_order() {
        for links in [[(1, 2), (2, 3), (4, 1)], [(4, 1), (2, 3), (1, 2)], [(2, 3), (4, 1), (1, 2)]] {
            let resolved = resolve(&links);
            for n in 1..=4 {
                assert_eq!(resolved.person(person(n)), person(3), "{n} of {links:?}");
            }
            assert_eq!(resolved.person(person(9)), person(9));
        }
    }

    #[test]
    fn a_cycle_is_one_person() {
        let resolved = resolve(&[(1, 2), (2, 3), (3, 1), (1, 1)]);
        let one = resolved.person(person(1));
        assert!((1..=3).all(|n| resolved.person(person(n)) == one));
    }

    #[test]
    fn a_long_chain_takes_no_stack() {
        let links = (0..200_000).map(|n| (n, n + 1)).collect::<Vec<_>>();
        assert_eq!(resolve(&links).person(person(0)), person(200_000));
    }

    #[test]
    fn a_table_made_anew_knows_the_same() {
        // Pairs first, so that the table is full of them; then all pairs become one, a few links at a time.
        let pairs = (0..5000).map(|n| (2 * n, 2 * n + 1)).collect::<Vec<_>>();
        let mut resolved = resolve(&pairs);
        assert!(resolved.since.is_empty() && resolved.table.pairs().len() == 5000);
        let all = (1..5000).map(|n| PersonLink { from: person(2 * n), to: person(0) }).collect::<Vec<_>>();
        for some in all.chunks(600) {
            resolved = resolved.with(some.iter().copied());
        }
        assert!(!resolved.since.is_empty());
        assert!((0..10_000).all(|n| resolved.person(person(n)) == person(1)));
        assert_eq!(resolved.members(person(1)).len(), 10_000);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let bytes = resolve(&[(1, 2), (3, 4)]).encode();
        assert_eq!(bytes.len(), 64);
        for wrong in [bytes.slice(..63), bytes.slice(1..), [&bytes[32..], &bytes[..32]].concat().into()] {
            assert!(PersonMerges::decode(wrong).is_err());
        }
        assert!(PersonMerges::decode([&bytes[..32], &bytes[..32]].concat().into()).is_err(), "one twice");
        assert!(PersonMerges::decode(Bytes::new()).unwrap().is_empty());
    }

    #[test]
    fn a_reach_is_found_whatever_its_length() {
        for entries in 0..40 {
            let entries = (0..entries).collect::<Vec<_>>();
            for bound in 0..42 {
                assert_eq!(reach(&entries, |entry| *entry < bound), entries.len().min(bound));
            }
        }
    }

    proptest! {
        /// Compares with persons as plain sets of ids, each with its canonical id.
        #[test]
        fn linked_ids_are_one_person(links in prop::collection::vec((0..12_u128, 0..12_u128), 0..30), cut in 0..30_usize) {
            let mut groups: Vec<(u128, BTreeSet<u128>)> = (0..12).map(|n| (n, BTreeSet::from([n]))).collect();
            for (from, to) in &links {
                let of = |groups: &[(u128, BTreeSet<u128>)], n: &u128| groups.iter().position(|(_, all)| all.contains(n)).unwrap_or(0);
                let (from, to) = (of(&groups, from), of(&groups, to));
                if from != to {
                    let joins = std::mem::take(&mut groups[from].1);
                    groups[to].1.extend(joins);
                }
            }
            let (first, second) = links.split_at(cut.min(links.len()));
            let mut resolved = resolve(first);
            // The first links in the table, the others above it.
            resolved = PersonMerges { table: Arc::new(MergeTable::of(resolved.linked().collect())), since: Arc::default() };
            for one in second {
                resolved = resolved.with([link(one)]);
            }
            let all_ids = (0..12).map(person).collect::<Vec<_>>();
            let read = PersonMerges::decode(resolved.encode()).unwrap();
            for some in [&all_ids[..], &all_ids[cut.min(12)..], &all_ids[..12 - cut.min(12)]] {
                let moved = (0..).zip(some).map(|(place, id)| (place, resolved.person(*id)));
                let moved = moved.filter(|(place, last)| some[*place as usize] != *last).collect::<Vec<_>>();
                prop_assert_eq!(&resolved.moved(some), &moved);
                prop_assert_eq!(&read.moved(some), &moved);
            }
            for (last, all) in groups {
                let ids = all.iter().map(|n| person(*n)).collect::<BTreeSet<_>>();
                for id in &ids {
                    prop_assert_eq!(resolved.person(*id), person(last));
                    prop_assert_eq!(read.person(*id), person(last));
                    prop_assert_eq!(resolved.is_linked(*id), ids.len() > 1);
                }
                if !ids.is_empty() {
                    prop_assert_eq!(resolved.members(person(last)), ids.clone());
                }
                let linked = resolved.linked().filter(|(_, to)| *to == person(last)).map(|(id, _)| id);
                let linked = linked.filter(|id| *id != person(last)).collect::<BTreeSet<_>>();
                prop_assert_eq!(linked, ids.into_iter().filter(|id| *id != person(last)).collect());
            }
        }
    }
}
