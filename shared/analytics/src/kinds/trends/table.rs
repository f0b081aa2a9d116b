//! Results of trends as tables.

use serde_json::{Value, json};

use super::TrendsQuery;
use crate::kinds::table::{TableRows, cell, heading, list, time_series_rows};

/// Heading of the column with totals over the whole range.
const TOTAL: &str = "total count";

/// The table of a result: a row for each bucket, or for each series of totals.
pub(super) fn rows(query: &TrendsQuery, result: &Value) -> TableRows {
    if !query.display.is_total() {
        return time_series_rows(result, |series| cell(&series["label"]));
    }
    let rows =
        list(result).iter().map(|series| vec![cell(&series["label"]), cell(&series["aggregated_value"])]);
    std::iter::once(heading(&["series", "value"])).chain(rows).collect()
}

/// The rows of a CSV export: one for each series, with a column for each bucket.
pub(super) fn csv_rows(result: &Value) -> Vec<Vec<Value>> {
    let series = list(result);
    let is_total = series.first().is_some_and(|row| row.get("aggregated_value").is_some());
    let mut head = vec![json!("series")];
    match series.first() {
        Some(_) if is_total => head.push(json!(TOTAL)),
        Some(first) => head.extend_from_slice(list(&first["labels"])),
        None => {}
    }
    let rows = series.iter().map(|row| {
        let own =
            Some(&row["action"]["custom_name"]).filter(|name| name.as_str().is_some_and(|it| !it.is_empty()));
        let mut cells = vec![own.unwrap_or(&row["label"]).clone()];
        match is_total {
            true => cells.push(row["aggregated_value"].clone()),
            false => cells.extend_from_slice(list(&row["data"])),
        }
        cells
    });
    std::iter::once(head).chain(rows).collect()
}
