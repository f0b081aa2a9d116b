//! How requests and nodes are parsed to queries: what is accepted, what is rejected, and with which error.

use pennon_analytics::kinds::{decode_and_validate_query, validate_node};
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::{CalcError, ErrorKind};
use serde_json::{Map, Value, json};

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}

fn trend(body: &Value) -> Result<ParsedQuery, CalcError> {
    InsightKind::Trends.parse_request(object(body))
}

fn funnel(body: &Value) -> Result<ParsedQuery, CalcError> {
    InsightKind::Funnels.parse_request(object(body))
}

fn query(parsed: Result<ParsedQuery, CalcError>) -> Query {
    match parsed.unwrap() {
        ParsedQuery::Query(query) => query,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_and_its_node_are_the_same_query() {
    let request = json!({
        "events": "[{\"id\": \"b\", \"order\": \"2\", \"math\": \"dau\"}, \"dropped\", {\"id\": \"a\", \"properties\": {\"p__icontains\": 5}}]",
        "properties": "[{\"key\": \"q\", \"value\": [\"x\", null], \"type\": \"events\"}, {\"key\": \"incomplete\"}]",
        "date_from": "-14d", "interval": "WEEK", "filter_test_accounts": "true",
        "insight": "TRENDS", "smoothing_intervals": "1", "compare": "false", "formula": "", "breakdown": null,
    });
    let node = json!({"kind": "InsightVizNode", "source": {
        "kind": "TrendsQuery", "interval": "week", "filterTestAccounts": true,
        "dateRange": {"date_from": "-14d", "date_to": null},
        "properties": {"type": "AND", "values": [{"type": "AND", "values": [{"key": "q", "value": ["x"]}]}]},
        "series": [
            {"event": "a", "properties": [{"key": "p", "value": 5, "operator": "icontains"}]},
            {"kind": "EventsNode", "event": "b", "math": "dau", "somethingNew": 1},
        ],
        "trendsFilter": {"showLegend": true},
    }});
    let (request, node) = (query(trend(&request)), query(Query::from_query_node(&node)));
    assert_eq!(request.normalised(), node.normalised());
    assert_eq!(request.to_insight_filters(), node.to_insight_filters());
    assert!(request.describe().contains("count(DISTINCT person_id)"));
}

#[test]
fn series_are_sorted_by_order_across_events_and_actions() {
    let body = json!({"events": [{"id": "c", "order": 3}, {"id": "first"}, {"id": "b", "order": 1}, {"id": "zero", "order": 0}]});
    let names: Vec<_> =
        query(trend(&body)).series().iter().map(|series| series.event_or_action.id()).collect();
    assert_eq!(names, ["first", "zero", "b", "c"]);
}

#[test]
fn requests_without_series_and_of_other_kinds_are_distinguished() {
    assert_eq!(trend(&json!({})).unwrap(), ParsedQuery::Empty);
    assert_eq!(trend(&json!({"events": [], "actions": "[{\"id\": null}]"})).unwrap(), ParsedQuery::Empty);
    assert_eq!(funnel(&json!({"events": ["dropped"]})).unwrap(), ParsedQuery::Empty);
    let kind = |node: Value| Query::from_query_node(&node).unwrap();
    assert_eq!(kind(json!({"kind": "WebStatsQuery"})), ParsedQuery::OtherKind("WebStatsQuery".into()));
    let wrapped = json!({"kind": "DataTableNode", "source": {"kind": "HogQLQuery", "query": "select 1"}});
    assert_eq!(kind(wrapped), ParsedQuery::OtherKind("HogQLQuery".into()));
    let filters = json!({"insight": "JSON", "events": [{"id": "a"}]});
    assert_eq!(Query::from_insight_filters(object(&filters)).unwrap(), ParsedQuery::OtherKind("JSON".into()));
}

#[test]
fn unsupported_fields_that_change_numbers_are_rejected_by_name() {
    let refused = |parsed: Result<ParsedQuery, CalcError>, attr: &str| {
        let error = parsed.unwrap_err();
        assert_eq!((error.kind, error.code), (ErrorKind::Validation, "invalid_input"), "{error}");
        assert_eq!(error.attr.as_deref(), Some(attr), "{error}");
        assert!(error.detail.starts_with("Not supported yet: "), "{error}");
    };
    let with = |extra: Value| {
        let mut body = json!({"events": [{"id": "a"}, {"id": "b"}]});
        body.as_object_mut().unwrap().extend(object(&extra).clone());
        body
    };
    for (attr, extra) in [
        ("events", json!({"events": [{"id": "a", "math": "first_matching_event_for_user"}]})),
        ("display", json!({"display": "CalendarHeatmap"})),
    ] {
        refused(trend(&with(extra)), attr);
    }
    for (attr, extra) in [
        ("funnel_viz_type", json!({"funnel_viz_type": "flow"})),
        ("funnel_aggregate_by_hogql", json!({"funnel_aggregate_by_hogql": "properties.$session_id"})),
    ] {
        refused(funnel(&with(extra)), attr);
    }
}

#[test]
fn fields_without_effect_are_accepted() {
    let body = json!({
        "events": [{"id": "a", "math": "sum", "math_property": "x"}, {"id": null}], "funnel_viz_type": "steps",
        "display": "ActionsLineGraph", "layout": "vertical", "funnel_step_reference": "previous", "new_entities": [{"id": 1}],
        "aggregation_group_type_index": 0, "bin_count": 7, "sampling_factor": 0.1, "funnel_window_days": "7",
        "breakdown_type": "event", "drop_off": true, "funnel_step": 2, "who_knows": {},
    });
    match query(funnel(&body)) {
        Query::Funnels(funnel) => assert_eq!(funnel.window.micros(), 7 * 86_400 * 1_000_000),
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_about_invalid_values_name_the_field() {
    let refused = |parsed: Result<ParsedQuery, CalcError>, attr: &str| {
        let error = parsed.unwrap_err();
        assert_eq!(error.attr.as_deref(), Some(attr), "{error}");
        assert!(!error.detail.starts_with("Not supported"), "{error}");
    };
    let events = json!([{"id": "a"}]);
    refused(trend(&json!({"events": "[{"})), "events");
    refused(trend(&json!({"events": 5})), "events");
    refused(trend(&json!({"events": [{"id": {}}]})), "events");
    refused(trend(&json!({"events": vec![json!({"id": "a"}); 27]})), "events");
    refused(trend(&json!({"events": events, "interval": "year"})), "interval");
    refused(trend(&json!({"events": events, "interval": 5})), "interval");
    refused(trend(&json!({"events": events, "date_from": 5})), "date_from");
    refused(trend(&json!({"events": events, "smoothing_intervals": 0})), "smoothing_intervals");
    refused(
        trend(
            &json!({"events": events, "properties": {"type": "XOR", "values": [{"key": "a", "value": 1}]}}),
        ),
        "properties",
    );
    let world = crate::support::World::of_case(&json!({"persons": [], "events": []}));
    for filter in [
        json!({"key": "a", "operator": "like", "value": 1}),
        json!({"key": "a", "operator": "semver_gt", "value": "one"}),
        json!({"key": "a", "operator": "between", "value": [2, 1]}),
        json!({"key": "a", "type": "recording", "value": 1}),
        json!({"key": "a", "type": "data_warehouse", "value": 1}),
        json!({"key": "uuid", "type": "event_metadata", "value": 1}),
        json!({"key": "$group_5", "type": "event_metadata", "value": 1}),
    ] {
        let filter = json!({"events": events, "properties": [filter], "date_from": "-7d"});
        let parsed = trend(&filter).and_then(|parsed| match parsed {
            ParsedQuery::Query(query) => query.plan(&world.project, world.now).map(|_| ParsedQuery::Empty),
            other => Ok(other),
        });
        refused(parsed, "properties");
    }
    refused(trend(&json!({"events": events, "breakdowns": [{}, {}, {}, {}]})), "breakdowns");
    refused(funnel(&json!({"events": events, "funnel_window_interval": "soon"})), "funnel_window_interval");
    refused(
        funnel(&json!({"events": events, "funnel_window_interval": 1_000_000_000_000_i64})),
        "funnel_window_interval",
    );
    refused(funnel(&json!({"events": events, "funnel_order_type": "random"})), "funnel_order_type");
    let unparsable = trend(&json!({"events": events, "properties": "{oops"})).unwrap_err();
    assert_eq!(unparsable.detail, "Properties are unparsable!");
    let unit = funnel(&json!({"events": events, "funnel_window_interval_unit": "fortnight"})).unwrap_err();
    assert_eq!(unit.detail, "fortnight not supported");
    let mut nested = json!([{"key": "a", "value": 1}]);
    for _ in 0..60 {
        nested = json!([{"type": "AND", "values": nested}]);
    }
    refused(trend(&json!({"events": events, "properties": nested})), "properties");
}

#[test]
fn funnel_errors_have_the_texts_of_the_contract() {
    let steps = |count: usize| {
        (0..count).map(|step| json!({"id": format!("s{step}"), "order": step})).collect::<Vec<_>>()
    };
    let with = |extra: Value| {
        let mut body = json!({"events": steps(3)});
        body.as_object_mut().unwrap().extend(object(&extra).clone());
        funnel(&body).unwrap_err()
    };
    let exclude = |id: &str, from: i64, to: i64| {
        with(json!({"exclusions": [{"id": id, "type": "events", "funnel_from_step": from, "funnel_to_step": to}]})).detail
    };
    assert_eq!(
        exclude("x", 1, 1),
        "Exclusion event range is invalid. End of range should be greater than start."
    );
    assert_eq!(
        exclude("x", 2, 3),
        "Exclusion event range is invalid. Start of range is greater than number of steps."
    );
    assert_eq!(
        exclude("x", 0, 3),
        "Exclusion event range is invalid. End of range is greater than number of steps."
    );
    assert_eq!(exclude("s1", 0, 2), "Exclusion steps cannot contain an event that's part of funnel steps.");
    let none = with(json!({"exclusions": [{"id": "x", "type": "events", "funnel_from_step": 0}]}));
    assert_eq!(none.detail, "Exclusion event needs to define funnel steps");
    let to = with(json!({"funnel_to_step": 3}));
    assert_eq!((to.code, to.attr), ("funnel_step_range_invalid", None));
    assert!(to.detail.starts_with("funnelToStep is out of bounds."));
    assert!(with(json!({"funnel_from_step": 2})).detail.starts_with("funnelFromStep is out of bounds."));
    let range = with(json!({"funnel_from_step": 1, "funnel_to_step": 1})).detail;
    assert_eq!(range, "Funnel step range is invalid. funnelToStep should be greater than funnelFromStep.");
    let many = funnel(&json!({"events": steps(33)})).unwrap_err();
    assert_eq!(
        (many.code, many.detail.as_str()),
        ("funnel_max_steps_exceeded", "Funnels support up to 32 steps.")
    );
    assert!(funnel(&json!({"events": steps(32)})).is_ok());
    assert!(funnel(&json!({"events": steps(1)})).is_ok());
}

#[test]
fn windows_have_defaults_and_units_ignore_case() {
    let micros = |extra: Value| {
        let mut body = json!({"events": [{"id": "a"}]});
        body.as_object_mut().unwrap().extend(object(&extra).clone());
        match query(funnel(&body)) {
            Query::Funnels(funnel) => funnel.window.micros() / 1_000_000,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(micros(json!({})), 14 * 86_400);
    assert_eq!(micros(json!({"funnel_window_interval": 0})), 14 * 86_400);
    assert_eq!(
        micros(json!({"funnel_window_interval": "3", "funnel_window_interval_type": "HOURS"})),
        3 * 3_600
    );
    assert_eq!(
        micros(
            json!({"funnel_window_interval": 1, "funnel_window_interval_type": "hour", "funnel_window_interval_unit": "Month"})
        ),
        31 * 86_400
    );
    assert_eq!(micros(json!({"funnel_window_interval": 2, "funnel_window_days": 9})), 2 * 86_400);
}

#[test]
fn only_valid_query_nodes_are_stored() {
    let viz = |source: Value| json!({"kind": "InsightVizNode", "source": source});
    let trends = |extra: Value| {
        let mut source = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "a"}]});
        source.as_object_mut().unwrap().extend(object(&extra).clone());
        source
    };
    for good in [
        trends(json!({})),
        viz(trends(
            json!({"interval": null, "newField": {"x": 1}, "trendsFilter": {"display": "BoldNumber"}}),
        )),
        viz(json!({"kind": "FunnelsQuery", "series": [{"event": "a"}, {"kind": "ActionsNode", "id": 3}]})),
        json!({"kind": "RetentionQuery"}),
        json!({"kind": "DataTableNode", "source": {"kind": "HogQLQuery", "query": "select 1"}}),
        json!({"kind": "SavedInsightNode", "shortId": "abc"}),
        trends(json!({"breakdownFilter": {"breakdown": "$browser"}, "compareFilter": {"compare": true}})),
        trends(json!({"breakdownFilter": {"breakdown": "a", "breakdown_type": "data_warehouse"}})),
        trends(json!({"trendsFilter": {"yAxisScaleType": "log10"}})),
        trends(json!({"properties": {"type": "AND", "values": [{"type": "OR", "values": [
            {"key": "a", "value": "b", "operator": "icontains", "type": "event"},
            {"key": "f", "value": true, "operator": "flag_evaluates_to", "type": "flag"},
            {"key": "c", "value": null, "operator": null}, {}]}]}})),
    ] {
        validate_node(&good).unwrap_or_else(|error| panic!("{good}: {error}"));
    }
    for bad in [
        json!({"series": []}),
        json!({"kind": "Nonsense"}),
        json!({"kind": 5}),
        json!([1, 2]),
        json!({"kind": "InsightVizNode"}),
        viz(json!("TrendsQuery")),
        viz(json!({"kind": "TrendsQuery"})),
        viz(json!({"kind": "TrendsQuery", "series": {}})),
        viz(json!({"kind": "FunnelsQuery", "series": [{"kind": "Bogus"}]})),
        viz(json!({"kind": "FunnelsQuery", "series": [{"kind": "ActionsNode", "id": "x"}]})),
        trends(json!({"interval": "fortnight"})),
        trends(json!({"dateRange": "-7d"})),
        trends(json!({"trendsFilter": {"display": "Cake"}})),
        trends(json!({"filterTestAccounts": "true"})),
        trends(json!({"breakdownFilter": {"breakdown": "a", "breakdown_type": "bogus"}})),
        trends(json!({"trendsFilter": {"yAxisScaleType": "cubic"}})),
        trends(json!({"properties": [{"key": "a", "value": 1, "operator": "resembles", "type": "event"}]})),
        trends(json!({"properties": [{"key": "a", "value": 1, "operator": 7, "type": "event"}]})),
        trends(json!({"properties": [{"key": "a", "value": 1, "type": "bogus"}]})),
        trends(json!({"properties": {"type": "XOR", "values": []}})),
        trends(json!({"series": [{"event": "a", "properties": [{"key": "a", "operator": "resembles"}]}]})),
    ] {
        let error = validate_node(&bad).unwrap_err();
        assert_eq!((error.kind, error.code), (ErrorKind::Parse, "parse_error"), "{bad}");
    }
    let text = json!("{\"kind\":\"TrendsQuery\",\"series\":[]}");
    assert_eq!(decode_and_validate_query(&text).unwrap().unwrap()["kind"], json!("TrendsQuery"));
    assert_eq!(decode_and_validate_query(&Value::Null).unwrap(), None);
    assert!(decode_and_validate_query(&json!("not json")).is_err());
    assert!(decode_and_validate_query(&json!("5")).is_err());
}
