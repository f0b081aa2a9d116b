//! Any input is handled: queries with random fields and random values are rejected or calculated, and never panic.

use pennon_analytics::kinds::decode_and_validate_query;
use pennon_analytics::refresh::{freshness, next_allowed_client_refresh};
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::World;

/// Words with a meaning in some field, so that random queries are not all rejected at their first field.
const WORDS: &[&str] = &[
    "a",
    "AND",
    "OR",
    "XOR",
    "event",
    "person",
    "exact",
    "regex",
    "(",
    "between",
    "is_date_before",
    "-7d",
    "all",
    "2024-01-01",
    "9999-12-31T23:59:59+23:59",
    "0001-01-01",
    "-9999y",
    "99999999999999h",
    "hour",
    "minute",
    "month",
    "dau",
    "total",
    "[]",
    "{\"a\": 1}",
    "[{\"key\": \"k\", \"value\": 1}]",
    "BoldNumber",
    "ActionsLineGraphCumulative",
    "true",
    "steps",
    "trends",
    "time_to_convert",
    "strict",
    "unordered",
    "step",
    "all_events",
    "first_time_for_user",
    "group",
    "cohort",
    "second",
    "Week",
    "retention_first_time",
    "retention_first_ever_occurrence",
    "24_hour_windows",
    "sum",
    "$pageview",
    "custom_event",
    "properties.k",
    "funnel_path_after_step",
    "funnel_path_between_steps",
    "1_a",
    "*",
    "\\1",
    "cumulative",
    "gte",
    "hogql",
    "unique_group",
    "Stickiness",
    "LIFECYCLE",
    "dormant",
    "",
];

const FIELDS: &[&str] = &[
    "events",
    "actions",
    "properties",
    "date_from",
    "date_to",
    "explicit_date",
    "interval",
    "display",
    "smoothing_intervals",
    "filter_test_accounts",
    "breakdown",
    "compare",
    "formula",
    "funnel_window_interval",
    "funnel_window_interval_unit",
    "funnel_from_step",
    "funnel_to_step",
    "exclusions",
    "funnel_order_type",
    "funnel_viz_type",
    "bin_count",
    "breakdown_type",
    "breakdown_limit",
    "breakdown_attribution_type",
    "breakdown_attribution_value",
    "aggregation_group_type_index",
    "optionalInFunnel",
    "funnel_step",
    "funnel_step_breakdown",
    "funnel_breakdown_kept",
    "entrance_period_start",
    "drop_off",
    "breakdownFilter",
    "funnelVizType",
    "funnelOrderType",
    "id",
    "type",
    "values",
    "key",
    "value",
    "operator",
    "order",
    "math",
    "kind",
    "series",
    "source",
    "dateRange",
    "trendsFilter",
    "funnelsFilter",
    "event",
    "retentionFilter",
    "targetEntity",
    "returningEntity",
    "period",
    "totalIntervals",
    "retentionType",
    "minimumOccurrences",
    "cumulative",
    "retentionCustomBrackets",
    "timeWindowMode",
    "aggregationType",
    "aggregationProperty",
    "target_entity",
    "returning_entity",
    "total_intervals",
    "retention_type",
    "time_window_mode",
    "selected_interval",
    "return_interval",
    "breakdown_value",
    "include_event_types",
    "paths_hogql_expression",
    "exclude_events",
    "local_path_cleaning_filters",
    "path_groupings",
    "start_point",
    "end_point",
    "step_limit",
    "min_edge_weight",
    "path_end_key",
    "funnel_paths",
    "funnel_filter",
    "regex",
    "alias",
    "stepLimit",
    "pathGroupings",
    "funnelPathType",
    "funnelSource",
    "funnelStep",
    "pathsFilter",
    "funnelPathsFilter",
    "intervalCount",
    "stickinessFilter",
    "stickinessCriteria",
    "computedAs",
    "stickiness_days",
    "entity_order",
    "compareFilter",
    "math_hogql",
    "math_group_type_index",
    "lifecycleFilter",
    "target_date",
    "lifecycle_type",
];

fn values() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(WORDS).prop_map(|word| json!(word));
    let leaf = prop_oneof![
        4 => word,
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(|value| json!(value)),
        2 => prop::sample::select(vec![0_i64, 1, 2, -1, 14, i64::MAX, i64::MIN]).prop_map(|value| json!(value)),
        1 => prop::sample::select(vec![0.5, 1e300, -1e-300]).prop_map(|value| json!(value)),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let object =
            prop::collection::vec((prop::sample::select(FIELDS), inner.clone()), 0..5).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            });
        prop_oneof![prop::collection::vec(inner, 0..4).prop_map(Value::Array), object]
    })
}

/// A request with one or two valid events and some random fields.
fn requests() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec((prop::sample::select(FIELDS), values()), 0..6).prop_map(|fields| {
        let events = json!([{"id": "a"}, {"id": null, "order": 1, "math": "dau"}]);
        let mut request = Map::from_iter([("events".to_owned(), events)]);
        request.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
        request
    })
}

fn world() -> World {
    let event = |name: &str, time: &str| json!({"event": name, "distinct_id": "d", "timestamp": time, "properties": {"k": 1}});
    World::of_case(&json!({
        "now": "2024-01-02T00:00:00Z", "project": {"timezone": "Europe/Berlin"}, "persons": [],
        "events": [event("a", "2024-01-01T00:00:00Z"), event("b", "2024-01-01T00:00:00Z")],
    }))
}

fn check_calculation(world: &World, parsed: Result<ParsedQuery, CalcError>) {
    let Ok(ParsedQuery::Query(query)) = parsed else { return };
    assert!(!query.describe().is_empty() && !query.normalised().is_empty());
    let _ = query.to_insight_filters();
    let _ = freshness(&query, &world.project, world.now, world.now);
    let _ = next_allowed_client_refresh(&query, &world.project, world.now, world.now);
    let calculated = world.calculate(&query, 1);
    if let (Ok(result), Query::Trends(trends)) = (&calculated, &query) {
        // An action that does not exist has no series; one has two when periods are compared.
        let most = 2 * trends.series.len();
        assert!(trends.common.breakdown.is_some() || result.as_array().unwrap().len() <= most);
    }
}

/// Lists the persons behind the number that the request selects.
fn check_people(world: &World, parsed: Result<ParsedQuery, CalcError>, request: &Map<String, Value>) {
    let Ok(ParsedQuery::Query(query)) = parsed else { return };
    let (Ok(selector), Ok(plan)) = (query.data_point(request), query.plan(&world.project, world.now)) else {
        return;
    };
    let facts = world.facts(&plan);
    for partition in plan.join(world.partitions(plan.scan(), 1), facts, &|| false).unwrap() {
        let people = plan.people(&partition, &selector, &|| false);
        assert!(people.map_or(0, |people| people.len()) <= partition.actors.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_request_is_rejected_or_calculated(request in requests()) {
        let world = world();
        check_calculation(&world, InsightKind::Trends.parse_request(&request));
        check_calculation(&world, InsightKind::Funnels.parse_request(&request));
        check_people(&world, InsightKind::Funnels.parse_request(&request), &request);
        for kind in [InsightKind::Retention, InsightKind::Paths, InsightKind::Stickiness, InsightKind::Lifecycle] {
            check_calculation(&world, kind.parse_request(&request));
            check_people(&world, kind.parse_people_request(&request), &request);
        }
        check_calculation(&world, Query::from_insight_filters(&request));
    }

    #[test]
    fn every_node_is_rejected_or_calculated(
        fields in requests(),
        kind in prop::sample::select(vec![
            "FunnelsQuery", "TrendsQuery", "RetentionQuery", "PathsQuery", "StickinessQuery", "LifecycleQuery",
        ]),
        any in values(),
    ) {
        let world = world();
        let mut node = json!({"kind": kind, "series": [{"event": "a"}]});
        node.as_object_mut().unwrap().extend(fields.into_iter().filter(|(key, _)| key != "kind"));
        let _ = decode_and_validate_query(&node);
        check_calculation(&world, Query::from_query_node(&node));
        let _ = decode_and_validate_query(&any);
        check_calculation(&world, Query::from_query_node(&any));
    }
}
