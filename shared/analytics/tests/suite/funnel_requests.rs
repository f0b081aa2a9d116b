//! Requests for funnels: both dialects, errors with the contract's texts, and which fields change the cache key.

use std::collections::BTreeSet;

use pennon_analytics::kinds::funnels::{Attribution, FunnelVizType, StepOrder};
use pennon_analytics::query::{BreakdownBy, DimensionSource};
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Value, json};

fn body(extra: &Value) -> Value {
    let steps = ["a", "b", "c"].iter().enumerate().map(|(order, id)| json!({"id": id, "order": order}));
    let mut body = json!({"events": steps.collect::<Vec<_>>()});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn parse_with(extra: &Value) -> Result<Query, CalcError> {
    parsed(InsightKind::Funnels.parse_request(body(extra).as_object().unwrap()))
}

fn parsed(parsed: Result<ParsedQuery, CalcError>) -> Result<Query, CalcError> {
    match parsed? {
        ParsedQuery::Query(query) => Ok(query),
        other => panic!("{other:?}"),
    }
}

fn node(mut node: Value) -> Query {
    node["kind"] = json!("FunnelsQuery");
    parsed(Query::from_query_node(&node)).unwrap()
}

#[test]
fn a_request_and_its_node_are_the_same_query() {
    let request = json!({
        "events": [
            {"id": "a", "order": 0, "math": "first_time_for_user", "custom_name": "A"},
            {"id": "b", "order": 1, "optionalInFunnel": true, "math": "dau"},
            {"id": null, "order": 2, "properties": [{"key": "p", "value": "1"}]},
        ],
        "funnel_order_type": "strict", "funnel_viz_type": "steps", "funnel_from_step": "0", "funnel_to_step": 1,
        "funnel_window_interval": 3, "funnel_window_interval_type": "Hours", "bin_count": 500,
        "breakdown": "[\"k\", \"l\"]", "breakdown_type": "events", "breakdown_attribution_type": "step",
        "breakdown_attribution_value": "1", "breakdown_limit": 10, "aggregation_group_type_index": 2,
        "exclusions": [{"id": "x", "type": "events", "funnel_from_step": 0, "funnel_to_step": 2}],
        "date_from": "-3d", "filter_test_accounts": true, "interval": "week",
    });
    let same = json!({
        "series": [
            {"kind": "EventsNode", "event": "a", "math": "first_time_for_user", "custom_name": "A"},
            {"kind": "EventsNode", "event": "b", "optionalInFunnel": true},
            {"kind": "EventsNode", "event": null, "properties": [{"key": "p", "value": "1", "operator": "exact", "type": "event"}]},
        ],
        "dateRange": {"date_from": "-3d"}, "filterTestAccounts": true, "interval": "week",
        "aggregation_group_type_index": 2,
        "breakdownFilter": {"breakdown": ["k", "l"], "breakdown_type": "event", "breakdown_limit": 10},
        "funnelsFilter": {
            "funnelOrderType": "strict", "funnelFromStep": 0, "funnelToStep": 1, "funnelWindowInterval": 3,
            "funnelWindowIntervalUnit": "hour", "binCount": 90, "breakdownAttributionType": "step",
            "breakdownAttributionValue": 1,
            "exclusions": [{"kind": "FunnelExclusionEventsNode", "event": "x", "funnelFromStep": 0, "funnelToStep": 2}],
        },
    });
    let request = parsed(InsightKind::Funnels.parse_request(request.as_object().unwrap())).unwrap();
    assert_eq!(request.normalised(), node(same).normalised());
    // Its legacy form is the same query.
    let again = parsed(InsightKind::Funnels.parse_request(&request.to_insight_filters())).unwrap();
    assert_eq!(again.normalised(), request.normalised());
}

#[test]
fn breakdowns_have_ten_values_in_requests_and_twenty_five_in_nodes() {
    let limit = |query: Query| query.common().breakdown.as_ref().unwrap().limit;
    assert_eq!(limit(parse_with(&json!({"breakdown": "k"})).unwrap()), Some(10));
    assert_eq!(limit(parse_with(&json!({"breakdown": "k", "breakdown_limit": "3"})).unwrap()), Some(3));
    let series = json!([{"event": "a"}]);
    assert_eq!(limit(node(json!({"series": series, "breakdownFilter": {"breakdown": "k"}}))), Some(25));
}

#[test]
fn group_type_zero_means_persons_in_requests_only() {
    let group = |query: &Query| match query {
        Query::Funnels(funnel) => funnel.group_type_index,
        other => panic!("{other:?}"),
    };
    for (index, want) in [(json!(null), None), (json!(0), None), (json!("0"), None), (json!(1), Some(1))] {
        assert_eq!(group(&parse_with(&json!({"aggregation_group_type_index": index})).unwrap()), want);
    }
    let zero = node(json!({"series": [{"event": "a"}], "aggregation_group_type_index": 0}));
    assert_eq!(group(&zero), Some(0));
    // A link, which is a request, keeps it.
    assert_eq!(
        group(&parsed(InsightKind::Funnels.parse_request(&zero.to_insight_filters())).unwrap()),
        Some(0)
    );
    for wrong in [json!(5), json!(-1), json!("x"), json!(1.5)] {
        let error = parse_with(&json!({"aggregation_group_type_index": wrong})).unwrap_err();
        assert_eq!(error.attr.as_deref(), Some("aggregation_group_type_index"));
    }
}

#[test]
fn the_result_type_depends_on_funnel_viz_type_and_then_on_display() {
    let viz = |extra: Value| match parse_with(&extra).unwrap() {
        Query::Funnels(funnel) => (funnel.viz, funnel.common.interval.name()),
        other => panic!("{other:?}"),
    };
    assert_eq!(viz(json!({})), (FunnelVizType::Steps, "day"));
    assert_eq!(viz(json!({"display": "ActionsLineGraph"})), (FunnelVizType::Trends, "day"));
    assert_eq!(
        viz(json!({"display": "ActionsLineGraph", "funnel_viz_type": "steps"})),
        (FunnelVizType::Steps, "day")
    );
    assert_eq!(viz(json!({"funnel_viz_type": "time_to_convert"})), (FunnelVizType::TimeToConvert, "day"));
    assert_eq!(
        viz(json!({"funnel_viz_type": "trends", "interval": "minute"})),
        (FunnelVizType::Trends, "hour")
    );
}

#[test]
fn attribution_is_parsed_only_with_a_breakdown() {
    let of = |extra: Value| match parse_with(&extra).map_err(|error| error.detail)? {
        Query::Funnels(funnel) => Ok((funnel.attribution, funnel.order)),
        other => panic!("{other:?}"),
    };
    let step = |value: Value, order: &str| {
        json!({"breakdown": "k", "breakdown_attribution_type": "step", "breakdown_attribution_value": value,
            "funnel_order_type": order})
    };
    assert_eq!(of(json!({"breakdown": "k"})), Ok((Attribution::FirstTouch, StepOrder::Ordered)));
    assert_eq!(of(step(json!("2"), "ordered")), Ok((Attribution::Step(2), StepOrder::Ordered)));
    assert_eq!(of(step(json!(0), "unordered")), Ok((Attribution::Step(0), StepOrder::Unordered)));
    let refusal = "Only the first step can be used for breakdown attribution in unordered funnels";
    assert_eq!(of(step(json!(1), "unordered")), Err(refusal.to_owned()));
    for wrong in [json!(3), json!(-1), json!(null), json!("x")] {
        assert!(of(step(wrong.clone(), "ordered")).is_err(), "{wrong}");
    }
    let none = json!({"breakdown_attribution_type": "step", "breakdown_attribution_value": 7});
    assert_eq!(of(none), Ok((Attribution::FirstTouch, StepOrder::Ordered)));
    let cohorts = json!({"breakdown": [1, "all"], "breakdown_type": "cohort", "breakdown_attribution_type": "last_touch"});
    assert_eq!(of(cohorts), Ok((Attribution::FirstTouch, StepOrder::Ordered)));
    assert!(of(json!({"breakdown": "k", "breakdown_attribution_type": "middle_touch"})).is_err());
}

#[test]
fn errors_have_the_texts_of_the_contract() {
    let refused = |extra: Value| parse_with(&extra).unwrap_err();
    let excluded = |id: &str, from: i64, to: i64, order: &str| {
        let entry = json!({"id": id, "type": "events", "funnel_from_step": from, "funnel_to_step": to});
        refused(json!({"exclusions": [entry], "funnel_order_type": order})).detail
    };
    for (from, to) in [(0, 1), (1, 2)] {
        assert_eq!(
            excluded("x", from, to, "unordered"),
            "Partial Exclusions not allowed in unordered funnels"
        );
    }
    // The range is validated first, for any event.
    let range = "Exclusion event range is invalid. End of range should be greater than start.";
    assert_eq!(excluded("a", 1, 1, "unordered"), range);
    for to in [0, 3] {
        let text = "Filter parameter funnel_to_step can only be one of 1, 2 for time to convert!";
        let error = refused(json!({"funnel_viz_type": "time_to_convert", "funnel_to_step": to}));
        assert_eq!(error.detail, text);
    }
}

#[test]
fn too_many_steps_are_rejected_with_the_error_of_the_result_type() {
    let refused = |viz: &str, steps: usize| {
        let steps: Vec<Value> = (0..steps).map(|order| json!({"id": "a", "order": order})).collect();
        parse_with(&json!({"events": steps, "funnel_viz_type": viz}))
            .map_err(|error| (error.code, error.detail))
    };
    for viz in ["steps", "trends"] {
        assert!(refused(viz, 32).is_ok(), "{viz}");
    }
    let (code, detail) = refused("steps", 33).unwrap_err();
    assert_eq!((code, &detail[..]), ("funnel_max_steps_exceeded", "Funnels support up to 32 steps."));
    let (code, detail) = refused("trends", 33).unwrap_err();
    assert_ne!(code, "funnel_max_steps_exceeded");
    assert_eq!(detail, "Not supported yet: funnels over time of more than 32 steps.");
}

#[test]
fn an_entry_of_breakdowns_takes_missing_fields_from_the_request() {
    let parts = |extra: Value| match parse_with(&extra).unwrap().common().breakdown.clone().unwrap().by {
        BreakdownBy::Dimensions { dimensions: parts, .. } => parts,
        other => panic!("{other:?}"),
    };
    let url = parts(
        json!({"breakdowns": [{"property": "$current_url", "type": "event"}], "breakdown_normalize_url": true}),
    );
    assert!(url[0].normalize_url);
    let own = json!([{"property": "$current_url", "type": "event", "normalize_url": false}]);
    assert!(!parts(json!({"breakdowns": own, "breakdown_normalize_url": true}))[0].normalize_url);
    let group = json!([{"property": "industry", "type": "group"}]);
    let group = parts(json!({"breakdowns": group, "breakdown_group_type_index": "1"}));
    assert_eq!(group[0].source, DimensionSource::Group(1, "industry".to_owned()));
    let own = json!([{"property": "industry", "type": "group", "group_type_index": 2}]);
    let own = parts(json!({"breakdowns": own, "breakdown_group_type_index": 1}));
    assert_eq!(own[0].source, DimensionSource::Group(2, "industry".to_owned()));
}

#[test]
fn blank_texts_do_not_override_other_fields() {
    let window = |extra: Value| match parse_with(&extra).unwrap() {
        Query::Funnels(funnel) => funnel.window.micros() / 1_000_000,
        other => panic!("{other:?}"),
    };
    assert_eq!(window(json!({"funnel_window_interval": "", "funnel_window_days": 1})), 86_400);
    let unit = json!({"funnel_window_interval": 2, "funnel_window_interval_unit": "", "funnel_window_interval_type": "hour"});
    assert_eq!(window(unit), 7_200);
}

#[test]
fn optional_steps_are_rejected_if_they_have_no_meaning() {
    let steps = |steps: Value, extra: Value| {
        let mut extra = extra;
        extra["events"] = steps;
        parse_with(&extra).map(|_| ()).map_err(|error| {
            assert_eq!(error.code, "funnel_optional_steps_invalid");
            error.detail
        })
    };
    let optional = |id: &str, order: u32| json!({"id": id, "order": order, "optionalInFunnel": true});
    let required = |id: &str, order: u32| json!({"id": id, "order": order});
    let fine = json!([required("a", 1), optional("b", 2), required("c", 3)]);
    let only = "Optional funnel steps are only supported in funnels with step order Sequential or Strict and the graph \
        type \"Conversion Steps\".";
    assert_eq!(steps(fine.clone(), json!({})), Ok(()));
    assert_eq!(steps(fine.clone(), json!({"funnel_order_type": "strict"})), Ok(()));
    for extra in [
        json!({"funnel_order_type": "unordered"}),
        json!({"funnel_viz_type": "trends"}),
        json!({"funnel_viz_type": "time_to_convert"}),
    ] {
        assert_eq!(steps(fine.clone(), extra), Err(only.to_owned()));
    }
    let first = steps(json!([optional("a", 1), required("b", 2)]), json!({}));
    assert_eq!(first, Err("The first step of a funnel cannot be optional.".to_owned()));
    let same = json!([required("a", 1), optional("b", 2), required("b", 3)]);
    let text = "An optional step cannot be the same as the following required step.";
    assert_eq!(steps(same, json!({})), Err(text.to_owned()));
    // The required step matches only some of the events of the optional one.
    let narrower = json!({"id": "b", "order": 3, "properties": [{"key": "p", "value": 1}]});
    assert_eq!(steps(json!([required("a", 1), optional("b", 2), narrower]), json!({})), Ok(()));
}

#[test]
fn every_field_that_changes_numbers_changes_the_cache_key() {
    let requests = [
        json!({}),
        json!({"funnel_order_type": "strict"}),
        json!({"funnel_order_type": "unordered"}),
        json!({"funnel_viz_type": "trends"}),
        json!({"funnel_viz_type": "trends", "funnel_to_step": 1}),
        json!({"funnel_viz_type": "trends", "funnel_from_step": 1}),
        json!({"funnel_viz_type": "time_to_convert"}),
        json!({"funnel_viz_type": "time_to_convert", "bin_count": 7}),
        json!({"aggregation_group_type_index": 1}),
        json!({"breakdown": "k"}),
        json!({"breakdown": ["k"]}),
        json!({"breakdown": "k", "breakdown_type": "person"}),
        json!({"breakdown": "k", "breakdown_limit": 3}),
        json!({"breakdown": "k", "breakdown_attribution_type": "last_touch"}),
        json!({"breakdown": "k", "breakdown_attribution_type": "all_events"}),
        json!({"breakdown": "k", "breakdown_attribution_type": "step", "breakdown_attribution_value": 0}),
        json!({"breakdown": "k", "breakdown_attribution_type": "step", "breakdown_attribution_value": 1}),
        json!({"events": [{"id": "a", "order": 0}, {"id": "b", "order": 1, "optionalInFunnel": true}, {"id": "c", "order": 2}]}),
        json!({"events": [{"id": "a", "order": 0, "math": "first_time_for_user"}, {"id": "b", "order": 1}, {"id": "c", "order": 2}]}),
        json!({"events": [{"id": "a", "order": 0, "math": "first_time_for_user_with_filters"}, {"id": "b", "order": 1}, {"id": "c", "order": 2}]}),
        json!({"exclusions": [{"id": "x", "type": "events", "funnel_from_step": 0, "funnel_to_step": 1}]}),
        json!({"exclusions": [{"id": "x", "type": "events", "funnel_from_step": 0, "funnel_to_step": 2}]}),
        json!({"funnel_window_interval": 3}),
    ];
    let texts: BTreeSet<_> = requests.iter().map(|extra| parse_with(extra).unwrap().normalised()).collect();
    assert_eq!(texts.len(), requests.len());
    // The legacy form of the request keeps all of it.
    for extra in &requests {
        let query = parse_with(extra).unwrap();
        let again = parsed(InsightKind::Funnels.parse_request(&query.to_insight_filters())).unwrap();
        assert_eq!(again.normalised(), query.normalised(), "{extra}");
        assert!(query.describe().contains("funnel("), "{extra}");
    }
}
