//! Mappings of records of a file to events, persons and groups: one module per vendor, and [`native`] for this product's own
//! fields.
//!
//! A mapping is a pure function of one record and its [`MappingContext`]. Must stay true: every field of a record is used, counted
//! in [`MappedRecord::ignored`], or rejected; two passes over a file have the same result.

pub(crate) mod amplitude;
mod fields;
pub(crate) mod mixpanel;
pub(crate) mod native;
pub(crate) mod posthog;
pub(crate) mod segment;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::people::PeopleUpdate;
use super::record::{ImportRecord, derive_uuid};
use super::time::TimeFormats;
use super::{ExtraFields, ImportOptions};
pub(crate) use fields::UnreadFields;

/// Namespace of the version 5 uuids of events whose vendor identifies them by texts.
const NAMESPACE: Uuid = Uuid::from_u128(0x0b7a_52c6_1d3f_4e88_a1c9_7f20_64de_93b5);

/// The vendor whose export a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Vendor {
    /// This product's own fields: `event`, `distinct_id`, `timestamp` ...
    Pennon,
    /// PostHog's batch exports of events and persons.
    Posthog,
    /// Mixpanel's raw event export, and profiles.
    Mixpanel,
    /// Amplitude's Export API and its export to S3.
    Amplitude,
    /// Segment's raw logs.
    Segment,
}

impl Vendor {
    /// Its name, as `--from` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Vendor::Pennon => "pennon",
            Vendor::Posthog => "posthog",
            Vendor::Mixpanel => "mixpanel",
            Vendor::Amplitude => "amplitude",
            Vendor::Segment => "segment",
        }
    }

    /// Detects the vendor of a record; returns also the fields by which it was detected.
    pub(crate) fn detect(record: &Map<String, Value>) -> Option<(Vendor, String)> {
        let candidates = [
            (Vendor::Posthog, posthog::detect(record)),
            (Vendor::Amplitude, amplitude::detect(record)),
            (Vendor::Segment, segment::detect(record)),
            (Vendor::Mixpanel, mixpanel::detect(record)),
        ];
        candidates.into_iter().find_map(|(vendor, fields)| Some((vendor, fields?)))
    }

    pub(crate) fn mapping(self, options: &ImportOptions) -> Box<dyn Mapping> {
        match self {
            Vendor::Pennon => Box::new(native::Native::new(options)),
            Vendor::Posthog => Box::new(posthog::Posthog),
            Vendor::Mixpanel => Box::new(mixpanel::Mixpanel),
            Vendor::Amplitude => Box::new(amplitude::Amplitude),
            Vendor::Segment => Box::new(segment::Segment),
        }
    }
}

/// The input of a mapping besides the record.
pub(crate) struct MappingContext<'a> {
    /// The record's line, row or element.
    pub line: u64,
    pub options: &'a ImportOptions,
    /// The handling of fields that the mapping does not know.
    pub extra: ExtraFields,
    /// The digest of the file's content.
    pub content: &'a [u8; 32],
    pub times: &'a mut TimeFormats,
}

impl MappingContext<'_> {
    /// Parses a time, in microseconds since the epoch.
    pub(crate) fn parse_time(&mut self, field: &'static str, value: Option<&Value>) -> Result<i64, String> {
        self.times.parse(field, self.line, value)
    }

    /// The project of a vendor's record: vendors' records have no project, so it is that of `--project`.
    pub(crate) fn project(&self) -> Result<u64, String> {
        self.options
            .default_project
            .ok_or_else(|| "a vendor's export names no project; pass --project ID".to_owned())
    }

    /// The uuid of an event with the vendor's `id`, which may be a UUID or any text; derived from the line if it has none.
    /// Events with the same `id` and another `scope` are different events.
    pub(crate) fn uuid(&self, id: Option<&str>, scope: &[&str]) -> Uuid {
        match id.filter(|id| !id.is_empty()) {
            None => derive_uuid(self.content, self.line),
            Some(id) => match Uuid::parse_str(id) {
                Ok(uuid) if !uuid.is_nil() && scope.is_empty() => uuid,
                _ => Uuid::new_v5(&NAMESPACE, [scope, &[id]].concat().join("\u{1f}").as_bytes()),
            },
        }
    }

    /// The index of a group type, if the project declares it.
    pub(crate) fn group_index(&self, project: u64, type_name: &str) -> Option<u32> {
        let types = self.options.group_types.get(&project)?;
        types.iter().position(|known| known == type_name).map(|index| index as u32)
    }
}

/// A record of a file after mapping.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct MappedRecord {
    pub project: u64,
    /// Stored in the order of the file.
    pub record: Option<ImportRecord>,
    /// Folded with those of other records, and stored before all records.
    pub updates: Vec<PeopleUpdate>,
    /// The rules by which fields were dropped.
    pub ignored: Vec<&'static str>,
}

impl MappedRecord {
    pub(crate) fn new(project: u64) -> MappedRecord {
        MappedRecord { project, ..MappedRecord::default() }
    }

    /// Adds a merge of `from` into `to`.
    pub(crate) fn add_merge(&mut self, from: &str, to: &str, at: i64, forced: bool) {
        if from != to {
            self.updates.push(PeopleUpdate::Merge { from: from.to_owned(), to: to.to_owned(), at, forced });
        }
    }

    /// Adds properties of a person.
    pub(crate) fn add_person_properties(
        &mut self,
        distinct_id: &str,
        properties: Map<String, Value>,
        at: i64,
        is_whole: bool,
    ) {
        if !properties.is_empty() {
            let distinct_id = distinct_id.to_owned();
            self.updates.push(PeopleUpdate::Properties { distinct_id, properties, at, is_whole });
        }
    }

    /// Adds properties of a group, if its type is declared.
    pub(crate) fn add_group_properties(
        &mut self,
        context: &MappingContext<'_>,
        type_name: &str,
        key: &str,
        properties: Map<String, Value>,
        at: i64,
    ) {
        match context.group_index(self.project, type_name) {
            Some(index) => {
                let (type_name, key) = (type_name.to_owned(), key.to_owned());
                self.updates.push(PeopleUpdate::GroupProperties { type_name, index, key, properties, at });
            }
            None => self.ignored.push(
                "groups of types that the project's group_types do not list: declare them in the workspace file and import again",
            ),
        }
    }
}

/// Maps records of a file to events, persons and groups.
pub(crate) trait Mapping: Send + Sync {
    /// A description of the mapping: pairs of a field of the file and its target.
    fn describe(&self) -> Vec<(String, String)>;

    /// Validates the columns of a file with a header.
    fn check_columns(&self, _columns: &[String], _extra: ExtraFields) -> Result<(), String> {
        Ok(())
    }

    /// Maps a record.
    fn map(
        &self,
        record: Map<String, Value>,
        context: &mut MappingContext<'_>,
    ) -> Result<MappedRecord, String>;
}

/// A table of fields, as [`Mapping::describe`] returns it.
fn field_table(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
}
