//! The size of queries: those at a limit are calculated, larger ones are rejected with the field.

use pennon_analytics::kinds::{funnels, trends};
use pennon_analytics::limits;
use pennon_tests::TestApp;
use serde_json::{Value, json};

const FUNNEL: &str = "/api/projects/1/insights/funnel/";
const TREND: &str = "/api/projects/1/insights/trend/";

/// A request of a size, with a short range.
fn with(more: Value) -> Value {
    let mut body = json!({"events": [{"id": "a"}], "date_from": "2026-01-01", "date_to": "2026-01-02"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn events(count: usize) -> Value {
    (0..count).map(|order| json!({"id": format!("e{order}"), "order": order})).collect()
}

fn nested(depth: usize) -> Value {
    let leaf = json!({"key": "k", "value": "v"});
    (0..depth).fold(leaf, |inner, _| json!({"type": "AND", "values": [inner]}))
}

fn hours(count: usize) -> Value {
    let from: chrono::DateTime<chrono::Utc> = "2020-01-01T00:00:00Z".parse().unwrap();
    let to = from + chrono::Duration::hours(i64::try_from(count).unwrap() - 1);
    json!({"interval": "hour", "date_from": "2020-01-01T00:00:00Z", "date_to": to.to_rfc3339(), "explicit_date": true})
}

fn parentheses(depth: usize) -> String {
    format!("{}A{}", "(".repeat(depth), ")".repeat(depth))
}

/// Path, request at the limit, request beyond it, `attr` of the error.
type Row = (&'static str, Value, Value, Option<&'static str>);

fn rows() -> Vec<Row> {
    let filters = |count: usize| {
        let one = |at: usize| json!({"key": format!("k{at}"), "value": "v"});
        with(json!({"properties": (0..count).map(one).collect::<Vec<_>>()}))
    };
    let values = |count: usize| {
        with(
            json!({"properties": [{"key": "k", "value": (0..count).map(|it| it.to_string()).collect::<Vec<_>>()}]}),
        )
    };
    let patterns = |count: usize| {
        let one = |at: usize| json!({"key": "k", "operator": "regex", "value": format!("a{at}")});
        with(json!({"properties": (0..count).map(one).collect::<Vec<_>>()}))
    };
    let breakdowns = |count: usize| {
        let one = |at: usize| json!({"property": format!("p{at}"), "type": "event"});
        with(json!({"breakdowns": (0..count).map(one).collect::<Vec<_>>()}))
    };
    // As text, because a body itself is refused when it is nested as deep.
    let groups = |depth: usize| with(json!({"properties": nested(depth).to_string()}));
    let formula = |text: String| with(json!({"formula": text}));
    let limit = |most: usize| with(json!({"breakdown": "p", "breakdown_limit": most}));
    vec![
        (
            FUNNEL,
            with(json!({"events": events(funnels::limits::STEPS)})),
            with(json!({"events": events(funnels::limits::STEPS + 1)})),
            None,
        ),
        (
            TREND,
            with(json!({"events": events(trends::limits::SERIES)})),
            with(json!({"events": events(trends::limits::SERIES + 1)})),
            Some("events"),
        ),
        (TREND, filters(limits::FILTERS), filters(limits::FILTERS + 1), Some("properties")),
        (TREND, values(limits::FILTER_VALUES), values(limits::FILTER_VALUES + 1), Some("properties")),
        (TREND, patterns(limits::REGEXES), patterns(limits::REGEXES + 1), Some("properties")),
        (TREND, groups(limits::FILTER_DEPTH), groups(limits::FILTER_DEPTH + 1), Some("properties")),
        (TREND, with(hours(limits::BUCKETS)), with(hours(limits::BUCKETS + 1)), Some("interval")),
        (TREND, breakdowns(limits::BREAKDOWNS), breakdowns(limits::BREAKDOWNS + 1), Some("breakdowns")),
        (TREND, limit(limits::BREAKDOWN_LIMIT), limit(limits::BREAKDOWN_LIMIT + 1), Some("breakdown_limit")),
        (
            TREND,
            formula(parentheses(trends::limits::FORMULA_DEPTH - 1)),
            formula(parentheses(trends::limits::FORMULA_DEPTH + 1)),
            Some("formula"),
        ),
        (
            TREND,
            formula(format!("A{}", "+A".repeat((trends::limits::FORMULA_BYTES - 1) / 2))),
            formula(format!("A{}", "+A".repeat(trends::limits::FORMULA_BYTES / 2))),
            Some("formula"),
        ),
    ]
}

/// Rows of the options of funnels and of names.
fn funnel_rows() -> Vec<Row> {
    let exclusions = |count: usize| {
        let one = json!({"id": "x", "type": "events", "funnel_from_step": 0, "funnel_to_step": 1});
        with(json!({"events": events(2), "exclusions": vec![one; count]}))
    };
    let window = |days: i64| {
        with(
            json!({"events": events(2), "funnel_window_interval": days, "funnel_window_interval_unit": "day"}),
        )
    };
    let keys = |count: usize| {
        let keys: Vec<String> = (0..count).map(|at| format!("k{at}")).collect();
        with(json!({"events": events(2), "breakdown": keys, "breakdown_type": "event"}))
    };
    let event = |bytes: usize| with(json!({"events": [{"id": "e".repeat(bytes)}]}));
    let property = |bytes: usize| with(json!({"properties": [{"key": "k".repeat(bytes), "value": "v"}]}));
    let bins = |count: u32| {
        with(json!({"breakdown": "p", "breakdown_type": "event", "breakdown_histogram_bin_count": count}))
    };
    let days = funnels::limits::WINDOW_SECONDS / 86_400;
    let (exclusion_limit, key_limit) = (funnels::limits::EXCLUSIONS, funnels::limits::BREAKDOWN_KEYS);
    vec![
        (FUNNEL, exclusions(exclusion_limit), exclusions(exclusion_limit + 1), Some("exclusions")),
        (FUNNEL, window(days), window(days + 1), Some("funnel_window_interval")),
        (FUNNEL, keys(key_limit), keys(key_limit + 1), Some("breakdown")),
        (TREND, event(limits::NAME_BYTES), event(limits::NAME_BYTES + 1), Some("events")),
        (TREND, property(limits::NAME_BYTES), property(limits::NAME_BYTES + 1), Some("properties")),
        (
            TREND,
            bins(limits::BREAKDOWN_BINS),
            bins(limits::BREAKDOWN_BINS + 1),
            Some("breakdown_histogram_bin_count"),
        ),
    ]
}

#[tokio::test]
async fn queries_at_a_limit_are_calculated_and_larger_ones_are_rejected_by_field() {
    let app = TestApp::new().await;
    let mut wrong = Vec::new();
    for (path, at_limit, beyond, attr) in rows().into_iter().chain(funnel_rows()) {
        let what = attr.unwrap_or("steps");
        let response = app.post(path, at_limit).await;
        if response.status != 200 {
            wrong.push(format!("{what} at the limit: {} {}", response.status, response.text));
        }
        let refused = app.post(path, beyond).await;
        if refused.status != 400 || refused.json()["attr"] != json!(attr) {
            wrong.push(format!("{what} beyond the limit: {} {:.300}", refused.status, refused.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
