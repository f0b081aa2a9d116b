//! How events enter: captured batches on their way into a block, and imported history on its way into a segment.
//!
//! Imports write segments directly; captured batches are only packed here and appended by [`crate::blocks`]. This folder
//! never decides which person an event belongs to, and nothing here keeps an event as one object beyond its batch: a batch
//! is packed bytes, an import is columns. The doors are [`CapturedBatch`] (a captured batch) and [`EventColumns`] (an import).

mod event_columns;
mod limits;
mod parquet_rows;

pub(crate) use event_columns::InflatedBlocks;
pub use event_columns::{EventColumns, TEXT_BYTES_MAX};
pub use limits::{EVENTS_PER_SEGMENT_MAX, IngestReport};
pub use parquet_rows::{ParquetImport, ParquetImportRows};
