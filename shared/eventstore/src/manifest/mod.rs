//! Which segments and imports a project has, and the only way to change that: optimistic concurrency on one version row.
//!
//! [`state`] holds a manifest that was read, the `*_entry` modules its rows, [`project_list`] the projects that have one,
//! [`compaction_task`] who changes one in the background, and [`version_marks`] the copy of its version in the object store. Nothing here lists an object before it is
//! stored, or deletes a listed one; no other folder writes manifest rows, except the damage markers of
//! [`crate::objects::Quarantine`], which lie in the same partition so that one query reads both.
//! The public interface is [`ManifestStore`].

mod compaction_task;
mod merge_entries;
mod object_list;
mod object_names;
mod partitions_row;
mod project_list;
mod records_entry;
mod segment_entry;
mod state;
mod store;
mod version_marks;

use pennon_analytics::scan::Micros;

pub(crate) use compaction_task::minute_of;
pub use compaction_task::{CompactionLease, CompactionTask};
pub(crate) use merge_entries::{FoldedMergesEntry, ImportedMergesEntry};
pub(crate) use project_list::ProjectList;
pub(crate) use records_entry::{FormerObject, RecordsEntry, ids_sidecar_name};
pub(crate) use segment_entry::{FileEntry, ReplacedBlocks, SegmentEntry};
pub(crate) use state::{ChangeOutcome, EntryKind, Manifest, ManifestChange, new_id};
pub(crate) use store::ManifestStore;
pub use version_marks::installation_marker;
pub(crate) use version_marks::{StoredMarks, VersionMarks};

/// How long a replaced segment stays readable, in microseconds: ten minutes.
pub const GRACE_MICROS: Micros = 10 * 60 * 1_000_000;
