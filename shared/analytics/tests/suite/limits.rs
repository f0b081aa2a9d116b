//! Results at a limit of their kind and one past it, and the documentation of these limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use pennon_analytics::kinds::{funnels, paths, retention, trends};
use pennon_analytics::limits::BREAKDOWN_VALUES;
use pennon_analytics::scan::{ArrivalOrder, Column, ColumnKey, EventRun, Partition};
use pennon_analytics::{Definitions, ParsedQuery, Plan, ProjectContext, Query, QueryOutput};
use pennon_filters::CalcError;
use pennon_filters::dates::WeekStart;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::merged_partials::{MergedPartials, decoded};

const SECOND: i64 = 1_000_000;
/// 2024-05-01.
const START: i64 = 1_714_521_600 * SECOND;

fn plan(node: &Value) -> Plan {
    let project = ProjectContext {
        project_id: "1".to_owned(),
        timezone: chrono_tz::UTC,
        week_start: WeekStart::Sunday,
        test_account_filters: Vec::new(),
        path_cleaning_filters: Vec::new(),
        earliest_event: Some(START),
        aggregate_by_distinct_id: false,
        definitions: Definitions::default(),
    };
    let ParsedQuery::Query(query) = Query::from_query_node(node).unwrap() else { panic!("no query") };
    query.plan(&project, "2024-06-01T00:00:00Z".parse().unwrap()).unwrap()
}

/// Events of one name: row `i` has the actor `actor(i)`, is `i` seconds after the start, and has the value number `i`.
fn partition(
    event: &str,
    rows: std::ops::Range<u32>,
    actor: impl Fn(u32) -> u32,
    (key, value): (&str, impl Fn(u32) -> String),
) -> Partition {
    let actors: Vec<u32> = rows.clone().map(actor).collect();
    let count = actors.last().map_or(0, |last| last + 1);
    let values = rows.clone().map(|row| json!(value(row))).collect();
    let column = Column::new((0..rows.len() as u32).collect(), values);
    let run = EventRun {
        event: event.to_owned(),
        times: rows.clone().map(|row| START + i64::from(row) * SECOND).collect(),
        actors: actors.into(),
        order: ArrivalOrder::Untied,
        columns: BTreeMap::from([(ColumnKey::Property(key.to_owned()), column)]),
        joined_columns: BTreeMap::new(),
    };
    let first = u128::from(rows.start);
    let ids = (0..count).map(|actor| Uuid::from_u128((first << 64) + u128::from(actor))).collect();
    Partition { actors: Arc::new(ids), runs: vec![run], ..Partition::default() }
}

fn calculate(plan: &Plan, partitions: &[Partition]) -> Result<QueryOutput, CalcError> {
    let mut merged = MergedPartials::default();
    for partition in partitions {
        merged.add(plan.partial(partition, &|| false)?);
    }
    merged.finish(plan)
}

/// Retention by a property of which row `i` has the value number `i`.
fn retention_by_plan(days: u32, columns: usize, limit: usize) -> Plan {
    let entity = json!({"id": "seen", "type": "events"});
    plan(&json!({"kind": "RetentionQuery",
        "dateRange": {"date_from": "2024-05-01", "date_to": format!("2024-05-{days:02}")},
        "breakdownFilter": {"breakdown": "plan", "breakdown_type": "event", "breakdown_limit": limit},
        "retentionFilter": {"period": "Day", "totalIntervals": columns, "targetEntity": entity, "returningEntity": entity}}))
}

/// So many actors, each with an event on the first day and a value of its own.
fn plans(rows: std::ops::Range<u32>) -> Partition {
    let first = rows.start;
    partition("seen", rows, |row| row - first, ("plan", |row| format!("plan {row}")))
}

#[test]
fn a_retention_result_has_at_most_so_many_cells() {
    let (days, columns, values) = (10, 20, 1_000);
    assert_eq!(days as usize * columns * values as usize, retention::limits::RESULT_CELLS);
    let plan = retention_by_plan(days, columns, values as usize);
    let result = calculate(&plan, &[plans(0..values)]).unwrap().result;
    let rows = result.as_array().unwrap();
    assert_eq!(rows.len(), (days * values) as usize);
    assert!(rows.iter().all(|row| row["values"].as_array().unwrap().len() == columns));
    // One more value: the combined other ones.
    let error = calculate(&plan, &[plans(0..values + 1)]).unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("breakdown"));
    assert!(error.detail.contains("200000"), "{error}");
}

#[test]
fn retention_has_at_most_so_many_breakdown_values() {
    let most = BREAKDOWN_VALUES as u32;
    let plan = retention_by_plan(2, 1, 25);
    let half = most / 2;
    for parts in [vec![plans(0..most)], vec![plans(0..half), plans(half..most)]] {
        let result = calculate(&plan, &parts).unwrap().result;
        let counts: Vec<u64> = result
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["values"][0]["count"].as_u64().unwrap())
            .collect();
        assert_eq!(counts.iter().sum::<u64>(), u64::from(most));
        assert_eq!(counts.len(), 26 * 2, "25 values and the others, on two days");
    }
    for parts in [vec![plans(0..most + 1)], vec![plans(0..half), plans(half..most + 1)]] {
        let error = calculate(&plan, &parts).unwrap_err();
        assert_eq!(error.attr.as_deref(), Some("breakdown"));
        assert!(error.detail.contains("100000"), "{error}");
    }
}

/// 1,000 values on 200 days, which end on the day of the events.
#[test]
fn a_trend_has_at_most_so_many_numbers() {
    let (days, values) = (200, 1_000);
    assert_eq!(days * values as usize, trends::limits::RESULT_POINTS);
    let plan = plan(&json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "seen"}],
        "dateRange": {"date_from": "2023-10-15", "date_to": "2024-05-01"},
        "breakdownFilter": {"breakdown": "plan", "breakdown_type": "event", "breakdown_limit": values}}));
    let result = calculate(&plan, &[plans(0..values)]).unwrap().result;
    let rows = result.as_array().unwrap();
    assert_eq!(rows.len(), values as usize);
    assert!(rows.iter().all(|row| row["data"].as_array().unwrap().len() == days));
    // One more value: the combined other ones.
    let error = calculate(&plan, &[plans(0..values + 1)]).unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("breakdown"));
    assert!(error.detail.contains("200000"), "{error}");
}

/// Ten series of 100 days are the limit of periods.
#[test]
fn a_funnel_over_time_leaves_out_further_series() {
    let (days, values) = (100, 10);
    assert_eq!(days * values as usize, funnels::limits::FUNNEL_POINTS);
    let series = json!([{"kind": "EventsNode", "event": "seen"}, {"kind": "EventsNode", "event": "other"}]);
    let plan =
        plan(&json!({"kind": "FunnelsQuery", "series": series, "funnelsFilter": {"funnelVizType": "trends"},
        "dateRange": {"date_from": "2024-01-23", "date_to": "2024-05-01"},
        "breakdownFilter": {"breakdown": "plan", "breakdown_type": "event", "breakdown_limit": 25}}));
    for (count, shown) in [(values - 1, 9), (values, 10), (values + 1, 10)] {
        let result = calculate(&plan, &[plans(0..count)]).unwrap().result;
        let rows = result.as_array().unwrap();
        assert_eq!(rows.len(), shown, "{count} values");
        assert!(rows.iter().all(|row| row["data"].as_array().unwrap().len() == days));
    }
}

/// One person visits a million addresses, one after the other.
#[test]
fn paths_of_a_million_addresses_are_at_the_limit() {
    let url = |row: u32| format!("https://shop.example.com/p/{row}");
    let visits = |rows| partition("$pageview", rows, |_| 0, ("$current_url", url));
    let steps = paths::limits::PASSAGES as u32 + 1;
    let plan = plan(
        &json!({"kind": "PathsQuery", "dateRange": {"date_from": "2024-05-01", "date_to": "2024-05-30"},
        "pathsFilter": {"includeEventTypes": ["$pageview"], "stepLimit": 2 * steps}}),
    );
    let million = plan.partial(&visits(0..steps), &|| false).unwrap();
    plan.finish(million.clone(), &|| false).unwrap();
    // Another person goes from the first address to the second one as well, or from the second one to the third.
    let same = plan.partial(&visits(0..2), &|| false).unwrap();
    plan.finish(million.clone().merge(same), &|| false).unwrap();
    let other = plan.partial(&visits(1..3), &|| false).unwrap();
    let over_limit = decoded(&decoded(&million).merge(decoded(&other)));
    let error = plan.finish(over_limit, &|| false).unwrap_err();
    for word in ["1000000", "path cleaning", "pathGroupings", "stepLimit"] {
        assert!(error.detail.contains(word), "{error}");
    }
}

#[test]
fn the_documentation_has_these_limits() {
    let page = include_str!("../../../../docs/insights.md");
    let documented = |limit_of: &str| {
        let row = page.lines().find(|line| line.starts_with(&format!("| {limit_of}"))).unwrap();
        row.split('|').nth(2).unwrap().trim().replace(',', "")
    };
    assert_eq!(
        documented("cells of retention"),
        format!("{}; {}", retention::limits::CELLS, retention::limits::RESULT_CELLS)
    );
    assert_eq!(documented("columns of retention"), retention::limits::COLUMNS.to_string());
    assert_eq!(documented("distinct breakdown values of retention"), BREAKDOWN_VALUES.to_string());
    assert_eq!(
        documented("distinct pairs of neighbouring steps of paths"),
        paths::limits::PASSAGES.to_string()
    );
}
