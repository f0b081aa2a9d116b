//! Funnels and trends over HTTP, on events in the event store.

use std::time::Duration;

use axum::body::Body;
use pennon::api::{Services, api};
use pennon_calculation::jobs::JobOutcome;
use pennon_calculation::{CalculationLimits, Calculator};
use pennon_core::store::PartitionQuery;
use pennon_eventstore::Event;
use pennon_tests::{Keys, TestApp, as_worker, now_micros};
use pennon_worker::{CompactionRun, compact_all};
use serde_json::{Value, json};
use tower::ServiceExt;
use uuid::Uuid;

const FUNNEL: &str = "/api/projects/1/insights/funnel/";
const TREND: &str = "/api/projects/1/insights/trend/";
const QUERY: &str = "/api/projects/1/query/";

/// Adds events `(who, what, when, properties)` to a project.
async fn happened(app: &TestApp, project: u64, events: &[(&str, &str, &str, Value)]) {
    let events: Vec<Event> = events
        .iter()
        .map(|(who, what, when, properties)| Event {
            uuid: Uuid::new_v4(),
            event: (*what).to_owned(),
            distinct_id: (*who).to_owned(),
            timestamp: when.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp_micros(),
            properties: properties.as_object().unwrap().clone(),
        })
        .collect();
    let now = now_micros();
    app.services.events.append(project, &events, now).await.unwrap();
}

/// Ann buys two hours after signing up, Bob four; Cat signs up only; Dan buys without having signed up.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let events = [
        ("ann", "signed up", "2026-01-01T10:00:00Z", json!({"plan": "free"})),
        ("ann", "bought", "2026-01-01T12:00:00Z", json!({})),
        ("bob", "signed up", "2026-01-02T10:00:00Z", json!({"plan": "pro"})),
        ("bob", "bought", "2026-01-02T14:00:00Z", json!({})),
        ("cat", "signed up", "2026-01-02T11:00:00Z", json!({"plan": "free"})),
        ("dan", "bought", "2026-01-03T10:00:00Z", json!({})),
        ("ann", "signed up", "2026-01-02T23:00:00Z", json!({"plan": "free"})),
    ];
    happened(&app, 1, &events).await;
    happened(&app, 2, &[("eve", "signed up", "2026-01-02T10:00:00Z", json!({}))]).await;
    app
}

fn steps() -> Value {
    json!([{"id": "signed up", "order": 0}, {"id": "bought", "order": 1}])
}

#[tokio::test]
async fn a_funnel_counts_persons_and_conversion_times() {
    let app = shop().await;
    let response = app.post(FUNNEL, json!({"events": steps()})).await.expect(200);
    assert_eq!(response["timezone"], "UTC");
    assert_eq!(
        (&response["is_cached"], &response["last_refresh"]),
        (&json!(false), &json!("2026-01-05T10:00:00Z"))
    );
    let [first, second] = &response["result"].as_array().unwrap()[..] else { panic!("{response}") };
    assert_eq!((&first["action_id"], &first["count"]), (&json!("signed up"), &json!(3)));
    assert_eq!(first["average_conversion_time"], Value::Null);
    assert_eq!(
        (&second["name"], &second["count"], &second["order"]),
        (&json!("bought"), &json!(2), &json!(1))
    );
    // Two hours and four.
    assert_eq!(second["average_conversion_time"], 10_800.0);
    assert_eq!(second["median_conversion_time"], 10_800.0);
    let short =
        json!({"events": steps(), "funnel_window_interval": 3, "funnel_window_interval_unit": "hour"});
    let response = app.post(FUNNEL, short).await.expect(200);
    assert_eq!(response["result"][1]["count"], 1);
    let free = json!({"events": steps(), "properties": [{"key": "plan", "value": "free"}]});
    let response = app.post(FUNNEL, free).await.expect(200);
    assert_eq!((&response["result"][0]["count"], &response["result"][1]["count"]), (&json!(2), &json!(0)));
}

#[tokio::test]
async fn a_trend_counts_events_and_people_by_day() {
    let app = shop().await;
    let body = json!({
        "events": [{"id": "signed up", "order": 0}, {"id": "signed up", "math": "dau", "order": 1}, {"id": null, "order": 2}],
        "date_from": "2026-01-01", "date_to": "2026-01-03",
    });
    let response = app.post(TREND, body).await.expect(200);
    let data: Vec<&Value> =
        response["result"].as_array().unwrap().iter().map(|series| &series["data"]).collect();
    assert_eq!(data, [&json!([1, 3, 0]), &json!([1, 3, 0]), &json!([2, 4, 1])]);
    assert_eq!(response["result"][0]["days"], json!(["2026-01-01", "2026-01-02", "2026-01-03"]));
    assert_eq!(response["result"][0]["count"], 4.0);
    assert_eq!(response["next"], Value::Null);
    // The default range: seven days before today, and today.
    let response = app.post(TREND, json!({"events": [{"id": "bought"}]})).await.expect(200);
    assert_eq!(response["result"][0]["data"], json!([0, 0, 0, 1, 1, 1, 0, 0]));
}

#[tokio::test]
async fn get_and_post_of_the_same_query_share_a_result() {
    let app = shop().await;
    let posted = app.post(FUNNEL, json!({"events": steps(), "interval": "week"})).await.expect(200);
    let events = "%5B%7B%22id%22%3A%22signed%20up%22%2C%22order%22%3A0%7D%2C%7B%22id%22%3A%22bought%22%2C%22order%22%3A1%7D%5D";
    let got = app.get(&format!("{FUNNEL}?events={events}&interval=week")).await.expect(200);
    assert_eq!(got["result"], posted["result"]);
    assert_eq!((&posted["is_cached"], &got["is_cached"]), (&json!(false), &json!(true)));
    // The body takes precedence over the query string, except for properties.
    let narrowed = "?interval=day&properties=%5B%7B%22key%22%3A%22plan%22%2C%22value%22%3A%22pro%22%7D%5D";
    let body = json!({"events": steps(), "interval": "week", "properties": []});
    let response = app.post(&format!("{FUNNEL}{narrowed}"), body).await.expect(200);
    assert_eq!(response["result"][0]["count"], 1);
}

#[tokio::test]
async fn without_entities_get_is_empty_and_post_is_refused() {
    let app = shop().await;
    for path in [FUNNEL, TREND] {
        let response = app.get(path).await.expect(200);
        assert_eq!((&response["result"], &response["is_cached"]), (&json!([]), &json!(false)));
        assert_eq!(response["last_refresh"], "2026-01-05T10:00:00Z");
        for body in [json!({}), json!({"events": []}), json!({"events": "[]", "actions": null})] {
            app.post(path, body).await.expect_invalid("required", "This field is required.", Some("events"));
        }
    }
}

#[tokio::test]
async fn results_are_cached_until_they_age_or_a_refresh_is_requested() {
    let app = shop().await;
    let body = |more: Value| {
        let mut body = json!({"events": [{"id": "bought"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let first = "2026-01-05T10:00:00Z";
    let shown =
        |response: &Value| (response["is_cached"].as_bool().unwrap(), response["last_refresh"].clone());
    let send_request =
        async |now: &str, more: Value| app.at(now, "POST", TREND, body(more)).await.expect(200);
    assert_eq!(shown(&send_request(first, json!({})).await), (false, json!(first)));
    happened(&app, 1, &[("eve", "bought", "2026-01-04T10:00:00Z", json!({}))]).await;
    // A daily trend is fresh for six hours; the caller and its id are not part of the cache key.
    let stale = send_request("2026-01-05T16:00:00Z", json!({"client_query_id": "x"})).await;
    assert_eq!(shown(&stale), (true, json!(first)));
    assert_eq!(stale["result"][0]["count"], 3.0);
    for refresh in [json!(true), json!("force_blocking"), json!("force_async")] {
        let now = "2026-01-05T16:00:00Z";
        let forced = send_request(now, json!({"refresh": refresh})).await;
        assert_eq!((shown(&forced), &forced["result"][0]["count"]), ((false, json!(now)), &json!(4.0)));
    }
    let other = send_request(first, json!({"cache_invalidation_key": "v2"})).await;
    assert!(!shown(&other).0);
    assert!(shown(&send_request(first, json!({"cache_invalidation_key": "v2"})).await).0);
    let later = "2026-01-05T22:00:01Z";
    assert_eq!(shown(&send_request(later, json!({})).await), (false, json!(later)));
}

#[tokio::test]
async fn a_stored_result_comes_with_the_key_and_the_project() {
    let app = shop().await;
    let body = json!({"events": steps()});
    app.post(FUNNEL, body.clone()).await.expect(200);
    app.services.app.keys.clear();
    app.round_trips.reset();
    assert_eq!(app.post(FUNNEL, body).await.expect(200)["is_cached"], true);
    assert_eq!(app.round_trips.sequential(), 1, "{:?}", app.round_trips.calls());
}

#[tokio::test]
async fn keys_are_checked_before_queries() {
    let app = shop().await;
    let broken = json!({"events": "{"});
    let refused = app.call(Keys::READ_FLAGS, "POST", FUNNEL, broken.clone()).await;
    refused.expect_error(
        403,
        "authentication_error",
        "permission_denied",
        "API key missing required scope 'insight:read'",
        None,
    );
    assert_eq!(app.call("", "POST", TREND, broken.clone()).await.status, 401);
    assert_eq!(app.call(Keys::STRANGER, "POST", TREND, broken.clone()).await.status, 403);
    assert_eq!(app.post("/api/projects/77/insights/trend/", broken.clone()).await.status, 404);
    assert_eq!(app.post(TREND, broken).await.expect(400)["attr"], "events");
    let read_insights = app.call(Keys::READ_FLAGS, "POST", QUERY, json!({"query": {}})).await;
    assert_eq!(read_insights.expect(403)["detail"], "API key missing required scope 'query:read'");
}

#[tokio::test]
async fn other_kinds_of_queries_and_other_forms_of_responses_are_refused() {
    let app = shop().await;
    let sql = json!({"query": {"kind": "HogQLQuery", "query": "select 1"}});
    let refused = app.post(QUERY, sql).await.expect(400);
    assert_eq!((&refused["code"], &refused["attr"]), (&json!("invalid_input"), &json!("query")));
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.starts_with("Not supported yet: HogQLQuery. Query the event files"), "{detail}");
    for path in [TREND, FUNNEL] {
        assert_eq!(app.post(&format!("{path}?format=xml"), json!({"events": steps()})).await.status, 404);
    }
    let empty = app.get("/api/projects/1/insights/funnel/correlation/").await.expect(200);
    assert_eq!(empty["result"], json!({"events": [], "skewed": false}));
}

#[tokio::test]
async fn invalid_requests_get_an_error_and_the_service_continues() {
    let app = shop().await;
    let raw = async |content_type: &str, body: &str| {
        let mut request = TestApp::request(Keys::OWNER, "POST", FUNNEL, json!({}));
        *request.body_mut() = Body::from(body.to_owned());
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
        app.send(request).await
    };
    assert_eq!(raw("application/json", "{").await.expect(400)["code"], "parse_error");
    assert_eq!(raw("application/json", "[1]").await.expect(400)["code"], "invalid_input");
    assert_eq!(raw("text/plain", "a").await.status, 415);
    assert_eq!(raw("application/json", &" ".repeat(6_000_001)).await.status, 413);
    let response = app.post(FUNNEL, json!({"events": steps(), "properties": "{"})).await.expect(400);
    assert_eq!(response["detail"], "Properties are unparsable!");
    let many: Vec<Value> = (0..33).map(|_| json!({"id": "a"})).collect();
    let response = app.post(FUNNEL, json!({"events": many})).await.expect(400);
    assert_eq!(response["code"], "funnel_max_steps_exceeded");
    assert_eq!(app.call(Keys::OWNER, "PUT", FUNNEL, json!({})).await.status, 405);
    assert_eq!(app.post(FUNNEL, json!({"events": steps()})).await.status, 200);
}

#[tokio::test]
async fn dates_and_displays_that_cannot_be_read_are_refused_by_every_method() {
    let app = shop().await;
    let series = json!([{"kind": "EventsNode", "event": "bought"}]);
    let dated = json!({"kind": "TrendsQuery", "series": series, "dateRange": {"date_from": "2026-13-01"}});
    let displayed = json!({"kind": "TrendsQuery", "series": series, "trendsFilter": {"display": "Pie"}});
    for (name, value, expected, node) in
        [("date_from", "2026-13-01", "-7d", dated), ("display", "Pie", "ActionsLineGraph", displayed)]
    {
        let mut body = json!({"events": [{"id": "bought"}]});
        body[name] = json!(value);
        let query = format!("{TREND}?events=%5B%7B%22id%22%3A%22bought%22%7D%5D&{name}={value}");
        let responses = [
            ("GET", app.get(&query).await),
            ("POST", app.post(TREND, body).await),
            ("query", app.post(QUERY, json!({"query": node})).await),
            (
                "query in its envelope",
                app.post(QUERY, json!({"query": {"kind": "InsightVizNode", "source": node}})).await,
            ),
        ];
        for (how, response) in responses {
            let error = response.expect(400);
            assert_eq!(
                (&error["type"], &error["code"]),
                (&json!("validation_error"), &json!("invalid_input"))
            );
            assert_eq!(error["attr"], name, "{how}: {error}");
            let detail = error["detail"].as_str().unwrap();
            assert!(detail.contains(value) && detail.contains(expected), "{how}: {detail}");
        }
    }
    let funnel = json!({"events": steps(), "date_from": "2026-13-01"});
    assert_eq!(app.post(FUNNEL, funnel).await.expect(400)["attr"], "date_from");
}

#[tokio::test]
async fn a_window_of_zero_or_less_is_shown_as_the_default_in_links() {
    let app = shop().await;
    for window in [json!(0), json!("0"), json!(-3), Value::Null] {
        let body = json!({"events": steps(), "funnel_window_interval": window});
        let funnel = app.post(FUNNEL, body).await.expect(200);
        let link = funnel["result"][1]["converted_people_url"].as_str().unwrap();
        assert!(link.contains("funnel_window_interval=14"), "{window}: {link}");
        assert!(link.contains("funnel_window_interval_unit=day"), "{window}: {link}");
    }
    let three =
        json!({"events": steps(), "funnel_window_interval": 3, "funnel_window_interval_unit": "hour"});
    let funnel = app.post(FUNNEL, three).await.expect(200);
    let link = funnel["result"][1]["converted_people_url"].as_str().unwrap();
    assert!(link.contains("funnel_window_interval=3") && link.contains("funnel_window_interval_unit=hour"));
}

#[tokio::test]
async fn a_full_page_of_series_names_the_next() {
    let app = shop().await;
    let next = app.post(&format!("{TREND}?breakdown_limit=1"), json!({"events": steps()})).await.expect(200);
    assert_eq!(next["next"], format!("http://api.test{TREND}?breakdown_limit=1&offset=1"));
    let past = app
        .post(&format!("{TREND}?breakdown_limit=1&offset=2"), json!({"events": steps()}))
        .await
        .expect(200);
    assert_eq!(past["next"], Value::Null);
}

#[tokio::test]
async fn query_nodes_are_calculated() {
    let app = shop().await;
    let series =
        json!([{"kind": "EventsNode", "event": "signed up"}, {"kind": "EventsNode", "event": "bought"}]);
    let node = json!({"kind": "InsightVizNode", "source": {"kind": "FunnelsQuery", "series": series}});
    let response = app.post(QUERY, json!({"query": node})).await.expect(200);
    assert_eq!((&response["results"][1]["count"], &response["is_cached"]), (&json!(2), &json!(false)));
    assert!(response["hogql"].is_string() && response["cache_key"].is_string());
    let again = app.post(QUERY, json!({"query": node["source"]})).await.expect(200);
    assert_eq!((&again["results"], &again["is_cached"]), (&response["results"], &json!(true)));
    let trend =
        json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "bought", "math": "dau"}]});
    let missing = app.post(QUERY, json!({"query": trend, "refresh": "force_cache"})).await.expect(200);
    assert_eq!((&missing["results"], &missing["last_refresh"]), (&Value::Null, &Value::Null));
    let response = app.post(QUERY, json!({"query": trend})).await.expect(200);
    assert_eq!(response["results"][0]["data"], json!([0, 0, 0, 1, 1, 1, 0, 0]));
    assert_eq!(response["hasMore"], false);

    app.post(QUERY, json!({})).await.expect_invalid("required", "This field is required.", Some("query"));
    assert_eq!(app.post(QUERY, json!({"query": []})).await.expect(400)["code"], "parse_error");
    let other =
        app.post(QUERY, json!({"query": {"kind": "HogQLQuery", "query": "SELECT 1"}})).await.expect(400);
    assert_eq!((&other["code"], &other["attr"]), (&json!("invalid_input"), &json!("query")));
    assert!(other["detail"].as_str().unwrap().starts_with("Not supported yet: HogQLQuery. "), "{other}");
}

#[tokio::test]
async fn a_calculation_beyond_the_deadline_is_a_503_and_done_when_it_is_repeated() {
    let app = shop().await;
    let limits = CalculationLimits { time: Duration::ZERO, at_once: 1 };
    let hasty = Services {
        calculator: Calculator::with_limits(&app.services.app, app.services.events.clone(), limits),
        ..app.services.clone()
    };
    let body = json!({"events": steps()});
    let request = TestApp::request(Keys::OWNER, "POST", FUNNEL, body.clone());
    let response = api(&hasty).oneshot(request).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "5");
    assert_eq!(app.work().await, [JobOutcome::Done]);
    let response = app.post(FUNNEL, body).await.expect(200);
    assert_eq!((&response["is_cached"], &response["result"][1]["count"]), (&json!(true), &json!(2)));
}

#[tokio::test]
async fn concurrent_queries_wait_for_a_permit() {
    let app = shop().await;
    let limits = CalculationLimits { at_once: 1, ..CalculationLimits::default() };
    let narrow = Services {
        calculator: Calculator::with_limits(&app.services.app, app.services.events.clone(), limits),
        ..app.services.clone()
    };
    let router = api(&narrow);
    let responses = (1..=20).map(|hours| {
        let body = json!({"events": steps(), "funnel_window_interval": hours, "funnel_window_interval_unit": "hour"});
        router.clone().oneshot(TestApp::request(Keys::OWNER, "POST", FUNNEL, body))
    });
    for response in futures::future::join_all(responses).await {
        assert_eq!(response.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn compaction_changes_no_response() {
    let app = shop().await;
    let body = json!({"events": [{"id": "signed up"}, {"id": "bought", "math": "dau"}], "refresh": true});
    let before = app.post(TREND, body.clone()).await.expect(200);
    let now = pennon_tests::NOW.parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    let run = as_worker(compact_all(&app.services.events, now, CompactionRun::HOURLY)).await.unwrap();
    assert_eq!((run.projects, run.failed, run.events, run.unfinished), (2, 0, 8, false));
    assert_eq!(app.post(TREND, body.clone()).await.expect(200)["result"], before["result"]);
    let again = as_worker(compact_all(&app.services.events, now, CompactionRun::HOURLY)).await.unwrap();
    assert_eq!((again.blocks, again.events), (0, 0));
    for (project, shard) in (1..=2).flat_map(|project| (0..16).map(move |shard| (project, shard))) {
        let left = PartitionQuery::partition(format!("PROJECT#{project}#SHARD#{shard}"));
        assert!(
            app.services.app.store.blocks.query(left).await.unwrap().is_empty(),
            "replaced blocks are gone"
        );
    }
    assert_eq!(app.post(TREND, body).await.expect(200)["result"], before["result"]);
    let no_time = CompactionRun { time: Duration::ZERO, ..CompactionRun::HOURLY };
    let cut_short = as_worker(compact_all(&app.services.events, now, no_time)).await.unwrap();
    assert_eq!((cut_short.projects, cut_short.unfinished), (0, true));
}
