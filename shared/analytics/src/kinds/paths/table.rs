//! Results of paths as tables.

use serde_json::Value;

use crate::kinds::table::{TableRows, cell, heading, list};

/// The table of a result: a row for each edge.
pub(super) fn rows(result: &Value) -> TableRows {
    const COLUMNS: [&str; 4] = ["source", "target", "value", "average_conversion_time"];
    let row = |edge: &Value| COLUMNS.iter().map(|column| cell(&edge[*column])).collect();
    std::iter::once(heading(&COLUMNS)).chain(list(result).iter().map(row)).collect()
}
