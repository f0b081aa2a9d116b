//! Background work on stored events: blocks into segments, small segments into larger ones, removal of what was replaced.
//!
//! [`compact`] runs it, [`due`] decides whether a run is worth it, [`merge_policy`] chooses segments, [`segment_merge`] merges them,
//! [`merge_failures`] remembers those that cannot be merged, [`merge_attempts`] those that killed a process, [`sweep`], [`orphans`] and
//! [`old_versions`] delete. Compaction never changes the result of a query, never touches a
//! damaged block or segment, and deletes nothing that a reader may still use ([`crate::manifest::GRACE_MICROS`]).
//! The public interface is [`Compactor`], [`SegmentMerger`] (also used by erasure) and [`Sweeper`].

mod compact;
mod due;
mod merge_attempts;
mod merge_failures;
mod merge_policy;
mod old_versions;
mod orphans;
mod segment_merge;
mod stale_persons;
mod sweep;

pub use compact::CompactionReport;
pub(crate) use compact::Compactor;
pub(crate) use merge_attempts::MergeAttempts;
pub(crate) use merge_failures::MergeFailures;
pub use merge_policy::MergeMode;
pub use orphans::{ORPHANED_MICROS, ORPHANS_KEPT_DAYS, Orphan};
pub(crate) use segment_merge::SegmentMerger;
pub(crate) use stale_persons::StalePersonChecks;
pub use sweep::SweepReport;
pub(crate) use sweep::Sweeper;
