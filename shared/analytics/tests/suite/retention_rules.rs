//! What retention queries accept, reject and write back; the links of their results.

use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Map, Value, json};

use crate::retention_cases::list_people;
use crate::support::World;

/// A node with these fields, and these in its `retentionFilter`.
fn node(fields: &Value, filter: &Value) -> Value {
    let mut node = json!({"kind": "RetentionQuery", "retentionFilter": filter});
    node.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    node
}

fn parse_node(node: &Value) -> Result<Query, CalcError> {
    match Query::from_query_node(node)? {
        ParsedQuery::Query(query) => Ok(query),
        other => panic!("{other:?}"),
    }
}

fn parse_filters(filters: &Map<String, Value>) -> Query {
    match Query::from_insight_filters(filters).unwrap() {
        ParsedQuery::Query(query) => query,
        other => panic!("{other:?}"),
    }
}

fn world() -> World {
    let event = |id: &str, day: u8, plan: Value| {
        json!({"event": "$pageview", "distinct_id": id, "timestamp": format!("2024-05-{day:02}T10:00:00Z"),
            "properties": {"plan": plan, "$group_0": "acme"}})
    };
    World::of_case(&json!({
        "now": "2024-05-05T12:00:00Z", "project": {"timezone": "US/Pacific"},
        "persons": [{"distinct_ids": ["ann"], "properties": {}}, {"distinct_ids": ["bob"], "properties": {}},
            {"distinct_ids": ["cat"], "properties": {}}],
        "events": [event("ann", 1, json!("pro")), event("ann", 2, json!("pro")), event("ann", 4, json!("pro")),
            event("bob", 2, json!("a&b")), event("bob", 3, json!("a&b")), event("cat", 3, json!(null))],
    }))
}

#[test]
fn invalid_options_are_rejected_by_name() {
    let error = |fields: Value, filter: Value| parse_node(&node(&fields, &filter)).unwrap_err();
    for (filter, text) in [
        (json!({"period": "Quarter"}), "period \"Quarter\""),
        (json!({"period": "Minute"}), "period \"Minute\""),
        (json!({"retentionType": "retention_last"}), "retentionType \"retention_last\""),
        (json!({"timeWindowMode": "48_hour_windows"}), "timeWindowMode \"48_hour_windows\""),
        (json!({"aggregationType": "max", "aggregationProperty": "n"}), "aggregationType \"max\""),
        (
            json!({"aggregationType": "sum", "aggregationProperty": "n", "aggregationPropertyType": "group"}),
            "aggregationPropertyType \"group\"",
        ),
        (json!({"minimumOccurrences": "many"}), "minimumOccurrences"),
        (json!({"retentionCustomBrackets": "soon"}), "retentionCustomBrackets"),
        (json!({"retentionCustomBrackets": [1, 0.5]}), "retentionCustomBrackets"),
        (json!({"retentionCustomBrackets": [0]}), "retentionCustomBrackets"),
        (json!({"totalIntervals": "x"}), "totalIntervals"),
        (json!({"totalIntervals": 2.5}), "totalIntervals"),
        (json!({"targetEntity": {"id": "t", "type": "data_warehouse"}}), "data warehouse entities"),
        (json!({"targetEntity": {"id": "t", "type": "groups"}}), "type \"groups\""),
        (json!({"targetEntity": {"id": "x", "type": "actions"}}), "The id of an action is a number."),
        (json!({"returningEntity": [1]}), "Expected an object"),
        (
            json!({"cumulative": true, "timeWindowMode": "24_hour_windows"}),
            "Cumulative retention is not supported for 24 hour windows.",
        ),
        (
            json!({"aggregationType": "avg", "aggregationProperty": "n", "timeWindowMode": "24_hour_windows"}),
            "Sum and average aggregation are not supported for 24 hour windows.",
        ),
        (
            json!({"aggregationType": "sum", "aggregationProperty": "n", "cumulative": true}),
            "Sum and average aggregation are not supported for cumulative retention.",
        ),
    ] {
        let got = error(json!({}), filter.clone());
        assert!(got.detail.contains(text), "{filter}: {got}");
        assert!(got.attr.is_some_and(|attr| attr.starts_with("retentionFilter__")), "{filter}");
    }
    let two = json!([{"property": "a", "type": "event"}, {"property": "b", "type": "person"}]);
    for (fields, text) in [
        (json!({"breakdownFilter": {"breakdowns": two}}), "Retention supports one breakdown."),
        (json!({"breakdownFilter": {"breakdown": ["a", "b"]}}), "Retention supports one breakdown."),
        (
            json!({"breakdownFilter": {"breakdown": "$session_duration", "breakdown_type": "session"}}),
            "no breakdown of type \"session\"",
        ),
        (json!({"aggregation_group_type_index": 5}), "5 is not the index of a group type"),
        (json!({"aggregation_group_type_index": -1}), "-1 is not the index of a group type"),
        (json!({"dateRange": {"date_from": "2024-13-01"}}), "2024-13-01"),
    ] {
        let got = error(fields.clone(), json!({}));
        assert!(got.detail.contains(text), "{fields}: {got}");
    }
    // Without a property nothing is added up.
    let counts = json!({"aggregationType": "sum", "cumulative": true});
    assert!(parse_node(&node(&json!({}), &counts)).is_ok());
}

#[test]
fn limits_are_tested_at_the_limit_and_one_past_it() {
    let is_ok = |filter: Value| parse_node(&node(&json!({}), &filter)).is_ok();
    for (total, accepted) in [(-1, false), (0, true), (1, true), (100, true), (101, false)] {
        assert_eq!(is_ok(json!({"totalIntervals": total})), accepted, "{total}");
    }
    assert!(is_ok(json!({"retentionCustomBrackets": vec![1; 99]})));
    assert!(!is_ok(json!({"retentionCustomBrackets": vec![1; 100]})));
    assert!(is_ok(json!({"retentionCustomBrackets": [1.9, 1e300, "3"]})));
    let group = |index: u8| parse_node(&node(&json!({"aggregation_group_type_index": index}), &json!({})));
    assert!(group(4).is_ok() && group(5).is_err());

    // 1,000 hours with 100 columns are the limit of cells.
    let world = world();
    let hours = |from: &str| {
        let dates = json!({"dateRange": {"date_from": from, "date_to": "2024-05-01T15:00:00"}});
        let node = node(&dates, &json!({"period": "Hour", "totalIntervals": 100}));
        world.calculate(&parse_node(&node).unwrap(), 1)
    };
    assert_eq!(hours("2024-03-21T00:00:00").unwrap().as_array().unwrap().len(), 1_000);
    let error = hours("2024-03-20T23:00:00").unwrap_err();
    assert!(error.detail.contains("1001 periods"), "{error}");
}

#[test]
fn unknown_actions_and_cohorts_are_rejected_by_id() {
    let world = world();
    let error = |node: &Value| world.calculate(&parse_node(node).unwrap(), 1).unwrap_err();
    for name in ["targetEntity", "returningEntity"] {
        let filter = json!({name: {"id": "666", "type": "actions"}});
        let got = error(&node(&json!({}), &filter));
        assert_eq!((got.detail.as_str(), got.attr.as_deref()), ("Action ID 666 does not exist!", Some(name)));
    }
    let breakdown = json!({"breakdownFilter": {"breakdown": [7], "breakdown_type": "cohort"}});
    assert!(error(&node(&breakdown, &json!({}))).detail.contains("cohort 7"));
    let filter = json!({"properties": [{"key": "id", "value": 8, "type": "cohort"}]});
    assert!(error(&node(&filter, &json!({}))).detail.contains("cohort 8"));
}

/// Nodes with each option.
fn nodes() -> Vec<Value> {
    let plain = |filter: Value| node(&json!({}), &filter);
    let condition = json!([{"key": "plan", "value": "pro", "operator": "exact", "type": "event"}]);
    vec![
        plain(json!({})),
        plain(json!({"period": "WEEK", "totalIntervals": 3, "cumulative": true, "minimumOccurrences": 4})),
        plain(
            json!({"period": "Month", "retentionCustomBrackets": [1, 5], "timeWindowMode": "24_hour_windows"}),
        ),
        plain(
            json!({"aggregationType": "avg", "aggregationProperty": "n", "retentionType": "retention_first_time"}),
        ),
        plain(
            json!({"aggregationType": "sum", "aggregationProperty": "n", "aggregationPropertyType": "person"}),
        ),
        plain(json!({
            "retentionType": "retention_first_ever_occurrence",
            "targetEntity": {"id": null, "name": "All events", "custom_name": "Any", "properties": condition},
            "returningEntity": {"id": "7", "type": "actions"},
        })),
        node(
            &json!({
                "dateRange": {"date_from": "-4d", "date_to": "-1d", "explicitDate": true}, "properties": condition,
                "filterTestAccounts": true, "aggregation_group_type_index": 0,
                "breakdownFilter": {"breakdown": "plan", "breakdown_type": "person", "breakdown_limit": 3},
            }),
            &json!({}),
        ),
        node(
            &json!({"aggregation_group_type_index": 2, "breakdownFilter": {"breakdown": ["all", 3], "breakdown_type": "cohort"}}),
            &json!({}),
        ),
        node(
            &json!({"breakdownFilter": {"breakdowns": [{"property": "name", "type": "group", "group_type_index": 1}]}}),
            &json!({}),
        ),
    ]
}

#[test]
fn queries_are_written_as_filters_and_parsed_to_the_same_query() {
    for node in nodes() {
        let query = parse_node(&node).unwrap();
        let filters = query.to_insight_filters();
        assert_eq!(filters["insight"], json!("RETENTION"));
        assert_eq!(parse_filters(&filters), query, "{node}");
        assert!(!query.describe().is_empty());
        // As a query string has them.
        let text = |value: &Value| json!(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let texts = filters.iter().map(|(key, value)| (key.clone(), text(value))).collect();
        assert_eq!(parse_filters(&texts), query, "{node}");
    }
}

#[test]
fn fields_without_an_effect_do_not_change_the_cache_key() {
    let key = |fields: Value, filter: Value| parse_node(&node(&fields, &filter)).unwrap().normalised();
    let plain = key(json!({}), json!({}));
    for same in [
        json!({"totalIntervals": 0, "minimumOccurrences": -3, "period": "day", "cumulative": null}),
        json!({"retentionReference": "previous", "meanRetentionCalculation": "weighted", "display": "ActionsBar",
            "dashboardDisplay": "all", "selectedInterval": 3, "showTrendLines": true, "goalLines": []}),
        json!({"targetEntity": {"id": "$pageview", "name": "Views", "type": "events", "math": "dau"}}),
        json!({"aggregationType": "sum"}),
        json!({"retentionCustomBrackets": []}),
    ] {
        assert_eq!(key(json!({}), same.clone()), plain, "{same}");
    }
    assert_eq!(key(json!({"samplingFactor": 0.1, "interval": "month"}), json!({})), plain);
    for other in [
        json!({"totalIntervals": 7}),
        json!({"period": "Hour"}),
        json!({"cumulative": true}),
        json!({"minimumOccurrences": 2}),
        json!({"retentionCustomBrackets": [7]}),
        json!({"timeWindowMode": "24_hour_windows"}),
        json!({"retentionType": "retention_first_time"}),
        json!({"returningEntity": {"id": null}}),
        json!({"aggregationType": "sum", "aggregationProperty": "n"}),
    ] {
        assert_ne!(key(json!({}), other.clone()), plain, "{other}");
    }
}

#[test]
fn filters_have_their_own_defaults() {
    let filters = |fields: Value| {
        let mut filters = json!({"insight": "RETENTION"});
        filters.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        parse_filters(filters.as_object().unwrap())
    };
    let columns = |query: &Query| {
        let result = world().calculate(query, 1).unwrap();
        result[0]["values"].as_array().unwrap().len()
    };
    assert_eq!(columns(&filters(json!({}))), 11);
    assert_eq!(columns(&filters(json!({"total_intervals": "4"}))), 4);
    assert_eq!(columns(&parse_node(&node(&json!({}), &json!({}))).unwrap()), 8);
    // 0 means persons, as in other filters.
    let persons = filters(json!({"aggregation_group_type_index": 0}));
    assert_eq!(persons, filters(json!({})));
    let text =
        json!({"target_entity": "{\"id\": \"b\", \"type\": \"events\"}", "retention_custom_brackets": "[2]"});
    let object = json!({"target_entity": {"id": "b"}, "retention_custom_brackets": [2]});
    assert_eq!(filters(text), filters(object));
    let ParsedQuery::Query(same) = InsightKind::Retention
        .parse_people_request(json!({"query": nodes()[0].to_string()}).as_object().unwrap())
        .unwrap()
    else {
        panic!("no query")
    };
    assert_eq!(same, parse_node(&nodes()[0]).unwrap());
    let trend = json!({"query": {"kind": "TrendsQuery", "series": []}});
    let error = InsightKind::Retention.parse_people_request(trend.as_object().unwrap()).unwrap_err();
    assert_eq!(error.detail, "The query must be a RetentionQuery.");
}

/// The parameters of a link.
fn parameters(url: &str) -> Map<String, Value> {
    let decode = |text: &str| {
        let (mut bytes, mut rest) = (Vec::new(), text.bytes());
        while let Some(byte) = rest.next() {
            let hex: Vec<u8> = if byte == b'%' { rest.by_ref().take(2).collect() } else { Vec::new() };
            let hex = std::str::from_utf8(&hex).unwrap();
            bytes.push(if hex.is_empty() { byte } else { u8::from_str_radix(hex, 16).unwrap() });
        }
        String::from_utf8(bytes).unwrap()
    };
    let (path, query) = url.split_once('?').unwrap();
    assert_eq!(path, "/api/projects/7/persons/retention/");
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(key, value)| (decode(key), json!(decode(value)))).collect()
}

#[test]
fn links_lead_to_the_people_of_their_row() {
    let mut world = world();
    let by_plan =
        json!({"breakdownFilter": {"breakdown": "plan", "breakdown_type": "event", "breakdown_limit": 2}});
    let relative = json!({"dateRange": {"date_from": "-4d"}});
    for node in [
        node(&json!({}), &json!({"totalIntervals": 5})),
        node(&relative, &json!({"totalIntervals": 2, "period": "Week"})),
        node(&by_plan, &json!({"totalIntervals": 6})),
        node(&json!({}), &json!({"timeWindowMode": "24_hour_windows", "retentionCustomBrackets": [2, 2]})),
        node(&json!({"aggregation_group_type_index": 0}), &json!({"cumulative": true, "totalIntervals": 6})),
    ] {
        let result = world.calculate(&parse_node(&node).unwrap(), 2).unwrap();
        let now = world.now;
        // Links have absolute dates: they lead to the same people later.
        world.now = now + chrono::Duration::days(40);
        for row in result.as_array().unwrap() {
            let counts: Vec<u64> = row["values"]
                .as_array()
                .unwrap()
                .iter()
                .map(|cell| cell["count"].as_u64().unwrap())
                .collect();
            let Some(url) = row["people_url"].as_str() else {
                assert_eq!(row["breakdown_value"], json!("$$_posthog_breakdown_other_$$"));
                continue;
            };
            let fields = parameters(url);
            let ParsedQuery::Query(query) = InsightKind::Retention.parse_people_request(&fields).unwrap()
            else {
                panic!("no query")
            };
            let people = list_people(&world, &query, &fields, 2).unwrap();
            let appear = |column: usize| people.iter().filter(|one| one.appearances[column]).count() as u64;
            assert_eq!((0..counts.len()).map(appear).collect::<Vec<u64>>(), counts, "{url}");
        }
        world.now = now;
    }
}

#[test]
fn people_of_no_row_are_an_empty_list() {
    let world = world();
    let by_plan = json!({"breakdownFilter": {"breakdown": "plan", "breakdown_type": "event"}});
    let (plain, split) = (node(&json!({}), &json!({})), node(&by_plan, &json!({})));
    let people = |node: &Value, link: Value| {
        list_people(&world, &parse_node(node).unwrap(), link.as_object().unwrap(), 1)
            .map(|people| people.len())
    };
    assert_eq!(people(&plain, json!({"selected_interval": 4})), Ok(2));
    assert_eq!(people(&plain, json!({"selected_interval": "4", "return_interval": 1})), Ok(1));
    for link in [
        json!({"selected_interval": 8}),
        json!({"selected_interval": -1}),
        json!({"selected_interval": 4, "return_interval": 8}),
        json!({"selected_interval": 4, "return_interval": -1}),
        json!({}),
    ] {
        assert_eq!(people(&plain, link.clone()), Ok(0), "{link}");
    }
    assert_eq!(people(&split, json!({"selected_interval": 5, "breakdown_value": ""})), Ok(1));
    assert_eq!(people(&split, json!({"selected_interval": 5, "breakdown_value": "none"})), Ok(0));
    let missing = people(&split, json!({"selected_interval": 5})).unwrap_err();
    assert_eq!(missing.attr.as_deref(), Some("breakdown_value"));
    let other = json!({"breakdown_value": "$$_posthog_breakdown_other_$$"});
    assert_eq!(people(&split, other).unwrap_err().attr.as_deref(), Some("breakdown_value"));
    assert!(people(&plain, json!({"breakdown_value": "pro"})).is_err());
    assert!(people(&plain, json!({"selected_interval": "first"})).is_err());
}

#[test]
fn a_result_is_a_table() {
    let sum = json!({"totalIntervals": 2, "aggregationType": "sum", "aggregationProperty": "n"});
    let node = node(&json!({"breakdownFilter": {"breakdown": "plan"}}), &sum);
    let query = parse_node(&node).unwrap();
    let result = world().calculate(&query, 1).unwrap();
    let table = query.table(&result);
    let head = [
        "breakdown_value",
        "period",
        "date",
        "Day 0",
        "Day 0 (aggregation_value)",
        "Day 1",
        "Day 1 (aggregation_value)",
    ];
    assert_eq!(table[0], head);
    assert_eq!(table[1], ["pro", "Day 0", "2024-05-04T00:00:00-07:00", "1", "0", "0", "0"]);
}

#[test]
fn a_range_that_ends_before_it_starts_has_no_rows() {
    let dates = json!({"dateRange": {"date_from": "2024-05-03", "date_to": "2024-05-01"}});
    for filter in [
        json!({}),
        json!({"timeWindowMode": "24_hour_windows"}),
        json!({"retentionType": "retention_first_time"}),
    ] {
        assert_eq!(world().calculate(&parse_node(&node(&dates, &filter)).unwrap(), 1), Ok(json!([])));
    }
}
