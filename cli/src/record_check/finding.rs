//! Violated invariants of stored rows, and how they are collected.
//!
//! Must stay true: a row that cannot be decoded, and a record that is missing although other rows name it, are one finding each; the
//! rows that follow from them are not reported besides.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::store::Key;
use pennon_core::store::keys::ProjectId;
use serde::Serialize;
use serde_json::{Value, json};

/// The kind of an invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// A row is decoded, and its content belongs to its key.
    Decoding,
    /// A record exists that other rows name.
    Record,
    /// A record that is not deleted has a summary row that equals what is computed from it.
    SummaryRow,
    /// Unique names, keys and tokens have exactly the rows that claim them.
    UniqueRow,
    /// A version row has the sum of the checksums of its records.
    Checksum,
    /// A named record exists.
    Reference,
    /// The activity log has one entry, one pointer and one count for each audited change.
    Activity,
    /// The counter of a kind is at least its highest id.
    Counter,
    /// A declared record exists as declared.
    Declaration,
    /// A scheduled task exists as long as it is due.
    Task,
}

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The project; `None` for rows of the installation.
    pub project: Option<ProjectId>,
    /// The row that is wrong, or is missing.
    pub row: Key,
    /// The invariant.
    pub rule: Rule,
    /// What is wrong.
    pub detail: String,
}

impl Finding {
    /// The finding as a line of text.
    pub fn line(&self) -> String {
        let place = self.project.map_or("installation".to_owned(), |project| format!("project {project}"));
        format!("{place}: {}: {}", row_name(&self.row), self.detail)
    }

    /// The finding as JSON.
    pub fn to_json(&self) -> Value {
        let Finding { project, row, rule, detail } = self;
        json!({"project": project, "row": {"pk": row.pk, "sk": row.sk}, "rule": rule, "detail": detail})
    }
}

/// A key in texts.
pub fn row_name(row: &Key) -> String {
    format!("{}/{}", row.pk, row.sk)
}

/// The findings of one project, or of the rows of the installation.
#[derive(Debug)]
pub struct Findings {
    project: Option<ProjectId>,
    unreadable: BTreeMap<Key, String>,
    /// Records that do not exist, with the rows that name them.
    missing: BTreeMap<Key, BTreeSet<&'static str>>,
    list: Vec<Finding>,
}

impl Findings {
    /// Findings beside rows that could not be decoded, with the causes.
    pub fn new(project: Option<ProjectId>, unreadable: &BTreeMap<Key, String>) -> Findings {
        Findings { project, unreadable: unreadable.clone(), missing: BTreeMap::new(), list: Vec::new() }
    }

    /// Whether the row at `key` could not be decoded.
    pub fn is_unreadable(&self, key: &Key) -> bool {
        self.unreadable.contains_key(key)
    }

    /// Whether a row of this partition could not be decoded.
    pub fn has_unreadable_in(&self, pk: &str) -> bool {
        self.unreadable.keys().any(|key| key.pk == pk)
    }

    /// Whether a record of this partition is missing.
    pub fn has_missing_in(&self, pk: &str) -> bool {
        self.missing.keys().any(|key| key.pk == pk)
    }

    /// Adds a finding, unless the row could not be decoded.
    pub fn add(&mut self, rule: Rule, row: &Key, detail: impl Into<String>) {
        if !self.is_unreadable(row) {
            let (row, detail) = (row.clone(), detail.into());
            self.list.push(Finding { project: self.project, row, rule, detail });
        }
    }

    /// Adds that `record` does not exist, which a row of the kind `named_by` names.
    pub fn add_missing(&mut self, record: &Key, named_by: &'static str) {
        if !self.is_unreadable(record) {
            self.missing.entry(record.clone()).or_default().insert(named_by);
        }
    }

    /// The findings, sorted.
    pub fn into_sorted(self) -> Vec<Finding> {
        let Findings { project, unreadable, missing, list } = self;
        let unreadable = unreadable.into_iter().map(|(row, cause)| Finding {
            project,
            row,
            rule: Rule::Decoding,
            detail: format!("cannot be decoded: {cause}"),
        });
        let missing = missing.into_iter().map(|(row, named_by)| {
            let named_by = named_by.into_iter().collect::<Vec<_>>().join(", ");
            let detail = format!("is missing, and is named by: {named_by}");
            Finding { project, row, rule: Rule::Record, detail }
        });
        let mut all: Vec<Finding> = list.into_iter().chain(unreadable).chain(missing).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// A row that a record must have.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedRow<T> {
    /// The record.
    pub record: Key,
    /// The content of the row.
    pub content: T,
}

/// What stored rows of one kind are compared for.
#[derive(Debug, Clone, Copy)]
pub struct RowKind {
    /// The invariant.
    pub rule: Rule,
    /// The name of the kind in texts.
    pub name: &'static str,
}

/// Compares the stored rows of a kind with the expected ones. `record_of` is the record that a stored row names; `exists` says
/// whether there is such a record.
pub fn compare_rows<T: PartialEq + Serialize>(
    findings: &mut Findings,
    kind: RowKind,
    expected: &BTreeMap<Key, ExpectedRow<T>>,
    stored: &BTreeMap<Key, T>,
    record_of: impl Fn(&Key, &T) -> Key,
    exists: impl Fn(&Key) -> bool,
) {
    let RowKind { rule, name } = kind;
    for (key, row) in expected {
        let record = row_name(&row.record);
        match stored.get(key) {
            None => findings.add(rule, key, format!("is missing: the {name} of {record}")),
            Some(content) if *content != row.content => {
                let fields = different_fields(content, &row.content);
                findings.add(rule, key, format!("is not the {name} of {record}: {fields}"));
            }
            Some(_) => {}
        }
    }
    for (key, content) in stored.iter().filter(|(key, _)| !expected.contains_key(*key)) {
        let record = record_of(key, content);
        if findings.is_unreadable(&record) {
            continue;
        }
        if exists(&record) {
            let detail = format!("is a {name} that {} does not have", row_name(&record));
            findings.add(rule, key, detail);
        } else {
            findings.add_missing(&record, name);
        }
    }
}

/// Most characters of a value in a text.
const VALUE_CHARS: usize = 60;

/// The fields in which the JSON of both differs, with both values.
pub fn different_fields<T: Serialize>(stored: &T, computed: &T) -> String {
    let (stored, computed) = (json!(stored), json!(computed));
    let shorten = |value: Option<&Value>| {
        let text = value.map_or("absent".to_owned(), Value::to_string);
        text.chars().take(VALUE_CHARS).collect::<String>()
    };
    let (Some(left), Some(right)) = (stored.as_object(), computed.as_object()) else {
        return format!("it is {}, not {}", shorten(Some(&stored)), shorten(Some(&computed)));
    };
    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let different = names.into_iter().map(|name| (name, left.get(name), right.get(name)));
    let different = different.filter(|(_, left, right)| left != right);
    let texts: Vec<String> = different
        .map(|(name, left, right)| format!("{name} is {}, not {}", shorten(left), shorten(right)))
        .collect();
    if texts.is_empty() { "it is of another version".to_owned() } else { texts.join(", ") }
}
