//! Scans of one range of the persons: what one part of a calculation reads, perhaps in another process.
//!
//! A [`PinnedScan`] is the selected events of a project at one moment. Each of its [`PartScan`]s has the segments by name, and the
//! merges and waiting rows of its persons by value, so a part reads nothing but objects that never change, and gives the same
//! events whatever was captured, merged, compacted or erased since. A row belongs to the part of the person that it is stored
//! under. If that person was merged into one of another part, the first part returns the row ([`Scanner::moved_rows`]), and the
//! other one gets it with its waiting rows.
//!
//! Must stay true: the partitions of the parts of a scan together are those of the whole scan; each row is in one part.

mod json_text;
mod moved_rows;
mod part_scan;
mod pinned_scan;

pub use moved_rows::MovedRows;
pub use part_scan::PartScan;
pub use pinned_scan::PinnedScan;
