//! Names of events, and of properties of events, persons and groups.
//!
//! | list | source |
//! |---|---|
//! | events | the footers of all live segments (at most 128 KB each, cached), which hold name, rows, first and last time of each run; for blocks name, uuid and time of each event |
//! | event properties | the same footers, which hold keys and column types; for blocks all properties |
//! | person properties | [`PersonLookup::load_people_with_all_properties`] |
//! | group properties | [`PersonLookup::load_groups_with_all_properties`] |
//!
//! No event of a segment is decoded. Must stay true: a captured event is in these lists at once; they do not
//! depend on compaction, except the types of rare properties and of those that a footer does not list.
//! The public interface is [`DefinitionLists`].

mod events;
mod properties;

pub use events::{EVENT_NAMES_MAX, EventName};
pub use properties::{PropertyNames, ValueType};

use futures::{StreamExt, TryStreamExt};
use pennon_core::store::keys::ProjectId;
use std::sync::Arc;

use crate::blocks::{BlockFilter, BlockLog};
use crate::error::EventStoreError;
use crate::manifest::ManifestStore;
use crate::memory::QueryMemory;
use crate::persons::PersonLookup;
use crate::segments::SegmentStore;
use crate::segments::reader::SegmentFile;
use crate::snapshots::{BlockEvents, SnapshotReader};

/// Segments that are opened concurrently.
const OPENED_AT_ONCE: usize = 16;

/// Lists names of events and properties.
#[derive(Debug)]
pub(crate) struct DefinitionLists {
    blocks: Arc<BlockLog>,
    manifests: Arc<ManifestStore>,
    segments: Arc<SegmentStore>,
    snapshots: Arc<SnapshotReader>,
    lookup: Arc<PersonLookup>,
}

impl DefinitionLists {
    pub(crate) fn new(
        blocks: Arc<BlockLog>,
        manifests: Arc<ManifestStore>,
        segments: Arc<SegmentStore>,
        snapshots: Arc<SnapshotReader>,
        lookup: Arc<PersonLookup>,
    ) -> DefinitionLists {
        DefinitionLists { blocks, manifests, segments, snapshots, lookup }
    }

    /// Opens the segments with events, and reads the events of blocks without properties.
    async fn footers_and_blocks(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<(Vec<Arc<SegmentFile>>, BlockEvents), EventStoreError> {
        let (blocks, manifest) = loop {
            let partitions = self.blocks.partitions(project);
            let blocks = self.blocks.raw_blocks(project, partitions).await?;
            let manifest = self.manifests.load(project).await?;
            if self.blocks.has_read_all(project, partitions, &manifest) {
                break (blocks, manifest);
            }
        };
        let choice = BlockFilter { memory: Some(memory.clone()), ..BlockFilter::properties(|_| false) };
        let waiting = self.snapshots.block_events(project, &manifest, blocks, choice).await?;
        let entries = manifest.segments.iter().filter(|entry| entry.rows > 0);
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let opened = entries.map(|entry| self.segments.open(entry)).collect::<Vec<_>>();
        let files = futures::stream::iter(opened).buffered(OPENED_AT_ONCE).try_collect().await?;
        Ok((files, waiting))
    }
}
