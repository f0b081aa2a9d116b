//! The numbers of a trend in the rows of its statement.

use super::TrendsQuery;
use crate::clickhouse::{RowsError, SqlRow, SqlRows};

/// The numbers of one series and breakdown value, whose values are limited already.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeriesNumbers {
    /// Index of the series.
    pub(super) series: usize,
    /// The breakdown value; empty without a breakdown.
    pub(super) value: Vec<String>,
    /// The number of breakdown values of the series before the limit; 0 without a breakdown.
    pub(super) value_count: usize,
    /// One number per bucket, or a single total; cumulative for a running sum.
    pub(super) data: Vec<f64>,
}

/// Reads the rows: `width` for each series and breakdown value, one after the other.
pub(super) fn read(
    rows: &SqlRows<'_>,
    query: &TrendsQuery,
    width: usize,
) -> Result<Vec<SeriesNumbers>, RowsError> {
    let column = if query.display.is_total() { "aggregated_value" } else { "value" };
    rows.require_columns(&["series", column])?;
    if query.common.breakdown.is_some() {
        rows.require_columns(&["breakdown_value", "value_count"])?;
    }
    let mut all: Vec<SeriesNumbers> = Vec::new();
    for row in rows.iter() {
        let row = row?;
        let SeriesNumbers { series, value, value_count, .. } = head(&row, query)?;
        let number = row.number(column)?;
        match all.last_mut().filter(|last| last.data.len() < width) {
            None => all.push(SeriesNumbers { series, value, value_count, data: vec![number] }),
            Some(last) if (last.series, &last.value) == (series, &value) => last.data.push(number),
            Some(_) => return Err(RowsError::invalid("a series has too few numbers")),
        }
    }
    if all.last().is_some_and(|last| last.data.len() != width) {
        return Err(RowsError::invalid("a series has another number of buckets"));
    }
    if query.common.breakdown.is_none() {
        if width == 0 {
            all = (0..query.series.len()).map(empty).collect();
        }
        if !all.iter().map(|one| one.series).eq(0..query.series.len()) {
            return Err(RowsError::invalid("a series is missing or listed twice"));
        }
    }
    Ok(all)
}

/// The series and the breakdown value of a row.
fn head(row: &SqlRow<'_>, query: &TrendsQuery) -> Result<SeriesNumbers, RowsError> {
    let series = row.index("series")?;
    if series >= query.series.len() {
        return Err(RowsError::invalid("there is no such series"));
    }
    if query.common.breakdown.is_none() {
        return Ok(empty(series));
    }
    let (value, value_count) = (row.texts("breakdown_value")?, row.index("value_count")?);
    Ok(SeriesNumbers { value, value_count, ..empty(series) })
}

fn empty(series: usize) -> SeriesNumbers {
    SeriesNumbers { series, value: Vec::new(), value_count: 0, data: Vec::new() }
}
