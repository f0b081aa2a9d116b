//! Formats tables of results as text and as CSV; the first row has the headings.
//!
//! Must stay true: no text from events contains terminal escapes, or is a formula in a spreadsheet.

use pennon_analytics::kinds::TableRows;
use pennon_calculation::escape_cell;

use crate::show::text::sanitize;

/// Formats a table as text: columns of one width, numbers to the right.
pub(super) fn to_text(rows: &TableRows) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let at =
        |row: &Vec<String>, column: usize| row.get(column).map(|cell| sanitize(cell)).unwrap_or_default();
    let width = |column| rows.iter().map(|row| at(row, column).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let numeric = |column: usize| {
        let mut cells =
            rows.iter().skip(1).map(|row| at(row, column)).filter(|cell| !cell.is_empty()).peekable();
        cells.peek().is_some() && cells.all(|cell| cell.parse::<f64>().is_ok())
    };
    let numeric: Vec<bool> = (0..columns).map(numeric).collect();
    let mut out = String::new();
    for row in rows {
        let cells = widths.iter().zip(&numeric).enumerate().map(|(column, (width, numeric))| {
            let cell = at(row, column);
            if *numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// Formats a table as CSV.
pub(super) fn to_csv(rows: &TableRows) -> Result<String, String> {
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    for row in rows {
        writer.write_record(row.iter().map(|cell| escape_cell(cell))).map_err(|e| e.to_string())?;
    }
    let bytes = writer.into_inner().map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pennon_analytics::{ParsedQuery, Query};
    use serde_json::{Value, json};

    fn table(node: &Value, result: &Value) -> TableRows {
        let ParsedQuery::Query(query) = Query::from_query_node(node).unwrap() else { panic!("no query") };
        query.table(result)
    }

    #[test]
    fn series_are_columns() {
        let node = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "a"}]});
        let result = json!([
            {"label": "a", "days": ["2024-01-01", "2024-01-02"], "data": [1, 2.5]},
            {"label": "b, c", "days": ["2024-01-01", "2024-01-02"], "data": [0, 10]},
        ]);
        let rows = table(&node, &result);
        assert_eq!(to_text(&rows), "day           a  b, c\n2024-01-01    1     0\n2024-01-02  2.5    10\n");
        assert_eq!(to_csv(&rows).unwrap(), "day,a,\"b, c\"\n2024-01-01,1,0\n2024-01-02,2.5,10\n");
        assert_eq!(to_text(&table(&node, &json!([]))), "day\n");
    }

    #[test]
    fn texts_of_events_are_no_terminal_escapes_and_no_formulas() {
        let node = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "a"}],
            "trendsFilter": {"display": "ActionsBarValue"}});
        let series = |label: &str, value: Value| json!({"label": label, "aggregated_value": value});
        let result = json!([
            series("=HYPERLINK(\"x\")", json!(-1.5)),
            series("\u{1b}[2Ja\u{7}b\u{9b}c\u{202e}d\r\n", json!(-7)),
            series("@x", json!(1e300)),
        ]);
        let rows = table(&node, &result);
        assert_eq!(
            to_csv(&rows).unwrap(),
            "series,value\n\"'=HYPERLINK(\"\"x\"\")\",-1.5\n\"\u{1b}[2Ja\u{7}b\u{9b}c\u{202e}d\r\n\",-7\n'@x,1e+300\n"
        );
        let shown = to_text(&rows);
        assert!(shown.lines().nth(2).unwrap().starts_with(" [2Ja b c d "), "{shown:?}");
        assert_eq!(shown.lines().count(), 4);
        assert!(!shown.contains(|letter: char| letter.is_control() && letter != '\n'));
    }

    #[test]
    fn a_funnel_has_one_row_per_step() {
        let steps = json!([{"kind": "EventsNode", "event": "a"}, {"kind": "EventsNode", "event": "b"}]);
        let node = json!({"kind": "FunnelsQuery", "series": steps});
        let step = |name: &str, count: u64, time: Value| {
            json!({"name": name, "count": count, "average_conversion_time": time, "median_conversion_time": time,
                   "breakdown": ["x", "y"]})
        };
        let plain = json!([step("a", 3, Value::Null), step("b", 1, json!(60.5))]);
        assert_eq!(
            to_csv(&table(&node, &plain)).unwrap(),
            "step,name,count,average_conversion_time,median_conversion_time\n1,a,3,,\n2,b,1,60.5,60.5\n"
        );
        assert_eq!(table(&node, &json!([plain]))[1][..4], ["x::y", "1", "a", "3"]);
    }
}
