//! The objects that belong to the events of a project at one moment, by their names: what a copy of them needs.
//!
//! Must stay true: with the tables of the moment and the objects that are named here, every question has the answer that it
//! had then. What a listed segment has replaced is not needed, except for the lists of blocks that readers still ask for.

use std::collections::BTreeSet;

use pennon_core::store::keys::ProjectId;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::integrity::checksums;
use crate::manifest::state::Manifest;

impl EventStore {
    /// The names of all objects that the manifest of `project` needs, with the checksums beside them, ascending. They are
    /// there for [`crate::GRACE_MICROS`] from the moment of the manifest on, whatever is compacted.
    pub async fn named_objects(&self, project: ProjectId) -> Result<Vec<String>, EventStoreError> {
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

    /// The names of the objects with results of calculations that are there now. One that is gone is calculated anew.
    pub async fn named_results(&self) -> Result<Vec<String>, EventStoreError> {
        Ok(self.list_results(None).await?.iter().map(|(object, _)| object.name()).collect())
    }
}
