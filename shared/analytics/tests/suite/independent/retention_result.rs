//! Compares results of retention, and lists of persons, with the second implementation.

use std::collections::BTreeMap;

use pennon_analytics::{ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Value, json};

use super::history::History;
use super::retention_count::{Count, CountedRow};
use super::retention_spec::RetentionSpec;
use crate::retention_cases::{list_people, matrix};
use crate::support::differences;

const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// Counts and sums of one breakdown value, by row and column.
type Cells = Vec<Vec<(u64, f64)>>;

fn cells_of(spec: &RetentionSpec, rows: usize, counted: &[&CountedRow]) -> Cells {
    let mut cells = vec![vec![(0, 0.0); spec.columns()]; rows];
    for one in counted {
        for column in &one.columns {
            cells[one.row][*column].0 += 1;
            cells[one.row][*column].1 += one.sums.get(*column).copied().unwrap_or(0.0);
        }
    }
    cells
}

/// The breakdown values in order, those beyond the limit as one.
fn ordered(spec: &RetentionSpec, rows: usize, counted: &[(String, CountedRow)]) -> Vec<(String, Cells)> {
    let mut by_value: BTreeMap<&str, Vec<&CountedRow>> = BTreeMap::new();
    for (value, row) in counted {
        by_value.entry(value).or_default().push(row);
    }
    let mut values: Vec<(&str, Vec<&CountedRow>)> = by_value.into_iter().collect();
    // Stable: values of the same size stay in the order of their bytes.
    values.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    let limit = spec.limit.unwrap_or(25).min(values.len());
    let others: Vec<&CountedRow> = values[limit..].iter().flat_map(|(_, rows)| rows.clone()).collect();
    let kept = values[..limit].iter();
    let mut result: Vec<(String, Cells)> =
        kept.map(|(value, own)| ((*value).to_owned(), cells_of(spec, rows, own))).collect();
    if !others.is_empty() {
        result.push((OTHER.to_owned(), cells_of(spec, rows, &others)));
    }
    result
}

fn numbers(cells: &Cells, of: impl Fn(&(u64, f64)) -> Value) -> Value {
    cells.iter().map(|row| row.iter().map(&of).collect::<Value>()).collect()
}

fn aggregate(spec: &RetentionSpec, (count, sum): &(u64, f64)) -> Value {
    match spec.aggregation {
        Some(aggregation) if aggregation.average && *count > 0 => json!(sum / *count as f64),
        Some(aggregation) if aggregation.average => json!(0),
        _ => json!(sum),
    }
}

fn parse(spec: &RetentionSpec) -> Result<Query, CalcError> {
    match Query::from_query_node(&spec.body())? {
        ParsedQuery::Query(query) => Ok(query),
        other => panic!("{other:?}"),
    }
}

/// Differences of the result; `None` if the contract leaves it open.
pub fn check(spec: &RetentionSpec, history: &History) -> Result<Option<Vec<String>>, CalcError> {
    let Some(rows) = spec.rows(history) else { return Ok(None) };
    let (query, world) = (parse(spec)?, history.world());
    let count = Count { spec, history, rows };
    let counted = count.all();
    let result = world.calculate(&query, 3)?;
    let rows = result.as_array().unwrap();
    let mut wrong = Vec::new();
    let expected = match spec.source {
        None => {
            let own: Vec<&CountedRow> = counted.iter().map(|(_, row)| row).collect();
            vec![(String::new(), cells_of(spec, count.rows.len(), &own))]
        }
        Some(_) => ordered(spec, count.rows.len(), &counted),
    };
    let mut compare = |key: &str, of: &dyn Fn(&(u64, f64)) -> Value| {
        let want: Value = match spec.source {
            None => numbers(&expected[0].1, of),
            Some(_) => expected.iter().map(|(value, cells)| json!([value, numbers(cells, of)])).collect(),
        };
        differences(&want, &matrix(rows, key), key, 1e-9, &mut wrong);
    };
    compare("count", &|(count, _)| json!(count));
    if spec.aggregation.is_some() {
        compare("aggregation_value", &|cell| aggregate(spec, cell));
    }
    for (row, got) in rows.iter().enumerate() {
        let number = row % count.rows.len();
        let period = spec.period.to_lowercase();
        let label = format!("{}{} {number}", period[..1].to_uppercase(), &period[1..]);
        differences(&json!(label), &got["label"], "label", 0.0, &mut wrong);
        let shown = &count.rows[number].local.format("%Y-%m-%dT%H:%M:%S").to_string();
        if !got["date"].as_str().unwrap().starts_with(shown.as_str()) {
            wrong.push(format!("date of row {number}: want {shown} got {}", got["date"]));
        }
    }
    // However the actors are divided.
    for parts in [1, 2, 7] {
        differences(&result, &world.calculate(&query, parts)?, &format!("{parts} parts"), 0.0, &mut wrong);
    }
    check_people(spec, history, &counted, &mut wrong)?;
    Ok(Some(wrong))
}

/// Lists the people of each row with actors.
fn check_people(
    spec: &RetentionSpec,
    history: &History,
    counted: &[(String, CountedRow)],
    wrong: &mut Vec<String>,
) -> Result<(), CalcError> {
    let mut by_row: BTreeMap<(&str, usize), Vec<Vec<bool>>> = BTreeMap::new();
    for (value, row) in counted {
        let appearances = (0..spec.columns()).map(|column| row.columns.contains(&column)).collect();
        by_row.entry((value, row.row)).or_default().push(appearances);
    }
    let (query, world) = (parse(spec)?, history.world());
    for ((value, row), mut expected) in by_row {
        let mut link = json!({"selected_interval": row});
        if spec.source.is_some() {
            link["breakdown_value"] = json!(value);
        }
        let people = list_people(&world, &query, link.as_object().unwrap(), 2)?;
        let mut got: Vec<Vec<bool>> = people.into_iter().map(|one| one.appearances).collect();
        expected.sort();
        got.sort();
        if got != expected {
            wrong.push(format!("people of {value:?} in row {row}: want {expected:?} got {got:?}"));
        }
    }
    Ok(())
}

/// Whether an actor starts, and whether one returns.
pub fn starts_and_returns(spec: &RetentionSpec, history: &History) -> (bool, bool) {
    let Some(rows) = spec.rows(history) else { return (false, false) };
    let counted = Count { spec, history, rows }.all();
    (!counted.is_empty(), counted.iter().any(|(_, row)| row.columns.len() > 1))
}
