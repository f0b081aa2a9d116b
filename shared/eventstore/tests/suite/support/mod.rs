//! Shared by the tests of this crate: an event store over an embedded DynamoDB, and an independent computation of what a scan
//! must give.
#![allow(missing_docs)]

pub mod faulty;

use std::collections::{BTreeMap, BTreeSet};

use pennon::embedded::Embedded;
use pennon_analytics::scan::{ColumnKey, EventSelection, MISSING, ScanRequest};
use pennon_core::store::Store;
use pennon_eventstore::{Event, EventStore, Scan, Settings};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

pub const PROJECT: u64 = 7;
pub const MINUTE: i64 = 60 * 1_000_000;
/// An arrival time, in microseconds.
pub const NOW: i64 = 1_700_000_000_000_000;

pub struct Place {
    pub events: EventStore,
    pub store: Store,
    pub directory: TempDir,
    pub settings: Settings,
}

impl Place {
    pub async fn new() -> Place {
        Place::with(Settings::default()).await
    }

    pub async fn with(settings: Settings) -> Place {
        let store = Embedded::in_memory().await.unwrap().store(None);
        let directory = tempfile::tempdir().unwrap();
        let events = EventStore::open_with(store.clone(), &url(&directory), settings).unwrap();
        Place { events, store, directory, settings }
    }

    /// Another process on the same data.
    pub fn again(&self) -> EventStore {
        self.again_with(self.settings)
    }

    /// Another process on the same data, with settings of its own.
    pub fn again_with(&self, settings: Settings) -> EventStore {
        EventStore::open_with(self.store.clone(), &url(&self.directory), settings).unwrap()
    }

    /// A process on the same data that only appends.
    pub fn appending(&self) -> EventStore {
        EventStore::open_to_append(self.store.clone(), &url(&self.directory)).unwrap()
    }

    /// Files below the events directory.
    pub fn files(&self) -> Vec<String> {
        fn walk(directory: &std::path::Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, found) } else { found.push(path.display().to_string()) }
            }
        }
        let mut found = Vec::new();
        walk(self.directory.path(), &mut found);
        found
    }
}

fn url(directory: &TempDir) -> String {
    format!("file://{}/events", directory.path().display())
}

pub fn event(uuid: u128, name: &str, who: &str, timestamp: i64, properties: Value) -> Event {
    Event {
        uuid: Uuid::from_u128(uuid),
        event: name.to_owned(),
        distinct_id: who.to_owned(),
        timestamp,
        properties: properties.as_object().unwrap().clone(),
    }
}

pub fn simple(uuid: u128, name: &str, who: &str, timestamp: i64) -> Event {
    event(uuid, name, who, timestamp, json!({}))
}

pub fn request(names: &[&str], columns: &[&str]) -> ScanRequest {
    let events = match names {
        [] => EventSelection::All,
        names => EventSelection::Named(names.iter().map(|name| (*name).to_owned()).collect()),
    };
    let mut columns =
        columns.iter().map(|key| ColumnKey::Property((*key).to_owned())).collect::<BTreeSet<ColumnKey>>();
    columns.extend([ColumnKey::DistinctId, ColumnKey::AllProperties]);
    ScanRequest { events, from: i64::MIN, to: i64::MAX, columns, arrivals: true }
}

/// A row of a scan, as plain values: name, person, time, distinct id, properties in the order of their keys.
pub type PlainRow = (String, Uuid, i64, String, Vec<Option<Value>>);

/// As [`request`], where only events of one person and time have to be in order of arrival.
pub fn without_arrivals(names: &[&str], columns: &[&str]) -> ScanRequest {
    ScanRequest { arrivals: false, ..request(names, columns) }
}

/// All rows of a scan, by name and then in the order of the scan. Checks what every partition promises.
pub fn rows(scan: &Scan) -> Vec<PlainRow> {
    let mut seen = BTreeSet::new();
    let mut by_name: BTreeMap<String, Vec<(u128, PlainRow)>> = BTreeMap::new();
    for partition in &scan.partitions {
        assert!(partition.actors.is_sorted_by(|a, b| a < b));
        assert!(partition.actors.iter().all(|actor| seen.insert(*actor)), "an actor of two partitions");
        assert!(partition.runs.is_sorted_by(|a, b| a.event < b.event));
        let mut orders = BTreeSet::new();
        for run in &partition.runs {
            for row in 0..run.times.len() {
                let place = (run.actors[row], run.times[row], run.order.at(row));
                assert!(orders.insert(place), "two events of a person and a time cannot be distinguished");
            }
        }
        for run in &partition.runs {
            let order = (0..run.times.len()).map(|row| (run.actors[row], run.times[row], run.order.at(row)));
            assert!(order.is_sorted(), "a run of {} out of order", run.event);
            for row in 0..run.times.len() {
                let value = |key: &ColumnKey| {
                    let column = &run.columns[key];
                    let code = column.codes[row];
                    (code != MISSING).then(|| column.values[code as usize].clone())
                };
                let distinct_id = value(&ColumnKey::DistinctId).unwrap().as_str().unwrap().to_owned();
                let properties =
                    run.columns.keys().filter(|key| **key != ColumnKey::DistinctId).map(value).collect();
                let person = partition.actors[run.actors[row] as usize];
                let plain = (run.event.clone(), person, run.times[row], distinct_id, properties);
                by_name.entry(run.event.clone()).or_default().push((run.order.at(row), plain));
            }
        }
    }
    let mut rows = Vec::new();
    for mut of_name in by_name.into_values() {
        of_name.sort_by_key(|(seq, row)| (row.1, row.2, *seq));
        rows.extend(of_name.into_iter().map(|(_, row)| row));
    }
    assert_eq!(rows.len() as u64, scan.stats.rows);
    rows
}

/// What a scan of events that arrived in this order must give: the first of each uuid, by name, person and time.
pub fn expected(arrived: &[Event], request: &ScanRequest, person: impl Fn(&str) -> Uuid) -> Vec<PlainRow> {
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    for (arrival, event) in arrived.iter().filter(|event| seen.insert(event.uuid)).enumerate() {
        let named = match &request.events {
            EventSelection::All => true,
            EventSelection::Named(names) => names.contains(&event.event),
        };
        if named && request.from <= event.timestamp && event.timestamp <= request.to {
            let properties = request.columns.iter().filter_map(|key| match key {
                ColumnKey::DistinctId => None,
                ColumnKey::AllProperties => Some(Some(Value::Object(event.properties.clone()))),
                ColumnKey::Property(key) => Some(event.properties.get(key).cloned()),
            });
            let who = event.distinct_id.clone();
            rows.push((
                arrival,
                (event.event.clone(), person(&who), event.timestamp, who, properties.collect()),
            ));
        }
    }
    rows.sort_by(|(a, left), (b, right)| (&left.0, left.1, left.2, a).cmp(&(&right.0, right.1, right.2, b)));
    rows.into_iter().map(|(_, row)| row).collect()
}
