//! Session fields, computed from all events of a session, in filters.

use pennon_analytics::InsightKind;
use pennon_filters::CalcError;
use serde_json::{Value, json};

use crate::support::World;

/// The number of `visit` events that pass a filter, for each of four sessions.
fn passing(key: &str, operator: &str, value: &Value) -> Result<[u64; 4], CalcError> {
    let event = |event: &str, who: &str, session: Value, at: &str, more: Value| {
        let mut properties = json!({"$session_id": session, "which": session});
        properties.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"event": event, "distinct_id": who, "timestamp": at, "properties": properties})
    };
    let url = |url: &str| json!({"$current_url": url});
    let landing =
        json!({"$current_url": "https://site.io/in?x=1", "utm_source": "mail", "$referring_domain": "a.com"});
    let world = World::of_case(&json!({
        "now": "2020-01-04T13:00:00Z", "project": {"timezone": "UTC"}, "persons": [],
        "events": [
            // The session began a month before, with an event that no filter selects, of another person.
            event("started", "other", json!("0"), "2019-12-01T10:00:00Z", json!({"utm_source": "none"})),
            event("$pageview", "a", json!("0"), "2020-01-01T10:00:00Z", landing),
            event("$pageview", "a", json!("0"), "2020-01-01T10:00:05.900Z", url("https://site.io/out#y")),
            event("visit", "a", json!("0"), "2020-01-01T10:00:05Z", json!({"utm_source": "late"})),
            event("visit", "a", json!("1"), "2020-01-01T11:00:00Z", json!({})),
            event("$autocapture", "a", json!("1"), "2020-01-01T11:00:06.500Z", json!({})),
            event("visit", "b", json!("2"), "2020-01-01T11:00:00Z", url("https://other.io")),
            event("visit", "b", json!(null), "2020-01-01T12:00:00Z", json!({"which": "3"})),
        ],
    }));
    let mut found = [0; 4];
    for (session, found) in found.iter_mut().enumerate() {
        let body = json!({
            "date_from": "2020-01-01", "date_to": "2020-01-01", "interval": "day",
            "events": [{"id": "visit", "properties": [{"key": "which", "value": session.to_string()}]}],
            "properties": [{"type": "session", "key": key, "operator": operator, "value": value}],
        });
        let result = world.calculate_parsed(InsightKind::Trends.parse_request(body.as_object().unwrap()))?;
        *found = result[0]["data"][0].as_u64().unwrap();
    }
    Ok(found)
}

#[test]
fn durations_are_whole_seconds_over_all_events_of_a_session() {
    // The first session lasts 31 days and 5.9 seconds.
    let long = 31 * 86_400 + 5;
    for (operator, value, want) in [
        ("exact", json!(long), [1, 0, 0, 0]),
        ("gt", json!(long), [0, 0, 0, 0]),
        ("gte", json!(long.to_string()), [1, 0, 0, 0]),
        ("exact", json!(6), [0, 1, 0, 0]),
        ("lt", json!(6), [0, 0, 1, 0]),
        ("lte", json!(6), [0, 1, 1, 0]),
        ("is_not", json!(6), [1, 0, 1, 1]),
        ("between", json!([1, 6]), [0, 1, 0, 0]),
    ] {
        assert_eq!(passing("$session_duration", operator, &value).unwrap(), want, "{operator} {value}");
    }
}

#[test]
fn fields_of_entry_and_end() {
    for (key, operator, value, want) in [
        ("$entry_current_url", "exact", json!("https://site.io/in?x=1"), [1, 0, 0, 0]),
        ("$entry_pathname", "exact", json!("/in"), [1, 0, 0, 0]),
        ("$entry_hostname", "exact", json!("site.io"), [1, 0, 0, 0]),
        ("$end_pathname", "exact", json!("/out"), [1, 0, 0, 0]),
        ("$exit_current_url", "is_set", json!(null), [1, 0, 1, 0]),
        ("$end_hostname", "exact", json!("other.io"), [0, 0, 1, 0]),
        ("$entry_utm_source", "exact", json!("mail"), [1, 0, 0, 0]),
        ("$entry_utm_source", "is_not_set", json!(null), [0, 1, 1, 1]),
        ("$entry_referring_domain", "icontains", json!("A."), [1, 0, 0, 0]),
        ("$pageview_count", "exact", json!(2), [1, 0, 0, 0]),
        ("$pageview_count", "exact", json!(0), [0, 1, 1, 0]),
        ("$autocapture_count", "gte", json!(1), [0, 1, 0, 0]),
        ("$start_timestamp", "is_date_before", json!("2020-01-01"), [1, 0, 0, 0]),
        ("$end_timestamp", "is_date_exact", json!("2020-01-01T11:00:06Z"), [0, 1, 0, 0]),
    ] {
        assert_eq!(passing(key, operator, &value).unwrap(), want, "{key} {operator} {value}");
    }
}

#[test]
fn unknown_session_fields_are_rejected() {
    for (key, operator, value) in [
        ("some_prop", "gt", json!(0)),
        ("$session_duration", "is_set", json!(null)),
        ("$session_duration", "is_not_set", json!(null)),
        ("$session_duration", "icontains", json!(5)),
        ("$session_duration", "gt", json!("long")),
        ("$session_duration", "between", json!([6, 1])),
    ] {
        let error = passing(key, operator, &value).unwrap_err();
        assert_eq!(error.attr.as_deref(), Some("properties"), "{key} {operator}");
        assert!(!error.detail.starts_with(crate::support::NOT_SUPPORTED));
    }
}
