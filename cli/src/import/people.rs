//! Folds a file's partial updates of persons and groups into one record each: the distinct ids of a person (union-find),
//! and the latest value of each property.
//!
//! Merges follow the rules of captured events: a merge that is not forced applies only if its source was not identified yet, so
//! that a shared device does not merge two users. Must stay true: the result depends only on the times of merges and
//! properties and on the order of the file's records; memory is bounded by [`PEOPLE_BYTES_MAX`].

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, btree_map};

use pennon_eventstore::{GroupRecord, PersonRecord, is_usable_id};
use serde_json::{Map, Value};

/// Limit of the estimated memory: about a million persons with three distinct ids and a few properties.
pub const PEOPLE_BYTES_MAX: usize = 1 << 30;
/// Estimated memory of an entry besides its texts.
const ENTRY_BYTES: usize = 96;

/// A partial update of a person or a group. Times are in microseconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PeopleUpdate {
    /// The distinct id belongs to the person with this id of the exporting vendor.
    SamePerson { person: String, distinct_id: String },
    /// `from` is merged into `to`.
    Merge { from: String, to: String, at: i64, forced: bool },
    /// Properties of the person with this distinct id. With `is_whole` it had no others at that time.
    Properties { distinct_id: String, properties: Map<String, Value>, at: i64, is_whole: bool },
    /// The time when a person was first seen.
    FirstSeen { distinct_id: String, at: i64 },
    /// Properties of a group.
    GroupProperties { type_name: String, index: u32, key: String, properties: Map<String, Value>, at: i64 },
}

/// Collects updates of the persons and groups of all projects.
pub(crate) struct PeopleBuilder {
    projects: BTreeMap<u64, ProjectPeople>,
    bytes: usize,
    bytes_max: usize,
    merge_count: u64,
    unusable_merges: u64,
}

/// The persons and groups to store.
#[derive(Debug, Default)]
pub(crate) struct FoldedPeople {
    pub persons: Vec<(u64, PersonRecord)>,
    pub groups: Vec<(u64, GroupRecord)>,
    /// Merges of two persons.
    pub merges: u64,
    /// Rejected merges of a person that was identified before; each pair of ids counts once.
    pub refused_merges: u64,
    /// Rejected merges with an id that identifies no user, such as `anonymous`.
    pub unusable_merges: u64,
}

#[derive(Default)]
struct ProjectPeople {
    /// The interned distinct ids: their indexes in `parents`.
    indexes: HashMap<String, u32>,
    /// The union-find forest: the index of another distinct id of the same person, which is smaller, or the own index.
    parents: Vec<u32>,
    /// The index of a distinct id of each person, by the vendor's person id.
    persons: HashMap<String, u32>,
    /// The time and sequence number of the first occurrence of each merge (from, to, forced): later ones have no effect.
    merges: HashMap<(u32, u32, bool), (i64, u64)>,
    properties: HashMap<u32, TimedProperties>,
    first_seen: HashMap<u32, i64>,
    groups: BTreeMap<(u32, String), (String, TimedProperties)>,
    union_count: u64,
}

/// Properties, each with the time of its value (last write wins).
#[derive(Default)]
struct TimedProperties {
    values: HashMap<String, (i64, Value)>,
    /// The time of the latest complete set of properties.
    whole_at: Option<i64>,
}

impl TimedProperties {
    /// Applies properties of a time. Returns the growth of the estimated memory in bytes.
    fn apply(&mut self, properties: Map<String, Value>, at: i64, is_whole: bool) -> isize {
        if self.whole_at.is_some_and(|whole| at < whole) {
            return 0;
        }
        let mut grown = 0;
        if is_whole {
            self.whole_at = Some(at);
            self.values.retain(|key, (time, value)| {
                let is_kept = *time > at || properties.contains_key(key);
                grown -= if is_kept { 0 } else { entry_bytes(key, value) };
                is_kept
            });
        }
        for (key, value) in properties {
            match self.values.get_mut(&key) {
                Some((time, _)) if *time > at => {}
                Some(known) => {
                    grown += entry_bytes(&key, &value) - entry_bytes(&key, &known.1);
                    *known = (at, value);
                }
                None => {
                    grown += entry_bytes(&key, &value);
                    self.values.insert(key, (at, value));
                }
            }
        }
        grown
    }

    fn merge(&mut self, other: TimedProperties) {
        for (key, (at, value)) in other.values {
            let is_newer = self.values.get(&key).is_none_or(|(known, _)| *known < at);
            if is_newer {
                self.values.insert(key, (at, value));
            }
        }
    }

    fn into_properties(self) -> Map<String, Value> {
        let mut values: Vec<_> = self.values.into_iter().collect();
        values.sort_by(|a, b| a.0.cmp(&b.0));
        values.into_iter().map(|(key, (_, value))| (key, value)).collect()
    }
}

fn entry_bytes(key: &str, value: &Value) -> isize {
    let bytes = match value {
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => value.to_string().len() * 4,
        _ => 0,
    };
    (key.len() + bytes + ENTRY_BYTES) as isize
}

impl Default for PeopleBuilder {
    fn default() -> PeopleBuilder {
        PeopleBuilder::with_limit(PEOPLE_BYTES_MAX)
    }
}

impl PeopleBuilder {
    fn with_limit(bytes_max: usize) -> PeopleBuilder {
        PeopleBuilder { projects: BTreeMap::new(), bytes: 0, bytes_max, merge_count: 0, unusable_merges: 0 }
    }

    /// Applies an update. An error if the memory limit is exceeded.
    pub(crate) fn apply(&mut self, project: u64, update: PeopleUpdate) -> Result<(), String> {
        match update {
            PeopleUpdate::SamePerson { person, distinct_id } => {
                return self.add_distinct_id(project, &person, &distinct_id);
            }
            PeopleUpdate::Merge { from, to, at, forced } => {
                if !is_usable_id(&from) || !is_usable_id(&to) {
                    self.unusable_merges += 1;
                    return Ok(());
                }
                let (from, to) = (self.intern(project, &from), self.intern(project, &to));
                self.merge_count += 1;
                let occurrence = (at, self.merge_count);
                let people = self.projects.entry(project).or_default();
                match people.merges.entry((from, to, forced)) {
                    Entry::Occupied(mut entry) => {
                        let first = occurrence.min(*entry.get());
                        entry.insert(first);
                    }
                    Entry::Vacant(entry) => {
                        entry.insert(occurrence);
                        self.bytes += ENTRY_BYTES;
                    }
                }
            }
            PeopleUpdate::Properties { distinct_id, properties, at, is_whole } => {
                if properties.is_empty() {
                    return Ok(());
                }
                let index = self.intern(project, &distinct_id);
                let people = self.projects.entry(project).or_default();
                let grown = people.properties.entry(index).or_default().apply(properties, at, is_whole);
                self.bytes = self.bytes.saturating_add_signed(grown);
            }
            PeopleUpdate::FirstSeen { distinct_id, at } => {
                let index = self.intern(project, &distinct_id);
                let people = self.projects.entry(project).or_default();
                let first = people.first_seen.entry(index).or_insert(at);
                *first = at.min(*first);
            }
            PeopleUpdate::GroupProperties { type_name, index, key, properties, at } => {
                let people = self.projects.entry(project).or_default();
                let group = match people.groups.entry((index, key)) {
                    btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    btree_map::Entry::Vacant(entry) => {
                        self.bytes += entry.key().1.len() + ENTRY_BYTES;
                        entry.insert((type_name, TimedProperties::default()))
                    }
                };
                let grown = group.1.apply(properties, at, false);
                self.bytes = self.bytes.saturating_add_signed(grown);
            }
        }
        self.check_size()
    }

    /// Adds a distinct id to the person with this id of the vendor.
    pub(crate) fn add_distinct_id(
        &mut self,
        project: u64,
        person: &str,
        distinct_id: &str,
    ) -> Result<(), String> {
        let index = self.intern(project, distinct_id);
        let people = self.projects.entry(project).or_default();
        match people.persons.get(person).copied() {
            Some(known) => people.union(known, index),
            None => {
                people.persons.insert(person.to_owned(), index);
                self.bytes += person.len() + ENTRY_BYTES;
            }
        }
        self.check_size()
    }

    /// The index of a distinct id; adds a new one.
    fn intern(&mut self, project: u64, distinct_id: &str) -> u32 {
        let people = self.projects.entry(project).or_default();
        if let Some(index) = people.indexes.get(distinct_id) {
            return *index;
        }
        self.bytes += distinct_id.len() + ENTRY_BYTES;
        let index = people.parents.len() as u32;
        people.indexes.insert(distinct_id.to_owned(), index);
        people.parents.push(index);
        index
    }

    fn check_size(&self) -> Result<(), String> {
        if self.bytes <= self.bytes_max {
            return Ok(());
        }
        Err(format!(
            "the persons of the file take more than {} MiB of memory up to here; split the file in two and import both",
            self.bytes_max >> 20
        ))
    }

    /// One record for each person and group. A person with one distinct id, no properties and no creation time needs none.
    pub(crate) fn fold(self) -> FoldedPeople {
        let mut folded = FoldedPeople { unusable_merges: self.unusable_merges, ..FoldedPeople::default() };
        for (project, mut people) in self.projects {
            folded.refused_merges += people.apply_merges();
            folded.merges += people.union_count;
            let groups = std::mem::take(&mut people.groups);
            folded.groups.extend(groups.into_iter().map(|((index, key), (type_name, properties))| {
                (project, GroupRecord { type_name, index, key, properties: properties.into_properties() })
            }));
            folded.persons.extend(people.into_records().into_iter().map(|record| (project, record)));
        }
        folded
    }
}

impl ProjectPeople {
    /// Union-find: the representative of a distinct id, with path halving.
    fn find(&mut self, index: u32) -> u32 {
        let mut at = index;
        while self.parents[at as usize] != at {
            let next = self.parents[at as usize];
            self.parents[at as usize] = self.parents[next as usize];
            at = next;
        }
        at
    }

    /// Union-find: makes two distinct ids one person.
    fn union(&mut self, one: u32, other: u32) {
        let (one, other) = (self.find(one), self.find(other));
        if one != other {
            self.parents[one.max(other) as usize] = one.min(other);
            self.union_count += 1;
        }
    }

    /// Applies the merges in the order of their times. Returns the number of rejected ones.
    fn apply_merges(&mut self) -> u64 {
        let mut merges: Vec<_> = std::mem::take(&mut self.merges).into_iter().collect();
        merges.sort_by_key(|(_, occurrence)| *occurrence);
        let mut identified = vec![false; self.parents.len()];
        // A person with several distinct ids by the vendor's person id is identified.
        for index in 0..self.parents.len() as u32 {
            let root = self.find(index);
            identified[root as usize] |= root != index;
        }
        let mut refused = 0;
        for ((from, to, forced), _) in merges {
            let (from, to) = (self.find(from), self.find(to));
            let is_identified = identified[from as usize];
            if from != to && is_identified && !forced {
                refused += 1;
            } else {
                self.union(from, to);
            }
            let root = self.find(to);
            identified[root as usize] = true;
        }
        refused
    }

    fn into_records(mut self) -> Vec<PersonRecord> {
        let mut ids = vec![Vec::new(); self.parents.len()];
        let mut distinct_ids: Vec<(String, u32)> = std::mem::take(&mut self.indexes).into_iter().collect();
        distinct_ids.sort_by_key(|(_, index)| *index);
        for (distinct_id, index) in distinct_ids {
            ids[self.find(index) as usize].push(distinct_id);
        }
        let mut merged: HashMap<u32, TimedProperties> = HashMap::new();
        let mut properties: Vec<_> = std::mem::take(&mut self.properties).into_iter().collect();
        properties.sort_by_key(|(index, _)| *index);
        for (index, properties) in properties {
            merged.entry(self.find(index)).or_default().merge(properties);
        }
        let mut first_seen: HashMap<u32, i64> = HashMap::new();
        for (index, at) in std::mem::take(&mut self.first_seen) {
            let first = first_seen.entry(self.find(index)).or_insert(at);
            *first = at.min(*first);
        }
        let records = ids.into_iter().enumerate().map(|(root, distinct_ids)| PersonRecord {
            distinct_ids,
            properties: merged
                .remove(&(root as u32))
                .map(TimedProperties::into_properties)
                .unwrap_or_default(),
            created_at: first_seen.get(&(root as u32)).copied(),
        });
        let is_needed = |record: &PersonRecord| {
            record.distinct_ids.len() > 1
                || !record.distinct_ids.is_empty()
                    && (!record.properties.is_empty() || record.created_at.is_some())
        };
        records.filter(is_needed).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn merge(from: &str, to: &str, at: i64, forced: bool) -> PeopleUpdate {
        PeopleUpdate::Merge { from: from.to_owned(), to: to.to_owned(), at, forced }
    }

    fn properties(distinct_id: &str, value: Value, at: i64, is_whole: bool) -> PeopleUpdate {
        let properties = value.as_object().unwrap().clone();
        PeopleUpdate::Properties { distinct_id: distinct_id.to_owned(), properties, at, is_whole }
    }

    fn folded(updates: Vec<PeopleUpdate>) -> FoldedPeople {
        let mut people = PeopleBuilder::default();
        updates.into_iter().for_each(|update| people.apply(1, update).unwrap());
        people.fold()
    }

    fn ids(folded: &FoldedPeople) -> Vec<Vec<&str>> {
        let ids =
            folded.persons.iter().map(|(_, person)| person.distinct_ids.iter().map(String::as_str).collect());
        ids.collect()
    }

    #[test]
    fn merges_chain_and_a_shared_device_stays_with_its_first_user() {
        let folded = folded(vec![
            merge("device", "ben", 20, false),
            merge("device", "ann", 10, false),
            merge("tablet", "ann", 30, false),
            merge("anonymous", "cleo", 30, false),
        ]);
        assert_eq!(ids(&folded), [vec!["device", "ann", "tablet"]]);
        assert_eq!((folded.merges, folded.refused_merges), (2, 1));
    }

    #[test]
    fn a_forced_merge_merges_identified_persons() {
        let updates = |forced| {
            vec![merge("d1", "ann", 1, false), merge("d2", "ben", 2, false), merge("ben", "ann", 3, forced)]
        };
        assert_eq!(ids(&folded(updates(true))).len(), 1);
        assert_eq!(ids(&folded(updates(false))).len(), 2);
    }

    #[test]
    fn the_latest_properties_win_in_any_order_of_lines() {
        let folded = folded(vec![
            properties("ann", json!({"plan": "pro"}), 20, false),
            properties("ann", json!({"plan": "free", "city": "Bern"}), 10, false),
            properties("ben", json!({"a": 2, "b": 2}), 20, true),
            properties("ben", json!({"a": 1, "c": 1}), 10, true),
            properties("cleo", json!({"old": 1}), 10, true),
            properties("cleo", json!({"new": 1}), 20, true),
        ]);
        let properties: Vec<_> =
            folded.persons.iter().map(|(_, person)| Value::Object(person.properties.clone())).collect();
        assert_eq!(
            properties,
            [json!({"city": "Bern", "plan": "pro"}), json!({"a": 2, "b": 2}), json!({"new": 1})]
        );
    }

    #[test]
    fn persons_of_one_id_and_nothing_else_need_no_record() {
        let mut people = PeopleBuilder::default();
        people.add_distinct_id(1, "p1", "a").unwrap();
        people.add_distinct_id(1, "p2", "b").unwrap();
        people.add_distinct_id(1, "p2", "c").unwrap();
        people.add_distinct_id(1, "p3", "c").unwrap();
        people.add_distinct_id(1, "p3", "d").unwrap();
        assert_eq!(ids(&people.fold()), [vec!["b", "c", "d"]]);
    }

    #[test]
    fn memory_grows_with_persons_and_not_with_records() {
        let mut people = PeopleBuilder::with_limit(10_000);
        for at in (0..10_000).rev() {
            people.apply(1, merge("device", "ann", at, false)).unwrap();
            people.apply(1, merge("device", "ben", at + 1, false)).unwrap();
            people.apply(1, properties("ann", json!({"plan": format!("plan {at}")}), at, true)).unwrap();
            people.apply(1, properties("ben", json!({"n": [at]}), -at, false)).unwrap();
            let (type_name, key, properties) = ("team".to_owned(), "a".to_owned(), Map::new());
            people
                .apply(1, PeopleUpdate::GroupProperties { type_name, index: 0, key, properties, at })
                .unwrap();
        }
        let folded = people.fold();
        assert_eq!(ids(&folded), [vec!["device", "ann"], vec!["ben"]]);
        assert_eq!((folded.merges, folded.refused_merges), (1, 1));
    }

    #[test]
    fn memory_is_limited() {
        let mut people = PeopleBuilder::with_limit(10_000);
        let failed = (0..1000).find_map(|n| {
            people.add_distinct_id(1, &format!("p{n}"), &format!("d{n}")).err().map(|e| (n, e))
        });
        let (n, error) = failed.unwrap();
        assert!((20..100).contains(&n) && error.contains("split the file"), "{n}: {error}");
    }
}
