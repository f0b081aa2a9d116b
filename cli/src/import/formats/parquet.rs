//! Reads a Parquet file as JSON objects, for files whose columns are not those of an event.

use std::fs::File;

use pennon_eventstore::{ParquetImport, ParquetImportRows};
use serde_json::Map;

use super::parquet_events::{error_message, open_table};
use super::{RawRecord, RecordReader};
use crate::import::error::ImportError;

/// A reader of the rows of a file.
pub(crate) struct ParquetReader {
    table: ParquetImport,
    /// The current batch of rows.
    batch: Option<ParquetImportRows>,
    /// The next row in the batch.
    next_in_batch: usize,
    /// The number of rows that were read.
    row: u64,
}

impl ParquetReader {
    pub(crate) fn open(file: File) -> Result<ParquetReader, ImportError> {
        Ok(ParquetReader { table: open_table(file)?, batch: None, next_in_batch: 0, row: 0 })
    }
}

impl RecordReader for ParquetReader {
    fn next(&mut self) -> Result<Option<RawRecord>, ImportError> {
        while self.batch.as_ref().is_none_or(|batch| self.next_in_batch >= batch.len()) {
            self.batch = match self.table.next_rows() {
                None => return Ok(None),
                Some(rows) => {
                    let failed =
                        |error| ImportError::at_line(self.row + 1, error_message(error)).with_unit("row");
                    Some(rows.map_err(failed)?)
                }
            };
            self.next_in_batch = 0;
        }
        let Some(rows) = &self.batch else { return Ok(None) };
        let mut fields = Map::new();
        for (column, name) in self.table.columns().iter().enumerate() {
            if let Some(cell) = rows.cell(column, self.next_in_batch) {
                fields.insert(name.clone(), cell.to_value());
            }
        }
        self.next_in_batch += 1;
        self.row += 1;
        Ok(Some(RawRecord { number: self.row, fields }))
    }

    fn position(&self) -> (u64, u64) {
        (self.row, self.table.rows())
    }

    fn digest(&self) -> Option<[u8; 32]> {
        None
    }

    fn columns(&self) -> Option<&[String]> {
        Some(self.table.columns())
    }
}
