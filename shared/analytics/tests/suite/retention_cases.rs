//! The retention cases of the corpus in process: numbers, labels, errors, and the persons behind a row.

use std::collections::BTreeSet;

use pennon_analytics::people::{MatchedActor, union};
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Map, Value, json};

use crate::support::{World, cases, differences};

const TOLERANCE: f64 = 1e-9;

#[test]
fn retention_gives_the_expected_rows_and_people() {
    let (mut failures, mut calculated, mut rejected) = (Vec::new(), 0, 0);
    for case in cases("retention.json") {
        let problems = match result_of(&case) {
            Ok(result) => {
                calculated += 1;
                problems(&case["expect"], &result)
            }
            Err(error) => {
                rejected += 1;
                unexpected_error(&case["expect"], &error)
            }
        };
        if !problems.is_empty() {
            failures.push(format!("{}: {}", case["name"], problems.join("; ")));
        }
    }
    assert!(failures.is_empty(), "{} wrong:\n{}", failures.len(), failures.join("\n"));
    assert!(calculated >= 51 && rejected >= 3, "{calculated} calculated, {rejected} rejected");
}

/// The result of a case's request, or its list of people.
fn result_of(case: &Value) -> Result<Value, CalcError> {
    let world = World::of_case(case);
    let body = &case["request"]["body"];
    let fields = body.as_object().unwrap();
    match case["request"]["endpoint"].as_str().unwrap() {
        "query" => world.calculate_parsed(Query::from_query_node(body)),
        "insight" if body["query"].is_object() => {
            world.calculate_parsed(Query::from_query_node(&body["query"]))
        }
        "insight" => {
            world.calculate_parsed(Query::from_insight_filters(body["filters"].as_object().unwrap()))
        }
        "retention" => world.calculate_parsed(InsightKind::Retention.parse_request(fields)),
        "retention_people" => people(case, &world, fields),
        other => panic!("the endpoint {other} is not known"),
    }
}

/// The actors of a row, in the order of pages.
pub fn list_people(
    world: &World,
    query: &Query,
    fields: &Map<String, Value>,
    parts: usize,
) -> Result<Vec<MatchedActor>, CalcError> {
    let point = query.data_point(fields)?;
    let plan = query.plan(&world.project, world.now)?;
    let partitions = plan.join(world.partitions(plan.scan(), parts), world.facts(&plan), &|| false)?;
    let mut matched = Vec::new();
    for partition in &partitions {
        matched.extend(plan.people(partition, &point, &|| false)?);
    }
    let mut people = union(matched);
    people.sort_by_key(MatchedActor::page_order);
    Ok(people)
}

fn people(case: &Value, world: &World, fields: &Map<String, Value>) -> Result<Value, CalcError> {
    let ParsedQuery::Query(query) = InsightKind::Retention.parse_people_request(fields)? else {
        panic!("no query")
    };
    let ids = |one: &MatchedActor| match &one.key {
        Some(key) => json!([key]),
        None => {
            let index = usize::try_from(one.actor.as_u128()).unwrap().checked_sub(1).unwrap();
            case["persons"][index]["distinct_ids"].clone()
        }
    };
    let row = |one: MatchedActor| {
        let appearances: Vec<u8> = one.appearances.iter().copied().map(u8::from).collect();
        json!([ids(&one), appearances])
    };
    Ok(list_people(world, &query, fields, 2)?.into_iter().map(row).collect())
}

fn unexpected_error(expect: &Value, error: &CalcError) -> Vec<String> {
    let Some(pattern) = expect["error"]["detail"].as_str().and_then(|detail| detail.strip_prefix("$re:"))
    else {
        return vec![format!("rejected: {error}")];
    };
    let detail = error.detail.to_lowercase();
    let text = pattern.trim_start_matches("(?i)").to_lowercase();
    let is_start = text.starts_with('^');
    let text = text.trim_start_matches('^').trim_end_matches('$');
    let fits = if is_start { detail.starts_with(text) } else { detail.contains(text) };
    if fits { Vec::new() } else { vec![format!("want the error {pattern} got {error}")] }
}

/// Differences of a result from each part that a case expects.
fn problems(expect: &Value, result: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    if expect["status"] != json!(200) {
        return vec!["calculated, want an error".to_owned()];
    }
    if let Some(people) = expect.get("people") {
        let set = |people: &Value| -> BTreeSet<String> {
            people.as_array().unwrap().iter().map(Value::to_string).collect()
        };
        let counts = |people: &Value| -> Vec<u64> {
            let sum = |row: &Value| row[1].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
            people.as_array().unwrap().iter().map(sum).collect()
        };
        if set(people) != set(result) || counts(people) != counts(result) {
            problems.push(format!("people: want {people} got {result}"));
        }
        return problems;
    }
    let rows = result.as_array().unwrap();
    let value = rows.first().map_or(&Value::Null, |row| &row["breakdown_value"]);
    let first_rows: Vec<&Value> = rows.iter().filter(|row| row["breakdown_value"] == *value).collect();
    let column = |key: &str| first_rows.iter().map(|row| row[key].clone()).collect::<Value>();
    let cell_labels = || {
        let cells = first_rows.first().map_or(&Value::Null, |row| &row["values"]);
        cells.as_array().into_iter().flatten().map(|cell| cell["label"].clone()).collect::<Value>()
    };
    for (part, want) in expect.as_object().unwrap() {
        let got = match part.as_str() {
            "counts" => matrix(rows, "count"),
            "values" => matrix(rows, "aggregation_value"),
            "labels" => column("label"),
            "dates" => column("date"),
            "columns" => cell_labels(),
            "result" => result.clone(),
            _ => continue,
        };
        differences(want, &got, part, TOLERANCE, &mut problems);
    }
    problems
}

/// Numbers as rows of columns; with a breakdown a list of values, each with its rows.
pub fn matrix(rows: &[Value], key: &str) -> Value {
    let numbers = |row: &Value| {
        row["values"].as_array().unwrap().iter().map(|cell| cell[key].clone()).collect::<Value>()
    };
    if rows.iter().all(|row| row["breakdown_value"].is_null()) {
        return rows.iter().map(numbers).collect();
    }
    let mut values: Vec<Value> = Vec::new();
    for row in rows {
        if values.last().is_none_or(|last| last[0] != row["breakdown_value"]) {
            values.push(json!([row["breakdown_value"], []]));
        }
        let last = values.last_mut().unwrap();
        last[1].as_array_mut().unwrap().push(numbers(row));
    }
    Value::Array(values)
}
