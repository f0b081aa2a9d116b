//! Queries that exceed the memory of the process, and a stub of the ClickHouse server that calculates them. `tests/readers` runs
//! the statements.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use pennon::api::{Services, api};
use pennon_calculation::clickhouse::ClickhouseServer;
use pennon_calculation::{CalculationLimits, Calculator};
use pennon_core::config::ClickhouseSettings;
use pennon_eventstore::{EventStore, Settings};
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt;

const QUERY: &str = "/api/projects/1/query/";
/// Too small for the events of any query.
const MEMORY_BYTES: u64 = 16;

/// What the stub returns, and the statements that it got.
#[derive(Clone, Default)]
struct Stub(Arc<Mutex<StubState>>);

#[derive(Default)]
struct StubState {
    response: (u16, String),
    /// Never returns it.
    is_silent: bool,
    statements: Vec<String>,
}

impl Stub {
    /// Starts the stub. Returns its address.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stub = self.clone();
        let respond = move |headers: HeaderMap, statement: String| async move {
            assert_eq!(headers["x-clickhouse-user"], "reader");
            assert_eq!(headers["x-clickhouse-key"], "secret");
            let ((status, body), is_silent) = {
                let mut state = stub.0.lock().unwrap();
                state.statements.push(statement);
                (state.response.clone(), state.is_silent)
            };
            if is_silent {
                std::future::pending::<()>().await;
            }
            (StatusCode::from_u16(status).unwrap(), body)
        };
        let router = axum::Router::new().route("/", axum::routing::post(respond));
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    fn set(&self, status: u16, body: impl Into<String>) {
        self.0.lock().unwrap().response = (status, body.into());
    }

    fn statements(&self) -> Vec<String> {
        self.0.lock().unwrap().statements.clone()
    }
}

/// A process with too little memory, which uses the server `url`.
struct SmallProcess {
    services: Services,
}

impl SmallProcess {
    fn new(app: &TestApp, url: &str, time: Duration) -> SmallProcess {
        SmallProcess::with_memory(app, url, time, MEMORY_BYTES)
    }

    fn with_memory(app: &TestApp, url: &str, time: Duration, bytes: u64) -> SmallProcess {
        let settings = ClickhouseSettings {
            url: url.to_owned(),
            cluster: None,
            files: None,
            user: Some("reader".to_owned()),
            password: Some("secret".to_owned()),
        };
        let server = ClickhouseServer::new(&settings, &app.events_url()).unwrap();
        let store = app.services.app.store.clone();
        let events = EventStore::open_with(store, &app.events_url(), Settings::for_memory(bytes)).unwrap();
        let limits = CalculationLimits { time, at_once: 1 };
        let calculator = Calculator::with_limits(&app.services.app, events, limits);
        let calculator = calculator.with_clickhouse(Some(server));
        SmallProcess { services: Services { calculator, ..app.services.clone() } }
    }

    /// The response to a query, after checking the status.
    async fn query(&self, node: &Value, refresh: &str, status: u16) -> Value {
        let body = json!({"query": node, "refresh": refresh});
        let request = TestApp::request(Keys::OWNER, "POST", QUERY, body);
        let response = api(&self.services).oneshot(request).await.unwrap();
        let found = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(found, status, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }
}

fn funnel(order: &str) -> Value {
    let step = |event: &str| json!({"kind": "EventsNode", "event": event});
    json!({"kind": "FunnelsQuery", "series": [step("seen"), step("bought")],
           "dateRange": {"date_from": "2026-01-01"}, "funnelsFilter": {"funnelOrderType": order}})
}

fn rows() -> String {
    let names = ["step", "name", "count", "average_conversion_time", "median_conversion_time"];
    let meta: Vec<Value> = names.iter().map(|name| json!({"name": name, "type": "String"})).collect();
    let data = json!([[0, "seen", 70, null, null], [1, "bought", "7", 2.5, 2]]);
    json!({"meta": meta, "data": data, "rows": 2}).to_string()
}

/// An installation with compacted events.
async fn compacted() -> TestApp {
    let app = TestApp::new().await;
    for event in ["seen", "bought"] {
        app.capture(json!([{"event": event, "distinct_id": "ann", "timestamp": "2026-01-02T10:00:00Z"}]))
            .await;
    }
    app.compact().await;
    app
}

#[tokio::test]
async fn a_query_that_exceeds_the_memory_is_calculated_by_clickhouse() {
    let (app, stub) = (compacted().await, Stub::default());
    let process = SmallProcess::new(&app, &stub.start().await, Duration::from_secs(20));
    stub.set(200, rows());
    let response = process.query(&funnel("ordered"), "blocking", 200).await;
    let second = &response["results"][1];
    assert_eq!((&second["name"], &second["count"]), (&json!("bought"), &json!(7)));
    assert_eq!((&second["median_conversion_time"], &response["is_cached"]), (&json!(2.0), &json!(false)));
    assert!(second["converted_people_url"].as_str().unwrap().contains("/persons/funnel/"), "{second}");
    let again = process.query(&funnel("ordered"), "blocking", 200).await;
    assert_eq!((&again["results"], &again["is_cached"]), (&response["results"], &json!(true)));
    let statements = stub.statements();
    assert_eq!(statements.len(), 1);
    assert!(statements[0].contains("FROM file('") && statements[0].contains("'bought'"), "{}", statements[0]);
}

#[tokio::test]
async fn without_a_statement_the_error_is_that_of_the_memory_and_names_what_has_none() {
    let (app, stub) = (compacted().await, Stub::default());
    let process = SmallProcess::new(&app, &stub.start().await, Duration::from_secs(20));
    let refused = process.query(&funnel("unordered"), "blocking", 400).await;
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("PENNON_EVENTS_MEMORY_MB"), "{detail}");
    assert!(
        detail.ends_with("This cannot be written as SQL for ClickHouse: a funnel in any order."),
        "{detail}"
    );
    app.capture(json!([{"event": "seen", "distinct_id": "bob"}])).await;
    let refused = process.query(&funnel("ordered"), "blocking", 400).await;
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("PENNON_EVENTS_MEMORY_MB"), "{detail}");
    assert!(
        detail.ends_with("up to 1 events of the query are in no file until the next compaction."),
        "{detail}"
    );
    assert!(stub.statements().is_empty());
}

#[tokio::test]
async fn captured_events_that_the_query_does_not_read_may_wait() {
    let (app, stub) = (compacted().await, Stub::default());
    let seen = |n: usize| json!({"event": "seen", "distinct_id": format!("p{n}"), "timestamp": "2026-01-03T10:00:00Z"});
    app.capture((0..4_000).map(seen).collect::<Vec<_>>()).await;
    app.compact().await;
    // Enough for the waiting events, and not for those of the query.
    let url = stub.start().await;
    let process = SmallProcess::with_memory(&app, &url, Duration::from_secs(20), 40_000);
    app.capture(json!([{"event": "left", "distinct_id": "bob"},
                       {"event": "seen", "distinct_id": "bob", "timestamp": "2019-01-02T10:00:00Z"}]))
        .await;
    stub.set(200, rows());
    let response = process.query(&funnel("ordered"), "blocking", 200).await;
    assert_eq!(response["results"][1]["count"], 7);
    assert_eq!(stub.statements().len(), 1);
}

#[tokio::test]
async fn a_failing_server_is_a_503_that_is_not_cached() {
    let (app, stub) = (compacted().await, Stub::default());
    let url = stub.start().await;
    let process = SmallProcess::new(&app, &url, Duration::from_secs(20));
    for (status, body) in
        [(403, "Code: 516.".to_owned()), (200, "<html>".to_owned()), (200, rows() + "Code: 241.")]
    {
        stub.set(status, body);
        let failed = process.query(&funnel("ordered"), "blocking", 503).await;
        assert_eq!(failed["code"], "clickhouse_unavailable");
        assert!(!failed["detail"].as_str().unwrap().contains("Code"), "{failed}");
    }
    stub.set(200, rows());
    process.query(&funnel("ordered"), "blocking", 200).await;
    let down = SmallProcess::new(&app, "http://127.0.0.1:1", Duration::from_secs(20));
    let failed = down.query(&funnel("ordered"), "force_blocking", 503).await;
    assert_eq!(failed["code"], "clickhouse_unavailable");
}

#[tokio::test]
async fn a_statement_that_takes_too_long_continues_in_the_background() {
    let (app, stub) = (compacted().await, Stub::default());
    let process = SmallProcess::new(&app, &stub.start().await, Duration::from_millis(300));
    stub.0.lock().unwrap().is_silent = true;
    let started = std::time::Instant::now();
    let response = process.query(&funnel("ordered"), "blocking", 200).await;
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!((&response["results"], &response["query_status"]["complete"]), (&Value::Null, &json!(false)));
}
