//! Imported persons and groups: immutable Parquet objects that the manifest lists, oldest first.
//!
//! Persons: columns `person` (16 bytes, derived from the first distinct id), `distinct_ids` (JSON list),
//! `properties` (JSON object), `created_at` (µs UTC, or null); beside them
//! [`crate::persons::imports::ids_sidecar`]. Groups: `type`, `index`, `key`, `properties`.
//!
//! Must stay true: the distinct ids of a record are one person: the person of the first of them that an earlier
//! record has, else of the first. The latest record of a person that has properties defines them; the latest
//! record of a group defines its properties. A record never makes an event count.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use bytes::Bytes;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection};
use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::formats;
use crate::keys;
use crate::manifest::Manifest;
use crate::manifest::{RecordsEntry, ids_sidecar_name};
use crate::objects::RetryBudget;
use crate::person_ids::derived;
use crate::persons::imports::ids_sidecar::RecordIds;
use crate::persons::imports::record_columns::{GroupColumns, PersonColumns};
use crate::persons::profiles::file::texts;
use crate::segments::parquet_io::{Index, ParquetFile};

/// A person as imported.
#[derive(Debug, Clone, PartialEq)]
pub struct PersonRecord {
    /// All of them are this person; at least one.
    pub distinct_ids: Vec<String>,
    /// Its properties. An empty object leaves the properties of an earlier record unchanged.
    pub properties: Map<String, Value>,
    /// When it was first seen.
    pub created_at: Option<Micros>,
}

/// A group as imported.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRecord {
    /// Name of its type.
    pub type_name: String,
    /// Index of the type in the project.
    pub index: u32,
    /// Its key among groups of the type.
    pub key: String,
    /// Its properties.
    pub properties: Map<String, Value>,
}

/// An import of persons. The ids are in memory; other columns are read on demand.
#[derive(Debug)]
pub(crate) struct PersonsObject {
    pub file: ParquetFile,
    /// Person ids derived from the distinct ids of the records.
    pub ids: Arc<RecordIds>,
}

impl PersonsObject {
    /// Person ids derived from the distinct ids of each record, in order of the records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &[Uuid]> {
        self.ids.records()
    }

    /// Selections of records `rows` (ascending) by row group; row groups without any are left out.
    pub(crate) fn selections(&self, rows: &[usize]) -> Vec<(usize, RowSelection)> {
        let mut before = 0;
        let mut selections = Vec::new();
        for group in 0..self.file.groups() {
            let count = self.file.group_rows(group);
            let own = rows.iter().filter(|row| (before..before + count).contains(*row));
            let ranges = own.map(|row| row - before..row - before + 1).collect::<Vec<_>>();
            before += count;
            if !ranges.is_empty() {
                selections.push((group, RowSelection::from_consecutive_ranges(ranges.into_iter(), count)));
            }
        }
        selections
    }
}

/// Derives the person ids of the column `distinct_ids`.
fn take_ids(project: ProjectId, batch: &RecordBatch, ids: &mut RecordIds) -> Result<(), EventStoreError> {
    let column = texts(batch, "distinct_ids")?;
    for row in 0..batch.num_rows() {
        let distinct_ids: Vec<Cow<'_, str>> = serde_json::from_str(column.value(row))?;
        ids.push(distinct_ids.iter().map(|id| derived(project, id)));
    }
    Ok(())
}

/// Reads the person ids of an import of format 1, which has no sidecar.
pub(crate) fn read_legacy_ids<'a>(
    events: &'a EventStore,
    project: ProjectId,
    entry: &'a RecordsEntry,
) -> BoxFuture<'a, Result<RecordIds, EventStoreError>> {
    Box::pin(async move {
        let file = events.records_file(entry).await?;
        let mut ids = RecordIds::default();
        for group in 0..file.groups() {
            let decoded = file.decode(&events.inner.objects, group, None, &["distinct_ids"]).await?;
            let taken = tokio::task::spawn_blocking(move || {
                decoded.batches.iter().try_for_each(|batch| take_ids(project, batch, &mut ids)).map(|()| ids)
            });
            ids = taken.await??;
        }
        Ok(ids)
    })
}

/// Stored properties of a record without properties.
pub(crate) const EMPTY_PROPERTIES: &str = "{}";

/// An encoded import that is not listed yet.
struct NewRecords {
    prefix: &'static str,
    folder: &'static str,
    rows: u64,
    bytes: Bytes,
    /// Of persons: [`RecordIds::encode`].
    ids: Option<Bytes>,
}

impl EventStore {
    /// Imports persons. Their events count as theirs at once, including earlier and captured ones.
    pub async fn add_persons(
        &self,
        project: ProjectId,
        persons: Vec<PersonRecord>,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let mut columns = PersonColumns::new(project);
        persons.iter().try_for_each(|person| columns.push(person))?;
        drop(persons);
        self.add_person_columns(columns, now).await
    }

    /// As [`EventStore::add_persons`], for persons in columns.
    pub async fn add_person_columns(
        &self,
        persons: PersonColumns,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let (project, rows) = (persons.project(), persons.len() as u64);
        let (bytes, ids) = tokio::task::spawn_blocking(move || persons.encode()).await??;
        let new = NewRecords { prefix: keys::PERSONS, folder: "persons", rows, bytes, ids: Some(ids) };
        self.add_records(project, new, now).await
    }

    /// Imports groups.
    pub async fn add_groups(
        &self,
        project: ProjectId,
        groups: Vec<GroupRecord>,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let mut columns = GroupColumns::default();
        groups.iter().try_for_each(|group| columns.push(group))?;
        drop(groups);
        self.add_group_columns(project, columns, now).await
    }

    /// As [`EventStore::add_groups`], for groups in columns.
    pub async fn add_group_columns(
        &self,
        project: ProjectId,
        groups: GroupColumns,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let rows = groups.len() as u64;
        let bytes = tokio::task::spawn_blocking(move || groups.encode()).await??;
        let new = NewRecords { prefix: keys::GROUPS, folder: "groups", rows, bytes, ids: None };
        self.add_records(project, new, now).await
    }

    async fn add_records(
        &self,
        project: ProjectId,
        new: NewRecords,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        if new.rows == 0 {
            return Ok(());
        }
        self.list_project(project).await?;
        let mut retries = self.command_retries();
        let mut manifest = self.load_manifest_with_retries(project, &mut retries).await?;
        let id = manifest.records_id(now);
        let object = format!("project={project}/{}/{id}.parquet", new.folder);
        let (rows, size) = (new.rows, new.bytes.len() as u64);
        let format = if new.ids.is_some() { formats::PERSONS } else { formats::GROUPS };
        let files = [(object.clone(), new.bytes)].into_iter();
        let files = files.chain(new.ids.map(|ids| (ids_sidecar_name(&object), ids))).collect::<Vec<_>>();
        self.inner.objects.create_all(&files).await?;
        drop(files);
        let entry = RecordsEntry {
            id: id.clone(),
            format,
            object,
            rows,
            bytes: size,
            at: now,
            head: 0,
            before: Vec::new(),
        };
        loop {
            if manifest.add(self, project, new.prefix, &id, &entry).await? {
                return Ok(());
            }
            if let Err(error) = retries.after_conflict().await {
                // The manifest definitely rejected the entry.
                self.inner.objects.delete_all(entry.files().collect()).await?;
                return Err(error);
            }
            manifest = self.load_manifest_with_retries(project, &mut retries).await?;
        }
    }

    /// Loads the manifest; retries conflicts.
    async fn load_manifest_with_retries(
        &self,
        project: ProjectId,
        retries: &mut RetryBudget,
    ) -> Result<Manifest, EventStoreError> {
        loop {
            let seen = Manifest::load(&self.inner.store, project).await;
            if let Some(manifest) = retries.optimistic_read(seen).await? {
                return Ok(manifest);
            }
        }
    }

    /// All imported groups, by type index and key.
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

    /// The imports of persons, oldest first.
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
            let ids = self.record_ids(project, entry).await?;
            let object = Arc::new(PersonsObject { file: self.records_file(entry).await?, ids });
            self.inner.persons.put(&entry.object, object.clone());
            objects.push(object);
        }
        Ok(objects)
    }

    async fn records_file(&self, entry: &RecordsEntry) -> Result<ParquetFile, EventStoreError> {
        let objects = &self.inner.objects;
        let bytes = if entry.bytes > 0 { entry.bytes } else { objects.size(&entry.object).await? };
        ParquetFile::open(objects, &entry.object, bytes, Index::Places).await
    }

    /// Reads the properties of records `rows` (ascending) of `object`.
    pub(crate) async fn properties_of_records(
        &self,
        object: &PersonsObject,
        rows: &[usize],
    ) -> Result<Vec<Map<String, Value>>, EventStoreError> {
        let mut found = Vec::new();
        for (group, selection) in object.selections(rows) {
            let objects = &self.inner.objects;
            for batch in object.file.decode(objects, group, Some(selection), &["properties"]).await?.batches {
                let properties = texts(&batch, "properties")?;
                for row in 0..batch.num_rows() {
                    found.push(serde_json::from_str(properties.value(row))?);
                }
            }
        }
        Ok(found)
    }
}

/// All rows of a small file.
pub(crate) fn batches(bytes: Bytes) -> Result<Vec<RecordBatch>, EventStoreError> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?.with_batch_size(65_536).build()?;
    Ok(reader.collect::<Result<_, _>>()?)
}

/// Calls back with each imported group: type index, key, properties as JSON text.
pub(crate) fn each_group_record(
    bytes: Bytes,
    mut each: impl FnMut(u32, &str, &str) -> Result<(), EventStoreError>,
) -> Result<(), EventStoreError> {
    for batch in batches(bytes)? {
        let (keys, properties) = (texts(&batch, "key")?, texts(&batch, "properties")?);
        let index = batch.column_by_name("index").and_then(|column| column.as_primitive_opt::<UInt32Type>());
        let index = index.ok_or_else(|| EventStoreError::corrupt("groups without index"))?;
        for row in 0..batch.num_rows() {
            each(index.value(row), keys.value(row), properties.value(row))?;
        }
    }
    Ok(())
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
