//! Names of the objects that belong to a project at one moment: what a backup has to copy.
//!
//! Must stay true: with the tables of that moment and these objects, every query returns what it returned then.
//! Objects of replaced segments are not needed, except the lists of replaced blocks that readers still use.

use std::collections::BTreeSet;

use pennon_core::store::keys::ProjectId;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::manifest::Manifest;
use crate::objects::checksums;

impl EventStore {
    /// Names of all objects that the manifest of `project` needs, including checksum files, ascending. They
    /// exist for at least [`crate::GRACE_MICROS`] after the manifest was read, regardless of compaction.
    pub async fn list_live_objects(&self, project: ProjectId) -> Result<Vec<String>, EventStoreError> {
        let manifest = Manifest::load(&self.inner.store, project).await?;
        let live = manifest.segments.iter().flat_map(|entry| entry.objects());
        let records = manifest.persons.iter().chain(&manifest.groups).flat_map(|entry| entry.files());
        let merges = manifest.merges.iter().map(|entry| &entry.object);
        let links = manifest.links.iter().filter_map(|entry| entry.object.as_ref());
        let blocks = manifest.replaced_blocks().map(|blocks| &blocks.object);
        let all = live.chain(merges).chain(links).chain(blocks).cloned().chain(records);
        let named = all.flat_map(|object| [checksums::object_of(&object), object]);
        Ok(named.collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// Names of the objects with calculation results. A missing one is recalculated.
    pub async fn list_result_objects(&self) -> Result<Vec<String>, EventStoreError> {
        Ok(self.list_results(None).await?.iter().map(|(object, _)| object.name()).collect())
    }
}
