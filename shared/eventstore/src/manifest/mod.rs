//! Which segments and imports a project has, and the only way to change that: optimistic concurrency on one version row.
//!
//! [`state`] reads and changes the manifest; the `*_entry` modules hold its rows. Nothing here lists an object before it is
//! stored, or deletes a listed one; no other folder writes manifest rows, except the damage markers of
//! [`crate::objects::Quarantine`], which lie in the same partition so that one query reads both.

mod merge_entries;
mod object_list;
mod object_names;
mod records_entry;
mod segment_entry;
mod state;

use pennon_engine::scan::Micros;

pub(crate) use merge_entries::{FoldedMergesEntry, ImportedMergesEntry};
pub(crate) use records_entry::{FormerObject, RecordsEntry, ids_sidecar_name};
pub(crate) use segment_entry::{FileEntry, ReplacedBlocks, SegmentEntry};
pub(crate) use state::{ChangeOutcome, Manifest, ManifestChange, ManifestEntry, new_id};

/// How long a replaced segment stays readable, in microseconds: ten minutes.
pub const GRACE_MICROS: Micros = 10 * 60 * 1_000_000;
