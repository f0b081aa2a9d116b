//! How events enter: captured batches on their way into a block, and imported history on its way into a segment.
//!
//! Imports write segments directly; captured batches are only packed here and appended by [`crate::blocks`]. This folder
//! never decides which person an event belongs to, and nothing here keeps an event as one object beyond its batch: a batch
//! is packed bytes, an import is columns. The doors are [`CapturedBatch`] (a captured batch) and [`EventColumns`] (an import).

mod captured_batch;
mod duplicates;
mod event_columns;
mod json_packing;
mod limits;
mod parquet_rows;

pub use captured_batch::{CapturedBatch, CapturedEvent, EncodedBatch, Packed, PackedProperties};
pub(crate) use duplicates::DuplicateCheck;
pub(crate) use event_columns::InflatedBlocks;
pub use event_columns::{Cell, EventColumns, Properties, TEXT_BYTES_MAX, read_properties};
pub use json_packing::{JsonLimitError, Meter, PropertiesSeed, ValueSeed, without_nul};
pub use limits::{EVENTS_PER_SEGMENT_MAX, IngestReport};
pub use parquet_rows::{ParquetImport, ParquetImportRows};
