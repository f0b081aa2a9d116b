//! The model of a history, and the expected state of a flag after a call, independent of the product's code.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Some fields of a flag.
pub type Fields = Map<String, Value>;

/// The fields of a record that a history looks at. `by` is the address of who changed it last.
pub const TRACKED: [&str; 11] = [
    "id",
    "key",
    "name",
    "filters",
    "deleted",
    "active",
    "version",
    "rollback_conditions",
    "performed_rollback",
    "tags",
    "by",
];

/// The fields of the activity log, in its order.
pub const LOGGED: [&str; 9] = [
    "key",
    "name",
    "filters",
    "deleted",
    "active",
    "version",
    "rollback_conditions",
    "performed_rollback",
    "tags",
];

/// The request of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A new flag of these fields.
    Create(Fields),
    /// Other values for these fields.
    Change {
        /// The flag.
        flag: u64,
        /// The values sent.
        fields: Fields,
        /// The record that the client had in hand, when it sends `original_flag` to detect conflicts.
        edited: Option<Fields>,
    },
    /// One flag.
    Read(u64),
    /// All flags that are not deleted.
    List,
}

/// The response to the client.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// This is the flag (after the write, if it was one).
    Flag(Fields),
    /// These are the flags.
    Flags(Vec<Fields>),
    /// Another flag has the key.
    KeyExists,
    /// Others have changed the same fields.
    Conflict,
    /// There is no such flag.
    Missing,
    /// A 503: the outcome of a write is unknown.
    Busy,
    /// An unexpected response.
    Other(u16, String),
}

/// One call, and the ticks of one clock at which it began and ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The request.
    pub request: Request,
    /// What came back.
    pub outcome: Outcome,
    /// Address of the user who sent it.
    pub by: String,
    /// The call began at this tick.
    pub began: u64,
    /// The call ended at this tick.
    pub ended: u64,
}

/// An entry of the activity log.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Whose log.
    pub flag: u64,
    /// `created`, `updated`, `deleted` or `restored`.
    pub kind: String,
    /// Address of who did it.
    pub by: String,
    /// The flag's key afterwards.
    pub key: String,
    /// Before and after of each field.
    pub changes: BTreeMap<String, (Value, Value)>,
}

impl Entry {
    /// The flag's version after the logged change; `None` if the entry has none.
    pub fn version(&self) -> Option<u64> {
        match self.kind.as_str() {
            "created" => Some(1),
            _ => self.changes.get("version")?.1.as_u64(),
        }
    }
}

/// The stored state when all clients have stopped.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stored {
    /// Every flag that can be read.
    pub flags: BTreeMap<u64, Fields>,
    /// The numbers in the list.
    pub listed: Vec<u64>,
    /// The numbers of the summary rows.
    pub rows: Vec<u64>,
    /// The rows that hold keys: key, and the number of the live flag that has it.
    pub claims: Vec<(String, u64)>,
    /// The log of the project.
    pub entries: Vec<Entry>,
    /// How many entries each flag's own log points to.
    pub pointers: BTreeMap<u64, usize>,
}

/// All calls, and the final stored state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// The calls in any order.
    pub calls: Vec<Call>,
    /// The end.
    pub stored: Stored,
}

/// The tracked fields of a record as a response shows it.
pub fn tracked(record: &Value) -> Fields {
    let mut fields: Fields =
        TRACKED.iter().filter_map(|name| Some(((*name).to_owned(), record.get(*name)?.clone()))).collect();
    fields.insert("by".to_owned(), record["last_modified_by"]["email"].clone());
    fields
}

/// The flag that `sent` creates.
pub fn created(id: u64, sent: &Fields, by: &str) -> Fields {
    let blank = json!({"id": id, "name": "", "deleted": false, "active": true, "version": 1,
                       "rollback_conditions": null, "performed_rollback": null, "tags": [], "by": by});
    let mut fields = blank.as_object().cloned().unwrap_or_default();
    set(&mut fields, sent);
    fields
}

/// The flag that `sent` makes of `before`.
pub fn changed(before: &Fields, sent: &Fields, by: &str) -> Fields {
    let mut after = before.clone();
    set(&mut after, sent);
    after.insert("version".to_owned(), json!(version(before) + 1));
    after.insert("by".to_owned(), json!(by));
    after
}

fn set(fields: &mut Fields, sent: &Fields) {
    for (name, value) in sent {
        fields.insert(name.clone(), value.clone());
    }
    if sent.get("active") == Some(&json!(true)) {
        fields.insert("performed_rollback".to_owned(), json!(false));
    }
}

/// The expected log entry of a write from `before` to `after`.
pub fn changes(before: &Fields, after: &Fields) -> BTreeMap<String, (Value, Value)> {
    let nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    let mut changes = BTreeMap::new();
    for name in LOGGED {
        let value = |fields: &Fields| fields.get(name).cloned().unwrap_or(Value::Null);
        let (mut old, mut new) = (value(before), value(after));
        if old == new || nothing(&old) && nothing(&new) {
            continue;
        }
        // Tags always show both lists.
        if name != "tags" {
            old = if nothing(&old) { Value::Null } else { old };
            new = if nothing(&new) { Value::Null } else { new };
        }
        changes.insert(name.to_owned(), (old, new));
    }
    changes
}

/// The log's word for a write that made `after` of `before`.
pub fn kind(before: &Fields, after: &Fields) -> &'static str {
    match (is_deleted(before), is_deleted(after)) {
        (false, true) => "deleted",
        (true, false) => "restored",
        _ => "updated",
    }
}

/// Whether a client that has `original` in hand and sends `sent` would overwrite others' work on `stored`.
pub fn overlaps(original: &Fields, sent: &Fields, stored: &Fields) -> bool {
    version(original) != version(stored)
        && sent.iter().any(|(name, value)| match (original.get(name), stored.get(name)) {
            (Some(original), Some(stored)) => value != original && stored != original && value != stored,
            _ => false,
        })
}

/// The flag's number.
pub fn id(fields: &Fields) -> u64 {
    fields.get("id").and_then(Value::as_u64).unwrap_or_default()
}

/// The flag's version.
pub fn version(fields: &Fields) -> u64 {
    fields.get("version").and_then(Value::as_u64).unwrap_or_default()
}

/// The flag's key.
pub fn key(fields: &Fields) -> &str {
    fields.get("key").and_then(Value::as_str).unwrap_or_default()
}

/// Whether the flag is deleted.
pub fn is_deleted(fields: &Fields) -> bool {
    fields.get("deleted") == Some(&Value::Bool(true))
}
