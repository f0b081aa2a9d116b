//! How events enter: captured batches are appended as blocks, imported history is written as segments.
//!
//! [`EventCapture`] applies the merges that a batch requests and appends it to [`crate::blocks`], [`CompactionWaker`]
//! wakes compaction, [`queued`] does the same by way of a queue; [`EventImporter`] writes
//! [`EventColumns`] as a segment. Nothing here keeps an event as one object beyond its batch: a batch is encoded bytes, an
//! import is columns. The public interface is [`EventCapture`] and [`EventImporter`].

mod capture;
mod event_columns;
mod limits;
mod parquet_rows;
mod queued;
mod waker;

pub(crate) use capture::EventCapture;
pub use event_columns::{EventColumns, TEXT_BYTES_MAX};
pub(crate) use event_columns::{EventImporter, InflatedBlocks};
pub use limits::{EVENTS_PER_SEGMENT_MAX, IngestReport};
pub use parquet_rows::{ParquetImport, ParquetImportRows};
pub use queued::{BufferedMessage, BufferedReport};
pub(crate) use waker::CompactionWaker;
