//! CPU time of an evaluation of all flags for one person, without sockets: `cargo run --profile dist -p pennon-tests
//! --example evaluation`.
//!
//! The flags are those of `benchmarks/flags/run.sh --evaluate`: half of the persons with an email of one domain. The
//! request goes through the whole router in this thread. Must stay true: flags and requests are the same in every run.
//! Arguments: flags (1,000), requests of a round (500).

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use http_body_util::BodyExt;
use pennon::api::api;
use pennon_tests::TestApp;
use serde_json::{Value, json};
use tower::ServiceExt;

const ROUNDS: usize = 9;

/// Nanoseconds for which this thread has run.
fn cpu_nanoseconds() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn request(body: &Value, gzip: bool) -> Request<Body> {
    let mut request = TestApp::request("", "POST", "/flags/?v=2", body.clone());
    if gzip {
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    }
    request
}

/// The bytes of the response.
async fn send(router: &Router, body: &Value, gzip: bool) -> usize {
    let response = router.clone().oneshot(request(body, gzip)).await.unwrap();
    assert_eq!(response.status(), 200);
    response.into_body().collect().await.unwrap().to_bytes().len()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().unwrap());
    let (flags, requests) = (arguments.next().unwrap_or(1000), arguments.next().unwrap_or(500));
    let app = TestApp::new().await;
    let email = json!([{"key": "email", "type": "person", "operator": "icontains", "value": "@example.com"}]);
    let filters = json!({"groups": [{"rollout_percentage": 50, "properties": email}]});
    for number in 0..flags {
        let body =
            json!({"key": format!("flag-{number:05}"), "name": format!("Flag {number}"), "filters": filters});
        app.post("/api/projects/1/feature_flags/", body).await.expect(201);
    }
    let router = api(&app.services);
    let of = |properties: Value| json!({"token": "phc_project_1", "distinct_id": "user-1", "person_properties": properties});
    let (matching, other) =
        (of(json!({"email": "ann@example.com"})), of(json!({"email": "ann@example.org"})));
    let mut none = matching.clone();
    none["disable_flags"] = json!(true);
    for (what, body, gzip) in [
        ("no flags", &none, false),
        ("no flag matches", &other, false),
        ("half match", &matching, false),
        ("half match, gzip", &matching, true),
    ] {
        let bytes = send(&router, body, gzip).await;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let start = cpu_nanoseconds();
            for _ in 0..requests {
                assert!(send(&router, body, gzip).await.abs_diff(bytes) < 64);
            }
            rounds.push((cpu_nanoseconds() - start) as f64 / requests as f64 / 1e6);
        }
        rounds.sort_by(f64::total_cmp);
        let (least, middle) = (rounds[0], rounds[ROUNDS / 2]);
        println!("{flags} flags, {what}: {middle:.4} ms of CPU time (least {least:.4}), {bytes} bytes");
    }
}
