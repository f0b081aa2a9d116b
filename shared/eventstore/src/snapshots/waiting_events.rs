//! Captured events that no segment holds yet, read in two steps: first all of them without properties, then
//! some of them completely.
//!
//! Must stay true: it returns exactly the events that a scan would count from blocks, without replaced blocks
//! and duplicates. Memory holds the compressed blocks, one decompressed block at a time, and the requested
//! data.

use std::collections::BTreeSet;
use std::sync::Arc;

use pennon_analytics::scan::{Micros, Seq};
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::SnapshotReader;
use crate::blocks::block::Block;
use crate::blocks::{BlockFilter, RawBlock, decode_rows};
use crate::error::EventStoreError;
use crate::event::{PersonEvent, seq};
use crate::manifest::Manifest;
use crate::memory::MemoryLease;

/// The events of a project's blocks.
pub(crate) struct BlockEvents {
    blocks: Arc<Vec<RawBlock>>,
    /// With the selected properties, in order of arrival.
    pub rows: Vec<PersonEvent>,
    /// Memory of the query that the rows reserve.
    _taken: Option<[MemoryLease; 2]>,
}

impl SnapshotReader {
    /// Reads the events of `blocks` that pass the filter. The blocks must have been read before the manifest.
    pub(crate) async fn block_events(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        blocks: Vec<RawBlock>,
        requested: BlockFilter,
    ) -> Result<BlockEvents, EventStoreError> {
        let blocks = Arc::new(self.blocks.not_replaced(manifest, blocks).await?);
        let read = blocks.clone();
        let read = tokio::task::spawn_blocking(move || decode_rows(project, &read, &requested)).await?;
        let waiting_events = self.blocks.mark_damage(read).await?;
        let rows = self.duplicates.not_in_segments(manifest, waiting_events.rows).await?;
        Ok(BlockEvents { blocks, rows, _taken: waiting_events.taken })
    }
}

impl BlockEvents {
    /// An opener for complete events, to be used on another thread.
    pub(crate) fn opener(&self) -> BlockOpener {
        BlockOpener(self.blocks.clone())
    }
}

/// Decodes complete events of blocks.
pub(crate) struct BlockOpener(Arc<Vec<RawBlock>>);

impl BlockOpener {
    /// Calls `each` with the block and the index of every event in `requested`, which is keyed by arrival order
    /// and uuid.
    pub(crate) fn open_each(
        &self,
        requested: &BTreeSet<(Seq, Uuid)>,
        mut each: impl FnMut(Seq, &Block, usize) -> Result<(), EventStoreError>,
    ) -> Result<(), EventStoreError> {
        for raw in self.0.iter() {
            let micros = i64::try_from(raw.id.micros).unwrap_or(Micros::MAX);
            let first = seq(micros, raw.id.tie, 0);
            let last = first | Seq::from(u32::MAX);
            let mut own = requested.range((first, Uuid::nil())..=(last, Uuid::max())).peekable();
            if own.peek().is_none() {
                continue;
            }
            let block = raw.open()?;
            for (seq, uuid) in own {
                let index = (seq - first) as usize;
                if block.headers.get(index).is_some_and(|header| header.uuid == *uuid) {
                    each(*seq, &block, index).map_err(|error| raw.block_error(error.into()))?;
                }
            }
        }
        Ok(())
    }
}
