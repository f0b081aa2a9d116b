//! What a trend must answer, field by field.

use serde_json::{Value, json};

use super::history::{History, Source};
use super::trend_dates::{Asked, Range};
use super::trend_question::Question;
use super::trend_rows::{Row, breakdown_value, formula, rows, sort_formula, value_text};

/// Why a random question is not asked: the contract leaves its answer open.
pub enum Wanted {
    Rows(Vec<Value>),
    Open,
}

pub fn wanted(question: &Question, history: &History) -> Wanted {
    let Some(earliest) = history.events.iter().map(|event| event.time).min() else { return Wanted::Open };
    let current = Range::current(&question.asked, history.zone, history.week_start, history.now, earliest);
    let mut ranges = vec![current];
    if question.compare {
        // Of a total the current range alone goes by days whatever the interval is.
        let series = Asked { total: false, ..question.asked.clone() };
        let by_interval = Range::current(&series, history.zone, history.week_start, history.now, earliest);
        let previous = by_interval.previous(&question.asked, question.compare_to.as_ref());
        ranges.push(Range { calendar: current.calendar, ..previous });
    }
    if ranges.iter().any(|range| !range.is_clear()) || current.from > current.to {
        return Wanted::Open;
    }
    let mut wanted = Vec::new();
    for (place, range) in ranges.iter().enumerate() {
        let mut of_series = Vec::new();
        for index in 0..question.series.len() {
            let Some(rows) = rows(question, history, range, index) else { return Wanted::Open };
            of_series.push(rows);
        }
        let Some(rows) = arranged(question, of_series, range) else { return Wanted::Open };
        wanted.extend(rows.iter().map(|row| object(question, row, range, place)));
    }
    Wanted::Rows(wanted)
}

/// Of a formula it is the sum whatever the display.
fn count(question: &Question, row: &Row) -> f64 {
    if question.is_cumulative() && question.formula.is_none() {
        row.numbers.last().copied().unwrap_or(0.0)
    } else {
        row.sum()
    }
}

fn arranged(question: &Question, of_series: Vec<Vec<Row>>, range: &Range) -> Option<Vec<Row>> {
    let width = if question.asked.total { 1 } else { range.periods().len() };
    let listed = match &question.source {
        Some(Source::Cohorts(ids)) if ids.len() == 1 || ids.contains(&0) => Some(ids),
        _ => None,
    };
    if question.formula.is_none() {
        let mut rows: Vec<Row> = of_series.into_iter().flatten().collect();
        if let Some(ids) = listed {
            rows.sort_by_key(|row| place(ids, row));
        }
        return Some(rows);
    }
    let mut rows = formula(question, of_series, width);
    match listed {
        Some(ids) => rows.sort_by_key(|row| place(ids, row)),
        None => {
            let sum = |row: &Row| row.sum();
            sort_formula(&mut rows, &sum);
            if question.compare {
                rows.sort_by(|left, right| count(question, right).total_cmp(&count(question, left)));
                let equal =
                    rows.windows(2).any(|pair| count(question, &pair[0]) == count(question, &pair[1]));
                // By the natural order of values then, which the contract does not spell out.
                if equal || question.asked.total && rows.len() > 1 {
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

fn object(question: &Question, row: &Row, range: &Range, place: usize) -> Value {
    let mut object = json!({"order": row.series});
    let fields = object.as_object_mut().unwrap();
    let mut put = |key: &str, value: Value| fields.insert(key.to_owned(), value);
    let series = &question.series[row.series];
    let mut queries = question.series.len();
    if let Some(Source::Cohorts(ids)) = &question.source
        && (ids.len() == 1 || ids.contains(&0))
    {
        queries *= ids.len();
    }
    let name = match (&question.formula, &row.values) {
        (Some(formula), _) => format!("Formula ({})", formula.text),
        (None, None) => series.label().to_owned(),
        (None, Some(values)) if queries == 1 => value_text(question, values),
        (None, Some(values)) => format!("{} - {}", series.label(), value_text(question, values)),
    };
    put("label", json!(name));
    if let Some(values) = &row.values {
        put("breakdown_value", breakdown_value(question, values));
    }
    if question.compare {
        put("compare", json!(true));
        put("compare_label", json!(["current", "previous"][place]));
    }
    if question.formula.is_some() {
        put("action", Value::Null);
    }
    if question.asked.total {
        put("aggregated_value", json!(row.numbers[0]));
        put("count", json!(0));
        put("data", if question.formula.is_some() { Value::Null } else { json!([]) });
        return object;
    }
    let periods = range.periods();
    put("data", json!(row.numbers));
    put("count", json!(count(question, row)));
    put("days", periods.iter().map(|period| json!(range.calendar.day_text(period))).collect());
    put("labels", periods.iter().map(|period| json!(range.label(period))).collect());
    object
}

/// What is wrong with an answer; none when the contract leaves the answer open.
pub fn judge(question: &Question, history: &History, got: &Value) -> Option<Vec<String>> {
    let Wanted::Rows(wanted) = wanted(question, history) else { return None };
    let mut wrong = Vec::new();
    crate::support::differences(&json!(wanted), got, "result", 1e-9, &mut wrong);
    if !wrong.is_empty() {
        let labels = |rows: &[Value]| {
            rows.iter().map(|row| format!("{} {}", row["label"], row["data"])).collect::<Vec<_>>()
        };
        wrong.push(format!("want {:#?}", labels(&wanted)));
        wrong.push(format!("got {:#?}", labels(got.as_array().map_or(&[][..], Vec::as_slice))));
    }
    Some(wrong)
}
