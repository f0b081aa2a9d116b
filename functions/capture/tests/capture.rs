//! The capture routes over the embedded DynamoDB.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt;
use pennon::embedded::Embedded;
use pennon_analytics::scan::{ColumnKey, EventSelection, ScanRequest};
use pennon_capture::{CaptureBuffer, buffered_router, store_messages};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::http::edge;
use pennon_core::lambda::QueueMessage;
use pennon_core::model::TokenRow;
use pennon_core::queue::{MessageSender, QueueError, SendFuture};
use pennon_core::store::{Item, WriteCondition, keys};
use pennon_eventstore::{EventStore, MERGES_MAX};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

const PROJECT: u64 = 3;

struct Place {
    router: Router,
    events: EventStore,
    _directory: TempDir,
}

async fn place() -> Place {
    place_with(None).await
}

async fn place_with(queue: Option<Arc<Queue>>) -> Place {
    let store = Embedded::in_memory().await.unwrap().store(None);
    let row = Item::new(keys::token("phc_1"), &TokenRow { project: PROJECT }).unwrap();
    store.records.put(row, WriteCondition::Absent).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let events = EventStore::open(store.clone(), &format!("file://{}", directory.path().display())).unwrap();
    let app = App::new(store, Clock::Running);
    let buffer = queue.map(|queue| CaptureBuffer::new(queue));
    let router = edge(buffered_router(&app, &events, buffer), Clock::Running);
    Place { router, events, _directory: directory }
}

impl Place {
    async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn post(&self, path: &str, body: impl Into<Body>) -> (StatusCode, Value) {
        self.send(Request::post(path).header("content-type", "application/json").body(body.into()).unwrap())
            .await
    }

    /// Names of the stored events.
    async fn stored(&self) -> Vec<String> {
        self.scanned(EventSelection::All).await
    }

    /// The number of events of this name that a query for only them finds.
    async fn named(&self, name: &str) -> usize {
        self.scanned(EventSelection::Named([name.to_owned()].into())).await.len()
    }

    async fn scanned(&self, events: EventSelection) -> Vec<String> {
        let request = ScanRequest {
            events,
            from: i64::MIN,
            to: i64::MAX,
            columns: BTreeSet::from([ColumnKey::DistinctId]),
            arrivals: true,
        };
        let scan = self.events.scan(PROJECT, &[], &request).await.unwrap();
        let runs = scan.partitions.into_iter().flat_map(|partition| partition.runs);
        let mut names = runs.flat_map(|run| vec![run.event; run.times.len()]).collect::<Vec<_>>();
        names.sort();
        names
    }
}

fn event(name: &str) -> Value {
    json!({"event": name, "distinct_id": "ada", "properties": {"token": "phc_1"}})
}

#[tokio::test]
async fn every_route_stores_and_confirms() {
    let place = place().await;
    let batch =
        json!({"api_key": "phc_1", "batch": [event("a")], "sent_at": "2024-01-01T00:00:00Z"}).to_string();
    for path in ["/batch/", "/batch", "/capture/", "/e/?_=1704067200000", "/i/v0/e/?ip=1", "/e"] {
        assert_eq!(place.post(path, batch.clone()).await, (StatusCode::OK, json!({"status": 1})), "{path}");
    }
    assert_eq!(place.post("/e/", event("b").to_string()).await.0, StatusCode::OK);
    assert_eq!(place.post("/e/", json!([event("b"), event("c")]).to_string()).await.0, StatusCode::OK);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(event("d").to_string().as_bytes()).unwrap();
    let request = Request::post("/e/")
        .header("content-type", "text/plain")
        .body(packed.finish().unwrap().into())
        .unwrap();
    assert_eq!(place.send(request).await.0, StatusCode::OK);
    let mut plain = event("e");
    plain["properties"] = json!({});
    assert_eq!(place.post("/capture/?token=phc_1", plain.to_string()).await.0, StatusCode::OK);
    let uuid = "01890000-0000-7000-8000-000000000001";
    plain["uuid"] = uuid.into();
    let v1 = Request::post("/i/v1/analytics/events").header("authorization", "Bearer phc_1");
    let v1 =
        v1.body(json!({"created_at": "2024-01-01T00:00:00Z", "batch": [plain]}).to_string().into()).unwrap();
    assert_eq!(place.send(v1).await, (StatusCode::OK, json!({"results": {uuid: {"result": "ok"}}})));
    assert_eq!(place.stored().await, ["a", "a", "a", "a", "a", "a", "b", "b", "c", "d", "e", "e"]);
}

#[tokio::test]
async fn a_batch_that_is_sent_again_counts_once() {
    let place = place().await;
    let mut one = event("a");
    one["uuid"] = "01890000-0000-7000-8000-000000000001".into();
    let batch = json!({"api_key": "phc_1", "batch": [one]}).to_string();
    for _ in 0..3 {
        assert_eq!(place.post("/batch/", batch.clone()).await.0, StatusCode::OK);
    }
    assert_eq!(place.stored().await, ["a"]);
}

#[tokio::test]
async fn a_rejected_request_stores_nothing() {
    let place = place().await;
    let bad = json!({"api_key": "phc_1", "batch": [event("a"), {"event": "b"}]}).to_string();
    let (status, body) = place.post("/batch/", bad).await;
    assert_eq!((status, &body["attr"]), (StatusCode::BAD_REQUEST, &json!("batch[1].distinct_id")));
    let (status, body) =
        place.post("/batch/", json!({"api_key": "phc_2", "batch": [event("a")]}).to_string()).await;
    assert_eq!((status, &body["code"]), (StatusCode::UNAUTHORIZED, &json!("invalid_api_key")));
    assert_eq!(body["type"], "authentication_error");
    let (status, body) =
        place.post("/batch/", json!({"batch": [{"event": "a", "distinct_id": "d"}]}).to_string()).await;
    assert_eq!((status, &body["code"]), (StatusCode::UNAUTHORIZED, &json!("missing_api_key")));
    assert_eq!(place.post("/batch/", "{").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(place.post("/batch/", "").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(place.post("/batch/", vec![b' '; 6_000_001]).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let long = json!({"api_key": "k".repeat(5000), "batch": [event("a")]}).to_string();
    assert_eq!(place.post("/batch/", long).await.0, StatusCode::UNAUTHORIZED);
    assert!(place.stored().await.is_empty());
}

#[tokio::test]
async fn browsers_may_send_requests_from_any_origin() {
    let place = place().await;
    for path in ["/e/", "/i/v0/e/", "/batch/", "/capture/", "/i/v1/analytics/events"] {
        let request = Request::options(path)
            .header("origin", "https://shop.example")
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type, posthog-sdk-info")
            .body(Body::empty())
            .unwrap();
        let response = place.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT, "{path}");
        assert_eq!(response.headers()["access-control-allow-origin"], "https://shop.example");
        assert_eq!(response.headers()["access-control-allow-credentials"], "true");
        assert_eq!(response.headers()["access-control-allow-methods"], "GET, POST, OPTIONS");
        assert_eq!(response.headers()["vary"], "Origin");
        let allowed = response.headers()["access-control-allow-headers"].to_str().unwrap().to_lowercase();
        assert!(allowed.contains("content-type") && allowed.contains("posthog-sdk-info"), "{allowed}");
    }
    let get = Request::get("/batch/").body(Body::empty()).unwrap();
    assert_eq!(place.send(get).await.0, StatusCode::METHOD_NOT_ALLOWED);
}

/// A copy counts once, whether the first event is in a block or in a segment, and for any name and time of the copy.
#[tokio::test]
async fn a_uuid_is_one_event_across_blocks_and_segments() {
    let place = place().await;
    let with = |name: &str, uuid: u32, timestamp: &str| {
        let mut event = event(name);
        event["uuid"] = format!("01890000-0000-7000-8000-{uuid:012}").into();
        event["timestamp"] = timestamp.into();
        json!({"api_key": "phc_1", "batch": [event]}).to_string()
    };
    let now = 1_900_000_000_000_000;
    assert_eq!(place.post("/batch/", with("first", 1, "2024-01-01T00:00:00Z")).await.0, StatusCode::OK);
    assert_eq!(place.post("/batch/", with("copy", 1, "2024-02-01T00:00:00Z")).await.0, StatusCode::OK);
    assert_eq!(place.stored().await, ["first"]);
    assert_eq!(place.named("copy").await, 0, "requested by its name alone");
    place.events.compact(PROJECT, now).await.unwrap();
    assert_eq!(place.post("/batch/", with("copy", 1, "2024-02-01T00:00:00Z")).await.0, StatusCode::OK);
    assert_eq!(place.post("/batch/", with("late", 2, "1999-01-01T00:00:00Z")).await.0, StatusCode::OK);
    assert_eq!(place.stored().await, ["first", "late"]);
    assert_eq!(place.named("copy").await, 0);
    place.events.compact(PROJECT, now + 1).await.unwrap();
    assert_eq!(place.stored().await, ["first", "late"]);
    assert_eq!(place.named("late").await, 1);
}

#[tokio::test]
async fn the_analytics_format_returns_an_outcome_for_each_event() {
    let place = place().await;
    let send = async |token: &str, body: Vec<u8>| {
        let request =
            Request::post("/i/v1/analytics/events").header("authorization", format!("Bearer {token}"));
        place.send(request.body(body.into()).unwrap()).await
    };
    let uuid = |n: u32| format!("01890000-0000-7000-8000-{n:012}");
    let event = |n: u32, name: &str| json!({"uuid": uuid(n), "event": name, "distinct_id": "ada"});
    let body =
        |events: Vec<Value>| json!({"created_at": "2024-01-01T00:00:00Z", "batch": events}).to_string();
    let (status, response) = send("phc_1", body(vec![event(1, "a"), event(2, "")]).into()).await;
    assert_eq!(status, StatusCode::OK);
    let want = json!({"results": {uuid(1): {"result": "ok"},
        uuid(2): {"result": "drop", "details": "missing_event_name"}}});
    assert_eq!(response, want);
    let (status, response) = send("phc_1", body(vec![event(3, "")]).into()).await;
    assert_eq!((status, &response["results"][uuid(3)]["result"]), (StatusCode::OK, &json!("drop")));
    // The project of the token is resolved before the body is parsed.
    let (status, response) = send("phc_2", b"{".to_vec()).await;
    assert_eq!((status, &response["code"]), (StatusCode::UNAUTHORIZED, &json!("invalid_api_key")));
    assert_eq!(send("phc_1", b"{".to_vec()).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(place.stored().await, ["a"]);
}

/// Outcomes of a batch with one malformed event, in the analytics format and in the others.
#[tokio::test]
async fn each_wrong_field_is_named_and_nothing_is_stored() {
    let place = place().await;
    for (field, value) in [
        ("event", json!(null)),
        ("event", json!({})),
        ("uuid", json!("1")),
        ("uuid", json!(1)),
        ("distinct_id", json!(" ")),
        ("timestamp", json!(1_700_000_000)),
        ("timestamp", json!([])),
        ("offset", json!("1")),
        ("offset", json!(1e15)),
        ("properties", json!("x")),
        ("properties", json!([{}])),
    ] {
        let mut wrong = event("b");
        wrong[field] = value.clone();
        let batch = json!({"api_key": "phc_1", "batch": [event("a"), wrong]}).to_string();
        let (status, response) = place.post("/batch/", batch).await;
        let want = (StatusCode::BAD_REQUEST, json!(format!("batch[1].{field}")));
        assert_eq!((status, response["attr"].clone()), want, "{field} {value}");
    }
    assert!(place.stored().await.is_empty());
}

#[tokio::test]
async fn identify_events_merge_persons() {
    let place = place().await;
    let batch = json!({"api_key": "phc_1", "batch": [
        {"event": "seen", "distinct_id": "anon"},
        {"event": "seen", "distinct_id": "ada"},
        {"event": "$identify", "distinct_id": "ada", "properties": {"$anon_distinct_id": "anon"}},
    ]});
    assert_eq!(place.post("/batch/", batch.to_string()).await.0, StatusCode::OK);
    let anon = place.events.person_of(PROJECT, "anon").await.unwrap();
    assert_eq!(anon, place.events.person_of(PROJECT, "ada").await.unwrap());
}

#[tokio::test]
async fn a_request_merges_a_limited_number_of_persons() {
    let place = place().await;
    let identify = |n: usize| json!({"event": "$identify", "distinct_id": format!("u{n}"), "properties": {"$anon_distinct_id": format!("d{n}")}});
    let batch =
        |count: usize| json!({"api_key": "phc_1", "batch": (0..count).map(identify).collect::<Vec<_>>()});
    let (status, response) = place.post("/batch/", batch(MERGES_MAX + 1).to_string()).await;
    assert_eq!((status, &response["code"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("payload_too_large")));
    assert!(response["detail"].as_str().unwrap().contains("at most 1000"), "{response}");
    assert!(place.stored().await.is_empty());
    assert_eq!(place.post("/batch/", batch(MERGES_MAX).to_string()).await.0, StatusCode::OK);
    assert_eq!(place.stored().await.len(), MERGES_MAX);
}

/// What a queue does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Stores,
    Refuses,
    /// The response is lost.
    StoresAndFails,
}

/// A queue whose messages the test delivers.
#[derive(Debug)]
struct Queue {
    outcome: Mutex<Outcome>,
    calls: Mutex<usize>,
    messages: Mutex<Vec<String>>,
}

impl Queue {
    fn new(outcome: Outcome) -> Arc<Queue> {
        Arc::new(Queue { outcome: outcome.into(), calls: Mutex::default(), messages: Mutex::default() })
    }

    fn waiting(&self) -> usize {
        self.messages.lock().unwrap().len()
    }

    /// Delivers every message `times` times, and returns how many were reported as failed. They stay in the queue.
    async fn deliver(&self, events: &EventStore, times: usize) -> usize {
        let bodies = vec![self.messages.lock().unwrap().clone(); times].concat();
        let message = |(number, body): (usize, &String)| {
            let record = json!({"messageId": number.to_string(), "body": body, "eventSource": "aws:sqs"});
            serde_json::from_value::<QueueMessage>(record).unwrap()
        };
        let messages = bodies.iter().enumerate().map(message).collect();
        let end = tokio::time::Instant::now() + Duration::from_secs(600);
        store_messages(events, messages, 1_900_000_000_000_000, end).await.len()
    }
}

impl MessageSender for Queue {
    fn send(&self, body: String) -> SendFuture<'_> {
        Box::pin(async move {
            *self.calls.lock().unwrap() += 1;
            let outcome = *self.outcome.lock().unwrap();
            if outcome != Outcome::Refuses {
                self.messages.lock().unwrap().push(body);
            }
            match outcome {
                Outcome::Stores => Ok(()),
                Outcome::Refuses | Outcome::StoresAndFails => Err(QueueError("as a test".to_owned())),
            }
        })
    }
}

#[tokio::test]
async fn buffered_events_are_confirmed_in_the_queue_and_stored_when_it_is_delivered() {
    let queue = Queue::new(Outcome::Stores);
    let place = place_with(Some(queue.clone())).await;
    for path in ["/batch/", "/e/", "/i/v0/e/"] {
        let body = json!({"api_key": "phc_1", "batch": [event("a"), event("b")]});
        assert_eq!(
            place.post(path, body.to_string()).await,
            (StatusCode::OK, json!({"status": 1})),
            "{path}"
        );
    }
    let uuid = "01890000-0000-7000-8000-000000000001";
    let v1 = json!({"created_at": "2024-01-01T00:00:00Z", "batch": [{"uuid": uuid, "event": "c", "distinct_id": "ada"}]});
    let v1 = Request::post("/i/v1/analytics/events")
        .header("authorization", "Bearer phc_1")
        .body(v1.to_string().into());
    assert_eq!(place.send(v1.unwrap()).await, (StatusCode::OK, json!({"results": {uuid: {"result": "ok"}}})));
    assert_eq!((queue.waiting(), place.stored().await.len()), (4, 0));
    assert_eq!(queue.deliver(&place.events, 1).await, 0);
    let all = ["a", "a", "a", "b", "b", "b", "c"];
    assert_eq!(place.stored().await, all);
    // Again and twice at once: events that were sent without a uuid got theirs before.
    assert_eq!(queue.deliver(&place.events, 2).await, 0);
    assert_eq!(place.stored().await, all);
    place.events.compact(PROJECT, 1_900_000_000_000_001).await.unwrap();
    assert_eq!(queue.deliver(&place.events, 1).await, 0);
    assert_eq!(place.stored().await, all);
}

#[tokio::test]
async fn what_is_refused_without_a_buffer_is_refused_with_one() {
    let queue = Queue::new(Outcome::Stores);
    let place = place_with(Some(queue.clone())).await;
    let bad = json!({"api_key": "phc_1", "batch": [event("a"), {"event": "b"}]}).to_string();
    assert_eq!(place.post("/batch/", bad).await.0, StatusCode::BAD_REQUEST);
    let unknown = json!({"api_key": "phc_2", "batch": [event("a")]}).to_string();
    assert_eq!(place.post("/batch/", unknown).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(place.post("/batch/", vec![b' '; 6_000_001]).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let identify = |n: usize| json!({"event": "$identify", "distinct_id": format!("u{n}"), "properties": {"$anon_distinct_id": format!("d{n}")}});
    let merges = json!({"api_key": "phc_1", "batch": (0..=MERGES_MAX).map(identify).collect::<Vec<_>>()});
    assert_eq!(place.post("/batch/", merges.to_string()).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let calls = *queue.calls.lock().unwrap();
    assert_eq!((calls, place.stored().await.len()), (0, 0));
}

#[tokio::test]
async fn a_queue_that_fails_loses_nothing_and_is_not_tried_again_at_once() {
    for outcome in [Outcome::Refuses, Outcome::StoresAndFails] {
        let queue = Queue::new(outcome);
        let place = place_with(Some(queue.clone())).await;
        for _ in 0..3 {
            assert_eq!(place.post("/e/", event("a").to_string()).await.0, StatusCode::OK);
        }
        assert_eq!(place.stored().await, ["a", "a", "a"], "{outcome:?}");
        assert_eq!(*queue.calls.lock().unwrap(), 1, "{outcome:?}");
        // What was sent although the call failed is stored twice, and counts once.
        queue.deliver(&place.events, 1).await;
        assert_eq!(place.stored().await, ["a", "a", "a"], "{outcome:?}");
    }
}

#[tokio::test]
async fn a_large_batch_is_stored_directly() {
    let queue = Queue::new(Outcome::Stores);
    let place = place_with(Some(queue.clone())).await;
    let uuid = |n: u128| {
        uuid::Uuid::from_u128(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)).to_string()
    };
    let large = |n: u128| json!({"event": "a", "distinct_id": uuid(n + 10_000), "uuid": uuid(n)});
    let batch = json!({"api_key": "phc_1", "batch": (1..=3000).map(large).collect::<Vec<_>>()});
    assert_eq!(place.post("/batch/", batch.to_string()).await.0, StatusCode::OK);
    assert_eq!((queue.waiting(), place.stored().await.len()), (0, 3000));
}

#[tokio::test]
async fn persons_are_merged_before_their_buffered_events_are_stored() {
    let queue = Queue::new(Outcome::Stores);
    let place = place_with(Some(queue.clone())).await;
    let identify = json!({"api_key": "phc_1", "event": "$identify", "distinct_id": "ada", "properties": {"$anon_distinct_id": "anon"}});
    assert_eq!(place.post("/e/", identify.to_string()).await.0, StatusCode::OK);
    let anon = place.events.person_of(PROJECT, "anon").await.unwrap();
    assert_eq!(anon, place.events.person_of(PROJECT, "ada").await.unwrap());
    assert_eq!((queue.waiting(), place.stored().await.len()), (1, 0));
}
