//! Chooses how narrow the person ranges of a merged segment are.
//!
//! The rows of a range are sorted in memory, and a text array holds at most 2 GiB. The file metadata gives the
//! decoded size of a row group; if that is too much for the target ranges, the rows of each person are counted
//! and the ranges made narrower. Must stay true: an oversized merge is refused before any row is read; a single
//! segment is never refused, because it was written once.

use parquet::basic::{Encoding, Type};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use uuid::Uuid;

use super::{MergeSource, SegmentMerger, codes_of};
use crate::error::EventStoreError;
use crate::segments::row_merge::DROPPED_PERSON;
use crate::segments::writer::{RANGE_BITS_MAX, range_of};

/// Most additional bits: rows of one person cannot be split.
const NARROWER_BITS_MAX: u32 = 5;

impl SegmentMerger {
    /// Number of bits that select the range: `bits`, or more if ranges are too large. Redistributes the
    /// sources.
    pub(super) async fn bits_that_fit(
        &self,
        sources: &mut [MergeSource],
        bits: u32,
    ) -> Result<u32, EventStoreError> {
        let most = self.settings.merged_range_bytes;
        if sources.len() < 2 || at_most(sources, bits) <= most {
            return Ok(bits);
        }
        let finest = (bits + NARROWER_BITS_MAX).min(RANGE_BITS_MAX).max(bits);
        let mut bytes = vec![0_u64; 1 << finest];
        for source in &*sources {
            for group in 0..source.ranges.len() {
                self.count_bytes(source, group, finest, &mut bytes).await?;
            }
        }
        let largest = |bits: u32| {
            let ranges = bytes.chunks(1 << (finest - bits)).map(|range| range.iter().sum::<u64>());
            ranges.max().unwrap_or(0)
        };
        let Some(fitting) = (bits..=finest).find(|bits| largest(*bits) <= most) else {
            let bytes = largest(finest);
            return Err(EventStoreError::TooLarge(format!(
                "the rows of one range of persons would take {bytes} bytes, above {most}"
            )));
        };
        if fitting > bits {
            sources.iter_mut().for_each(|source| source.narrow(fitting));
        }
        Ok(fitting)
    }

    /// Adds the bytes of a row group to its target ranges.
    async fn count_bytes(
        &self,
        source: &MergeSource,
        group: usize,
        bits: u32,
        bytes: &mut [u64],
    ) -> Result<(), EventStoreError> {
        let batches = source.codes(group).await?;
        let mut rows = vec![0_u64; source.ranges[group].finals.len()];
        for batch in &batches {
            for code in codes_of(batch)? {
                let of_person = rows.get_mut(*code as usize);
                *of_person.ok_or_else(|| EventStoreError::corrupt("a row without a person"))? += 1;
            }
        }
        let metadata = source.file.metadata().row_group(group);
        let (all, of_all) = (rows.iter().sum::<u64>().max(1), u128::from(decoded_bytes(metadata)));
        let range = &source.ranges[group];
        for ((person, target), rows) in range.finals.iter().zip(range.targets.iter()).zip(rows) {
            if *target != DROPPED_PERSON {
                let share = (of_all * u128::from(rows)).div_ceil(u128::from(all));
                let place = range_of(Uuid::from_u128(*person), bits) as usize;
                bytes[place] = bytes[place].saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
            }
        }
        Ok(())
    }
}

/// Upper bound of the bytes of one range, if all rows of each row group go to the same target range.
fn at_most(sources: &[MergeSource], bits: u32) -> u64 {
    let mut bytes = vec![0_u64; 1 << bits];
    for source in sources {
        for (group, range) in source.file.metadata().row_groups().iter().zip(&source.ranges) {
            let of_group = decoded_bytes(group);
            range.present.iter().for_each(|to| bytes[*to as usize] += of_group);
        }
    }
    bytes.into_iter().max().unwrap_or(0)
}

/// Approximate memory of the rows of a row group.
fn decoded_bytes(group: &RowGroupMetaData) -> u64 {
    let rows = u64::try_from(group.num_rows()).unwrap_or(0);
    group.columns().iter().map(|column| column_bytes(column, rows)).sum()
}

fn column_bytes(column: &ColumnChunkMetaData, rows: u64) -> u64 {
    let width = match column.column_type() {
        Type::BOOLEAN => 1,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        Type::FIXED_LEN_BYTE_ARRAY => u64::try_from(column.column_descr().type_length()).unwrap_or(0),
        Type::BYTE_ARRAY => return rows * 4 + text_bytes(column),
    };
    rows * width
}

/// Bytes of the texts of a column: every occurrence, or each value once if only the dictionary is in memory.
fn text_bytes(column: &ColumnChunkMetaData) -> u64 {
    let encoded = u64::try_from(column.uncompressed_size()).unwrap_or(0);
    let each = column.unencoded_byte_array_data_bytes().and_then(|bytes| u64::try_from(bytes).ok());
    let each = each.unwrap_or(encoded);
    let is_dictionary =
        |encoding| column.page_encoding_stats_mask().is_some_and(|mask| mask.is_only(encoding));
    // Only `properties` is not a dictionary in memory.
    let stays_dictionary = column.column_descr().name() != "properties"
        && [Encoding::RLE_DICTIONARY, Encoding::PLAIN_DICTIONARY].into_iter().any(is_dictionary);
    if stays_dictionary { each.min(encoded) } else { each }
}
