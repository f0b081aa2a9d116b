//! Queries that take minutes and are cancelled: by their deadline, or because the client hung up. Their resources are released
//! again right after.
//!
//! Each of them takes many times longer than the tests wait for what they held.

use std::time::Duration;

use axum::Router;
use axum::http::Request;
use pennon::api::{Services, api};
use pennon_calculation::jobs::{JobLimits, JobOutcome};
use pennon_calculation::{CalculationLimits, Calculator};
use pennon_eventstore::{Event, PersonRecord};
use pennon_tests::{Keys, TestApp, as_worker, now_micros};
use serde_json::{Value, json};
use tower::ServiceExt;
use uuid::Uuid;

use crate::background::{QUERY, status};

const TREND: &str = "/api/projects/1/insights/trend/";
const BLAST: &str = "/api/projects/1/feature_flags/user_blast_radius/";
const FLAGS: &str = "/api/projects/1/feature_flags/";
const PERSONS: &str = "/api/projects/1/persons/";
const EVENTS: &str = "/api/projects/1/events/";

/// The maximum time until a free core is noticed on a busy machine; the queries themselves take longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time after which a query is cancelled during its calculation.
const GIVEN_UP: Duration = Duration::from_secs(3);

/// Threads for work that takes long, where a test keeps all of them busy.
const BLOCKING_THREADS: usize = 4;

/// A search of a text of `a` and `b` for it remembers a hundred places at once.
const SLOW_PATTERN: &str = "[ab]*a[ab]{100}c";

/// Texts of `a` and `b` without a period, each another one.
fn mixed(length: usize, seed: u64) -> String {
    let mut state = seed * 2 + 1;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if state >> 60 & 1 == 0 { 'a' } else { 'b' }
    };
    (0..length).map(letter).collect()
}

async fn with_long_texts(app: &TestApp) {
    let event = |index: u64| {
        let properties =
            json!({"same": format!("{}{index}", "a".repeat(60_000)), "mixed": mixed(60_000, index)});
        Event {
            uuid: Uuid::new_v4(),
            event: "seen".to_owned(),
            distinct_id: format!("p{index}"),
            timestamp: now_micros() - 3_600_000_000,
            properties: properties.as_object().unwrap().clone(),
        }
    };
    let events: Vec<Event> = (0..400).map(event).collect();
    // A block holds a few megabytes.
    for events in events.chunks(20) {
        app.services.events.append(1, events, now_micros()).await.unwrap();
    }
}

fn trend(more: Value) -> Value {
    let mut body = json!({"events": [{"id": "seen"}], "date_from": "2026-01-05", "refresh": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Queries of each kind that looks at every distinct value.
fn slow_queries() -> Vec<(&'static str, Value)> {
    let like = format!("properties.same like '%{}b%'", "a".repeat(2_000));
    let expression =
        json!({"events": [{"id": "seen", "math": "hogql", "math_hogql": format!("countIf({like})")}]});
    let patterns: Vec<Value> = (0..20)
        .map(|more| json!({"key": "mixed", "operator": "regex", "value": format!("{SLOW_PATTERN}{more}")}))
        .collect();
    vec![
        ("an expression as a filter", json!({"properties": [{"type": "hogql", "key": like}]})),
        ("an expression as a breakdown", json!({"breakdown": like, "breakdown_type": "hogql"})),
        ("an expression that counts", expression),
        ("patterns", json!({"properties": {"type": "OR", "values": [{"type": "OR", "values": patterns}]}})),
    ]
}

/// A router with one permit to calculate, and its calculator.
fn narrow(app: &TestApp, time: Duration) -> (Router, Calculator) {
    let limits = CalculationLimits { time, at_once: 1 };
    let calculator = Calculator::with_limits(&app.services.app, app.services.events.clone(), limits);
    let services = Services { calculator: calculator.clone(), ..app.services.clone() };
    (api(&services), calculator)
}

fn request(path: &str, body: Value) -> Request<axum::body::Body> {
    TestApp::request(Keys::OWNER, "POST", path, body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_past_its_deadline_releases_its_core() {
    let app = TestApp::new().await;
    with_long_texts(&app).await;
    for (name, query) in slow_queries() {
        let (router, calculator) = narrow(&app, GIVEN_UP);
        let response = router.oneshot(request(TREND, trend(query))).await.unwrap();
        assert_eq!(response.status(), 503, "{name}");
        // The permit is held until the last thread has stopped.
        let permit = tokio::time::timeout(PATIENCE, calculator.acquire_shared_permit()).await;
        assert!(permit.is_ok_and(|permit| permit.is_ok()), "{name} goes on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_whose_client_hung_up_releases_its_core() {
    let app = TestApp::new().await;
    with_long_texts(&app).await;
    for (name, query) in slow_queries() {
        let (router, _) = narrow(&app, PATIENCE);
        let slow = router.clone().oneshot(request(TREND, trend(query)));
        assert!(tokio::time::timeout(GIVEN_UP, slow).await.is_err(), "{name} is not slow");
        let quick = router.oneshot(request(TREND, trend(json!({})))).await.unwrap();
        assert_eq!(quick.status(), 200, "{name} goes on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blast_radius_whose_client_hung_up_releases_its_permit() {
    let app = TestApp::new().await;
    with_long_persons(&app).await;
    let patterns: Vec<String> = (0..50).map(|more| format!("{SLOW_PATTERN}{more}")).collect();
    let body = |operator: &str, value: Value| {
        let property = json!({"key": "mixed", "type": "person", "operator": operator, "value": value});
        json!({"condition": {"properties": [property], "rollout_percentage": 100}})
    };
    let slow = app.post(BLAST, body("regex", json!(patterns)));
    assert!(tokio::time::timeout(GIVEN_UP, slow).await.is_err(), "it is not slow");
    let quick = app.post(BLAST, body("icontains", json!("ab"))).await.expect(200);
    assert_eq!(quick["affected"], 100);
}

/// Persons with long texts, each another one.
async fn with_long_persons(app: &TestApp) {
    let person = |index: u64| PersonRecord {
        distinct_ids: vec![format!("p{index}")],
        properties: json!({"mixed": mixed(60_000, index)}).as_object().unwrap().clone(),
        created_at: None,
    };
    app.services.events.add_persons(1, (0..100).map(person).collect(), now_micros()).await.unwrap();
}

/// Properties of a person that take long to compare, one of them enough.
fn slow_properties(count: usize) -> Vec<Value> {
    slow_properties_of("person", count)
}

/// The same for this type of properties.
fn slow_properties_of(kind: &str, count: usize) -> Vec<Value> {
    let property = |more: usize| json!({"key": "mixed", "type": kind, "operator": "regex", "value": format!("{SLOW_PATTERN}{more}")});
    (0..count).map(property).collect()
}

/// So many properties of this type, one of them enough, as a query parameter.
fn slow_parameter(kind: &str, count: usize) -> String {
    let filter = json!({"type": "OR", "values": slow_properties_of(kind, count)}).to_string();
    filter.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Creates a flag that is on for no person, after every pattern was searched; returns its id.
async fn slow_flag(app: &TestApp, key: &str) -> u64 {
    let groups: Vec<Value> =
        slow_properties(50).into_iter().map(|property| json!({"properties": [property]})).collect();
    let made = app.post(FLAGS, json!({"key": key, "filters": {"groups": groups}})).await.expect(201);
    made["id"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_cohort_whose_client_hung_up_releases_its_permit() {
    let app = TestApp::new().await;
    with_long_persons(&app).await;
    let flag = slow_flag(&app, "slow").await;
    let path = format!("{FLAGS}{flag}/create_static_cohort_for_flag/");
    let slow = app.post(&path, json!({}));
    assert!(tokio::time::timeout(GIVEN_UP, slow).await.is_err(), "it is not slow");
    // One request of a process goes through all persons at a time.
    let property = json!({"key": "mixed", "type": "person", "operator": "icontains", "value": "ab"});
    let quick = app.post(BLAST, json!({"condition": {"properties": [property]}})).await.expect(200);
    assert_eq!(quick["affected"], 100);
    let cohorts = app.get("/api/projects/1/cohorts/").await.expect(200);
    assert_eq!(cohorts["count"], 0, "no cohort was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_list_whose_client_hung_up_releases_its_core() {
    let app = TestApp::new().await;
    with_long_persons(&app).await;
    let filter = slow_parameter("person", 50);
    let (router, _) = narrow(&app, PATIENCE);
    let get = |path: &str| TestApp::request(Keys::OWNER, "GET", path, Value::Null);
    let slow = router.clone().oneshot(get(&format!("{PERSONS}?properties={filter}")));
    assert!(tokio::time::timeout(GIVEN_UP, slow).await.is_err(), "it is not slow");
    let quick = router.oneshot(get(&format!("{PERSONS}?search=p1"))).await.unwrap();
    assert_eq!(quick.status(), 200, "it goes on");
}

/// Sends a slow request for each of the two threads that serve: other requests get responses meanwhile, and the resources of the
/// slow ones are released after their clients have hung up.
async fn assert_leaves_threads_to_others(app: &TestApp, path: &str) {
    const SLOW: usize = 2;
    let limits = CalculationLimits { time: PATIENCE, at_once: SLOW };
    let calculator = Calculator::with_limits(&app.services.app, app.services.events.clone(), limits);
    let router = api(&Services { calculator: calculator.clone(), ..app.services.clone() });
    let send = |path: &str| {
        tokio::spawn(router.clone().oneshot(TestApp::request(Keys::OWNER, "GET", path, Value::Null)))
    };
    let slow: Vec<_> = (0..SLOW).map(|_| send(path)).collect();
    let clients: Vec<_> = slow.iter().map(tokio::task::JoinHandle::abort_handle).collect();
    let mut slow = std::pin::pin!(futures::future::join_all(slow));
    assert!(tokio::time::timeout(GIVEN_UP, &mut slow).await.is_err(), "it is not slow");
    let quick = tokio::time::timeout(PATIENCE, send("/_health")).await.expect("all threads are busy");
    assert_eq!(quick.unwrap().unwrap().status(), 200);
    assert!(futures::poll!(slow.as_mut()).is_pending(), "the quick one had to wait for a slow one");
    clients.iter().for_each(tokio::task::AbortHandle::abort);
    let permits =
        async { tokio::try_join!(calculator.acquire_shared_permit(), calculator.acquire_shared_permit()) };
    let permits = tokio::time::timeout(PATIENCE, permits).await;
    assert!(permits.is_ok_and(|permits| permits.is_ok()), "they go on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_list_whose_client_hung_up_releases_its_core() {
    let app = TestApp::new().await;
    with_long_texts(&app).await;
    let path = format!("{EVENTS}?properties={}", slow_parameter("event", 50));
    assert_leaves_threads_to_others(&app, &path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lookup_of_a_person_whose_client_hung_up_releases_its_core() {
    let app = TestApp::new().await;
    with_long_persons(&app).await;
    // As many patterns as a filter may have.
    let path = format!("{PERSONS}?distinct_id=p1&properties={}", slow_parameter("person", 64));
    assert_leaves_threads_to_others(&app, &path).await;
}

#[tokio::test]
async fn the_events_of_a_page_share_what_it_may_compare() {
    let app = TestApp::new().await;
    with_long_texts(&app).await;
    // Each of 400 texts of 60,000 bytes with each of these is a third more than a request may compare. The first letter decides,
    // so that it takes no time.
    let values: Vec<String> = (0..2_000).map(|value| format!("z{value}")).collect();
    let filter = json!([{"key": "mixed", "type": "event", "operator": "gt", "value": values}]);
    let filter: String = filter.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
    let refused = app.get(&format!("{EVENTS}?properties={filter}")).await.expect(400);
    assert!(refused["detail"].as_str().unwrap().contains("compare too many values"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_a_cohort_whose_client_hung_up_releases_its_core() {
    let app = TestApp::new().await;
    with_long_persons(&app).await;
    let (router, _) = narrow(&app, PATIENCE);
    let rules =
        json!({"properties": {"type": "OR", "values": [{"type": "OR", "values": slow_properties(50)}]}});
    let slow =
        router.clone().oneshot(request("/api/projects/1/cohorts/", json!({"name": "c", "filters": rules})));
    assert!(tokio::time::timeout(GIVEN_UP, slow).await.is_err(), "it is not slow");
    let quick = router.oneshot(request(TREND, trend(json!({})))).await.unwrap();
    assert_eq!(quick.status(), 200, "it goes on");
}

/// A runtime whose blocking threads are all busy with what takes long: anything else needs one of them.
#[test]
fn an_evaluation_whose_client_hung_up_releases_its_thread() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime =
        runtime.worker_threads(2).max_blocking_threads(BLOCKING_THREADS).enable_all().build().unwrap();
    runtime.block_on(async {
        let app = TestApp::new().await;
        for flag in 0..20 {
            slow_flag(&app, &format!("slow{flag}")).await;
        }
        let evaluate = |text: String| {
            let person = json!({"mixed": text});
            let body = json!({"token": "phc_project_1", "distinct_id": "ann", "person_properties": person});
            app.send(TestApp::request("", "POST", "/flags/?v=2", body))
        };
        let slow = (0..2 * BLOCKING_THREADS as u64).map(|seed| evaluate(mixed(60_000, seed)));
        let slow = futures::future::join_all(slow);
        assert!(tokio::time::timeout(GIVEN_UP, slow).await.is_err(), "it is not slow");
        // Long enough that it is evaluated on a thread that may be busy.
        let quick = tokio::time::timeout(PATIENCE, evaluate(mixed(500, 0))).await;
        let quick = quick.expect("the threads go on").expect(200);
        assert_eq!(quick["flags"]["slow0"]["enabled"], false);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_query_that_is_deleted_releases_its_core() {
    let app = TestApp::new().await;
    with_long_texts(&app).await;
    for (name, query) in slow_queries() {
        let (router, calculator) = narrow(&app, PATIENCE);
        let insight = json!({"insight": "TRENDS", "events": [{"id": "seen"}], "date_from": "2026-01-05"});
        let mut filters = insight.as_object().unwrap().clone();
        filters.extend(query.as_object().unwrap().clone());
        let saved = app.post("/api/projects/1/insights/", json!({"filters": filters})).await.expect(201);
        let path = format!("/api/projects/1/insights/{}/?refresh=async", saved["id"]);
        let started = app.get(&path).await.expect(200);
        let id = started["query_status"]["id"].as_str().unwrap().to_owned();
        let job = app.jobs().await[0];
        let limits = JobLimits { beat: Duration::from_millis(20), ..JobLimits::default() };
        let worker = tokio::spawn(async move { as_worker(calculator.run_job(job, limits)).await });
        // Until the events are read, and counting begins.
        let rows = async || status(&app, &id).await.1["query_progress"]["estimated_rows_total"].as_u64();
        let begun = tokio::time::timeout(PATIENCE, async {
            while rows().await.is_none_or(|rows| rows == 0) {
                tokio::task::yield_now().await;
            }
        });
        begun.await.unwrap_or_else(|_| panic!("{name} does not begin"));
        let deleted = app.call(Keys::OWNER, "DELETE", &format!("{QUERY}{id}/"), Value::Null).await;
        assert_eq!(deleted.status, 204, "{name}");
        let outcome = tokio::time::timeout(PATIENCE, worker).await;
        assert_eq!(outcome.expect("it ends").unwrap(), JobOutcome::Dropped, "{name}");
        let quick = router.oneshot(request(TREND, trend(json!({})))).await.unwrap();
        assert_eq!(quick.status(), 200, "{name} goes on");
    }
}

#[tokio::test]
async fn a_pattern_that_is_too_large_for_a_text_is_refused_by_queries_and_matches_nothing_in_flags() {
    let app = TestApp::new().await;
    with_long_texts(&app).await;
    let pattern = "a{1000}a{1000}a{1000}";
    let filter = json!({"key": "same", "operator": "regex", "value": pattern});
    let refused = app.post(TREND, trend(json!({"properties": [filter]}))).await.expect(400);
    assert_eq!(refused["code"], "invalid_input");
    assert!(refused["detail"].as_str().unwrap().contains("too many to search a value of 6000"), "{refused}");
    let person = |id: &str, length: usize| PersonRecord {
        distinct_ids: vec![id.to_owned()],
        properties: json!({"text": "a".repeat(length)}).as_object().unwrap().clone(),
        created_at: None,
    };
    let persons = vec![person("short", 4_000), person("long", 800_000)];
    app.services.events.add_persons(1, persons, now_micros()).await.unwrap();
    // The persons of the 400 events have no such property, which is not found in it.
    for (operator, affected) in [("regex", 1), ("not_regex", 400)] {
        let property = json!({"key": "text", "type": "person", "operator": operator, "value": pattern});
        let body = json!({"condition": {"properties": [property], "rollout_percentage": 100}});
        let radius = app.post(BLAST, body).await.expect(200);
        assert_eq!(radius["affected"], affected, "{operator}: {radius}");
    }
}
