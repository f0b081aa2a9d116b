//! The uuid columns of a segment. An event without a uuid gets one derived from its line
//! ([`crate::segments::uuids::line_uuids`]), and its row has the line already, as its arrival position. So such
//! a row stores only the source, which is equal for a whole file and takes no space, and no uuid.
//!
//! Must stay true: every uuid is restored exactly; a row has either a uuid or a source.

use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use crate::error::EventStoreError;
use crate::segments::uuids::line_uuids::{UuidSource, line_of, uuid_of};
use uuid::Uuid;

/// Column of uuids.
pub(crate) const UUID: &str = "uuid";
/// Column of sources.
pub(crate) const UUID_SOURCE: &str = "uuid_source";
/// Column of the line.
const LINE: &str = "seq_low";

/// Bytes of a source.
pub(crate) const SOURCE_BYTES: i32 = size_of::<UuidSource>() as i32;

/// The two columns in the file.
pub(crate) struct UuidColumns {
    pub uuids: ArrayRef,
    pub sources: ArrayRef,
}

impl UuidColumns {
    /// Splits the uuids of rows with these arrival positions.
    pub(crate) fn of(uuids: &[Uuid], lines: &[u64]) -> Result<UuidColumns, EventStoreError> {
        let mut own = FixedSizeBinaryBuilder::with_capacity(uuids.len(), 16);
        let mut sources = FixedSizeBinaryBuilder::with_capacity(uuids.len(), SOURCE_BYTES);
        for (uuid, at) in uuids.iter().zip(lines) {
            match line_of(*uuid) {
                Some((source, line)) if line == *at => {
                    own.append_null();
                    sources.append_value(source)?;
                }
                _ => {
                    own.append_value(uuid.as_bytes())?;
                    sources.append_null();
                }
            }
        }
        Ok(UuidColumns { uuids: Arc::new(own.finish()), sources: Arc::new(sources.finish()) })
    }
}

/// The columns that must be read in addition to `columns`.
pub(crate) fn beside(columns: &[String]) -> Vec<String> {
    let mut all = columns.to_vec();
    if columns.iter().any(|column| column == UUID) {
        let missing = [UUID_SOURCE, LINE].into_iter().filter(|name| columns.iter().all(|it| it != name));
        all.extend(missing.map(str::to_owned));
    }
    all
}

/// Restores the full uuids, if they were read.
pub(crate) fn joined(batch: RecordBatch) -> Result<RecordBatch, EventStoreError> {
    let wrong = || EventStoreError::corrupt("a uuid is missing");
    let Some(uuids) = batch.column_by_name(UUID).filter(|uuids| uuids.null_count() > 0) else {
        return Ok(batch);
    };
    let uuids = uuids.as_fixed_size_binary_opt().ok_or_else(wrong)?;
    let sources = batch.column_by_name(UUID_SOURCE).and_then(|array| array.as_fixed_size_binary_opt());
    let sources = sources.ok_or_else(wrong)?;
    let lines = batch.column_by_name(LINE).and_then(|array| array.as_primitive_opt::<UInt64Type>());
    let lines = lines.ok_or_else(wrong)?;
    let mut bytes = Vec::with_capacity(uuids.len() * 16);
    for row in 0..uuids.len() {
        if uuids.is_valid(row) {
            bytes.extend_from_slice(uuids.value(row));
            continue;
        }
        let source: &UuidSource = Some(row)
            .filter(|row| sources.is_valid(*row))
            .and_then(|row| sources.value(row).first_chunk())
            .ok_or_else(wrong)?;
        bytes.extend_from_slice(uuid_of(source, lines.value(row)).as_bytes());
    }
    let place = batch.schema().index_of(UUID)?;
    let mut fields = batch.schema().fields().to_vec();
    fields[place] = Arc::new(Field::new(UUID, DataType::FixedSizeBinary(16), false));
    let mut columns = batch.columns().to_vec();
    columns[place] = Arc::new(FixedSizeBinaryArray::try_new(16, bytes.into(), None)?);
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::UInt64Array;
    use proptest::prelude::*;

    use super::*;
    use crate::segments::reader::ids;

    fn batch(split: UuidColumns, lines: &[u64]) -> RecordBatch {
        let lines: ArrayRef = Arc::new(UInt64Array::from(lines.to_vec()));
        let columns = [(UUID, split.uuids), (UUID_SOURCE, split.sources), (LINE, lines)];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap()
    }

    proptest! {
        #[test]
        fn every_uuid_comes_back(
            rows in proptest::collection::vec((any::<u128>(), 0..4_u8, any::<bool>()), 0..50),
        ) {
            let mut uuids = Vec::new();
            let mut lines = Vec::new();
            for (number, source, is_line) in rows {
                let line = number as u64 >> 16;
                uuids.push(if is_line { uuid_of(&[0x80 | source; 10], line) } else { Uuid::from_u128(number) });
                lines.push(if source == 3 { line + 1 } else { line });
            }
            let split = UuidColumns::of(&uuids, &lines).unwrap();
            prop_assert_eq!(split.uuids.null_count() + split.sources.null_count(), uuids.len());
            prop_assert_eq!(ids(&joined(batch(split, &lines)).unwrap(), UUID).unwrap(), uuids);
        }
    }

    #[test]
    fn a_row_without_either_is_an_error() {
        let missing = || Arc::new(FixedSizeBinaryArray::new_null(16, 1)) as ArrayRef;
        let sources = Arc::new(FixedSizeBinaryArray::new_null(SOURCE_BYTES, 1)) as ArrayRef;
        assert!(joined(batch(UuidColumns { uuids: missing(), sources }, &[1])).is_err());
        let alone = RecordBatch::try_from_iter_with_nullable([(UUID, missing(), true)]).unwrap();
        assert!(joined(alone).is_err());
    }
}
