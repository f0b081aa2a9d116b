//! Results of rows as a server returns them. `tests/readers` compares those of whole statements.

use serde_json::{Value, json};

use super::{RowsError, SqlRows, now, project, query};
use crate::QueryOutput;

/// The result of rows with these columns.
fn finish(node: &Value, columns: &[&str], rows: &Value) -> Result<QueryOutput, RowsError> {
    let meta: Vec<Value> = columns.iter().map(|name| json!({"name": name, "type": "String"})).collect();
    let body = json!({"meta": meta, "data": rows, "rows": rows.as_array().unwrap().len()}).to_string();
    let plan = query(node).plan(&project(), now()).unwrap();
    plan.finish_rows(&SqlRows::parse(body.as_bytes())?, &|| false)
}

fn invalid(outcome: Result<QueryOutput, RowsError>) -> String {
    match outcome.unwrap_err() {
        RowsError::Invalid(what) => what,
        RowsError::Calculation(error) => panic!("{error:?}"),
    }
}

/// A query over the first two days of 2024.
fn node(kind: &str, more: Value) -> Value {
    let mut node = json!({"kind": kind, "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-02"},
        "series": [{"kind": "EventsNode", "event": "a"}, {"kind": "EventsNode", "event": "b"}]});
    node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    node
}

const OTHER: &str = "$$_posthog_breakdown_other_$$";
const NULL: &str = "$$_posthog_breakdown_null_$$";
const TREND: [&str; 4] = ["series", "name", "day", "value"];
const TREND_BY_VALUE: [&str; 6] = ["series", "name", "breakdown_value", "value_count", "day", "value"];
const FUNNEL: [&str; 5] = ["step", "name", "count", "average_conversion_time", "median_conversion_time"];

#[test]
fn a_trend_has_the_numbers_of_each_bucket() {
    let (one, two) = ("2024-01-01", "2024-01-02");
    let rows = json!([[0, "a", one, 3], [0, "a", two, 1.5], [1, "b", one, 0], [1, "b", two, 7]]);
    let output = finish(&node("TrendsQuery", json!({})), &TREND, &rows).unwrap();
    assert_eq!(output.has_more, Some(false));
    let (first, second) = (&output.result[0], &output.result[1]);
    assert_eq!(
        (&first["label"], &first["data"], &first["count"]),
        (&json!("a"), &json!([3, 1.5]), &json!(4.5))
    );
    assert_eq!((&second["label"], &second["days"]), (&json!("b"), &json!([one, two])));
    let refused = |rows: Value| invalid(finish(&node("TrendsQuery", json!({})), &TREND, &rows));
    refused(json!([]));
    refused(json!([[0, "a", one, 3], [0, "a", two, 1.5]]));
    refused(json!([[0, "a", one, 3], [0, "a", two, 1.5], [1, "b", one, 0]]));
    refused(json!([[0, "a", one, 3], [1, "b", one, 0], [0, "a", two, 1.5], [1, "b", two, 7]]));
    refused(json!([[0, "a", one, 3], [0, "a", two, null], [1, "b", one, 0], [1, "b", two, 7]]));
    assert!(refused(json!([[2, "c", one, 3]])).contains("series"));
}

#[test]
fn the_values_of_a_trend_are_ordered_and_others_name_those_that_they_lack() {
    let more = |limit: usize| {
        json!({"series": [{"kind": "EventsNode", "event": "a"}],
               "breakdownFilter": {"breakdown": "plan", "breakdown_type": "event", "breakdown_limit": limit}})
    };
    let day = |value: &str, count: usize, numbers: [u64; 2]| {
        numbers.map(|number| json!([0, "a", value, count, "", number])).to_vec()
    };
    let rows = |count: usize| {
        let all = [
            day(OTHER, count, [8, 1]),
            day("free", count, [0, 1]),
            day(NULL, count, [5, 5]),
            day("pro", count, [2, 2]),
        ];
        Value::Array(all.concat())
    };
    let output = finish(&node("TrendsQuery", more(3)), &TREND_BY_VALUE, &rows(9)).unwrap();
    let values: Vec<&Value> =
        output.result.as_array().unwrap().iter().map(|row| &row["breakdown_value"]).collect();
    assert_eq!(values, ["pro", "free", NULL, OTHER]);
    let kept = |output: &QueryOutput| output.result[3]["persons_urls"][0]["filter"]["breakdown_kept"].clone();
    assert_eq!((kept(&output), output.has_more), (json!(["pro", "free", NULL]), Some(true)));
    let refused = invalid(finish(&node("TrendsQuery", more(3)), &TREND, &json!([])));
    assert!(refused.contains("breakdown_value"), "{refused}");
    // With as many values as may stay, a value that is spelled like that of others is one of them.
    let output = finish(&node("TrendsQuery", more(4)), &TREND_BY_VALUE, &rows(4)).unwrap();
    assert_eq!((kept(&output), output.has_more), (json!([]), Some(false)));
}

#[test]
fn a_total_has_one_number_and_a_running_sum_the_last_one() {
    let total =
        json!({"series": [{"kind": "EventsNode", "event": "a"}], "trendsFilter": {"display": "BoldNumber"}});
    let columns = ["series", "name", "aggregated_value"];
    let output = finish(&node("TrendsQuery", total.clone()), &columns, &json!([[0, "a", 12]])).unwrap();
    assert_eq!(output.result[0]["aggregated_value"], 12);
    let refused = invalid(finish(&node("TrendsQuery", total), &TREND, &json!([[0, "a", "", 12]])));
    assert!(refused.contains("aggregated_value"), "{refused}");
    let running = json!({"trendsFilter": {"display": "ActionsLineGraphCumulative"}});
    let rows = json!([[0, "a", "", 3], [0, "a", "", 8], [1, "b", "", 0], [1, "b", "", 1]]);
    let output = finish(&node("TrendsQuery", running), &TREND, &rows).unwrap();
    assert_eq!((&output.result[0]["data"], &output.result[0]["count"]), (&json!([3, 8]), &json!(8.0)));
}

#[test]
fn a_funnel_has_the_numbers_of_each_step() {
    let rows = json!([[0, "a", 9, null, null], [1, "b", "4", 2.5, 2]]);
    let output = finish(&node("FunnelsQuery", json!({})), &FUNNEL, &rows).unwrap();
    let second = &output.result[1];
    assert_eq!((&second["count"], &second["order"]), (&json!(4), &json!(1)));
    assert_eq!(second["average_conversion_time"], 2.5);
    assert_eq!(second["median_conversion_time"], 2.0);
    assert_eq!(output.result[0]["average_conversion_time"], Value::Null);
    for rows in [
        json!([]),
        json!([[0, "a", 9, null, null]]),
        json!([[1, "b", 4, 2.5, 2], [0, "a", 9, null, null]]),
        json!([[0, "a", 9, null, null], [1, "b", 4, 2, 2], [0, "a", 9, null, null], [1, "b", 4, 2, 2]]),
        json!([[0, "a", -9, null, null], [1, "b", 4, 2.5, 2]]),
    ] {
        invalid(finish(&node("FunnelsQuery", json!({})), &FUNNEL, &rows));
    }
}

#[test]
fn the_values_of_a_funnel_are_ordered_and_others_come_after_equal_ones() {
    let columns = [["breakdown_value", "value_count"].as_slice(), FUNNEL.as_slice()].concat();
    let more = |limit: usize| json!({"breakdownFilter": {"breakdown": "plan", "breakdown_type": "event", "breakdown_limit": limit}});
    let steps = |value: &str, count: usize, counts: [u64; 2]| {
        let step = |step: usize| json!([[value], count, step, "", counts[step], null, null]);
        [step(0), step(1)]
    };
    let rows = |count: usize| {
        json!(
            [steps("Other", count, [3, 1]), steps("free", count, [3, 1]), steps("pro", count, [2, 2])]
                .concat()
        )
    };
    let values = |output: &QueryOutput| -> Vec<Value> {
        output.result.as_array().unwrap().iter().map(|steps| steps[0]["breakdown_value"][0].clone()).collect()
    };
    let link = |output: &QueryOutput, at: usize| output.result[at][0]["converted_people_url"].to_string();
    let output = finish(&node("FunnelsQuery", more(2)), &columns, &rows(7)).unwrap();
    assert_eq!(values(&output), ["pro", "free", "Other"]);
    assert!(link(&output, 2).contains("funnel_breakdown_kept"), "{}", link(&output, 2));
    let output = finish(&node("FunnelsQuery", more(3)), &columns, &rows(3)).unwrap();
    assert_eq!(values(&output), ["pro", "Other", "free"]);
    assert!(!link(&output, 1).contains("funnel_breakdown_kept"), "{}", link(&output, 1));
    let output = finish(&node("FunnelsQuery", more(2)), &columns, &json!([])).unwrap();
    assert_eq!(output.result, json!([]));
    assert!(invalid(finish(&node("FunnelsQuery", more(2)), &FUNNEL, &json!([]))).contains("breakdown_value"));
}

#[test]
fn a_stickiness_has_a_bar_for_each_number_of_intervals() {
    let columns = ["series", "name", "intervals", "value"];
    let rows = json!([[0, "a", 1, "5"], [0, "a", 2, 3], [1, "b", 1, 0], [1, "b", 2, 0]]);
    let output = finish(&node("StickinessQuery", json!({})), &columns, &rows).unwrap();
    assert_eq!((&output.result[0]["data"], &output.result[0]["count"]), (&json!([5, 3]), &json!(8)));
    let cumulative = json!({"stickinessFilter": {"computedAs": "cumulative"}});
    let output = finish(&node("StickinessQuery", cumulative.clone()), &columns, &rows).unwrap();
    assert_eq!((&output.result[0]["data"], &output.result[0]["count"]), (&json!([5, 3]), &json!(5)));
    let refused =
        |more: &Value, rows: Value| invalid(finish(&node("StickinessQuery", more.clone()), &columns, &rows));
    refused(&json!({}), json!([[0, "a", 1, 5], [0, "a", 2, 3], [1, "b", 1, 0]]));
    refused(&json!({}), json!([[0, "a", 2, 5], [0, "a", 1, 3], [1, "b", 1, 0], [1, "b", 2, 0]]));
    refused(&cumulative, json!([[0, "a", 1, 3], [0, "a", 2, 5], [1, "b", 1, 0], [1, "b", 2, 0]]));
}

#[test]
fn kinds_without_a_statement_take_no_rows() {
    let lifecycle = json!({"kind": "LifecycleQuery", "series": [{"event": "a"}], "interval": "day",
        "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-02"}});
    assert!(invalid(finish(&lifecycle, &["series"], &json!([]))).contains("statement"));
}
