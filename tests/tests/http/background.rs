//! Background calculations, as their callers see them.

use pennon_calculation::jobs::JobOutcome;
use pennon_eventstore::Event;
use pennon_tests::{Keys, NOW, TestApp};
use serde_json::{Value, json};
use uuid::Uuid;

pub const INSIGHTS: &str = "/api/projects/1/insights/";
pub const QUERY: &str = "/api/projects/1/query/";

/// One more page view of a person on January 3.
pub async fn view(app: &TestApp, who: &str) {
    let micros = |text: &str| text.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp_micros();
    let event = Event {
        uuid: Uuid::new_v4(),
        event: "viewed".to_owned(),
        distinct_id: who.to_owned(),
        timestamp: micros("2026-01-03T03:21:34Z"),
        properties: json!({"page": who}).as_object().unwrap().clone(),
    };
    app.services.events.append(1, &[event], micros(NOW)).await.unwrap();
}

/// An installation in which two persons have viewed a page.
pub async fn viewed() -> TestApp {
    let app = TestApp::new().await;
    for who in ["ann", "bob"] {
        view(&app, who).await;
    }
    app
}

/// Views by day, since `from`: different queries for different ranges.
pub fn views(from: &str) -> Value {
    json!({"kind": "TrendsQuery", "dateRange": {"date_from": from},
           "series": [{"kind": "EventsNode", "event": "viewed"}]})
}

/// Saves an insight and returns its path.
pub async fn saved(app: &TestApp, query: Value) -> String {
    let made = app.post(INSIGHTS, json!({"query": query})).await.expect(201);
    format!("{INSIGHTS}{}/", made["id"])
}

/// The status of a calculation, and its HTTP status.
pub async fn status(app: &TestApp, id: &str) -> (u16, Value) {
    let response = app.get(&format!("{QUERY}{id}/")).await;
    (response.status.as_u16(), response.json()["query_status"].clone())
}

#[tokio::test]
async fn a_background_calculation_reports_its_state() {
    let app = viewed().await;
    let path = saved(&app, views("-7d")).await;
    let requested = app.get(&format!("{path}?refresh=async")).await.expect(200);
    let key = requested["filters_hash"].as_str().unwrap();
    let waiting = json!({
        "id": key, "team_id": 1, "insight_id": requested["id"], "dashboard_id": null, "query_async": true,
        "complete": false, "error": false, "error_message": null, "results": null,
        "start_time": NOW, "pickup_time": null, "end_time": null, "expiration_time": null,
        "task_id": requested["query_status"]["task_id"], "query_progress": null, "labels": null,
    });
    assert_eq!(requested["query_status"], waiting);
    for empty in ["result", "last_refresh", "cache_target_age", "next_allowed_client_refresh"] {
        assert_eq!(requested[empty], Value::Null, "{empty}");
    }
    assert_eq!(requested["is_cached"], false);
    // A concurrent request reports the same calculation.
    for refresh in ["force_cache", "lazy_async", "async"] {
        let meanwhile = app.get(&format!("{path}?refresh={refresh}")).await.expect(200);
        assert_eq!(meanwhile["query_status"], waiting, "{refresh}");
    }
    let page = app.get(INSIGHTS).await.expect(200);
    assert_eq!(page["results"][0]["query_status"], waiting);
    assert_eq!(status(&app, key).await, (202, waiting));

    assert_eq!(app.work().await, [JobOutcome::Done]);
    assert_eq!(app.jobs().await, []);
    let done = app.get(&path).await.expect(200);
    assert_eq!((&done["query_status"], &done["is_cached"]), (&Value::Null, &json!(true)));
    assert_eq!(done["result"][0]["count"], 2.0);
    assert_eq!(done["last_refresh"], NOW);
    let (code, reported) = status(&app, key).await;
    assert_eq!((code, &reported["complete"], &reported["error"]), (200, &json!(true), &json!(false)));
    assert_eq!(reported["results"]["results"], done["result"]);
    assert_eq!(reported["results"]["last_refresh"], NOW);
    assert_eq!(reported["results"]["cache_target_age"], done["cache_target_age"]);
    assert_eq!(
        (&reported["end_time"], &reported["expiration_time"]),
        (&json!(NOW), &json!("2026-01-05T10:10:00Z"))
    );
    let later = |now: &'static str| {
        let path = format!("{QUERY}{key}/");
        let app = &app;
        async move { app.at(now, "GET", &path, Value::Null).await.status }
    };
    assert_eq!(later("2026-01-05T10:09:59Z").await, 200);
    assert_eq!(later("2026-01-05T10:10:00Z").await, 404);
    assert_eq!(app.get(&format!("/api/projects/2/query/{key}/")).await.status, 404);
}

#[tokio::test]
async fn a_caller_may_name_its_calculation_and_cancel_it() {
    let app = viewed().await;
    let path = saved(&app, views("-7d")).await;
    let longest = "x".repeat(1000);
    let requested = app.get(&format!("{path}?refresh=async&client_query_id={longest}")).await.expect(200);
    assert_eq!(requested["query_status"]["id"], longest);
    let (code, reported) = status(&app, &longest).await;
    assert_eq!((code, &reported["insight_id"]), (202, &requested["id"]));
    let refused = app.get(&format!("{path}?client_query_id={longest}x")).await.expect(400);
    assert_eq!((&refused["attr"], &refused["code"]), (&json!("client_query_id"), &json!("max_length")));
    assert_eq!(status(&app, &format!("{longest}x")).await.0, 404);

    // A second caller waits for the same result; it is calculated once, and continues without the first caller.
    let other =
        app.post(QUERY, json!({"query": views("-7d"), "refresh": "async", "client_query_id": "two"})).await;
    let other = other.expect(200)["query_status"].clone();
    assert_eq!((&other["id"], &other["task_id"]), (&json!("two"), &reported["task_id"]));
    assert_eq!(app.jobs().await.len(), 1);
    let cancelled = app.post(&format!("{INSIGHTS}cancel/"), json!({"client_query_id": longest})).await;
    assert_eq!((cancelled.status.as_u16(), cancelled.text.as_str()), (200, ""));
    assert_eq!(status(&app, &longest).await.0, 404);
    assert_eq!(status(&app, "two").await.0, 202);
    assert_eq!(app.jobs().await.len(), 1);
    // Without an id nothing is cancelled.
    for body in [json!({}), Value::Null, json!({"client_query_id": null}), json!({"client_query_id": ""})] {
        let response = app.post(&format!("{INSIGHTS}cancel/"), body.clone()).await;
        assert_eq!((response.status.as_u16(), response.text.as_str()), (200, ""), "{body}");
    }
    for id in [json!(7), json!(["two"])] {
        let refused = app.post(&format!("{INSIGHTS}cancel/"), json!({"client_query_id": id})).await;
        refused.expect_invalid("invalid_input", "Not a valid string.", Some("client_query_id"));
    }
    assert_eq!((status(&app, "two").await.0, app.jobs().await.len()), (202, 1));
    // It is cancelled with its last waiter.
    let cancelled = app.call(Keys::OWNER, "DELETE", &format!("{QUERY}two/"), Value::Null).await;
    assert_eq!((cancelled.status.as_u16(), cancelled.text.as_str()), (204, ""));
    assert_eq!((status(&app, "two").await.0, app.jobs().await), (404, vec![]));
    assert_eq!(app.get(&path).await.expect(200)["query_status"], Value::Null);
    // Also if there is no such calculation.
    for id in ["two", "never", &format!("{longest}x")] {
        let cancel = app.post(&format!("{INSIGHTS}cancel/"), json!({"client_query_id": id})).await;
        assert_eq!(cancel.status, 200);
    }
}

#[tokio::test]
async fn stale_results_are_returned_while_new_ones_are_calculated() {
    let app = viewed().await;
    let path = saved(&app, views("-7d")).await;
    app.get(&format!("{path}?refresh=blocking")).await.expect(200);
    view(&app, "cid").await;
    let later = "2026-01-05T17:00:00Z";
    let get = async |refresh: &str| {
        app.at(later, "GET", &format!("{path}?refresh={refresh}"), Value::Null).await.expect(200)
    };
    let stale = get("async").await;
    assert_eq!((&stale["result"][0]["count"], &stale["last_refresh"]), (&json!(2.0), &json!(NOW)));
    assert_eq!((&stale["is_cached"], &stale["query_status"]["complete"]), (&json!(true), &json!(false)));
    let nothing = get("force_async").await;
    assert_eq!((&nothing["result"], &nothing["last_refresh"]), (&Value::Null, &Value::Null));
    assert_eq!(
        nothing["query_status"], stale["query_status"],
        "no worker has begun, so it will read all events"
    );
    assert_eq!(app.work().await, [JobOutcome::Done]);
    let fresh = get("force_cache").await;
    assert_eq!((&fresh["result"][0]["count"], &fresh["last_refresh"]), (&json!(3.0), &json!(later)));
    // A request that accepts a cached result is not calculated if another request did so meanwhile.
    let other = saved(&app, views("-3d")).await;
    app.get(&format!("{other}?refresh=async")).await.expect(200);
    app.get(&format!("{other}?refresh=blocking")).await.expect(200);
    view(&app, "dot").await;
    assert_eq!(app.work().await, [JobOutcome::Done]);
    assert_eq!(app.get(&other).await.expect(200)["result"][0]["count"], 3.0);
    app.get(&format!("{other}?refresh=force_async")).await.expect(200);
    assert_eq!(app.work().await, [JobOutcome::Done]);
    assert_eq!(app.get(&other).await.expect(200)["result"][0]["count"], 4.0);
}

/// A query that is refused when it is calculated: there is no such cohort.
fn refused() -> Value {
    json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "viewed"}],
           "properties": [{"key": "id", "type": "cohort", "value": 77}]})
}

#[tokio::test]
async fn a_failure_is_reported_for_ten_minutes_or_until_there_is_a_result() {
    let app = viewed().await;
    let path = saved(&app, refused()).await;
    let requested = app.get(&format!("{path}?refresh=async")).await.expect(200);
    assert_eq!(app.work().await, [JobOutcome::Done]);
    let failed = app.get(&path).await.expect(200);
    let reported = &failed["query_status"];
    assert_eq!((&reported["complete"], &reported["error"]), (&json!(true), &json!(true)));
    let message = reported["error_message"].as_str().unwrap();
    assert!(message.contains("77"), "{message}");
    assert_eq!((&failed["result"], &failed["last_refresh"]), (&Value::Null, &Value::Null));
    let key = requested["filters_hash"].as_str().unwrap();
    assert_eq!(status(&app, key).await, (400, reported_of(reported, Value::Null)));
    // The same caller gets the same report and starts nothing, unless it forces a start.
    for refresh in ["async", "lazy_async"] {
        let again = app.get(&format!("{path}?refresh={refresh}")).await.expect(200);
        assert_eq!(&again["query_status"], reported);
    }
    assert_eq!(app.jobs().await, []);
    let late = app.at("2026-01-05T10:10:00Z", "GET", &path, Value::Null).await.expect(200);
    assert_eq!(late["query_status"], Value::Null);
    let anew = app.get(&format!("{path}?refresh=force_async")).await.expect(200);
    assert_eq!((&anew["query_status"]["complete"], app.jobs().await.len()), (&json!(false), 1));
    assert_ne!(anew["query_status"]["task_id"], reported["task_id"]);
    let blocking = app.get(&format!("{path}?refresh=blocking")).await;
    assert_eq!(blocking.status, 400);
    // In a list it is a row without a result.
    saved(&app, views("-7d")).await;
    let page = app.get(&format!("{INSIGHTS}?refresh=blocking&order=id")).await.expect(200);
    assert_eq!(page["results"][0]["query_status"]["error"], true);
    assert_eq!(page["results"][1]["result"][0]["count"], 2.0);
}

/// A status as the query endpoint shows it: for the insight that it was started for, with its results.
fn reported_of(reported: &Value, results: Value) -> Value {
    let mut reported = reported.clone();
    reported["results"] = results;
    reported
}

#[tokio::test]
async fn a_page_starts_each_query_once_and_all_of_them_together() {
    let app = viewed().await;
    for days in 1..=12 {
        saved(&app, views(&format!("-{days}d"))).await;
        saved(&app, views(&format!("-{days}d"))).await;
    }
    app.services.app.keys.clear();
    app.round_trips.reset();
    let page = app.get(&format!("{INSIGHTS}?refresh=async&order=id&client_query_id=page")).await.expect(200);
    let writes = app.round_trips.calls().iter().filter(|call| call.operation == "TransactWriteItems").count();
    assert_eq!(writes, 1);
    assert!(app.round_trips.sequential() <= 4, "{:?}", app.round_trips.calls());
    let rows = page["results"].as_array().unwrap();
    assert_eq!((rows.len(), app.jobs().await.len()), (24, 12));
    for pair in rows.chunks(2) {
        assert_eq!(pair[0]["query_status"]["task_id"], pair[1]["query_status"]["task_id"]);
        assert_eq!(pair[1]["query_status"]["id"], "page");
        assert_eq!(pair[1]["query_status"]["insight_id"], pair[1]["id"]);
    }
    // One id identifies all of them.
    app.call(Keys::OWNER, "DELETE", &format!("{QUERY}page/"), Value::Null).await;
    assert_eq!(app.jobs().await, []);
}

#[tokio::test]
async fn many_queries_of_a_page_are_started_in_a_few_transactions() {
    let app = viewed().await;
    for hours in 1..=90 {
        saved(&app, views(&format!("-{hours}h"))).await;
    }
    app.round_trips.reset();
    app.get(&format!("{INSIGHTS}?refresh=async&client_query_id=page")).await.expect(200);
    let writes = app.round_trips.calls().iter().filter(|call| call.operation == "TransactWriteItems").count();
    assert_eq!((writes, app.jobs().await.len()), (3, 90));
    let cancelled = app.post(&format!("{INSIGHTS}cancel/"), json!({"client_query_id": "page"})).await;
    assert_eq!(cancelled.status, 200);
    assert_eq!(app.jobs().await, []);
}

#[tokio::test]
async fn a_status_takes_no_additional_round_trip() {
    let app = viewed().await;
    let path = saved(&app, views("-7d")).await;
    let trips = async |path: &str| {
        app.services.app.keys.clear();
        app.round_trips.reset();
        app.get(path).await.expect(200);
        app.round_trips.sequential()
    };
    assert_eq!(trips(&format!("{path}?refresh=async")).await, 3, "what is read, and the start");
    assert_eq!(trips(&path).await, 2);
    app.work().await;
    assert_eq!(trips(&path).await, 2);
}
