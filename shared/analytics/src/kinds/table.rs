//! Results as tables, for the command line and CSV files.
//!
//! Must stay true: every number of a result is in its table, unchanged.

use serde_json::Value;

/// The rows of a table, as cells; the first row has the headings.
pub type TableRows = Vec<Vec<String>>;

/// The members of a list; none for anything else.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A row of headings.
pub fn heading(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A value as a cell.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            let text = number.to_string();
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        }
        Value::Array(list) if list.iter().all(|one| one.is_string() || one.is_null()) => {
            list.iter().map(cell).collect::<Vec<_>>().join("::")
        }
        other => other.to_string(),
    }
}

/// A row for each bucket, a column for each series. The days are those of the current period, not of a compared one.
pub fn time_series_rows(result: &Value, label: impl Fn(&Value) -> String) -> TableRows {
    let series = list(result);
    let current = |one: &&Value| one["compare_label"] != "previous";
    let days = series.iter().find(current).or(series.first()).map_or(&[][..], |first| list(&first["days"]));
    let mut head = vec!["day".to_owned()];
    head.extend(series.iter().map(|one| match &one["compare_label"] {
        Value::Null => label(one),
        period => format!("{} ({})", label(one), cell(period)),
    }));
    let length = series.iter().map(|one| list(&one["data"]).len()).max().unwrap_or(0);
    let row = |at: usize| {
        let numbers = series.iter().map(|one| list(&one["data"]).get(at).map_or_else(String::new, cell));
        std::iter::once(days.get(at).map_or_else(String::new, cell)).chain(numbers).collect()
    };
    std::iter::once(head).chain((0..length).map(row)).collect()
}
