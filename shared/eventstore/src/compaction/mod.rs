//! Background work on stored events: blocks into segments, small segments into larger ones, removal of what was replaced.
//!
//! [`compact`] runs it, [`merge_policy`] chooses segments, [`segment_merge`] merges them, [`merge_failures`] remembers those
//! that cannot be merged, [`sweep`] and [`orphans`] delete. Compaction never changes the result of a query, never touches a
//! damaged block or segment, and deletes nothing that a reader may still use ([`GRACE_MICROS`]). The door is
//! [`compact`](EventStore::compact).

pub(crate) mod backlog;
pub(crate) mod compact;
pub(crate) mod merge_failures;
mod merge_policy;
pub(crate) mod orphans;
pub(crate) mod segment_merge;
pub(crate) mod stale_persons;
pub(crate) mod sweep;

pub use compact::Compacted;
pub use merge_policy::Effort;
pub use orphans::{ORPHANED_MICROS, ORPHANS_KEPT_DAYS, Orphan};
pub use sweep::{GRACE_MICROS, Swept};
