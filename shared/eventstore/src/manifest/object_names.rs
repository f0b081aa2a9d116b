//! What a manifest says of names of objects.

use super::state::{Manifest, SegmentEntry};
use crate::compaction::orphans::id_of;
use crate::persons::imports::entry::RecordsEntry;

impl Manifest {
    /// The ids that the names of its objects begin with.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        let segments = self.all_segments.iter().map(|(_, entry)| entry.id.as_str());
        // Records that some were erased from lie under another name than their entry's.
        let rewritten = self.rewritten.iter().map(|(_, _, entry)| entry);
        let records = self.persons.iter().chain(&self.groups).chain(rewritten);
        let records = records.flat_map(RecordsEntry::objects).map(|name| id_of(name));
        let links = self.links.iter().map(|entry| entry.id.as_str());
        let merges = self.merges.iter().map(|entry| entry.id.as_str());
        segments.chain(records).chain(links).chain(merges)
    }

    /// The objects that are read, checksums not counted.
    pub(crate) fn object_names(&self) -> impl Iterator<Item = &str> {
        let segments = self.segments.iter().flat_map(SegmentEntry::objects);
        let records = self.persons.iter().chain(&self.groups).flat_map(RecordsEntry::objects);
        let merges = self.merges.iter().map(|entry| &entry.object);
        segments.chain(records).chain(merges).map(String::as_str)
    }
}
