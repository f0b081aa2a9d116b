//! Imported persons and groups as columns of text, before they are encoded to Parquet.
//!
//! Must stay true: memory is the size of the texts plus growth; the result is a file of
//! [`crate::persons::imports::records`].

use std::fmt;
use std::sync::Arc;

use arrow_array::builder::{
    FixedSizeBinaryBuilder, StringBuilder, TimestampMicrosecondBuilder, UInt32Builder,
};
use bytes::Bytes;
use pennon_core::store::keys::ProjectId;
use serde::Serialize;

use crate::error::EventStoreError;
use crate::person_ids::derive_person_id;
use crate::persons::imports::ids_sidecar::RecordIds;
use crate::persons::imports::records::{GroupRecord, PersonRecord};
use crate::persons::profiles::file;

/// Persons of a project.
pub struct PersonColumns {
    project: ProjectId,
    ids: FixedSizeBinaryBuilder,
    distinct_ids: TextColumnBuilder,
    properties: TextColumnBuilder,
    created_at: TimestampMicrosecondBuilder,
    all_ids: RecordIds,
}

/// Groups of a project.
#[derive(Default)]
pub struct GroupColumns {
    types: TextColumnBuilder,
    indices: UInt32Builder,
    keys: TextColumnBuilder,
    properties: TextColumnBuilder,
}

/// A growing column of texts.
#[derive(Default)]
struct TextColumnBuilder {
    builder: StringBuilder,
    /// A value as JSON.
    json: Vec<u8>,
}

impl TextColumnBuilder {
    fn push(&mut self, text: &str) {
        self.builder.append_value(text);
    }

    fn push_json(&mut self, value: &impl Serialize) -> Result<(), EventStoreError> {
        self.json.clear();
        serde_json::to_writer(&mut self.json, value)?;
        self.builder.append_value(std::str::from_utf8(&self.json).map_err(EventStoreError::corrupt)?);
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.builder.values_slice().len() + size_of_val(self.builder.offsets_slice())
    }
}

impl fmt::Debug for PersonColumns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PersonColumns").field("persons", &self.len()).finish_non_exhaustive()
    }
}

impl PersonColumns {
    /// An empty list.
    pub fn new(project: ProjectId) -> PersonColumns {
        PersonColumns {
            project,
            ids: FixedSizeBinaryBuilder::new(16),
            distinct_ids: TextColumnBuilder::default(),
            properties: TextColumnBuilder::default(),
            created_at: TimestampMicrosecondBuilder::new().with_timezone("UTC"),
            all_ids: RecordIds::default(),
        }
    }

    /// Adds a person. [`EventStoreError::Corrupt`] when it has no distinct id.
    pub fn push(&mut self, person: &PersonRecord) -> Result<(), EventStoreError> {
        let first = person.distinct_ids.first();
        let first = first.ok_or_else(|| EventStoreError::corrupt("a person without a distinct id"))?;
        self.distinct_ids.push_json(&person.distinct_ids)?;
        self.properties.push_json(&person.properties)?;
        self.ids.append_value(derive_person_id(self.project, first).as_bytes())?;
        self.created_at.append_option(person.created_at);
        self.all_ids.push(person.distinct_ids.iter().map(|id| derive_person_id(self.project, id)));
        Ok(())
    }

    /// Number of persons.
    pub fn len(&self) -> usize {
        self.created_at.values_slice().len()
    }

    /// Whether there are no persons.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.distinct_ids.bytes() + self.properties.bytes() + self.len() * 24 + self.all_ids.bytes()
    }

    pub(crate) fn project(&self) -> ProjectId {
        self.project
    }

    /// Encodes the Parquet file and the ids sidecar.
    pub(crate) fn encode(mut self) -> Result<(Bytes, Bytes), EventStoreError> {
        let ids = self.all_ids.encode();
        let file = file::write(vec![
            ("person", Arc::new(self.ids.finish())),
            ("distinct_ids", Arc::new(self.distinct_ids.builder.finish())),
            ("properties", Arc::new(self.properties.builder.finish())),
            ("created_at", Arc::new(self.created_at.finish())),
        ]);
        Ok((file?, ids))
    }
}

impl fmt::Debug for GroupColumns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("GroupColumns").field("groups", &self.len()).finish_non_exhaustive()
    }
}

impl GroupColumns {
    /// Adds a group.
    pub fn push(&mut self, group: &GroupRecord) -> Result<(), EventStoreError> {
        self.properties.push_json(&group.properties)?;
        self.types.push(&group.type_name);
        self.indices.append_value(group.index);
        self.keys.push(&group.key);
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.indices.values_slice().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.types.bytes() + self.keys.bytes() + self.properties.bytes() + self.len() * 4
    }

    /// Encodes the Parquet file.
    pub(crate) fn encode(mut self) -> Result<Bytes, EventStoreError> {
        file::write(vec![
            ("type", Arc::new(self.types.builder.finish())),
            ("index", Arc::new(self.indices.finish())),
            ("key", Arc::new(self.keys.builder.finish())),
            ("properties", Arc::new(self.properties.builder.finish())),
        ])
    }
}
