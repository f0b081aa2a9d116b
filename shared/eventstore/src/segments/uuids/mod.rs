//! The uuids of a segment: the columns of its rows and the index file beside it, which finds duplicates.
//!
//! [`uuid_columns`] splits uuids into columns, [`uuid_index`] is the file of sorted hashes, [`line_uuids`] holds uuids that were
//! derived from the lines of an imported file. A uuid is never reported as a duplicate by its hash alone.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod line_uuids;
pub(crate) mod uuid_columns;
pub(crate) mod uuid_index;
