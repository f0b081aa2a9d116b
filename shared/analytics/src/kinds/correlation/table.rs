//! Results of correlations as tables.

use serde_json::Value;

use crate::kinds::table::{TableRows, cell, heading, list};

/// The table of a result: a row for each event or property value.
pub(super) fn rows(result: &Value) -> TableRows {
    const COLUMNS: [&str; 4] = ["correlation_type", "success_count", "failure_count", "odds_ratio"];
    let row = |event: &Value| {
        let name = cell(&event["event"]["event"]);
        std::iter::once(name).chain(COLUMNS.iter().map(|column| cell(&event[*column]))).collect()
    };
    let mut head = vec!["event".to_owned()];
    head.extend(heading(&COLUMNS));
    std::iter::once(head).chain(list(&result["events"]).iter().map(row)).collect()
}
