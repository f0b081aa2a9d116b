//! Columns whose dictionary values are converted to another type.
//!
//! Must stay true: a value is converted at most once, unless the column has more values than rows.

use pennon_filters::error::CalcResult;
use pennon_filters::text::{text_length, text_of};
use pennon_filters::work_budget::WorkBudget;

use super::counted_rows::SeriesRows;
use crate::dictionary::text_hash;
use crate::scan::{Column, ColumnKey, EventRun};

/// Work units of decoding one value, in addition to the bytes of its text.
const WORK_PER_VALUE: usize = 16;

/// A column whose dictionary values are converted to another type.
pub(super) struct DecodedColumn<'a, T> {
    codes: &'a [u32],
    column: &'a [serde_json::Value],
    /// Converted values by code. `None` if there are fewer rows than values; then values are converted row by row.
    values: Option<Vec<Option<T>>>,
    read: fn(&serde_json::Value) -> Option<T>,
    /// The value of rows without one.
    missing: Option<T>,
}

impl<'a, T: Copy> DecodedColumn<'a, T> {
    pub(super) fn new(
        column: Option<&'a Column>,
        read: fn(&serde_json::Value) -> Option<T>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Self> {
        let (codes, column): (&[u32], &[serde_json::Value]) =
            column.map_or((&[], &[]), |column| (&column.codes, &column.values));
        let read_all = || {
            let values = column.iter().map(|value| {
                work.consume(WORK_PER_VALUE + text_length(value))?;
                Ok(read(value))
            });
            values.collect::<CalcResult<Vec<_>>>()
        };
        let values = (codes.len() >= column.len()).then(read_all).transpose()?;
        Ok(Self { codes, column, values, read, missing: None })
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<T> {
        let code = self.codes.get(row).and_then(|code| usize::try_from(*code).ok());
        let value = code.and_then(|code| match &self.values {
            Some(values) => values.get(code).copied().flatten(),
            None => self.column.get(code).and_then(self.read),
        });
        value.or(self.missing)
    }
}

/// By run: the 128-bit hashes of a column's texts. Empty texts are missing values.
pub(super) fn hash_column<'a>(
    rows: &SeriesRows<'a>,
    key: &ColumnKey,
    missing: Option<u128>,
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<DecodedColumn<'a, u128>>> {
    fn id(value: &serde_json::Value) -> Option<u128> {
        text_of(value).filter(|text| !text.is_empty()).map(|text| text_hash(&text))
    }
    let of_run = |run: &'a EventRun| {
        Ok(DecodedColumn { missing, ..DecodedColumn::new(run.columns.get(key), id, work)? })
    };
    rows.list.iter().map(|(run, ..)| of_run(run)).collect()
}
