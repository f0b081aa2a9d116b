//! Mappings of records of a file to events, persons and groups: one module a vendor, and [`native`] for this product's own
//! fields.
//!
//! A mapping is a pure function of one record and its [`Context`]. Must stay true: every field of a record is taken, named
//! in [`Mapped::ignored`], or refused; two passes over a file give the same.

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

use super::people::Fact;
use super::record::{Record, uuid_of_line};
use super::time::TimeFields;
use super::{ExtraFields, ImportOptions};
pub(crate) use fields::Fields;

/// Namespace of the uuids of events whose vendor identifies them by texts.
const NAMESPACE: Uuid = Uuid::from_u128(0x0b7a_52c6_1d3f_4e88_a1c9_7f20_64de_93b5);

/// Whose export a file is.
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

    /// Whose record this is, and the fields by which it was recognised.
    pub(crate) fn recognise(record: &Map<String, Value>) -> Option<(Vendor, String)> {
        let found = [
            (Vendor::Posthog, posthog::recognise(record)),
            (Vendor::Amplitude, amplitude::recognise(record)),
            (Vendor::Segment, segment::recognise(record)),
            (Vendor::Mixpanel, mixpanel::recognise(record)),
        ];
        found.into_iter().find_map(|(vendor, by)| Some((vendor, by?)))
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

/// What a mapping knows beside the record.
pub(crate) struct Context<'a> {
    /// The record's line, row or element.
    pub line: u64,
    pub options: &'a ImportOptions,
    /// What is done with fields that the mapping does not know.
    pub extra: ExtraFields,
    /// The digest of the file's content.
    pub content: &'a [u8; 32],
    pub times: &'a mut TimeFields,
}

impl Context<'_> {
    pub(crate) fn instant(&mut self, field: &'static str, value: Option<&Value>) -> Result<i64, String> {
        self.times.instant(field, self.line, value)
    }

    /// The project of a vendor's record, which names none.
    pub(crate) fn project(&self) -> Result<u64, String> {
        self.options
            .default_project
            .ok_or_else(|| "a vendor's export names no project; pass --project ID".to_owned())
    }

    /// The identity of an event that its vendor identifies by `id`, which may be a UUID or any text; of its line where it has
    /// none. `scope` is what tells events of one such text apart.
    pub(crate) fn uuid(&self, id: Option<&str>, scope: &[&str]) -> Uuid {
        match id.filter(|id| !id.is_empty()) {
            None => uuid_of_line(self.content, self.line),
            Some(id) => match Uuid::parse_str(id) {
                Ok(uuid) if !uuid.is_nil() && scope.is_empty() => uuid,
                _ => Uuid::new_v5(&NAMESPACE, [scope, &[id]].concat().join("\u{1f}").as_bytes()),
            },
        }
    }

    /// The place of a group type in the list of the project, where it is declared.
    pub(crate) fn group_index(&self, project: u64, type_name: &str) -> Option<u32> {
        let types = self.options.group_types.get(&project)?;
        types.iter().position(|known| known == type_name).map(|index| index as u32)
    }
}

/// What one record says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Mapped {
    pub project: u64,
    /// Stored in the order of the file.
    pub record: Option<Record>,
    /// Folded with those of other records, and stored before.
    pub facts: Vec<Fact>,
    /// What is not kept, by the rule that says so.
    pub ignored: Vec<&'static str>,
}

impl Mapped {
    pub(crate) fn of(project: u64) -> Mapped {
        Mapped { project, ..Mapped::default() }
    }

    /// Notes that `from` is to become a part of `to`.
    pub(crate) fn merge(&mut self, from: &str, to: &str, at: i64, forced: bool) {
        if from != to {
            self.facts.push(Fact::Merge { from: from.to_owned(), to: to.to_owned(), at, forced });
        }
    }

    /// Notes properties of a person.
    pub(crate) fn person(
        &mut self,
        distinct_id: &str,
        properties: Map<String, Value>,
        at: i64,
        is_whole: bool,
    ) {
        if !properties.is_empty() {
            let distinct_id = distinct_id.to_owned();
            self.facts.push(Fact::Properties { distinct_id, properties, at, is_whole });
        }
    }

    /// Notes properties of a group, if its type is declared.
    pub(crate) fn group(
        &mut self,
        context: &Context<'_>,
        type_name: &str,
        key: &str,
        properties: Map<String, Value>,
        at: i64,
    ) {
        match context.group_index(self.project, type_name) {
            Some(index) => {
                let (type_name, key) = (type_name.to_owned(), key.to_owned());
                self.facts.push(Fact::Group { type_name, index, key, properties, at });
            }
            None => self.ignored.push(
                "groups of types that the project's group_types do not list: declare them in the workspace file and import again",
            ),
        }
    }
}

/// How records of a file become events, persons and groups.
pub(crate) trait Mapping: Send + Sync {
    /// What becomes of which field, for people: pairs of (field of the file, what it becomes).
    fn describe(&self) -> Vec<(String, String)>;

    /// Refuses columns that no record could have, where the file has a header.
    fn check_columns(&self, _columns: &[String], _extra: ExtraFields) -> Result<(), String> {
        Ok(())
    }

    /// What a record says.
    fn map(&self, record: Map<String, Value>, context: &mut Context<'_>) -> Result<Mapped, String>;
}

/// A table of fields, as [`Mapping::describe`] returns it.
fn described(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
}
