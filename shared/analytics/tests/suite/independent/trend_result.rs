//! The expected result of a trend, field by field.

use serde_json::{Value, json};

use super::history::{History, Source};
use super::trend_dates::{Range, RangeSpec};
use super::trend_rows::{Row, breakdown_value, formula, rows, sort_formula, value_text};
use super::trend_spec::TrendSpec;

/// The expected rows, or `Open` if the contract leaves the result open.
pub enum ExpectedResult {
    Rows(Vec<Value>),
    Open,
}

pub fn expected_result(spec: &TrendSpec, history: &History) -> ExpectedResult {
    let Some(earliest) = history.events.iter().map(|event| event.time).min() else {
        return ExpectedResult::Open;
    };
    let current = Range::current(&spec.range_spec, history.zone, history.week_start, history.now, earliest);
    let mut ranges = vec![current];
    if spec.compare {
        // For a total, only the current range has days regardless of the interval.
        let series = RangeSpec { total: false, ..spec.range_spec.clone() };
        let by_interval = Range::current(&series, history.zone, history.week_start, history.now, earliest);
        let previous = by_interval.previous(&spec.range_spec, spec.compare_to.as_ref());
        ranges.push(Range { calendar: current.calendar, ..previous });
    }
    if ranges.iter().any(|range| !range.is_clear()) || current.from > current.to {
        return ExpectedResult::Open;
    }
    let mut expected = Vec::new();
    for (place, range) in ranges.iter().enumerate() {
        let mut of_series = Vec::new();
        for index in 0..spec.series.len() {
            let Some(rows) = rows(spec, history, range, index) else { return ExpectedResult::Open };
            of_series.push(rows);
        }
        let Some(rows) = arranged(spec, of_series, range) else { return ExpectedResult::Open };
        expected.extend(rows.iter().map(|row| object(spec, row, range, place)));
    }
    ExpectedResult::Rows(expected)
}

/// For a formula, the sum in every display.
fn count(spec: &TrendSpec, row: &Row) -> f64 {
    if spec.is_cumulative() && spec.formula.is_none() {
        row.numbers.last().copied().unwrap_or(0.0)
    } else {
        row.sum()
    }
}

fn arranged(spec: &TrendSpec, of_series: Vec<Vec<Row>>, range: &Range) -> Option<Vec<Row>> {
    let width = if spec.range_spec.total { 1 } else { range.periods().len() };
    let listed = match &spec.source {
        Some(Source::Cohorts(ids)) if ids.len() == 1 || ids.contains(&0) => Some(ids),
        _ => None,
    };
    if spec.formula.is_none() {
        let mut rows: Vec<Row> = of_series.into_iter().flatten().collect();
        if let Some(ids) = listed {
            rows.sort_by_key(|row| place(ids, row));
        }
        return Some(rows);
    }
    let mut rows = formula(spec, of_series, width);
    match listed {
        Some(ids) => rows.sort_by_key(|row| place(ids, row)),
        None => {
            let sum = |row: &Row| row.sum();
            sort_formula(&mut rows, &sum);
            if spec.compare {
                rows.sort_by(|left, right| count(spec, right).total_cmp(&count(spec, left)));
                let equal = rows.windows(2).any(|pair| count(spec, &pair[0]) == count(spec, &pair[1]));
                // Equal rows have the natural order of values, which the contract does not define.
                if equal || spec.range_spec.total && rows.len() > 1 {
                    return None;
                }
            }
        }
    }
    Some(rows)
}

fn place(ids: &[u64], row: &Row) -> Option<usize> {
    let value = &row.values.as_ref().unwrap()[0];
    ids.iter().position(|id| *value == id.to_string() || *id == 0 && value == "all")
}

fn object(spec: &TrendSpec, row: &Row, range: &Range, place: usize) -> Value {
    let mut object = json!({"order": row.series});
    let fields = object.as_object_mut().unwrap();
    let mut put = |key: &str, value: Value| fields.insert(key.to_owned(), value);
    let series = &spec.series[row.series];
    let mut queries = spec.series.len();
    if let Some(Source::Cohorts(ids)) = &spec.source
        && (ids.len() == 1 || ids.contains(&0))
    {
        queries *= ids.len();
    }
    let name = match (&spec.formula, &row.values) {
        (Some(formula), _) => format!("Formula ({})", formula.text),
        (None, None) => series.label().to_owned(),
        (None, Some(values)) if queries == 1 => value_text(spec, values),
        (None, Some(values)) => format!("{} - {}", series.label(), value_text(spec, values)),
    };
    put("label", json!(name));
    if let Some(values) = &row.values {
        put("breakdown_value", breakdown_value(spec, values));
    }
    if spec.compare {
        put("compare", json!(true));
        put("compare_label", json!(["current", "previous"][place]));
    }
    if spec.formula.is_some() {
        put("action", Value::Null);
    }
    if spec.range_spec.total {
        put("aggregated_value", json!(row.numbers[0]));
        put("count", json!(0));
        put("data", if spec.formula.is_some() { Value::Null } else { json!([]) });
        return object;
    }
    let periods = range.periods();
    put("data", json!(row.numbers));
    put("count", json!(count(spec, row)));
    put("days", periods.iter().map(|period| json!(range.calendar.day_text(period))).collect());
    put("labels", periods.iter().map(|period| json!(range.label(period))).collect());
    object
}

/// Differences of a result; `None` if the contract leaves the result open.
pub fn check(spec: &TrendSpec, history: &History, got: &Value) -> Option<Vec<String>> {
    let ExpectedResult::Rows(expected) = expected_result(spec, history) else { return None };
    let mut wrong = Vec::new();
    crate::support::differences(&json!(expected), got, "result", 1e-9, &mut wrong);
    if !wrong.is_empty() {
        let labels = |rows: &[Value]| {
            rows.iter().map(|row| format!("{} {}", row["label"], row["data"])).collect::<Vec<_>>()
        };
        wrong.push(format!("want {:#?}", labels(&expected)));
        wrong.push(format!("got {:#?}", labels(got.as_array().map_or(&[][..], Vec::as_slice))));
    }
    Some(wrong)
}
