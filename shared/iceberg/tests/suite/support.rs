//! An event store over an embedded DynamoDB and a directory, and a reader of its published tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow_array::cast::AsArray;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pennon::embedded::Embedded;
use pennon_core::store::Store;
use pennon_eventstore::{Event, EventStore, EventStoreError, PersonRecord};
use pennon_iceberg::{Publication, PublicationMode, TablePublisher};
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
}

impl Place {
    pub async fn new() -> Place {
        let store = Embedded::in_memory().await.unwrap().store(None);
        let directory = tempfile::tempdir().unwrap();
        let events = open(&store, &directory.path().join("events"));
        Place { events, store, directory }
    }

    /// A publisher of another process.
    pub fn publisher(&self) -> TablePublisher {
        TablePublisher::new(open(&self.store, &self.root()))
    }

    pub fn root(&self) -> PathBuf {
        self.directory.path().join("events")
    }

    pub fn tables(&self) -> Tables {
        Tables { root: self.root() }
    }

    /// Appends events of these persons and compacts them.
    pub async fn segment(&self, first_uuid: u128, who: &[&str], properties: Value) {
        let events = (first_uuid..).zip(who).map(|(uuid, who)| event(uuid, who, properties.clone()));
        self.events.append(PROJECT, &events.collect::<Vec<_>>(), NOW).await.unwrap();
        self.events.compact_blocks(PROJECT, NOW).await.unwrap();
    }

    /// Imports a person with these distinct ids, which merges them.
    pub async fn person(&self, distinct_ids: &[&str], properties: Value) {
        let distinct_ids = distinct_ids.iter().map(|id| (*id).to_owned()).collect();
        let properties = properties.as_object().unwrap().clone();
        let record = PersonRecord { distinct_ids, properties, created_at: None };
        self.events.add_persons(PROJECT, vec![record], NOW).await.unwrap();
    }

    /// The files of a folder of the event store.
    pub fn object_files(&self, folder: &str) -> Vec<PathBuf> {
        std::fs::read_dir(self.root().join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// The objects of the live segments.
    pub async fn live(&self) -> BTreeSet<String> {
        let files = self.events.live_files(PROJECT).await.unwrap();
        files.segments.into_iter().map(|segment| segment.object).collect()
    }
}

/// Calls of a publisher at one moment.
pub trait PublishAt {
    /// As a regular run.
    async fn publish_at(&self, now: i64) -> Result<Publication, EventStoreError>;

    /// As a command that has erased data.
    async fn republish_at(&self, now: i64) -> Result<Option<Publication>, EventStoreError>;
}

impl PublishAt for TablePublisher {
    async fn publish_at(&self, now: i64) -> Result<Publication, EventStoreError> {
        self.publish(PROJECT, PublicationMode::Regular, &|| now, Duration::MAX).await
    }

    async fn republish_at(&self, now: i64) -> Result<Option<Publication>, EventStoreError> {
        self.republish(PROJECT, PublicationMode::AfterErasure, &|| now).await
    }
}

pub fn open(store: &Store, root: &Path) -> EventStore {
    EventStore::open(store.clone(), &format!("file://{}", root.display())).unwrap()
}

pub fn event(uuid: u128, who: &str, properties: Value) -> Event {
    Event {
        uuid: Uuid::from_u128(uuid),
        event: "a".to_owned(),
        distinct_id: who.to_owned(),
        timestamp: NOW,
        properties: properties.as_object().unwrap().clone(),
    }
}

/// A row of the persons table: person, current person, properties.
pub type PersonRow = (Uuid, Uuid, Value);

/// The tables of [`PROJECT`], as another engine finds them.
pub struct Tables {
    root: PathBuf,
}

impl Tables {
    pub fn folder(&self, table: &str) -> PathBuf {
        self.root.join(format!("iceberg/project={PROJECT}/{table}"))
    }

    /// The version that the hint names, if there is one.
    pub fn version(&self, table: &str) -> Option<u64> {
        let hint = std::fs::read_to_string(self.folder(table).join("metadata/version-hint.text")).ok()?;
        Some(hint.parse().unwrap())
    }

    /// The metadata that the hint names.
    pub fn metadata(&self, table: &str) -> Value {
        let version = self.version(table).unwrap();
        let file = self.folder(table).join(format!("metadata/v{version}.metadata.json"));
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    }

    /// All files of both tables.
    pub fn files(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        for table in ["events", "persons"] {
            for part in ["metadata", "data"] {
                let entries = std::fs::read_dir(self.folder(table).join(part)).into_iter().flatten();
                found.extend(entries.map(|entry| entry.unwrap().path()));
            }
        }
        found
    }

    /// The data files of the table's snapshot, each of which exists, from its two lists.
    pub fn data_files(&self, table: &str) -> BTreeSet<PathBuf> {
        let metadata = self.metadata(table);
        let list = path(metadata["snapshots"][0]["manifest-list"].as_str().unwrap());
        let manifests = locations(&std::fs::read(list).unwrap(), ".avro");
        let files =
            manifests.iter().flat_map(|manifest| locations(&std::fs::read(manifest).unwrap(), ".parquet"));
        let files = files.collect::<BTreeSet<_>>();
        assert!(files.iter().all(|file| file.exists()), "{files:?}");
        let total = metadata["snapshots"][0]["summary"]["total-data-files"].as_str().unwrap();
        assert_eq!(total.parse::<usize>().unwrap(), files.len());
        files
    }

    /// The objects of the segments in the events table.
    pub fn segments(&self) -> BTreeSet<String> {
        let files = self.data_files("events");
        let object = |file: &PathBuf| file.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned();
        files.iter().map(object).collect()
    }

    /// The rows of the persons table by distinct id.
    pub fn persons(&self) -> BTreeMap<String, PersonRow> {
        let mut rows = BTreeMap::new();
        for file in self.data_files("persons") {
            rows.extend(persons_of(&file));
        }
        rows
    }

    /// Names and types of the property columns of the events table.
    pub fn property_columns(&self) -> Vec<(String, String)> {
        let metadata = self.metadata("events");
        let fields = metadata["schemas"][0]["fields"].as_array().unwrap();
        let properties = fields.iter().filter(|field| field["doc"].is_string());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        properties.map(|field| (text(&field["name"]), text(&field["type"]))).collect()
    }
}

pub fn persons_of(file: &Path) -> Vec<(String, PersonRow)> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(file).unwrap()).unwrap();
    let mut rows = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let id = |column: usize, row| {
            Uuid::from_slice(batch.column(column).as_fixed_size_binary().value(row)).unwrap()
        };
        let text = |column: usize, row| batch.column(column).as_string::<i32>().value(row).to_owned();
        rows.extend((0..batch.num_rows()).map(|row| {
            let properties = serde_json::from_str(&text(3, row)).unwrap_or(json!("no JSON"));
            (text(2, row), (id(0, row), id(1, row), properties))
        }));
    }
    rows
}

/// The path of a location.
fn path(location: &str) -> PathBuf {
    PathBuf::from(location.strip_prefix("file://").unwrap())
}

/// The locations with this ending in a file of Avro records, which are not compressed.
fn locations(file: &[u8], ending: &str) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(file).into_owned();
    let starts = text.match_indices("file://").map(|(start, _)| &text[start..]);
    starts.filter_map(|text| Some(path(&text[..text.find(ending)? + ending.len()]))).collect()
}
