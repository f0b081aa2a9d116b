//! Selects a subset of the rows of a run.
//!
//! Must stay true: selected rows keep their order.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use pennon_analytics::scan::{Column, MISSING, Seq};

use super::piece::{RunColumns, SizedColumn};

/// A bitmap of the selected rows of a run.
pub(crate) struct RowMask {
    kept: BooleanBuffer,
    rows: usize,
}

impl RowMask {
    pub(crate) fn of<T: Copy>(rows: &[T], keep: impl Fn(T) -> bool) -> RowMask {
        let kept = BooleanBuffer::collect_bool(rows.len(), |row| keep(rows[row]));
        RowMask { rows: kept.count_set_bits(), kept }
    }

    pub(crate) fn core(&self, whole: &RunColumns) -> RunColumns {
        RunColumns {
            codes: self.of_rows(&whole.codes).into(),
            times: self.of_rows(&whole.times).into(),
            ties: whole.ties.as_ref().map(|ties| self.of_rows(ties).into()),
        }
    }

    pub(crate) fn seqs(&self, whole: &[Seq]) -> Arc<Vec<Seq>> {
        Arc::new(self.of_rows(whole))
    }

    /// Keeps the dictionary of the whole run.
    pub(crate) fn column(&self, whole: &SizedColumn) -> SizedColumn {
        let codes = self.of_rows(&whole.column.codes).into();
        let column = Column { codes, values: whole.column.values.clone() };
        SizedColumn { column, value_bytes: whole.value_bytes }
    }

    /// A column with the values of the selected rows alone.
    pub(crate) fn column_values(&self, whole: &Column) -> Column {
        let (mut codes, mut values) = (Vec::with_capacity(self.rows), Vec::new());
        let mut known = HashMap::new();
        for code in self.of_rows(&whole.codes) {
            codes.push(match whole.values.get(code as usize) {
                None => MISSING,
                Some(value) => *known.entry(code).or_insert_with(|| {
                    values.push(value.clone());
                    values.len() as u32 - 1
                }),
            });
        }
        Column::new(codes, values)
    }

    /// The values of the selected rows.
    pub(crate) fn of_rows<T: Copy>(&self, rows: &[T]) -> Vec<T> {
        let mut kept = Vec::with_capacity(self.rows);
        kept.extend(self.kept.set_indices().map(|row| rows[row]));
        kept
    }
}
