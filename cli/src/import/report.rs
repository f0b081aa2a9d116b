//! What an import did, or would do: as lines for people and as JSON.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Value, json};

use super::mappings::Mapped;
use super::people::Fact;
use super::record::Record;
use super::time::TimeForm;

/// What a file is, and how its records are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceDescription {
    /// JSON lines, JSON array, CSV or Parquet.
    pub format: &'static str,
    /// none, gzip or zstd.
    pub compression: &'static str,
    /// Whose fields it has: the name of a preset.
    pub vendor: &'static str,
    /// The fields by which the vendor was recognised; none where the command line named it, or nothing was recognised.
    pub recognised_by: Option<String>,
    /// What becomes of which field.
    pub mapping: Vec<(String, String)>,
    /// In which form the times of each field are.
    pub times: Vec<(&'static str, TimeForm)>,
}

/// What an import did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Lines of the file that are not blank, rows, or elements.
    pub lines: u64,
    /// Events that are new; of a dry run, all of the file.
    pub events: u64,
    /// Events that were there already.
    pub copies: u64,
    /// Persons.
    pub persons: u64,
    /// Groups.
    pub groups: u64,
    /// Merges of two persons.
    pub merges: u64,
    /// Merges that the rules of merges refuse.
    pub refused_merges: u64,
    /// How many records each rule left something out of.
    pub ignored: BTreeMap<&'static str, u64>,
    /// The projects that received something.
    pub projects: BTreeSet<u64>,
    /// What the file is.
    pub source: SourceDescription,
    /// Of a dry run, what becomes of the first records.
    pub samples: Vec<Value>,
    /// Whether nothing was stored.
    pub is_dry_run: bool,
}

impl Summary {
    /// Lines for people.
    pub fn lines_of_text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.is_dry_run {
            lines.push(format!("{}; fields:", self.what()));
            let width =
                self.source.mapping.iter().map(|(from, _)| from.chars().count()).max().unwrap_or(0).min(48);
            let of_field = |(from, to): &(String, String)| format!("  {from:width$}  ->  {to}");
            lines.extend(self.source.mapping.iter().map(of_field));
            lines.extend(self.samples.iter().map(|sample| format!("sample {sample}")));
        }
        let copies = match self.is_dry_run {
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
            "{} {}: {} events{copies}; {} persons, {} groups{merges}",
            self.lines,
            self.unit(),
            self.events + self.copies,
            self.persons,
            self.groups
        ));
        if !self.is_dry_run && self.lines > 0 {
            lines.push(format!("read as {}", self.what()));
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

    /// The format, the vendor, and the forms of times.
    fn what(&self) -> String {
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

    /// All of it as JSON.
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

fn instant(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// What one record becomes.
pub(super) fn sample(unit: &str, number: u64, mapped: &Mapped) -> Value {
    let mut sample = json!({ unit: number, "project": mapped.project });
    match &mapped.record {
        None => {}
        Some(Record::Event(event)) => {
            sample["event"] = json!({
                "event": event.event, "distinct_id": event.distinct_id, "timestamp": instant(event.timestamp),
                "uuid": event.uuid, "properties": event.properties,
            });
        }
        Some(Record::Person(person)) => {
            sample["person"] = json!({
                "distinct_ids": person.distinct_ids, "properties": person.properties,
                "created_at": person.created_at.map(instant),
            });
        }
        Some(Record::Group(group)) => {
            sample["group"] = json!({
                "type": group.type_name, "index": group.index, "key": group.key, "properties": group.properties,
            });
        }
    }
    let facts: Vec<Value> = mapped.facts.iter().map(fact).collect();
    if !facts.is_empty() {
        sample["also"] = Value::Array(facts);
    }
    sample
}

fn fact(fact: &Fact) -> Value {
    match fact {
        Fact::Same { person, distinct_id } => json!({"person_id": person, "distinct_id": distinct_id}),
        Fact::Merge { from, to, .. } => json!({"merge": from, "into": to}),
        Fact::Properties { distinct_id, properties, .. } => {
            json!({"person": distinct_id, "properties": properties})
        }
        Fact::FirstSeen { distinct_id, at } => json!({"person": distinct_id, "created_at": instant(*at)}),
        Fact::Group { type_name, key, properties, .. } => {
            json!({"group": type_name, "key": key, "properties": properties})
        }
    }
}
