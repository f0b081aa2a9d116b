//! Payloads by remote configuration, and secret ones at rest.
#![allow(clippy::unwrap_used)]

use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn config_of(name: &str) -> String {
    format!("{FLAGS}{name}/remote_config")
}

/// A remote configuration with this payload; returns its number.
async fn remote(app: &TestApp, key: &str, payload: Value) -> u64 {
    let filters = json!({"groups": [{"properties": []}], "payloads": {"true": payload}});
    let body = json!({"key": key, "is_remote_configuration": true, "filters": filters});
    app.post(FLAGS, body).await.expect(201)["id"].as_u64().unwrap()
}

#[tokio::test]
async fn a_remote_configuration_is_asked_for_by_key_or_number() {
    let app = TestApp::new().await;
    let id = remote(&app, "limits", json!({"most": 5})).await;
    for path in [
        config_of("limits"),
        format!("{}/", config_of("limits")),
        config_of(&id.to_string()),
        "/api/projects/@current/feature_flags/limits/remote_config?token=phc_project_1".to_owned(),
    ] {
        // The payload is stored as text, which SDKs decode once more.
        let answer = app.call(Keys::READ_FLAGS, "GET", &path, Value::Null).await;
        assert_eq!(answer.expect(200), json!("{\"most\":5}"), "{path}");
    }
    remote(&app, "number", json!(5)).await;
    assert_eq!(app.get(&config_of("number")).await.expect(200), json!(5));
    app.post(FLAGS, json!({"key": "none", "is_remote_configuration": true})).await.expect(201);
    let none = app.get(&config_of("none")).await;
    assert_eq!((none.status.as_u16(), none.text.as_str()), (200, "null"));
}

#[tokio::test]
async fn what_is_no_remote_configuration_is_an_empty_404() {
    let app = TestApp::new().await;
    app.flag("ordinary").await;
    let gone = remote(&app, "gone", json!(1)).await;
    app.patch(&format!("{FLAGS}{gone}/"), json!({"deleted": true})).await.expect(200);
    let elsewhere = json!({"key": "elsewhere", "is_remote_configuration": true});
    app.post("/api/projects/2/feature_flags/", elsewhere).await.expect(201);
    let long = "k".repeat(5000);
    for name in [
        "ordinary",
        "gone",
        &gone.to_string(),
        "elsewhere",
        "unknown",
        "999999",
        "%23",
        "a%2Fb",
        &long,
        "99999999999999999999999999",
    ] {
        let answer = app.get(&config_of(name)).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (404, ""), "{name}");
        assert_eq!(answer.header("content-type"), "", "{name}");
    }
    let weak = app.call(Keys::NO_SCOPES, "GET", &config_of("unknown"), Value::Null).await;
    assert_eq!(weak.expect(403)["detail"], "API key missing required scope 'feature_flag:read'");
}

#[tokio::test]
async fn a_renamed_flag_answers_to_its_new_key() {
    let app = TestApp::new().await;
    let id = remote(&app, "old", json!(1)).await;
    app.patch(&format!("{FLAGS}{id}/"), json!({"key": "new"})).await.expect(200);
    assert_eq!(app.get(&config_of("old")).await.status, 404);
    assert_eq!(app.get(&config_of("new")).await.expect(200), json!(1));
}

#[tokio::test]
async fn a_remote_configuration_takes_one_wait_by_number_and_two_by_key() {
    let app = TestApp::new().await;
    let id = remote(&app, "limits", json!(1)).await;
    for (name, trips) in [(id.to_string(), 1), ("limits".to_owned(), 2)] {
        app.services.app.keys.clear();
        app.round_trips.reset();
        app.get(&config_of(&name)).await.expect(200);
        assert_eq!(app.round_trips.sequential(), trips, "{name}");
    }
}
