//! Results of lifecycles as tables.

use serde_json::Value;

use crate::kinds::table::{TableRows, cell, time_series_rows};

/// The table of a result: a row for each period, a column for each status.
pub(super) fn rows(result: &Value) -> TableRows {
    time_series_rows(result, |series| cell(&series["status"]))
}
