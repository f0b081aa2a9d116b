//! What a file says of persons and groups bit by bit, folded into one record each: which distinct ids are one person, and
//! the latest of their properties.
//!
//! Merges follow the rules of captured events: one that is not forced happens only to a person that nothing identified yet, so
//! a device that two users share does not make them one. Must stay true: the result depends on the times of merges and
//! properties and on the order of the file's records, on nothing else; memory is bounded by [`PEOPLE_BYTES_MAX`].

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, btree_map};

use pennon_eventstore::{GroupRecord, PersonRecord, is_usable_id};
use serde_json::{Map, Value};

/// Most bytes of memory, about: a million persons with three distinct ids and a few properties.
pub const PEOPLE_BYTES_MAX: usize = 1 << 30;
/// What an entry takes besides its texts.
const ENTRY_BYTES: usize = 96;

/// What a record of a file says of persons and groups, without being a whole record of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    /// The distinct id is that person's, by the file's own number of the person.
    Same { person: String, distinct_id: String },
    /// `from` is to become a part of `to`.
    Merge { from: String, to: String, at: i64, forced: bool },
    /// Properties of the person with this distinct id. `is_whole`: all that it had then.
    Properties { distinct_id: String, properties: Map<String, Value>, at: i64, is_whole: bool },
    /// When a person was first seen.
    FirstSeen { distinct_id: String, at: i64 },
    /// Properties of a group.
    Group { type_name: String, index: u32, key: String, properties: Map<String, Value>, at: i64 },
}

/// The persons and groups of all projects.
pub(crate) struct People {
    projects: BTreeMap<u64, ProjectPeople>,
    bytes: usize,
    bytes_max: usize,
    asked_merges: u64,
    unusable_merges: u64,
}

/// Persons and groups as they are to be stored.
#[derive(Debug, Default)]
pub(crate) struct FoldedPeople {
    pub persons: Vec<(u64, PersonRecord)>,
    pub groups: Vec<(u64, GroupRecord)>,
    /// Merges that made two persons one.
    pub merges: u64,
    /// Merges of a person that was identified before, each pair of ids once.
    pub refused_merges: u64,
    /// Merges with an id that stands for no user, such as `anonymous`.
    pub unusable_merges: u64,
}

#[derive(Default)]
struct ProjectPeople {
    numbers: HashMap<String, u32>,
    /// The number of a distinct id of the same person, or its own; always a smaller one.
    parents: Vec<u32>,
    /// By the file's own number of a person, the number of a distinct id.
    persons: HashMap<String, u32>,
    /// When each merge (from, to, forced) was asked for first, and which one that was: a later one changes nothing.
    merges: HashMap<(u32, u32, bool), (i64, u64)>,
    known: HashMap<u32, State>,
    first_seen: HashMap<u32, i64>,
    groups: BTreeMap<(u32, String), (String, State)>,
    united: u64,
}

/// Properties, each with its time.
#[derive(Default)]
struct State {
    values: HashMap<String, (i64, Value)>,
    /// When all of them were said the last time.
    whole_at: Option<i64>,
}

impl State {
    /// Takes properties of a time. Returns how many bytes it grew by.
    fn take(&mut self, properties: Map<String, Value>, at: i64, is_whole: bool) -> isize {
        if self.whole_at.is_some_and(|whole| at < whole) {
            return 0;
        }
        let mut grown = 0;
        if is_whole {
            self.whole_at = Some(at);
            self.values.retain(|key, (time, value)| {
                let stays = *time > at || properties.contains_key(key);
                grown -= if stays { 0 } else { entry_bytes(key, value) };
                stays
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

    fn absorb(&mut self, other: State) {
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

impl Default for People {
    fn default() -> People {
        People::with_limit(PEOPLE_BYTES_MAX)
    }
}

impl People {
    fn with_limit(bytes_max: usize) -> People {
        People { projects: BTreeMap::new(), bytes: 0, bytes_max, asked_merges: 0, unusable_merges: 0 }
    }

    /// Takes a fact.
    pub(crate) fn take(&mut self, project: u64, fact: Fact) -> Result<(), String> {
        match fact {
            Fact::Same { person, distinct_id } => return self.same(project, &person, &distinct_id),
            Fact::Merge { from, to, at, forced } => {
                if !is_usable_id(&from) || !is_usable_id(&to) {
                    self.unusable_merges += 1;
                    return Ok(());
                }
                let (from, to) = (self.number(project, &from), self.number(project, &to));
                self.asked_merges += 1;
                let asked = (at, self.asked_merges);
                let people = self.projects.entry(project).or_default();
                match people.merges.entry((from, to, forced)) {
                    Entry::Occupied(mut known) => {
                        let first = asked.min(*known.get());
                        known.insert(first);
                    }
                    Entry::Vacant(free) => {
                        free.insert(asked);
                        self.bytes += ENTRY_BYTES;
                    }
                }
            }
            Fact::Properties { distinct_id, properties, at, is_whole } => {
                if properties.is_empty() {
                    return Ok(());
                }
                let number = self.number(project, &distinct_id);
                let people = self.projects.entry(project).or_default();
                let grown = people.known.entry(number).or_default().take(properties, at, is_whole);
                self.bytes = self.bytes.saturating_add_signed(grown);
            }
            Fact::FirstSeen { distinct_id, at } => {
                let number = self.number(project, &distinct_id);
                let people = self.projects.entry(project).or_default();
                let first = people.first_seen.entry(number).or_insert(at);
                *first = at.min(*first);
            }
            Fact::Group { type_name, index, key, properties, at } => {
                let people = self.projects.entry(project).or_default();
                let group = match people.groups.entry((index, key)) {
                    btree_map::Entry::Occupied(known) => known.into_mut(),
                    btree_map::Entry::Vacant(free) => {
                        self.bytes += free.key().1.len() + ENTRY_BYTES;
                        free.insert((type_name, State::default()))
                    }
                };
                let grown = group.1.take(properties, at, false);
                self.bytes = self.bytes.saturating_add_signed(grown);
            }
        }
        self.check_size()
    }

    /// Notes that a distinct id is that person's.
    pub(crate) fn same(&mut self, project: u64, person: &str, distinct_id: &str) -> Result<(), String> {
        let number = self.number(project, distinct_id);
        let people = self.projects.entry(project).or_default();
        match people.persons.get(person).copied() {
            Some(known) => people.unite(known, number),
            None => {
                people.persons.insert(person.to_owned(), number);
                self.bytes += person.len() + ENTRY_BYTES;
            }
        }
        self.check_size()
    }

    fn number(&mut self, project: u64, distinct_id: &str) -> u32 {
        let people = self.projects.entry(project).or_default();
        if let Some(number) = people.numbers.get(distinct_id) {
            return *number;
        }
        self.bytes += distinct_id.len() + ENTRY_BYTES;
        let number = people.parents.len() as u32;
        people.numbers.insert(distinct_id.to_owned(), number);
        people.parents.push(number);
        number
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

    /// One record for each person and group of whom anything was said. A person of one distinct id and no properties
    /// needs none.
    pub(crate) fn fold(self) -> FoldedPeople {
        let mut folded = FoldedPeople { unusable_merges: self.unusable_merges, ..FoldedPeople::default() };
        for (project, mut people) in self.projects {
            folded.refused_merges += people.apply_merges();
            folded.merges += people.united;
            let groups = std::mem::take(&mut people.groups);
            folded.groups.extend(groups.into_iter().map(|((index, key), (type_name, state))| {
                (project, GroupRecord { type_name, index, key, properties: state.into_properties() })
            }));
            folded.persons.extend(people.into_records().into_iter().map(|record| (project, record)));
        }
        folded
    }
}

impl ProjectPeople {
    fn root(&mut self, number: u32) -> u32 {
        let mut at = number;
        while self.parents[at as usize] != at {
            let next = self.parents[at as usize];
            self.parents[at as usize] = self.parents[next as usize];
            at = next;
        }
        at
    }

    fn unite(&mut self, one: u32, other: u32) {
        let (one, other) = (self.root(one), self.root(other));
        if one != other {
            self.parents[one.max(other) as usize] = one.min(other);
            self.united += 1;
        }
    }

    /// Applies merges in the order of their times. Returns how many were refused.
    fn apply_merges(&mut self) -> u64 {
        let mut merges: Vec<_> = std::mem::take(&mut self.merges).into_iter().collect();
        merges.sort_by_key(|(_, asked)| *asked);
        let mut identified = vec![false; self.parents.len()];
        // Who has several distinct ids by the file's own number has been identified.
        for number in 0..self.parents.len() as u32 {
            let root = self.root(number);
            identified[root as usize] |= root != number;
        }
        let mut refused = 0;
        for ((from, to, forced), _) in merges {
            let (from, to) = (self.root(from), self.root(to));
            let is_identified = identified[from as usize];
            if from != to && is_identified && !forced {
                refused += 1;
            } else {
                self.unite(from, to);
            }
            let root = self.root(to);
            identified[root as usize] = true;
        }
        refused
    }

    fn into_records(mut self) -> Vec<PersonRecord> {
        let mut ids = vec![Vec::new(); self.parents.len()];
        let mut named: Vec<(String, u32)> = std::mem::take(&mut self.numbers).into_iter().collect();
        named.sort_by_key(|(_, number)| *number);
        for (distinct_id, number) in named {
            ids[self.root(number) as usize].push(distinct_id);
        }
        let mut states: HashMap<u32, State> = HashMap::new();
        let mut known: Vec<(u32, State)> = std::mem::take(&mut self.known).into_iter().collect();
        known.sort_by_key(|(number, _)| *number);
        for (number, state) in known {
            states.entry(self.root(number)).or_default().absorb(state);
        }
        let mut first_seen: HashMap<u32, i64> = HashMap::new();
        for (number, at) in std::mem::take(&mut self.first_seen) {
            let first = first_seen.entry(self.root(number)).or_insert(at);
            *first = at.min(*first);
        }
        let records = ids.into_iter().enumerate().map(|(root, distinct_ids)| PersonRecord {
            distinct_ids,
            properties: states.remove(&(root as u32)).map(State::into_properties).unwrap_or_default(),
            created_at: first_seen.get(&(root as u32)).copied(),
        });
        let says_something = |record: &PersonRecord| {
            record.distinct_ids.len() > 1
                || !record.distinct_ids.is_empty()
                    && (!record.properties.is_empty() || record.created_at.is_some())
        };
        records.filter(says_something).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn merge(from: &str, to: &str, at: i64, forced: bool) -> Fact {
        Fact::Merge { from: from.to_owned(), to: to.to_owned(), at, forced }
    }

    fn properties(distinct_id: &str, value: Value, at: i64, is_whole: bool) -> Fact {
        let properties = value.as_object().unwrap().clone();
        Fact::Properties { distinct_id: distinct_id.to_owned(), properties, at, is_whole }
    }

    fn folded(facts: Vec<Fact>) -> FoldedPeople {
        let mut people = People::default();
        facts.into_iter().for_each(|fact| people.take(1, fact).unwrap());
        people.fold()
    }

    fn ids(folded: &FoldedPeople) -> Vec<Vec<&str>> {
        let ids =
            folded.persons.iter().map(|(_, person)| person.distinct_ids.iter().map(String::as_str).collect());
        ids.collect()
    }

    #[test]
    fn merges_chain_and_a_shared_device_stays_the_first_users() {
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
    fn a_forced_merge_joins_identified_persons() {
        let facts = |forced| {
            vec![merge("d1", "ann", 1, false), merge("d2", "ben", 2, false), merge("ben", "ann", 3, forced)]
        };
        assert_eq!(ids(&folded(facts(true))).len(), 1);
        assert_eq!(ids(&folded(facts(false))).len(), 2);
    }

    #[test]
    fn the_latest_properties_count_however_lines_are_ordered() {
        let folded = folded(vec![
            properties("ann", json!({"plan": "pro"}), 20, false),
            properties("ann", json!({"plan": "free", "city": "Bern"}), 10, false),
            properties("ben", json!({"a": 2, "b": 2}), 20, true),
            properties("ben", json!({"a": 1, "c": 1}), 10, true),
            properties("cleo", json!({"old": 1}), 10, true),
            properties("cleo", json!({"new": 1}), 20, true),
        ]);
        let of: Vec<_> =
            folded.persons.iter().map(|(_, person)| Value::Object(person.properties.clone())).collect();
        assert_eq!(of, [json!({"city": "Bern", "plan": "pro"}), json!({"a": 2, "b": 2}), json!({"new": 1})]);
    }

    #[test]
    fn persons_of_one_id_and_nothing_else_need_no_record() {
        let mut people = People::default();
        people.same(1, "p1", "a").unwrap();
        people.same(1, "p2", "b").unwrap();
        people.same(1, "p2", "c").unwrap();
        people.same(1, "p3", "c").unwrap();
        people.same(1, "p3", "d").unwrap();
        assert_eq!(ids(&people.fold()), [vec!["b", "c", "d"]]);
    }

    #[test]
    fn memory_grows_with_persons_and_not_with_records() {
        let mut people = People::with_limit(10_000);
        for at in (0..10_000).rev() {
            people.take(1, merge("device", "ann", at, false)).unwrap();
            people.take(1, merge("device", "ben", at + 1, false)).unwrap();
            people.take(1, properties("ann", json!({"plan": format!("plan {at}")}), at, true)).unwrap();
            people.take(1, properties("ben", json!({"n": [at]}), -at, false)).unwrap();
            let (type_name, key, properties) = ("team".to_owned(), "a".to_owned(), Map::new());
            people.take(1, Fact::Group { type_name, index: 0, key, properties, at }).unwrap();
        }
        let folded = people.fold();
        assert_eq!(ids(&folded), [vec!["device", "ann"], vec!["ben"]]);
        assert_eq!((folded.merges, folded.refused_merges), (1, 1));
    }

    #[test]
    fn memory_is_limited() {
        let mut people = People::with_limit(10_000);
        let taken =
            (0..1000).find_map(|n| people.same(1, &format!("p{n}"), &format!("d{n}")).err().map(|e| (n, e)));
        let (n, error) = taken.unwrap();
        assert!((20..100).contains(&n) && error.contains("split the file"), "{n}: {error}");
    }
}
