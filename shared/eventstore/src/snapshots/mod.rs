//! Consistent views of the events of a project: manifest, person merges, and the blocks that no segment replaces.
//!
//! Blocks are read before the manifest. A block that is gone by then was replaced by a segment that the manifest, read
//! later, lists; a block that is still there is ignored if the manifest lists its segment. Every reader of events takes
//! its view here. Nothing here writes. The public interface is
//! [`SnapshotReader`].

mod live_files;
mod snapshot;
mod table_inputs;
mod waiting_events;

pub use live_files::LiveFiles;
pub use snapshot::CanonicalPersons;
pub(crate) use snapshot::SnapshotOutline;
pub use table_inputs::{SegmentColumns, TableInputs, TableSegment};
pub(crate) use waiting_events::BlockEvents;

use std::sync::Arc;

use crate::blocks::BlockLog;
use crate::persons::PersonIndex;
use crate::segments::{DuplicateFinder, SegmentStore};

/// Reads consistent views.
#[derive(Debug)]
pub(crate) struct SnapshotReader {
    blocks: Arc<BlockLog>,
    index: Arc<PersonIndex>,
    duplicates: Arc<DuplicateFinder>,
    segments: Arc<SegmentStore>,
}

impl SnapshotReader {
    pub(crate) fn new(
        blocks: Arc<BlockLog>,
        index: Arc<PersonIndex>,
        duplicates: Arc<DuplicateFinder>,
        segments: Arc<SegmentStore>,
    ) -> SnapshotReader {
        SnapshotReader { blocks, index, duplicates, segments }
    }
}
