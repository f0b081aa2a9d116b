//! Readers of files: one module per format; each yields one JSON object per record.
//!
//! [`parquet_events`] is the exception: it reads Parquet with the columns of an event into the store's columns, without an object
//! per row. Must stay true: a reader holds one record in memory (Parquet: a few batches); the error for a record above
//! [`LINE_BYTES_MAX`] names the record.

pub(crate) mod array;
pub(crate) mod content;
pub(crate) mod csv;
pub(crate) mod lines;
pub(crate) mod parquet;
pub(crate) mod parquet_events;

use serde_json::{Map, Value};

use self::csv::ColumnKind;
use super::error::ImportError;

/// Most bytes of a record: a line, an element of an array, or a row of CSV.
pub const LINE_BYTES_MAX: usize = 16 << 20;

fn too_long_message() -> String {
    format!("longer than {} MiB", LINE_BYTES_MAX >> 20)
}

/// One record of a file.
#[derive(Debug)]
pub(crate) struct RawRecord {
    /// Its line, row or position in the array; the first is 1.
    pub number: u64,
    pub fields: Map<String, Value>,
}

/// A reader of the records of a file.
pub(crate) trait RecordReader: Send {
    /// The next record; `None` at the end.
    fn next(&mut self) -> Result<Option<RawRecord>, ImportError>;

    /// How much was read, and the total, in bytes or rows.
    fn position(&self) -> (u64, u64);

    /// The SHA-256 of the content after the last record; `None` if the caller has to hash the file itself.
    fn digest(&self) -> Option<[u8; 32]>;

    /// The names of the columns, if the file has a header.
    fn columns(&self) -> Option<&[String]> {
        None
    }

    /// The inferred types of the columns.
    fn column_kinds(&self) -> Option<Vec<ColumnKind>> {
        None
    }
}
