//! Which segments and imports a project has, and the only way to change that: optimistic concurrency on one version row.
//!
//! [`state`] reads and changes the manifest, [`commit`] writes the objects of a segment and then lists it, [`snapshot`]
//! is the view of one reader. Nothing here lists an object before it is stored, or deletes a listed one; no other folder
//! writes manifest rows. The door is [`state::Manifest`].

mod commit;
mod live_files;
mod object_list;
mod object_names;
mod snapshot;
mod state;

pub(crate) use commit::NewSegment;
pub use live_files::LiveFiles;
pub use snapshot::CanonicalPersons;
pub(crate) use snapshot::SnapshotOutline;
pub(crate) use state::{ChangeOutcome, Manifest, ManifestChange, ManifestEntry, SegmentEntry, new_id};
