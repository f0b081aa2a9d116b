//! Names of the objects that belong to a project at one moment: what a backup has to copy.
//!
//! Must stay true: with the tables of that moment and these objects, every query returns what it returned then.
//! Objects of replaced segments are not needed, except the lists of replaced blocks that readers still use.

use std::collections::BTreeSet;

use crate::manifest::Manifest;
use crate::objects::checksums;

impl Manifest {
    /// Names of all objects that it needs, including checksum files, ascending.
    pub(crate) fn live_objects(&self) -> Vec<String> {
        let live = self.segments.iter().flat_map(|entry| entry.objects());
        let records = self.persons.iter().chain(&self.groups).flat_map(|entry| entry.files());
        let merges = self.merges.iter().map(|entry| &entry.object);
        let links = self.links.iter().filter_map(|entry| entry.object.as_ref());
        let blocks = self.replaced_blocks().map(|blocks| &blocks.object);
        let all = live.chain(merges).chain(links).chain(blocks).cloned().chain(records);
        let named = all.flat_map(|object| [checksums::object_of(&object), object]);
        named.collect::<BTreeSet<_>>().into_iter().collect()
    }
}
