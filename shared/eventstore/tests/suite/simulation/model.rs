//! What an event store must give, from its documentation: plain lists, without blocks, segments, caches or processes.

use std::collections::{BTreeMap, BTreeSet};

use pennon_analytics::scan::{ColumnKey, EventSelection, ScanRequest};
use pennon_eventstore::{ErasureTarget, Event, derive_person_id};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::support::PlainRow;

/// Distinct ids of a history.
pub const IDS: usize = 10;

/// The distinct id with this number.
pub fn id(number: usize) -> String {
    format!("u{number}")
}

fn number_of(distinct_id: &str) -> usize {
    distinct_id.trim_start_matches('u').parse().unwrap()
}

/// Arrival: time of the batch, index within it.
type Arrival = (i64, usize);

/// A person: the distinct ids that were merged into the first one.
#[derive(Debug, Clone, PartialEq)]
struct Person {
    stays: usize,
    ids: BTreeSet<usize>,
    is_identified: bool,
}

impl Person {
    fn new(id: usize) -> Person {
        Person { stays: id, ids: BTreeSet::from([id]), is_identified: false }
    }
}

/// A change of the properties of a person by an event.
#[derive(Debug, Clone, PartialEq)]
struct Change {
    uuid: Uuid,
    id: usize,
    at: (i64, Arrival),
    properties: Map<String, Value>,
}

/// One project.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    project: u64,
    events: Vec<(Arrival, Event)>,
    changes: Vec<Change>,
    persons: Vec<Person>,
    /// Whether duplicates are counted: wrong, for a test of the simulation.
    counts_duplicates: bool,
}

/// A part of an operation that happens whole or not at all.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// The merges that events request.
    Merges(Vec<Event>),
    /// Captured events that arrived at this time.
    Captured(Vec<Event>, i64),
    /// Imported events.
    Imported(Vec<Event>, i64),
    Erased(ErasureTarget),
}

impl Model {
    pub fn new(project: u64, counts_duplicates: bool) -> Model {
        let persons = (0..IDS).map(Person::new).collect();
        Model { project, events: Vec::new(), changes: Vec::new(), persons, counts_duplicates }
    }

    /// `spared` are events that an erasure need not erase, because they were not acknowledged when it began.
    pub fn apply(&mut self, effect: &Effect, spared: &BTreeSet<Uuid>) {
        match effect {
            Effect::Merges(events) => events.iter().for_each(|event| self.merge(event)),
            Effect::Captured(events, now) => {
                self.add(events, *now, true);
            }
            Effect::Imported(events, now) => {
                self.add(events, *now, false);
            }
            Effect::Erased(target) => self.erase(target, spared),
        }
    }

    /// The rule of the vendor: the person that others are merged into is identified and stays; an identified person is merged only
    /// by force.
    fn merge(&mut self, event: &Event) {
        let Some((other, is_forced)) = merge_request(event) else { return };
        let place =
            |persons: &[Person], id| persons.iter().position(|person| person.ids.contains(&id)).unwrap();
        let into = place(&self.persons, number_of(&event.distinct_id));
        let from = place(&self.persons, other);
        if other == number_of(&event.distinct_id) {
            return;
        }
        self.persons[into].is_identified = true;
        if into != from && (is_forced || !self.persons[from].is_identified) {
            let ids = std::mem::take(&mut self.persons[from].ids);
            self.persons[into].ids.extend(ids);
            self.persons.remove(from);
        }
    }

    /// The first event of a uuid counts.
    fn add(&mut self, events: &[Event], now: i64, is_captured: bool) {
        for (index, event) in events.iter().enumerate() {
            if !self.counts_duplicates && self.events.iter().any(|(_, known)| known.uuid == event.uuid) {
                continue;
            }
            let arrival = (now, index);
            self.events.push((arrival, event.clone()));
            if is_captured {
                let (id, at) = (number_of(&event.distinct_id), (event.timestamp, arrival));
                let properties = event.properties.clone();
                self.changes.push(Change { uuid: event.uuid, id, at, properties });
            }
        }
    }

    fn erase(&mut self, target: &ErasureTarget, spared: &BTreeSet<Uuid>) {
        let ids = match target {
            ErasureTarget::Before(instant) => {
                self.events.retain(|(_, event)| event.timestamp >= *instant || spared.contains(&event.uuid));
                return;
            }
            ErasureTarget::Project => (0..IDS).collect(),
            ErasureTarget::Person(name) => self.person(number_of(name)).ids.clone(),
        };
        let is_kept = |id: usize, uuid: &Uuid| !ids.contains(&id) || spared.contains(uuid);
        self.events.retain(|(_, event)| is_kept(number_of(&event.distinct_id), &event.uuid));
        self.changes.retain(|change| is_kept(change.id, &change.uuid));
        self.persons.retain(|person| !ids.contains(&person.stays));
        self.persons.extend(ids.into_iter().map(Person::new));
        self.persons.sort_by_key(|person| person.stays);
    }

    fn person(&self, id: usize) -> &Person {
        self.persons.iter().find(|person| person.ids.contains(&id)).unwrap()
    }

    /// The id of the person of each distinct id.
    pub fn persons(&self) -> Vec<Uuid> {
        (0..IDS).map(|number| derive_person_id(self.project, &id(self.person(number).stays))).collect()
    }

    /// The rows of a scan, by name, person, time and arrival.
    pub fn rows(&self, request: &ScanRequest) -> Vec<PlainRow> {
        let persons = self.persons();
        let is_requested = |event: &Event| {
            let is_named = match &request.events {
                EventSelection::All => true,
                EventSelection::Named(names) => names.contains(&event.event),
            };
            is_named && request.from <= event.timestamp && event.timestamp <= request.to
        };
        let mut rows = Vec::new();
        for (arrival, event) in self.events.iter().filter(|(_, event)| is_requested(event)) {
            let properties = request.columns.iter().filter_map(|key| match key {
                ColumnKey::DistinctId => None,
                ColumnKey::AllProperties => Some(Some(Value::Object(event.properties.clone()))),
                ColumnKey::Property(key) => Some(event.properties.get(key).cloned()),
            });
            let person = persons[number_of(&event.distinct_id)];
            let id = event.distinct_id.clone();
            rows.push((arrival, (event.event.clone(), person, event.timestamp, id, properties.collect())));
        }
        rows.sort_by(|(a, left), (b, right)| {
            (&left.0, left.1, left.2, a).cmp(&(&right.0, right.1, right.2, b))
        });
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// The properties of a person that was never merged: in order of time and arrival a `$set` always applies, and a `$set_once` if
    /// there is no value; within one event set-once, set, unset. `None` for a merged person.
    pub fn properties(&self, number: usize) -> Option<Map<String, Value>> {
        if self.person(number).ids.len() > 1 {
            return None;
        }
        let mut changes = self.changes.iter().filter(|change| change.id == number).collect::<Vec<_>>();
        changes.sort_by_key(|change| change.at);
        let mut properties = Map::new();
        for change in changes {
            let object =
                |name: &str| change.properties.get(name).and_then(Value::as_object).into_iter().flatten();
            for (key, value) in object("$set_once") {
                properties.entry(key).or_insert_with(|| value.clone());
            }
            properties.extend(object("$set").map(|(key, value)| (key.clone(), value.clone())));
            for key in change.properties.get("$unset").and_then(Value::as_array).into_iter().flatten() {
                properties.remove(key.as_str().unwrap());
            }
        }
        Some(properties)
    }

    /// The times of the events of this name, by person.
    pub fn times(&self, name: &str) -> BTreeMap<Uuid, Vec<i64>> {
        let persons = self.persons();
        let mut times = BTreeMap::<_, Vec<i64>>::new();
        for (_, event) in self.events.iter().filter(|(_, event)| event.event == name) {
            times.entry(persons[number_of(&event.distinct_id)]).or_default().push(event.timestamp);
        }
        times
    }
}

/// The number of the distinct id that an event requests to merge, and whether by force.
fn merge_request(event: &Event) -> Option<(usize, bool)> {
    let (key, is_forced) = match event.event.as_str() {
        "$identify" => ("$anon_distinct_id", false),
        "$create_alias" => ("alias", false),
        "$merge_dangerously" => ("alias", true),
        _ => return None,
    };
    Some((number_of(event.properties.get(key)?.as_str()?), is_forced))
}
