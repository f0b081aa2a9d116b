//! Actions and elements: which events a step matches, counted by a trend with one series.

use pennon_analytics::InsightKind;
use pennon_filters::CalcError;
use serde_json::{Value, json};

use crate::support::World;

/// Distinct ids of the events that match an action with these steps.
fn matching(steps: &Value, events: &[Value]) -> Result<Vec<String>, CalcError> {
    let filters = json!([]);
    find_events(
        &json!([{"id": 1, "name": "act", "steps": steps}]),
        &json!({"actions": [{"id": 1}]}),
        &filters,
        events,
    )
}

/// Distinct ids of the events that pass these filters.
fn passing(filters: &Value, events: &[Value]) -> Result<Vec<String>, CalcError> {
    find_events(&json!([]), &json!({"events": [{"id": null}]}), filters, events)
}

/// Calculates each event in a world of its own, so that one result cannot hide another.
fn find_events(
    actions: &Value,
    series: &Value,
    filters: &Value,
    events: &[Value],
) -> Result<Vec<String>, CalcError> {
    let mut found = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let mut event = event.clone();
        event["distinct_id"] = json!(format!("{index}"));
        event["timestamp"] = json!("2024-05-15T10:00:00Z");
        let world = World::of_case(&json!({
            "now": "2024-05-15T12:00:00Z", "project": {"timezone": "UTC"},
            "persons": [{"distinct_ids": ["0"], "properties": {"plan": "big"}}],
            "cohorts": [{"id": 4, "name": "first", "static_distinct_ids": ["0"]}],
            "actions": actions, "events": [event],
        }));
        let mut body = series.clone();
        body["date_from"] = json!("dStart");
        body["properties"] = filters.clone();
        let result = world.calculate_parsed(InsightKind::Trends.parse_request(body.as_object().unwrap()))?;
        match result[0]["data"][0].as_u64().unwrap() {
            0 => {}
            1 => found.push(index.to_string()),
            more => panic!("{more} for one event"),
        }
    }
    Ok(found)
}

fn page(url: &str) -> Value {
    json!({"event": "$pageview", "properties": {"$current_url": url}})
}

fn click(chain: &str) -> Value {
    json!({"event": "$autocapture", "properties": {"$elements_chain": chain}})
}

#[test]
fn an_event_matches_if_any_step_matches_with_all_its_conditions() {
    let events = [
        json!({"event": "sign up", "properties": {"key": "val"}}),
        json!({"event": "sign up", "properties": {"key": "other"}}),
        json!({"event": "paid", "properties": {}}),
        json!({"event": "left", "properties": {"key": "val"}}),
    ];
    let filter = json!([{"key": "key", "type": "event", "value": ["val"], "operator": "exact"}]);
    for (steps, want) in [
        (json!([]), vec!["0", "1", "2", "3"]),
        (json!([{"event": null}]), vec!["0", "1", "2", "3"]),
        (json!([{"event": ""}]), vec!["0", "1", "2", "3"]),
        (json!([{"event": "sign up"}]), vec!["0", "1"]),
        (json!([{"event": "sign up", "properties": filter}]), vec!["0"]),
        (json!([{"properties": filter}]), vec!["0", "3"]),
        (json!([{"event": "sign up", "properties": filter}, {"event": "paid"}]), vec!["0", "2"]),
        (json!([{"event": "absent"}]), vec![]),
        (json!([{"properties": [{"key": "plan", "type": "person", "value": "big"}]}]), vec!["0"]),
        (json!([{"properties": [{"key": "id", "type": "cohort", "value": 4}]}]), vec!["0"]),
        (
            json!([{"event": "sign up", "properties": [{"key": "id", "type": "cohort", "value": 4, "negation": true}]}]),
            vec!["1"],
        ),
    ] {
        assert_eq!(matching(&steps, &events).unwrap(), want, "{steps}");
    }
}

#[test]
fn urls_contain_equal_or_match() {
    let events = [
        page("https://example.com/some/page"),
        page("https://example.com/SOME/page"),
        page("/some/page"),
        page("https://example.com/some/page?a=1%2B_"),
        json!({"event": "$pageview", "properties": {}}),
        json!({"event": "$pageview", "properties": {"$current_url": null}}),
    ];
    for (url, matching_mode, want) in [
        ("/some/page", json!(null), vec!["0", "2", "3"]),
        ("/some/page", json!("contains"), vec!["0", "2", "3"]),
        ("/SOME", json!("contains"), vec!["1"]),
        ("/some/page", json!("exact"), vec!["2"]),
        ("e.com/(some|SOME)/page$", json!("regex"), vec!["0", "1"]),
        // SQL wildcards are literal characters.
        ("%", json!("contains"), vec!["3"]),
        ("a_1", json!("contains"), vec![]),
        // An invalid regular expression matches nothing.
        ("(", json!("regex"), vec![]),
    ] {
        let steps = json!([{"event": "$pageview", "url": url, "url_matching": matching_mode}]);
        assert_eq!(matching(&steps, &events).unwrap(), want, "{steps}");
    }
}

#[test]
fn element_conditions_apply_to_autocapture_events_only() {
    let pay = r#"button.big:text="Pay $10"nth-child="1";a:href="/movie/1";body"#;
    let mut other = click(pay);
    other["event"] = json!("other");
    let list = json!({"event": "$autocapture", "properties": {"$elements": [
        {"tag_name": "button", "$el_text": "Pay $10", "attr__class": "big", "nth_child": 1},
        {"tag_name": "a", "href": "/movie/1"}]}});
    let events = [
        click(pay),
        click(r#"button:text="pay $10 now"nth-child="2""#),
        click(r#"span:text="Pay $10""#),
        json!({"event": "$autocapture", "properties": {}}),
        other,
        list,
    ];
    for (field, value, how, want) in [
        ("text", "Pay $10", json!(null), vec!["0", "2", "5"]),
        ("text", "Pay $10", json!("contains"), vec!["0", "1", "2", "5"]),
        ("text", "^[Pp]ay .10", json!("regex"), vec!["0", "1", "2", "5"]),
        ("href", "/movie/1", json!("exact"), vec!["0", "5"]),
        ("href", "MOVIE", json!("contains"), vec!["0", "5"]),
        ("href", "/\\d$", json!("regex"), vec!["0", "5"]),
        ("selector", "a > button.big", json!(null), vec!["0", "5"]),
        ("selector", "button:nth-child(2)", json!(null), vec!["1"]),
        ("tag_name", "button", json!(null), vec!["0", "1", "5"]),
        ("tag_name", "", json!(null), vec!["0", "1", "2", "3", "5"]),
    ] {
        let mut step = json!({"event": "$autocapture", field: value});
        step[format!("{field}_matching")] = how;
        assert_eq!(matching(&json!([step]), &events).unwrap(), want, "{step}");
        // Element conditions do not apply to other events.
        step["event"] = json!("other");
        assert_eq!(matching(&json!([step]), &events).unwrap(), ["4"], "{step}");
    }
}

#[test]
fn element_filters_support_four_keys() {
    let events = [
        click(r#"button.big:text="Pay";a:href="/x"text="More""#),
        click(r#"span:text="Other""#),
        json!({"event": "shown", "properties": {}}),
    ];
    for (key, operator, value, want) in [
        ("tag_name", "exact", json!("button"), vec!["0"]),
        ("tag_name", "exact", json!(["button", "span"]), vec!["0", "1"]),
        ("tag_name", "is_not", json!(["button"]), vec!["1", "2"]),
        ("selector", "exact", json!("a .big"), vec!["0"]),
        ("selector", "is_not", json!("a .big"), vec!["1", "2"]),
        ("text", "exact", json!("More"), vec!["0"]),
        ("text", "is_not", json!("More"), vec!["1", "2"]),
        ("text", "icontains", json!("PAY"), vec!["0"]),
        ("text", "is_set", json!(null), vec!["0", "1"]),
        ("text", "is_not_set", json!(null), vec!["2"]),
        ("href", "exact", json!("/x"), vec!["0"]),
        ("href", "regex", json!("^/"), vec!["0"]),
        ("href", "is_not", json!("/x"), vec!["1", "2"]),
        ("tag_name", "exact", json!([]), vec!["0", "1", "2"]),
    ] {
        let filter = json!([{"type": "element", "key": key, "operator": operator, "value": value}]);
        assert_eq!(passing(&filter, &events).unwrap(), want, "{filter}");
    }
    for (key, operator, value) in [
        ("tag_name", "icontains", "a"),
        ("selector", "regex", "a"),
        ("colour", "exact", "a"),
        ("selector", "exact", "a:hover"),
    ] {
        let filter = json!([{"type": "element", "key": key, "operator": operator, "value": value}]);
        let error = passing(&filter, &events).unwrap_err();
        assert_eq!(error.attr.as_deref(), Some("properties"), "{filter}");
    }
}

#[test]
fn an_invalid_action_is_named_in_the_error() {
    for steps in [
        json!(["x"]),
        json!([{"event": 5}]),
        json!([{"url": ["a"]}]),
        json!([{"url": "a", "url_matching": "almost"}]),
        json!([{"event": "$autocapture", "selector": "a:hover"}]),
        json!([{"properties": 5}]),
        json!([{"properties": [{"key": "id", "type": "cohort", "value": 99}]}]),
        json!(vec![json!({"event": "e"}); 101]),
    ] {
        let error = matching(&steps, &[page("/")]).unwrap_err();
        assert!(error.detail.contains("action 1") || error.detail.contains("one action"), "{error}");
    }
    assert_eq!(matching(&json!(vec![json!({"event": "$pageview"}); 100]), &[page("/")]).unwrap(), ["0"]);
}
