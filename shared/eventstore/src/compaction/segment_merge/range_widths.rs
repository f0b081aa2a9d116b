//! How narrow the person ranges of a merged segment are.
//!
//! The rows of a range are put in order as a whole, and an array of texts holds 2 GiB at most. What a row group takes once it
//! is decoded is told by the metadata of its file; where that is too much for the ranges it goes to, the rows of each person
//! are counted and the ranges made narrower. Must stay true: what is too large is refused before any row is read; a segment
//! alone is never refused, because it was written once.

use parquet::basic::{Encoding, Type};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use uuid::Uuid;

use super::{Source, codes_of};
use crate::EventStore;
use crate::error::EventStoreError;
use crate::segments::row_merge::DROPPED_PERSON;
use crate::segments::writer::{RANGE_BITS_MAX, range_of};

/// So many bits more tell a range at most: who has many rows has them in whatever range.
const NARROWER_BITS_MAX: u32 = 5;

impl EventStore {
    /// How many bits tell the ranges of the new segment: `bits`, or more if ranges are too large. The sources are dealt to
    /// these.
    pub(super) async fn bits_that_fit(
        &self,
        sources: &mut [Source],
        bits: u32,
    ) -> Result<u32, EventStoreError> {
        let most = self.inner.settings.merged_range_bytes;
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

    /// Adds what the rows of a row group take to the ranges that they go to.
    async fn count_bytes(
        &self,
        source: &Source,
        group: usize,
        bits: u32,
        bytes: &mut [u64],
    ) -> Result<(), EventStoreError> {
        let batches = source.codes(&self.inner.objects, group).await?;
        let mut rows = vec![0_u64; source.ranges[group].finals.len()];
        for batch in &batches {
            for code in codes_of(batch)? {
                let of_person = rows.get_mut(*code as usize);
                *of_person.ok_or_else(|| EventStoreError::corrupt("a row of nobody"))? += 1;
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

/// The most bytes that the rows of one of the ranges may take, if all of a row group go to one of those they go to.
fn at_most(sources: &[Source], bits: u32) -> u64 {
    let mut bytes = vec![0_u64; 1 << bits];
    for source in sources {
        for (group, range) in source.file.metadata().row_groups().iter().zip(&source.ranges) {
            let of_group = decoded_bytes(group);
            range.present.iter().for_each(|to| bytes[*to as usize] += of_group);
        }
    }
    bytes.into_iter().max().unwrap_or(0)
}

/// About how many bytes the rows of a row group take in memory.
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

/// The texts of a column: each value as often as it occurs, but where only the dictionary is in memory, once.
fn text_bytes(column: &ColumnChunkMetaData) -> u64 {
    let encoded = u64::try_from(column.uncompressed_size()).unwrap_or(0);
    let each = column.unencoded_byte_array_data_bytes().and_then(|bytes| u64::try_from(bytes).ok());
    let each = each.unwrap_or(encoded);
    let is_dictionary =
        |encoding| column.page_encoding_stats_mask().is_some_and(|mask| mask.is_only(encoding));
    // `properties` alone are no dictionary in memory.
    let stays_dictionary = column.column_descr().name() != "properties"
        && [Encoding::RLE_DICTIONARY, Encoding::PLAIN_DICTIONARY].into_iter().any(is_dictionary);
    if stays_dictionary { each.min(encoded) } else { each }
}
