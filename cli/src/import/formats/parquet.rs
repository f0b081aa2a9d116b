//! A Parquet file as JSON objects, for files whose columns are not those of an event.

use std::fs::File;

use pennon_eventstore::{TableFile, TableRows};
use serde_json::Map;

use super::rows::{open_table, reason};
use super::{RawRecord, RecordReader};
use crate::import::error::ImportError;

/// The rows of a file.
pub(crate) struct TableRecords {
    table: TableFile,
    waiting: Option<TableRows>,
    /// How many of those that wait have been taken.
    at: usize,
    row: u64,
}

impl TableRecords {
    pub(crate) fn open(file: File) -> Result<TableRecords, ImportError> {
        Ok(TableRecords { table: open_table(file)?, waiting: None, at: 0, row: 0 })
    }
}

impl RecordReader for TableRecords {
    fn next(&mut self) -> Result<Option<RawRecord>, ImportError> {
        while self.waiting.as_ref().is_none_or(|waiting| self.at >= waiting.len()) {
            self.waiting = match self.table.next_rows() {
                None => return Ok(None),
                Some(rows) => {
                    let failed = |error| ImportError::of_line(self.row + 1, reason(error)).in_unit("row");
                    Some(rows.map_err(failed)?)
                }
            };
            self.at = 0;
        }
        let Some(rows) = &self.waiting else { return Ok(None) };
        let mut fields = Map::new();
        for (place, name) in self.table.columns().iter().enumerate() {
            if let Some(cell) = rows.cell(place, self.at) {
                fields.insert(name.clone(), cell.to_value());
            }
        }
        self.at += 1;
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
