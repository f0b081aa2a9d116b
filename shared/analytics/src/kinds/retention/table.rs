//! Results of retention queries as tables.

use serde_json::Value;

use crate::kinds::table::{TableRows, cell, heading, list};

/// The table of a result: a line for each row, with a column for each cell, and another one for what is added up.
pub(super) fn rows(result: &Value) -> TableRows {
    let rows = list(result);
    let first_cells = rows.first().map_or(&[][..], |row| list(&row["values"]));
    let adds_up = first_cells.first().is_some_and(|one| one.get("aggregation_value").is_some());
    let has_values = rows.first().is_some_and(|row| !row["breakdown_value"].is_null());
    let mut head = heading(&["period", "date"]);
    if has_values {
        head.insert(0, "breakdown_value".to_owned());
    }
    for column in first_cells {
        head.push(cell(&column["label"]));
        if adds_up {
            head.push(format!("{} (aggregation_value)", cell(&column["label"])));
        }
    }
    let line = |row: &Value| {
        let mut cells = vec![cell(&row["label"]), cell(&row["date"])];
        if has_values {
            cells.insert(0, cell(&row["breakdown_value"]));
        }
        for column in list(&row["values"]) {
            cells.push(cell(&column["count"]));
            if adds_up {
                cells.push(cell(&column["aggregation_value"]));
            }
        }
        cells
    };
    std::iter::once(head).chain(rows.iter().map(line)).collect()
}
