//! Ids and object names of a manifest.

use super::{Manifest, SegmentEntry};
use crate::manifest::RecordsEntry;
use crate::objects::checksums::id_of;

impl Manifest {
    /// Ids that the names of its objects start with.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        let segments = self.all_segments.iter().map(|(_, entry)| entry.id.as_str());
        // An import that was rewritten by an erasure has objects with another id than its entry.
        let rewritten = self.rewritten.iter().map(|(_, _, entry)| entry);
        let records = self.persons.iter().chain(&self.groups).chain(rewritten);
        let records = records.flat_map(RecordsEntry::objects).map(|name| id_of(name));
        let links = self.links.iter().map(|entry| entry.id.as_str());
        let merges = self.merges.iter().map(|entry| entry.id.as_str());
        segments.chain(records).chain(links).chain(merges)
    }

    /// Names of all objects that readers use, checksum files excluded.
    pub(crate) fn object_names(&self) -> impl Iterator<Item = &str> {
        let segments = self.segments.iter().flat_map(SegmentEntry::objects);
        let records = self.persons.iter().chain(&self.groups).flat_map(RecordsEntry::objects);
        let merges = self.merges.iter().map(|entry| &entry.object);
        segments.chain(records).chain(merges).map(String::as_str)
    }
}
