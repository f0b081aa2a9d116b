//! Results of stickiness as tables.

use serde_json::Value;

use crate::kinds::table::{TableRows, cell, list, time_series_rows};

/// The table of a result: a row for each number of intervals, a column for each series.
pub(super) fn rows(result: &Value) -> TableRows {
    let mut rows = time_series_rows(result, |series| cell(&series["label"]));
    let labels = list(result).first().map_or(&[][..], |first| list(&first["labels"]));
    let names = std::iter::once("active in".to_owned()).chain(labels.iter().map(cell));
    for (row, name) in rows.iter_mut().zip(names) {
        if let Some(first) = row.first_mut() {
            *first = name;
        }
    }
    rows
}
