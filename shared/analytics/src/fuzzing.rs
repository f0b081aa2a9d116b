//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use pennon_filters::dates::WeekStart;
use pennon_filters::{CalcResult, CompileBudget};
use serde_json::{Map, Value, json};

use crate::clickhouse::{ColumnType, FileLocation, SegmentFiles, SqlColumn, SqlRows, SqlSegment};
use crate::definitions::{Action, Cohort, Definitions};
use crate::filter::{EventFilter, PersonFilter};
use crate::kinds::decode_and_validate_query;
use crate::kinds::trends::Formula;
use crate::refresh::{cache_target_age, freshness, next_allowed_client_refresh};
use crate::sql::{Aggregate, Expression};
use crate::{InsightKind, ParsedQuery, PartitionResult, ProjectContext, Query, part_format};

/// Series of a formula.
const SERIES: usize = 5;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_767_608_400, 123_456_000).unwrap_or_default()
}

/// A project with an action and two cohorts, one of which names the other.
fn project(timezone: Tz, aggregate_by_distinct_id: bool) -> ProjectContext {
    let cohort = |filters: Value| Cohort { name: "c".to_owned(), filters, ..Cohort::default() };
    let values = json!([{"type": "cohort", "value": 2}, {"type": "person", "key": "k", "value": "v", "negation": true}]);
    let cohorts = [
        (1, cohort(json!({"properties": {"type": "AND", "values": values}}))),
        (2, Cohort { is_static: true, ..cohort(Value::Null) }),
    ];
    let steps =
        vec![json!({"event": "a", "properties": [{"key": "k", "value": ["v"]}]}), json!({"event": "b"})];
    let actions = [(1, Action { name: "action".to_owned(), steps })];
    ProjectContext {
        project_id: "1".to_owned(),
        timezone,
        week_start: WeekStart::Monday,
        test_account_filters: vec![json!({"key": "$host", "value": "localhost", "operator": "is_not"})],
        path_cleaning_filters: vec![json!({"alias": "/:id", "regex": "/[0-9]+"})],
        earliest_event: Some(1_700_000_000_000_000),
        aggregate_by_distinct_id,
        definitions: Definitions { actions: actions.into(), cohorts: cohorts.into() },
    }
}

/// Query nodes of all kinds, in any wrapper.
pub fn query_nodes(bytes: &[u8]) {
    let Ok(node) = serde_json::from_slice::<Value>(bytes) else { return };
    let _ = decode_and_validate_query(&node);
    check(Query::from_query_node(&node), None);
}

/// Requests to the endpoints of all kinds, and the filters of insights.
pub fn query_filters(bytes: &[u8]) {
    let Ok(request) = serde_json::from_slice::<Map<String, Value>>(bytes) else { return };
    check(Query::from_insight_filters(&request), Some(&request));
    for kind in InsightKind::ALL {
        check(kind.parse_request(&request), Some(&request));
        check(kind.parse_people_request(&request), Some(&request));
    }
}

/// An accepted query is described, planned, written as insight filters that give a query with the same filters, and as SQL.
fn check(parsed: CalcResult<ParsedQuery>, request: Option<&Map<String, Value>>) {
    let Ok(ParsedQuery::Query(query)) = parsed else { return };
    let normalised = query.normalised();
    assert!(!query.describe().is_empty() && serde_json::from_str::<Value>(&normalised).is_ok());
    let filters = query.to_insight_filters();
    match Query::from_insight_filters(&filters) {
        Ok(ParsedQuery::Query(again)) if again.kind() == query.kind() => {
            assert_eq!(json!(again.to_insight_filters()), json!(filters), "of the query {normalised}");
        }
        // Insights have no correlations: their filters are those of the funnel.
        Ok(ParsedQuery::Query(_)) if query.kind() == InsightKind::Correlation => {}
        other => assert!(query.kind() == InsightKind::FlagImpact, "{}: {other:?}", json!(filters)),
    }
    cache_target_age(&query, now());
    for project in [project(Tz::America__Sao_Paulo, false), project(Tz::UTC, true)] {
        let _ = freshness(&query, &project, now(), now());
        let _ = next_allowed_client_refresh(&query, &project, now(), now());
        if let Ok(plan) = query.plan(&project, now()) {
            plan.is_divisible();
            if let Some(Ok(point)) = request.map(|request| query.data_point(request)) {
                plan.actors(&point);
                query.counted_actors(&point, &plan);
            }
        }
        if let Ok(sql) = query.clickhouse(&project, now(), &files()) {
            assert!(are_quotes_closed(&sql), "a text ends its quotes: {sql}");
        }
    }
}

/// Two segment files with columns of different types.
fn files() -> SegmentFiles {
    let column = |kind| SqlColumn { kind, exceptions: kind == ColumnType::Integer };
    let segment = |object: &str, kind| SqlSegment {
        object: object.to_owned(),
        columns: [("k".to_owned(), column(kind)), ("$current_url".to_owned(), column(ColumnType::Text))]
            .into(),
        rest: Some(vec!["other".to_owned()]),
        times: (0, i64::MAX),
        events: None,
    };
    let segments = vec![segment("a.parquet", ColumnType::Text), segment("b.parquet", ColumnType::Integer)];
    let place = FileLocation::Directory("/data".to_owned());
    SegmentFiles { place, segments, merged: Vec::new() }
}

/// Whether all texts and names of a statement end before it does, by the rules of ClickHouse, and hold no line break.
fn are_quotes_closed(sql: &str) -> bool {
    let mut quote = None;
    let mut letters = sql.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '\'' | '`' | '"') => quote = Some(letter),
            (None, '\0') | (Some(_), '\n') => return false,
            (None, _) => {}
            (Some(_), '\\') => {
                letters.next();
            }
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
        }
    }
    quote.is_none()
}

/// Filters of lists of events and persons.
pub fn list_filters(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let now = now().with_timezone(&Tz::Pacific__Apia);
    let _ = EventFilter::parse(text, now, "properties");
    let _ = PersonFilter::parse(text, now, "properties");
}

/// Formulas over [`SERIES`] series: the result is finite, and the text is the one that was sent.
pub fn formulas(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(formula) = Formula::parse(text, SERIES, "formula") else { return };
    assert_eq!(formula.text(), text);
    for series in [[0.0; SERIES], [1.0, -2.5, 1e300, 3.0, 7.0], [f64::MAX, f64::MIN, 1e-300, -0.0, 0.1]] {
        let value = formula.evaluate(|index| series.get(index).copied().unwrap_or(f64::NAN));
        assert!(value.is_finite(), "{text} is {value}");
    }
}

/// SQL expressions, alone and in queries that are written as SQL.
pub fn sql_expressions(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for zone in [Tz::UTC, Tz::America__Sao_Paulo] {
        if let Ok(expression) = Expression::parse(text, "e") {
            assert_eq!(expression.text(), text);
            let _ = expression.compile(zone, &mut CompileBudget::default(), "e");
        }
        if let Ok(aggregate) = Aggregate::parse(text, "e") {
            assert_eq!(aggregate.text(), text);
            let _ = aggregate.compile(zone, &mut CompileBudget::default(), "e");
        }
    }
    let series = json!([{"kind": "EventsNode", "event": "a", "math": "hogql", "math_hogql": text}]);
    let node = json!({"kind": "TrendsQuery", "series": series});
    check(Query::from_query_node(&node), None);
    let properties = json!([{"type": "hogql", "key": text}]);
    let breakdown = json!({"breakdown_type": "hogql", "breakdown": text});
    let node = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "a"}],
        "properties": properties, "breakdownFilter": breakdown});
    check(Query::from_query_node(&node), None);
}

/// Partial results of other processes: bytes as they are, and as the body of a message with a valid header.
pub fn partial_results(bytes: &[u8]) {
    for message in [bytes.to_vec(), part_format::with_header(bytes)] {
        let Ok(partial) = PartitionResult::from_bytes(&message) else { continue };
        let again = partial.to_bytes();
        assert!(again.is_ok(), "a decoded result is encoded: {:?}", again.err());
        let again = PartitionResult::from_bytes(&again.unwrap_or_default());
        assert!(again.is_ok(), "and decoded again: {:?}", again.err());
    }
}

/// Responses of ClickHouse to the statements of these queries.
pub fn clickhouse_rows(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else { return };
    let Ok(rows) = SqlRows::parse(body) else { return };
    let series = json!([{"kind": "EventsNode", "event": "a"}, {"kind": "EventsNode", "event": "b"}]);
    let node = |more: Value| {
        let mut node =
            json!({"series": series, "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-03"}});
        if let (Some(node), Value::Object(more)) = (node.as_object_mut(), more) {
            node.extend(more);
        }
        node
    };
    let nodes = [
        json!({"kind": "TrendsQuery"}),
        json!({"kind": "TrendsQuery", "breakdownFilter": {"breakdown": "k", "breakdown_type": "event"}}),
        json!({"kind": "TrendsQuery", "trendsFilter": {"display": "BoldNumber"}}),
        json!({"kind": "FunnelsQuery"}),
        json!({"kind": "FunnelsQuery", "breakdownFilter": {"breakdown": "k", "breakdown_type": "event"}}),
        json!({"kind": "RetentionQuery"}),
        json!({"kind": "StickinessQuery"}),
        json!({"kind": "LifecycleQuery"}),
    ];
    let Some(more) = nodes.get(usize::from(kind % 8)) else { return };
    let Ok(ParsedQuery::Query(query)) = Query::from_query_node(&node(more.clone())) else { return };
    if let Ok(plan) = query.plan(&project(Tz::UTC, false), now()) {
        let _ = plan.finish_rows(&rows, &|| false);
    }
}
