//! Imported persons and groups: immutable Parquet objects that the manifest lists, oldest first.
//!
//! Persons: columns `person` (16 bytes, derived from the first distinct id), `distinct_ids` (JSON list), `properties`
//! (JSON object), `created_at` (µs UTC, or null). Groups: `type`, `index`, `key`, `properties`. Must stay true: a
//! record's distinct ids are one person, that of the first of them which an earlier record knows, else the first; of
//! records of one person or group the latest tells its properties; no event is ever counted because of a record.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryBuilder, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow::datatypes::{TimestampMicrosecondType, UInt32Type};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::ingest::TRIES;
use crate::keys;
use crate::manifest::{Manifest, RecordsEntry, new_id};
use crate::person::{Link, derived};

/// A person as imported.
#[derive(Debug, Clone, PartialEq)]
pub struct PersonRecord {
    /// All of them are this person; at least one.
    pub distinct_ids: Vec<String>,
    /// What is known of it.
    pub properties: Map<String, Value>,
    /// When it was first seen.
    pub created_at: Option<Micros>,
}

/// A group as imported.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRecord {
    /// Name of its type.
    pub type_name: String,
    /// Place of the type in the project's list.
    pub index: u32,
    /// Its key among groups of the type.
    pub key: String,
    /// What is known of it.
    pub properties: Map<String, Value>,
}

/// A person that records tell of, all its records and merges taken together.
#[derive(Debug, Clone, PartialEq)]
pub struct Person {
    /// The id under which scans give its events.
    pub id: Uuid,
    /// The distinct ids that records name, in their order.
    pub distinct_ids: Vec<String>,
    /// Of its latest record.
    pub properties: Map<String, Value>,
    /// The earliest of its records.
    pub created_at: Option<Micros>,
}

/// An object with persons, and the ids derived from their distinct ids.
#[derive(Debug)]
pub(crate) struct PersonsObject {
    records: Vec<PersonRecord>,
    derived: Vec<Vec<Uuid>>,
}

/// The links that the records of `objects`, oldest first, stand for.
pub(crate) fn links(objects: &[Arc<PersonsObject>]) -> Vec<Link> {
    let mut known = HashSet::new();
    let mut links = Vec::new();
    for ids in objects.iter().flat_map(|object| &object.derived) {
        let Some(to) = ids.iter().find(|id| known.contains(*id)).or(ids.first()).copied() else { continue };
        links.extend(ids.iter().filter(|id| **id != to).map(|from| Link { from: *from, to }));
        known.extend(ids.iter().copied());
    }
    links
}

impl EventStore {
    /// Stores persons as imported. Their events count as theirs at once, earlier and captured ones too.
    pub async fn add_persons(
        &self,
        project: ProjectId,
        persons: Vec<PersonRecord>,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        if persons.iter().any(|person| person.distinct_ids.is_empty()) {
            return Err(EventStoreError::corrupt("a person without a distinct id"));
        }
        let rows = persons.len() as u64;
        let bytes = tokio::task::spawn_blocking(move || encode_persons(project, &persons)).await??;
        self.add_records(project, keys::PERSONS, "persons", rows, bytes, now).await
    }

    /// Stores groups as imported.
    pub async fn add_groups(
        &self,
        project: ProjectId,
        groups: Vec<GroupRecord>,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let rows = groups.len() as u64;
        let bytes = tokio::task::spawn_blocking(move || encode_groups(&groups)).await??;
        self.add_records(project, keys::GROUPS, "groups", rows, bytes, now).await
    }

    async fn add_records(
        &self,
        project: ProjectId,
        prefix: &str,
        folder: &str,
        rows: u64,
        bytes: Bytes,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        if rows == 0 {
            return Ok(());
        }
        let id = new_id(now);
        let object = format!("project={project}/{folder}/{id}.parquet");
        self.inner.objects.create(&object, bytes).await?;
        let entry = RecordsEntry { id: id.clone(), object, rows, at: now };
        for _ in 0..TRIES {
            let manifest = Manifest::load(&self.inner.store, project).await?;
            if manifest.add(&self.inner.store, project, prefix, &id, &entry).await? {
                return Ok(());
            }
        }
        Err(EventStoreError::Contended)
    }

    /// All persons that records tell of. Persons that are known from events alone are not among them.
    pub async fn persons(&self, project: ProjectId) -> Result<Vec<Person>, EventStoreError> {
        let (manifest, merges) =
            futures::try_join!(Manifest::load(&self.inner.store, project), self.merges(project))?;
        let objects = self.persons_objects(project, &manifest).await?;
        let resolution = self.resolution(project, &manifest, merges).await?;
        let mut persons: BTreeMap<Uuid, Person> = BTreeMap::new();
        let records = objects.iter().flat_map(|object| object.records.iter().zip(&object.derived));
        for (record, ids) in records {
            let Some(id) = ids.first().map(|id| resolution.person(*id)) else { continue };
            let person = persons.entry(id).or_insert_with(|| Person {
                id,
                distinct_ids: Vec::new(),
                properties: Map::new(),
                created_at: None,
            });
            person.distinct_ids.extend(record.distinct_ids.iter().cloned());
            person.properties.clone_from(&record.properties);
            person.created_at = [person.created_at, record.created_at].into_iter().flatten().min();
        }
        for person in persons.values_mut() {
            let mut seen = HashSet::new();
            person.distinct_ids.retain(|id| seen.insert(id.clone()));
        }
        Ok(persons.into_values().collect())
    }

    /// All groups that records tell of, by type index and key.
    pub async fn groups(&self, project: ProjectId) -> Result<Vec<GroupRecord>, EventStoreError> {
        let manifest = Manifest::load(&self.inner.store, project).await?;
        let mut groups = BTreeMap::new();
        for entry in &manifest.groups {
            let bytes = self.inner.objects.get(&entry.object).await?;
            let read = tokio::task::spawn_blocking(move || decode_groups(bytes)).await??;
            groups.extend(read.into_iter().map(|group| ((group.index, group.key.clone()), group)));
        }
        Ok(groups.into_values().collect())
    }

    /// The objects with persons, oldest first.
    pub(crate) async fn persons_objects(
        &self,
        project: ProjectId,
        manifest: &Manifest,
    ) -> Result<Vec<Arc<PersonsObject>>, EventStoreError> {
        let mut objects = Vec::new();
        for entry in &manifest.persons {
            if let Some(known) = self.inner.persons.get(&entry.object) {
                objects.push(known);
                continue;
            }
            let bytes = self.inner.objects.get(&entry.object).await?;
            let read = tokio::task::spawn_blocking(move || {
                let records = decode_persons(bytes)?;
                let ids = |record: &PersonRecord| {
                    record.distinct_ids.iter().map(|id| derived(project, id)).collect()
                };
                let derived = records.iter().map(ids).collect();
                Ok::<_, EventStoreError>(Arc::new(PersonsObject { records, derived }))
            });
            let object = read.await??;
            self.inner.persons.put(&entry.object, object.clone());
            objects.push(object);
        }
        Ok(objects)
    }
}

fn file(columns: Vec<(&str, ArrayRef)>) -> Result<Bytes, EventStoreError> {
    let batch = RecordBatch::try_from_iter(columns)?;
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?.into())
}

fn json_texts<T: serde::Serialize>(values: impl Iterator<Item = T>) -> Result<ArrayRef, EventStoreError> {
    let texts = values.map(|value| serde_json::to_string(&value)).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(StringArray::from(texts)))
}

fn encode_persons(project: ProjectId, persons: &[PersonRecord]) -> Result<Bytes, EventStoreError> {
    let mut ids = FixedSizeBinaryBuilder::new(16);
    for person in persons {
        ids.append_value(derived(project, &person.distinct_ids[0]).as_bytes())?;
    }
    let created = persons.iter().map(|person| person.created_at).collect::<Vec<_>>();
    file(vec![
        ("person", Arc::new(ids.finish())),
        ("distinct_ids", json_texts(persons.iter().map(|person| &person.distinct_ids))?),
        ("properties", json_texts(persons.iter().map(|person| &person.properties))?),
        ("created_at", Arc::new(TimestampMicrosecondArray::from(created).with_timezone("UTC"))),
    ])
}

fn encode_groups(groups: &[GroupRecord]) -> Result<Bytes, EventStoreError> {
    file(vec![
        ("type", Arc::new(StringArray::from_iter_values(groups.iter().map(|group| &group.type_name)))),
        ("index", Arc::new(UInt32Array::from_iter_values(groups.iter().map(|group| group.index)))),
        ("key", Arc::new(StringArray::from_iter_values(groups.iter().map(|group| &group.key)))),
        ("properties", json_texts(groups.iter().map(|group| &group.properties))?),
    ])
}

fn batches(bytes: Bytes) -> Result<Vec<RecordBatch>, EventStoreError> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?.with_batch_size(65_536).build()?;
    Ok(reader.collect::<Result<_, _>>()?)
}

fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray, EventStoreError> {
    let column = batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or_else(|| EventStoreError::Corrupt(format!("records without {name}")))
}

fn decode_persons(bytes: Bytes) -> Result<Vec<PersonRecord>, EventStoreError> {
    let mut records = Vec::new();
    for batch in batches(bytes)? {
        let (ids, properties) = (texts(&batch, "distinct_ids")?, texts(&batch, "properties")?);
        let created = batch.column_by_name("created_at");
        let created = created.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
        for row in 0..batch.num_rows() {
            records.push(PersonRecord {
                distinct_ids: serde_json::from_str(ids.value(row))?,
                properties: serde_json::from_str(properties.value(row))?,
                created_at: created.and_then(|column| column.is_valid(row).then(|| column.value(row))),
            });
        }
    }
    Ok(records)
}

fn decode_groups(bytes: Bytes) -> Result<Vec<GroupRecord>, EventStoreError> {
    let mut records = Vec::new();
    for batch in batches(bytes)? {
        let (types, keys) = (texts(&batch, "type")?, texts(&batch, "key")?);
        let properties = texts(&batch, "properties")?;
        let index = batch.column_by_name("index").and_then(|column| column.as_primitive_opt::<UInt32Type>());
        let index = index.ok_or_else(|| EventStoreError::corrupt("groups without index"))?;
        for row in 0..batch.num_rows() {
            records.push(GroupRecord {
                type_name: types.value(row).to_owned(),
                index: index.value(row),
                key: keys.value(row).to_owned(),
                properties: serde_json::from_str(properties.value(row))?,
            });
        }
    }
    Ok(records)
}
