//! The manifest entry of an import of persons or groups.
//!
//! Must stay true: an entry keeps its id and its place in the order of imports when records are erased from it;
//! it names every object that it had until that object is deleted, so that none is leaked by consecutive
//! erasures.

use pennon_analytics::scan::Micros;
use serde::{Deserialize, Serialize};

use crate::formats;
use crate::objects::checksums;

/// The entry of an object with persons or groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordsEntry {
    /// Stays the same when its object is replaced.
    pub id: String,
    /// Format number of the object.
    #[serde(default = "formats::first")]
    pub format: u32,
    pub object: String,
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
    pub at: Micros,
    /// The manifest version that it was added with.
    #[serde(default)]
    pub head: u64,
    /// Former objects, before records were erased, until no reader can use them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<FormerObject>,
}

/// A former object of an import entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FormerObject {
    pub object: String,
    /// When it was replaced.
    pub at: Micros,
}

impl FormerObject {
    /// The objects to delete with it; the second exists only in formats that have it.
    pub(crate) fn files(self) -> [String; 2] {
        let ids = ids_sidecar_name(&self.object);
        [self.object, ids]
    }
}

/// The name of the ids sidecar of `object`.
pub(crate) fn ids_sidecar_name(object: &str) -> String {
    format!("{}.ids", checksums::split(object).0)
}

impl RecordsEntry {
    /// The entry with a new object, as of `at`. Both have the same format.
    pub(crate) fn with_object(&self, object: String, bytes: u64, rows: u64, at: Micros) -> RecordsEntry {
        let own = FormerObject { object: self.object.clone(), at };
        let before = self.before.iter().cloned().chain([own]).collect();
        RecordsEntry { object, bytes, rows, at, before, ..self.clone() }
    }

    /// The name of its ids sidecar; none for groups, and where an earlier release wrote it.
    pub(crate) fn ids(&self) -> Option<String> {
        (self.format >= formats::PERSONS).then(|| ids_sidecar_name(&self.object))
    }

    /// Its current objects.
    pub(crate) fn files(&self) -> impl Iterator<Item = String> {
        std::iter::once(self.object.clone()).chain(self.ids())
    }

    /// Its current and former record objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.object).chain(self.before.iter().map(|former| &former.object))
    }

    /// The entry without records, as of `at`.
    pub(crate) fn emptied(&self, at: Micros) -> RecordsEntry {
        self.with_object(self.object.clone(), self.bytes, 0, at)
    }

    /// Sets the time at which it replaces another one.
    pub(crate) fn listed_at(&mut self, at: Micros) {
        self.at = at;
        if let Some(last) = self.before.last_mut() {
            last.at = at;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_names_all_objects_that_it_had() {
        let body = json!({"id": "1", "object": "a", "rows": 3, "bytes": 11, "at": 5});
        let entry: RecordsEntry = serde_json::from_value(body).unwrap();
        assert!(entry.before.is_empty());
        let mut entry = entry.with_object("b".to_owned(), 10, 2, 6).with_object("c".to_owned(), 9, 1, 7);
        entry.listed_at(8);
        let encoded = serde_json::to_value(&entry).unwrap();
        assert_eq!(encoded["before"], json!([{"object": "a", "at": 6}, {"object": "b", "at": 8}]));
        assert_eq!((encoded["object"].as_str(), &encoded["at"]), (Some("c"), &json!(8)));
        assert_eq!(entry.objects().collect::<Vec<_>>(), ["c", "a", "b"]);
        assert_eq!(serde_json::from_value::<RecordsEntry>(encoded).unwrap(), entry);
        assert_eq!(entry.emptied(9).before[2], FormerObject { object: "c".to_owned(), at: 9 });
    }

    #[test]
    fn the_object_lies_beside_its_records() {
        assert_eq!(ids_sidecar_name("project=7/persons/01-a.parquet"), "project=7/persons/01-a.ids");
    }
}
