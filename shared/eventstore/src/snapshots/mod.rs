//! Consistent views of the events of a project: manifest, person merges, and the blocks that no segment replaces.
//!
//! Blocks are read before the manifest. A block that is gone by then was replaced by a segment that the manifest, read
//! later, lists; a block that is still there is ignored if the manifest lists its segment. Every reader of events takes
//! its view here. Nothing here writes.

mod live_files;
mod snapshot;
mod waiting_events;

pub use live_files::LiveFiles;
pub use snapshot::CanonicalPersons;
pub(crate) use snapshot::{Snapshot, SnapshotOutline};
pub(crate) use waiting_events::BlockEvents;
