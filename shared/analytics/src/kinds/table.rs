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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn days_are_those_of_the_current_period_also_if_the_compared_one_is_first() {
        let series = |period: &str, days: [&str; 2], data: Value| json!({"label": "seen", "compare_label": period, "days": days, "data": data});
        let result = json!([
            series("previous", ["2026-01-03", "2026-01-04"], json!([1, 2])),
            series("current", ["2026-01-05", "2026-01-06"], json!([3.0, 4.5])),
        ]);
        let rows = time_series_rows(&result, |one| cell(&one["label"]));
        let expected = [
            ["day", "seen (previous)", "seen (current)"],
            ["2026-01-05", "1", "3"],
            ["2026-01-06", "2", "4.5"],
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn shorter_series_have_empty_cells() {
        let result =
            json!([{"days": ["2026-01-05"], "data": [1, 2]}, {"days": ["2026-01-05"], "data": [null]}]);
        let rows = time_series_rows(&result, |_| "n".to_owned());
        assert_eq!(rows, [["day", "n", "n"], ["2026-01-05", "1", ""], ["", "2", ""]]);
    }

    #[test]
    fn cells_are_texts_without_a_fraction_of_zero() {
        let cells =
            [json!(null), json!("a"), json!(2.0), json!(2.5), json!(["a", "b"]), json!([1]), json!({"a": 1})];
        assert_eq!(cells.map(|value| cell(&value)), ["", "a", "2", "2.5", "a::b", "[1]", r#"{"a":1}"#]);
    }
}
