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

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::RowSelection;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::ImportedRecords;
use crate::error::EventStoreError;
use crate::formats;
use crate::manifest::{
    EntryKind, FormerObject, GRACE_MICROS, Manifest, RecordsEntry, ids_sidecar_name, new_id,
};
use crate::objects::RetryBudget;
use crate::person_ids::derive_person_id;
use crate::persons::imports::ids_sidecar::RecordIds;
use crate::persons::imports::record_columns::{GroupColumns, PersonColumns};
use crate::persons::profiles::file::{self, texts};
use crate::segments::parquet_io::{PageIndexParts, ParquetFile};

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

    /// As [`PersonsObject::records`], from record number `first` on.
    pub(crate) fn records_from(&self, first: usize) -> impl Iterator<Item = &[Uuid]> {
        self.ids.records_from(first)
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
        ids.push(distinct_ids.iter().map(|id| derive_person_id(project, id)));
    }
    Ok(())
}

/// Reads the person ids of an import of format 1, which has no sidecar.
pub(crate) fn read_legacy_ids<'a>(
    imports: &'a ImportedRecords,
    project: ProjectId,
    entry: &'a RecordsEntry,
) -> BoxFuture<'a, Result<RecordIds, EventStoreError>> {
    Box::pin(async move {
        let file = imports.records_file(entry).await?;
        let mut ids = RecordIds::default();
        for group in 0..file.groups() {
            let decoded = file.decode(group, None, &["distinct_ids"]).await?;
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
    kind: EntryKind,
    folder: &'static str,
    rows: u64,
    bytes: Bytes,
    /// Of persons: [`RecordIds::encode`].
    ids: Option<Bytes>,
}

impl ImportedRecords {
    /// Imports persons. Their events count as theirs at once, including earlier and captured ones.
    pub(crate) async fn add_persons(
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

    /// As [`ImportedRecords::add_persons`], for persons in columns.
    pub(crate) async fn add_person_columns(
        &self,
        persons: PersonColumns,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let (project, rows) = (persons.project(), persons.len() as u64);
        let (bytes, ids) = tokio::task::spawn_blocking(move || persons.encode()).await??;
        let new = NewRecords { kind: EntryKind::Persons, folder: "persons", rows, bytes, ids: Some(ids) };
        self.add_records(project, new, now).await
    }

    /// Imports groups.
    pub(crate) async fn add_groups(
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

    /// As [`ImportedRecords::add_groups`], for groups in columns.
    pub(crate) async fn add_group_columns(
        &self,
        project: ProjectId,
        groups: GroupColumns,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let rows = groups.len() as u64;
        let bytes = tokio::task::spawn_blocking(move || groups.encode()).await??;
        let new = NewRecords { kind: EntryKind::Groups, folder: "groups", rows, bytes, ids: None };
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
        self.projects.list_project(project).await?;
        let mut retries = RetryBudget::for_command(&self.settings);
        let mut manifest = self.load_manifest_with_retries(project, &mut retries).await?;
        let id = manifest.records_id(now);
        let object = format!("project={project}/{}/{id}.parquet", new.folder);
        let (rows, size) = (new.rows, new.bytes.len() as u64);
        let format = if new.ids.is_some() { formats::PERSONS } else { formats::GROUPS };
        let files = [(object.clone(), new.bytes)].into_iter();
        let files = files.chain(new.ids.map(|ids| (ids_sidecar_name(&object), ids))).collect::<Vec<_>>();
        self.objects.create_all(&files).await?;
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
            if self.manifests.add(project, &manifest, new.kind, &entry).await? {
                return Ok(());
            }
            if let Err(error) = retries.after_conflict().await {
                // The manifest definitely rejected the entry.
                self.objects.delete_all(entry.files().collect()).await?;
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
            let seen = self.manifests.load(project).await;
            if let Some(manifest) = retries.optimistic_read(seen).await? {
                return Ok(manifest);
            }
        }
    }

    /// All imported groups, by type index and key.
    pub(crate) async fn groups(&self, project: ProjectId) -> Result<Vec<GroupRecord>, EventStoreError> {
        let manifest = self.manifests.load(project).await?;
        let mut groups = BTreeMap::new();
        for entry in &manifest.groups {
            let bytes = self.objects.get(&entry.object).await?;
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
            if let Some(known) = self.person_objects.get(&entry.object) {
                objects.push(known);
                continue;
            }
            let ids = self.record_ids(project, entry).await?;
            let object = Arc::new(PersonsObject { file: self.records_file(entry).await?, ids });
            self.person_objects.put(&entry.object, object.clone());
            objects.push(object);
        }
        Ok(objects)
    }

    /// Reads the records of an import of groups.
    pub(crate) async fn group_records(&self, entry: &RecordsEntry) -> Result<Bytes, EventStoreError> {
        self.objects.get(&entry.object).await
    }

    /// Writes the records of an import of persons that stay, as a new object. Returns its entry, which is not listed yet.
    pub(crate) async fn write_kept(
        &self,
        project: ProjectId,
        entry: &RecordsEntry,
        object: &Arc<PersonsObject>,
        stays: Vec<bool>,
        now: Micros,
    ) -> Result<RecordsEntry, EventStoreError> {
        let mut batches = Vec::new();
        for group in 0..object.file.groups() {
            batches.extend(object.file.decode(group, None, &object.file.columns()).await?.batches);
        }
        let rows = stays.iter().filter(|stays| **stays).count() as u64;
        let object = object.clone();
        let left = move || kept(&batches, &stays).map(|left| (left, object.ids.kept(&stays)));
        let (bytes, ids) = tokio::task::spawn_blocking(left).await??;
        let (id, size) = (new_id(now), bytes.len() as u64);
        let name = format!("project={project}/persons/{id}.parquet");
        self.objects.create_all(&[(name.clone(), bytes), (ids_sidecar_name(&name), ids.encode())]).await?;
        let left = entry.with_object(name, size, rows, now);
        Ok(RecordsEntry { format: formats::PERSONS, ..left })
    }

    /// Deletes the objects of entries that are not listed.
    pub(crate) async fn delete_unlisted(
        &self,
        entries: impl Iterator<Item = RecordsEntry>,
    ) -> Result<(), EventStoreError> {
        let objects = entries.flat_map(|entry| entry.files().collect::<Vec<_>>()).collect();
        self.objects.delete_all(objects).await
    }

    /// Deletes former objects of imports that no reader can use any more.
    pub(crate) async fn sweep_former_objects(
        &self,
        manifest: &Manifest,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        for (version, key, entry) in &manifest.rewritten {
            let is_due = |former: &FormerObject| former.at.saturating_add(GRACE_MICROS) <= now;
            let (gone, left): (Vec<FormerObject>, Vec<FormerObject>) =
                entry.before.iter().cloned().partition(is_due);
            if !gone.is_empty() {
                let gone = gone.into_iter().flat_map(FormerObject::files).collect();
                self.objects.delete_all(gone).await?;
                self.manifests.keep_former_objects((*version, key.clone()), entry, left).await?;
            }
        }
        Ok(())
    }

    async fn records_file(&self, entry: &RecordsEntry) -> Result<ParquetFile, EventStoreError> {
        ParquetFile::open(&self.objects, &entry.object, entry.bytes, PageIndexParts::Places).await
    }

    /// Reads the properties of records `rows` (ascending) of `object`.
    pub(crate) async fn properties_of_records(
        &self,
        object: &PersonsObject,
        rows: &[usize],
    ) -> Result<Vec<Map<String, Value>>, EventStoreError> {
        let mut found = Vec::new();
        for (group, selection) in object.selections(rows) {
            for batch in object.file.decode(group, Some(selection), &["properties"]).await?.batches {
                let properties = texts(&batch, "properties")?;
                for row in 0..batch.num_rows() {
                    found.push(serde_json::from_str(properties.value(row))?);
                }
            }
        }
        Ok(found)
    }
}

/// Encodes the rows of `batches` that stay.
fn kept(batches: &[RecordBatch], stays: &[bool]) -> Result<Bytes, EventStoreError> {
    let schema = batches.first().ok_or_else(|| EventStoreError::corrupt("a file without rows"))?.schema();
    let all = concat_batches(&schema, batches)?;
    let left = filter_record_batch(&all, &BooleanArray::from(stays.to_vec()))?;
    let columns = schema.fields().iter().zip(left.columns());
    file::write(columns.map(|(field, column)| (field.name().as_str(), column.clone())).collect())
}

/// Calls back with each imported group: type index, key, properties as JSON text.
pub(crate) fn each_group_record(
    bytes: Bytes,
    mut each: impl FnMut(u32, &str, &str) -> Result<(), EventStoreError>,
) -> Result<(), EventStoreError> {
    for batch in file::read_batches(bytes)? {
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
    for batch in file::read_batches(bytes)? {
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
