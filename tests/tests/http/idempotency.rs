//! Creates that are sent again with the same `Idempotency-Key`.

use axum::http::StatusCode;
use pennon_tests::{Fault, Faults, Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const PROJECT: &str = "/api/projects/1";

async fn send(app: &TestApp, key: &str, path: &str, body: &Value, header: &str) -> TestResponse {
    let mut request = TestApp::request(key, "POST", path, body.clone());
    request.headers_mut().insert("idempotency-key", header.parse().unwrap());
    app.send(request).await
}

fn is_replayed(response: &TestResponse) -> bool {
    response.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
}

/// Every path that creates records, with a body.
async fn creates(app: &TestApp) -> Vec<(String, Value)> {
    let flag = app.flag("with-roles").await;
    let query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "viewed"}]});
    let of_role = json!({"role_id": ROLE});
    [
        ("feature_flags/".to_owned(), json!({"key": "once"})),
        (format!("feature_flags/{flag}/role_access/"), of_role),
        ("insights/".to_owned(), json!({"name": "once", "query": query})),
        ("dashboards/".to_owned(), json!({"name": "once"})),
        ("cohorts/".to_owned(), json!({"name": "once", "is_static": true})),
        ("actions/".to_owned(), json!({"name": "once", "steps": [{"event": "viewed"}]})),
    ]
    .map(|(path, body)| (format!("{PROJECT}/{path}"), body))
    .to_vec()
}

const ROLE: &str = "01900000-0000-7000-8000-0000000000aa";

async fn with_a_role() -> TestApp {
    let organization = "01900000-0000-7000-8000-000000000001";
    let role = json!({"id": ROLE, "organization": organization, "name": "Engineers", "members": []});
    TestApp::with(json!({"roles": [role]})).await
}

#[tokio::test]
async fn a_repeated_create_creates_once() {
    let app = with_a_role().await;
    for (number, (path, body)) in creates(&app).await.into_iter().enumerate() {
        let header = format!("create {number}");
        let before = app.get(&path).await.expect(200)["results"].as_array().unwrap().len();
        let first = send(&app, Keys::OWNER, &path, &body, &header).await;
        assert!(!is_replayed(&first), "{path}");
        let first = first.expect(201);
        for _ in 0..2 {
            let again = send(&app, Keys::OWNER, &path, &body, &header).await;
            assert!(is_replayed(&again), "{path}");
            assert_eq!(again.expect(201)["id"], first["id"], "{path}");
        }
        // A second process, and a path without its trailing slash, give the same result.
        let other = app.another_process();
        let again = send(&other, Keys::OWNER, path.trim_end_matches('/'), &body, &header).await;
        assert_eq!((again.status, &again.json()["id"]), (StatusCode::CREATED, &first["id"]), "{path}");
        let after = app.get(&path).await.expect(200)["results"].as_array().unwrap().len();
        assert_eq!(after, before + 1, "{path}");
        // A different request with the same key is rejected, and so is an invalid key.
        let mut changed = body.clone();
        changed["name"] = json!("other");
        let refused = send(&app, Keys::OWNER, &path, &changed, &header).await.expect(422);
        assert_eq!(refused["attr"], "Idempotency-Key", "{path}");
        for wrong in ["", "\t", &"x".repeat(256)] {
            let refused = send(&app, Keys::OWNER, &path, &body, wrong).await.expect(400);
            assert_eq!(refused["attr"], "Idempotency-Key", "{path}");
        }
    }
}

#[tokio::test]
async fn a_key_has_one_to_255_bytes() {
    let app = TestApp::new().await;
    let (path, body) = (format!("{PROJECT}/dashboards/"), json!({"name": "once"}));
    for wrong in [String::new(), "x".repeat(256)] {
        let refused = send(&app, Keys::OWNER, &path, &body, &wrong).await.expect(400);
        assert_eq!(refused["attr"], "Idempotency-Key");
    }
    assert_eq!(app.get(&path).await.expect(200)["count"], 0);
    for accepted in ["x".to_owned(), "x".repeat(255)] {
        send(&app, Keys::OWNER, &path, &body, &accepted).await.expect(201);
    }
}

#[tokio::test]
async fn the_key_of_another_user_is_another_key() {
    let app = TestApp::new().await;
    let (path, body) = (format!("{PROJECT}/dashboards/"), json!({"name": "once"}));
    let longest = "x".repeat(255);
    let first = send(&app, Keys::OWNER, &path, &body, &longest).await.expect(201);
    let second = send(&app, Keys::MEMBER, &path, &body, &longest).await.expect(201);
    assert_ne!(first["id"], second["id"]);
    assert_eq!(send(&app, Keys::STRANGER, &path, &body, &longest).await.status, 403);
    assert_eq!(send(&app, "", &path, &body, &longest).await.status, 401);
}

#[tokio::test]
async fn a_rejected_create_is_not_stored() {
    let app = TestApp::new().await;
    let path = format!("{PROJECT}/feature_flags/");
    assert_eq!(send(&app, Keys::OWNER, &path, &json!({"key": ""}), "one").await.status, 400);
    send(&app, Keys::OWNER, &path, &json!({"key": "good"}), "one").await.expect(201);
}

#[tokio::test]
async fn one_of_many_concurrent_creates_succeeds() {
    let app = with_a_role().await;
    for (number, (path, body)) in creates(&app).await.into_iter().enumerate() {
        let header = format!("create {number}");
        let all = (0..8).map(|_| send(&app, Keys::OWNER, &path, &body, &header));
        let responses = futures::future::join_all(all).await;
        let ids: std::collections::BTreeSet<String> =
            responses.iter().map(|response| response.expect(201)["id"].to_string()).collect();
        assert_eq!(ids.len(), 1, "{path}: {ids:?}");
    }
}

#[tokio::test]
async fn a_create_with_a_lost_response_returns_its_result_when_sent_again() {
    let faults = Faults::new(
        7,
        &[(Fault::ResponseLost, 200), (Fault::FailedAfterwards, 200), (Fault::RequestLost, 100)],
    );
    let app = TestApp::failing(&faults).await;
    let path = format!("{PROJECT}/dashboards/");
    let mut made = Vec::new();
    for number in 0..20 {
        let body = json!({"name": format!("board {number}")});
        let mut response = send(&app, Keys::OWNER, &path, &body, &number.to_string()).await;
        while response.status.is_server_error() {
            response = send(&app, Keys::OWNER, &path, &body, &number.to_string()).await;
        }
        made.push(response.expect(201)["name"].clone());
    }
    faults.stop();
    assert!(faults.counts().values().sum::<usize>() > 20, "{:?}", faults.counts());
    let listed = app.get(&format!("{path}?limit=100")).await.expect(200)["results"].clone();
    let mut names: Vec<Value> = listed.as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    names.sort_by_key(ToString::to_string);
    made.sort_by_key(ToString::to_string);
    assert_eq!(names, made, "each once");
}
