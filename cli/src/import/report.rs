//! The summary of an import or of a dry run, as text and as JSON.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Value, json};

use super::mappings::MappedRecord;
use super::people::PeopleUpdate;
use super::record::ImportRecord;
use super::time::TimeFormat;

/// The format of a file, and the mapping of its fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceDescription {
    /// JSON lines, JSON array, CSV or Parquet.
    pub format: &'static str,
    /// none, gzip or zstd.
    pub compression: &'static str,
    /// The name of the vendor whose mapping is used.
    pub vendor: &'static str,
    /// The fields by which the vendor was detected; `None` if it was given by an option, or is the default.
    pub recognised_by: Option<String>,
    /// Pairs of a field of the file and its target.
    pub mapping: Vec<(String, String)>,
    /// The format of the times of each field.
    pub times: Vec<(&'static str, TimeFormat)>,
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Records of the file: lines that are not blank, rows, or elements.
    pub lines: u64,
    /// New events; in a dry run, all events of the file.
    pub events: u64,
    /// Duplicates: events that were stored before.
    pub copies: u64,
    /// Persons.
    pub persons: u64,
    /// Groups.
    pub groups: u64,
    /// Merges of two persons.
    pub merges: u64,
    /// Rejected merges of a person that was identified before.
    pub refused_merges: u64,
    /// The number of records with dropped fields, by the rule that drops them.
    pub ignored: BTreeMap<&'static str, u64>,
    /// The projects of all stored records.
    pub projects: BTreeSet<u64>,
    /// The format and mapping of the file.
    pub source: SourceDescription,
    /// In a dry run, the first records after mapping.
    pub samples: Vec<Value>,
    /// Whether this was a dry run, which stores nothing.
    pub is_dry_run: bool,
    /// The records that an interrupted import of the file had stored, and after which this one continued.
    pub continued_after: u64,
}

impl Summary {
    /// The summary as lines of text.
    pub fn text_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.is_dry_run {
            lines.push(format!("{}; fields:", self.describe_source()));
            let width =
                self.source.mapping.iter().map(|(from, _)| from.chars().count()).max().unwrap_or(0).min(48);
            let field_line = |(from, to): &(String, String)| format!("  {from:width$}  ->  {to}");
            lines.extend(self.source.mapping.iter().map(field_line));
            lines.extend(self.samples.iter().map(|sample| format!("sample {sample}")));
        }
        let duplicates = match self.is_dry_run {
            true => String::new(),
            false => format!(", {} of them were there already", self.copies),
        };
        let merges = match (self.merges, self.refused_merges) {
            (0, 0) => String::new(),
            (merges, 0) => format!(", {merges} merges"),
            (merges, refused) => {
                format!(", {merges} merges, {refused} more refused (the other id was identified before)")
            }
        };
        lines.push(format!(
            "{} {}: {} events{duplicates}; {} persons, {} groups{merges}",
            self.lines,
            self.unit(),
            self.events + self.copies,
            self.persons,
            self.groups
        ));
        if !self.is_dry_run && self.lines > 0 {
            lines.push(format!("read as {}", self.describe_source()));
        }
        if self.continued_after > 0 {
            let (unit, after) = (self.unit(), self.continued_after);
            lines.push(format!("continued after {after} {unit}, which an interrupted import had stored"));
        }
        lines.extend(self.ignored.iter().map(|(rule, count)| format!("not kept of {count}: {rule}")));
        if self.is_dry_run {
            lines.push("nothing was stored; run again without --dry-run to do it".to_owned());
        }
        lines
    }

    fn unit(&self) -> &'static str {
        match self.source.format {
            "Parquet" => "rows",
            "JSON array" => "elements",
            _ => "lines",
        }
    }

    /// The format, the vendor, and the formats of times.
    fn describe_source(&self) -> String {
        let source = &self.source;
        let compression = match source.compression {
            "" | "none" => String::new(),
            compression => format!(" ({compression})"),
        };
        let by = match &source.recognised_by {
            None => String::new(),
            Some(fields) => format!(" (recognised by {fields})"),
        };
        let times = source.times.iter().map(|(field, form)| format!("; {field}: {}", form.name()));
        format!(
            "{}{compression}, fields of {}{by}{}",
            source.format,
            source.vendor,
            times.collect::<String>()
        )
    }

    /// The summary as JSON.
    pub fn to_json(&self) -> Value {
        let times: Map<String, Value> =
            self.source.times.iter().map(|(field, form)| ((*field).to_owned(), json!(form.name()))).collect();
        let mut json = json!({
            "dry_run": self.is_dry_run,
            "format": self.source.format,
            "compression": self.source.compression,
            "from": self.source.vendor,
            "recognised_by": self.source.recognised_by,
            "times": times,
            "records": self.lines,
            "events": self.events + self.copies,
            "events_there_already": self.copies,
            "continued_after": self.continued_after,
            "persons": self.persons,
            "groups": self.groups,
            "merges": self.merges,
            "merges_refused": self.refused_merges,
            "ignored": self.ignored,
            "projects": self.projects,
        });
        if self.is_dry_run {
            let mapping = self.source.mapping.iter().map(|(from, to)| json!({"field": from, "becomes": to}));
            json["mapping"] = mapping.collect();
            json["samples"] = json!(self.samples);
        }
        json
    }
}

fn format_time(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// A record after mapping, as JSON.
pub(super) fn sample_json(unit: &str, number: u64, mapped: &MappedRecord) -> Value {
    let mut sample = json!({ unit: number, "project": mapped.project });
    match &mapped.record {
        None => {}
        Some(ImportRecord::Event(event)) => {
            sample["event"] = json!({
                "event": event.event, "distinct_id": event.distinct_id, "timestamp": format_time(event.timestamp),
                "uuid": event.uuid, "properties": event.properties,
            });
        }
        Some(ImportRecord::Person(person)) => {
            sample["person"] = json!({
                "distinct_ids": person.distinct_ids, "properties": person.properties,
                "created_at": person.created_at.map(format_time),
            });
        }
        Some(ImportRecord::Group(group)) => {
            sample["group"] = json!({
                "type": group.type_name, "index": group.index, "key": group.key, "properties": group.properties,
            });
        }
    }
    let updates: Vec<Value> = mapped.updates.iter().map(update_json).collect();
    if !updates.is_empty() {
        sample["also"] = Value::Array(updates);
    }
    sample
}

fn update_json(update: &PeopleUpdate) -> Value {
    match update {
        PeopleUpdate::SamePerson { person, distinct_id } => {
            json!({"person_id": person, "distinct_id": distinct_id})
        }
        PeopleUpdate::Merge { from, to, .. } => json!({"merge": from, "into": to}),
        PeopleUpdate::Properties { distinct_id, properties, .. } => {
            json!({"person": distinct_id, "properties": properties})
        }
        PeopleUpdate::FirstSeen { distinct_id, at } => {
            json!({"person": distinct_id, "created_at": format_time(*at)})
        }
        PeopleUpdate::GroupProperties { type_name, key, properties, .. } => {
            json!({"group": type_name, "key": key, "properties": properties})
        }
    }
}
