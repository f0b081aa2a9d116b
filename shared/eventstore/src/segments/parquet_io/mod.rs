//! Parquet objects that are read in parts.
//! The public interface is [`file::ParquetFile`]; [`page_index`] locates the pages of a column.
//!
//! Nothing here knows what the columns mean.

mod decoding;
mod file;
mod page_index;
pub(crate) use decoding::decode_in_turn;
pub(crate) use file::{DecodedColumns, PageIndexParts, ParquetFile};
