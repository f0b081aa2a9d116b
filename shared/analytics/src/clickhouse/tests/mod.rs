//! The text of statements. `tests/readers` runs them and compares the numbers.
#![allow(clippy::unwrap_used)]

mod results;

use pennon_filters::dates::WeekStart;
use serde_json::{Value, json};

use super::*;
use crate::definitions::{Cohort, Definitions};
use crate::kinds::{ParsedQuery, Query};

fn project() -> ProjectContext {
    ProjectContext {
        project_id: "1".to_owned(),
        timezone: chrono_tz::UTC,
        week_start: WeekStart::Sunday,
        test_account_filters: Vec::new(),
        path_cleaning_filters: Vec::new(),
        earliest_event: None,
        aggregate_by_distinct_id: false,
        definitions: Definitions { cohorts: [(7, Cohort::default())].into(), ..Definitions::default() },
    }
}

fn segment(object: &str, kind: ColumnType, events: &[&str]) -> SqlSegment {
    SqlSegment {
        object: object.to_owned(),
        columns: [("plan".to_owned(), SqlColumn { kind, exceptions: false })].into(),
        rest: Some(Vec::new()),
        times: (1_704_067_200_000_000, 1_706_659_200_000_000),
        events: Some(events.iter().map(|name| (*name).to_owned()).collect()),
    }
}

fn files(segments: Vec<SqlSegment>) -> SegmentFiles {
    SegmentFiles { place: FileLocation::Directory("/data".to_owned()), segments, merged: Vec::new() }
}

fn query(node: &Value) -> Query {
    let ParsedQuery::Query(query) = Query::from_query_node(node).unwrap() else { panic!("no query") };
    query
}

fn now() -> DateTime<Utc> {
    "2024-02-01T00:00:00Z".parse().unwrap()
}

fn sql(node: &Value, files: &SegmentFiles) -> CalcResult<String> {
    query(node).clickhouse(&project(), now(), files)
}

fn trend(properties: Value) -> Value {
    json!({"kind": "TrendsQuery", "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-31"},
           "series": [{"kind": "EventsNode", "event": "a", "properties": properties}]})
}

#[test]
fn only_files_that_may_have_the_events_are_named() {
    let late = SqlSegment {
        times: (1_709_251_200_000_000, 1_709_251_200_000_000),
        ..segment("p/late", ColumnType::Text, &["a"])
    };
    let all = vec![
        segment("p/one", ColumnType::Text, &["a"]),
        segment("p/two", ColumnType::Text, &["b", "a"]),
        segment("p/other", ColumnType::Text, &["b"]),
        late,
    ];
    let text = sql(&trend(json!([])), &files(all)).unwrap();
    assert!(text.contains("FROM file('/data/p/{one,two}', Parquet)"), "{text}");
    assert!(!text.contains("other") && !text.contains("late"), "{text}");
    let none = sql(&trend(json!([])), &files(Vec::new())).unwrap();
    assert!(none.contains("FROM numbers(0)") && !none.contains("file("), "{none}");
}

#[test]
fn files_with_other_column_types_are_read_separately() {
    let all = vec![segment("p/one", ColumnType::Text, &["a"]), segment("p/two", ColumnType::Integer, &["a"])];
    let text = sql(&trend(json!([{"key": "plan", "operator": "exact", "value": "x"}])), &files(all)).unwrap();
    assert!(text.contains("CAST(`p.plan`, 'Nullable(String)') AS k0"), "{text}");
    assert!(text.contains("CAST(toString(`p.plan`), 'Nullable(String)') AS k0"), "{text}");
    assert_eq!(text.matches("UNION ALL").count(), 1, "{text}");
}

#[test]
fn the_numbers_of_a_series_are_multiplied() {
    let of = |more: Value| {
        let mut node = trend(json!([]));
        node["series"][0].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        sql(&node, &files(vec![segment("p/one", ColumnType::Text, &["a"])])).unwrap()
    };
    let halved = of(json!({"math": "sum", "math_property": "plan", "math_multiplier": 0.5}));
    assert!(halved.contains("arrayMap(bucket -> found[bucket] * toFloat64('0.5'), range(31))"), "{halved}");
    assert!(
        of(json!({"math": "sum", "math_property": "plan"}))
            .contains("arrayMap(bucket -> found[bucket], range(31))")
    );
}

#[test]
fn a_bucket_is_read_by_its_url_and_merged_persons_are_named() {
    let place = FileLocation::parse(None, "s3://b/events/").unwrap();
    let merged = vec![(Uuid::from_u128(1), Uuid::from_u128(2))];
    let files = SegmentFiles { place, merged, ..files(vec![segment("p/one", ColumnType::Text, &["a"])]) };
    let text = sql(&trend(json!([])), &files).unwrap();
    assert!(text.contains("FROM s3('https://b.s3.amazonaws.com/events/p/one', Parquet)"), "{text}");
    assert!(text.contains("['00000000000000000000000000000001']"), "{text}");
    let many = (0..=MAX_PERSON_MERGES).map(|id| (Uuid::from_u128(id as u128), Uuid::max())).collect();
    assert!(sql(&trend(json!([])), &SegmentFiles { merged: many, ..files }).is_err());
}

#[test]
fn the_machines_of_a_cluster_read_the_same_files() {
    let place = FileLocation::parse(None, "s3://b/events").unwrap();
    let segments =
        vec![segment("p/one", ColumnType::Text, &["a"]), segment("p/two", ColumnType::Text, &["a"])];
    let statement =
        |place: FileLocation| sql(&trend(json!([])), &SegmentFiles { place, ..files(segments.clone()) });
    let alone = statement(place.clone()).unwrap();
    let cluster = statement(place.on_cluster("it's").unwrap()).unwrap();
    let read = "('https://b.s3.amazonaws.com/events/p/{one,two}', Parquet)";
    assert!(alone.contains(&format!("FROM s3{read}")), "{alone}");
    assert_eq!(cluster, alone.replace("FROM s3(", r"FROM s3Cluster('it\'s', "));
}

#[test]
fn unsupported_parts_are_named() {
    let files = files(vec![segment("p/one", ColumnType::Text, &["a"])]);
    let cohort = json!([{"key": "id", "type": "cohort", "value": 7}]);
    let element = json!([{"key": "text", "type": "element", "operator": "exact", "value": "x"}]);
    let expression = json!([{"key": "1 = 1", "type": "hogql"}]);
    let group =
        json!([{"key": "name", "type": "group", "group_type_index": 0, "operator": "exact", "value": "x"}]);
    for (properties, what) in [
        (cohort, "cohort 7"),
        (element, "elements"),
        (expression, "SQL expression"),
        (group, "group's property name"),
    ] {
        let detail = sql(&trend(properties), &files).unwrap_err().detail;
        assert!(detail.contains(what) && detail.contains("ClickHouse"), "{detail}");
    }
}

#[test]
fn stickiness_of_persons_has_a_statement_and_other_kinds_are_named() {
    let files = files(vec![segment("p/one", ColumnType::Text, &["a"])]);
    let node = |kind: &str, more: Value| {
        let mut node = json!({"kind": kind, "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-03"},
            "series": [{"kind": "EventsNode", "event": "a"}]});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    let stickiness = |more: Value| sql(&node("StickinessQuery", more), &files);
    let criterion = json!({"stickinessFilter": {"stickinessCriteria": {"operator": "gte", "value": 2}}, "intervalCount": 2});
    let text = stickiness(criterion).unwrap();
    assert!(text.contains("GROUP BY actor, bucket HAVING count() >= 2)"), "{text}");
    // Two days back from the end of 3 January, and the one before.
    assert!(text.contains("[1, 0][indexOfAssumeSorted([1704067200000000, 1704153600000000]"), "{text}");
    let group = json!({"series": [{"event": "a", "math": "unique_group", "math_group_type_index": 0}]});
    let value = json!({"series": [{"event": "a", "math": "hogql", "math_hogql": "event"}]});
    for (refused, what) in [
        (stickiness(json!({"compareFilter": {"compare": true}})), "earlier period"),
        (stickiness(group), "groups"),
        (stickiness(value), "SQL expression"),
        (sql(&node("LifecycleQuery", json!({})), &files), "lifecycle"),
    ] {
        let detail = refused.unwrap_err().detail;
        assert!(detail.contains(what) && detail.contains("ClickHouse"), "{detail}");
    }
}
