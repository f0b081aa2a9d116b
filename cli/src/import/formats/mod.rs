//! Readers of files: one module a format, each giving one JSON object a record.
//!
//! [`rows`] is the exception: Parquet with the columns of an event goes to the store's columns without an object per row.
//! Must stay true: a reader holds one record in memory (Parquet: a few batches), and names the record that
//! is too long.

pub(crate) mod array;
pub(crate) mod content;
pub(crate) mod csv;
pub(crate) mod lines;
pub(crate) mod parquet;
pub(crate) mod rows;

use serde_json::{Map, Value};

use self::csv::ColumnKind;
use super::error::ImportError;

/// Longest record: a line, an element of an array, or a row of CSV.
pub const LINE_BYTES_MAX: usize = 16 << 20;

fn too_long() -> String {
    format!("longer than {} MiB", LINE_BYTES_MAX >> 20)
}

/// One record of a file.
#[derive(Debug)]
pub(crate) struct RawRecord {
    /// Its line, row or place in the array; the first is 1.
    pub number: u64,
    pub fields: Map<String, Value>,
}

/// A file that is being read.
pub(crate) trait RecordReader: Send {
    /// The next record; none at the end.
    fn next(&mut self) -> Result<Option<RawRecord>, ImportError>;

    /// How much has been read, and of how much.
    fn position(&self) -> (u64, u64);

    /// The digest of the content, once it has been read to its end; none where the file itself has to be read for it.
    fn digest(&self) -> Option<[u8; 32]>;

    /// The names of its columns, where it has a header.
    fn columns(&self) -> Option<&[String]> {
        None
    }

    /// What the columns have been found to be.
    fn column_kinds(&self) -> Option<Vec<ColumnKind>> {
        None
    }
}
