//! The names that a project's data has: of events, and of properties of events, persons and groups.
//!
//! | list | what is read |
//! |---|---|
//! | events | the footers of all live segments (128 KB each at most, kept by a process), which say of each run name, rows and first and last time; of blocks name, uuid and time of each event |
//! | properties of events | the same footers, which say the keys and the type of each column; of blocks all properties |
//! | properties of persons | what [`EventStore::whole_people`] reads |
//! | properties of groups | what [`EventStore::whole_groups_of`] reads |
//!
//! No event of a segment is decoded. Must stay true: an event that is captured is in these lists at once; nothing in them
//! depends on what has been compacted, but for the types of rare properties and those that a footer does not list.

mod events;
mod properties;

pub use events::{EVENT_NAMES_MAX, EventName};
pub use properties::{PropertyNames, ValueType};

use futures::{StreamExt, TryStreamExt};
use pennon_core::store::keys::ProjectId;
use std::sync::Arc;

use crate::EventStore;
use crate::blocks::block_log::BlockFilter;
use crate::blocks::waiting_events::BlockEvents;
use crate::error::EventStoreError;
use crate::manifest::state::Manifest;
use crate::segments::reader::SegmentFile;

/// Segments that are opened at once.
const OPENED_AT_ONCE: usize = 16;

impl EventStore {
    /// The opened segments that hold events, and the events of blocks without their properties.
    async fn footers_and_blocks(
        &self,
        project: ProjectId,
    ) -> Result<(Vec<Arc<SegmentFile>>, BlockEvents), EventStoreError> {
        let memory = self.question_memory();
        let blocks = self.raw_blocks(project).await?;
        let manifest = Manifest::load(&self.inner.store, project).await?;
        let choice = BlockFilter { memory: Some(memory), ..BlockFilter::properties(|_| false) };
        let waiting = self.block_events(project, &manifest, blocks, choice).await?;
        let entries = manifest.segments.iter().filter(|entry| entry.rows > 0);
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let opened = entries.map(|entry| self.segment(entry)).collect::<Vec<_>>();
        let files = futures::stream::iter(opened).buffered(OPENED_AT_ONCE).try_collect().await?;
        Ok((files, waiting))
    }
}
