//! Payloads by remote configuration, and secret ones at rest.

use pennon_core::payload_keys::{PayloadKeys, SETTING, is_sealed};
use pennon_core::store::keys::{RecordKind, record};
use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};
use tower::ServiceExt;

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
async fn a_remote_configuration_is_found_by_key_or_id() {
    let app = TestApp::new().await;
    let id = remote(&app, "limits", json!({"most": 5})).await;
    for path in [
        config_of("limits"),
        format!("{}/", config_of("limits")),
        config_of(&id.to_string()),
        "/api/projects/@current/feature_flags/limits/remote_config?token=phc_project_1".to_owned(),
    ] {
        // The payload is stored as text, which SDKs decode once more.
        let response = app.call(Keys::READ_FLAGS, "GET", &path, Value::Null).await;
        assert_eq!(response.expect(200), json!("{\"most\":5}"), "{path}");
    }
    remote(&app, "number", json!(5)).await;
    assert_eq!(app.get(&config_of("number")).await.expect(200), json!(5));
    app.post(FLAGS, json!({"key": "none", "is_remote_configuration": true})).await.expect(201);
    let none = app.get(&config_of("none")).await;
    assert_eq!((none.status.as_u16(), none.text.as_str()), (200, "null"));
}

#[tokio::test]
async fn flags_that_are_no_remote_configuration_are_an_empty_404() {
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
        let response = app.get(&config_of(name)).await;
        assert_eq!((response.status.as_u16(), response.text.as_str()), (404, ""), "{name}");
        assert_eq!(response.header("content-type"), "", "{name}");
    }
    let weak = app.call(Keys::NO_SCOPES, "GET", &config_of("unknown"), Value::Null).await;
    assert_eq!(weak.expect(403)["detail"], "API key missing required scope 'feature_flag:read'");
}

#[tokio::test]
async fn a_renamed_flag_is_found_by_its_new_key() {
    let app = TestApp::new().await;
    let id = remote(&app, "old", json!(1)).await;
    app.patch(&format!("{FLAGS}{id}/"), json!({"key": "new"})).await.expect(200);
    assert_eq!(app.get(&config_of("old")).await.status, 404);
    assert_eq!(app.get(&config_of("new")).await.expect(200), json!(1));
}

#[tokio::test]
async fn a_remote_configuration_takes_one_round_trip_by_id_and_two_by_key() {
    let app = TestApp::new().await;
    let id = remote(&app, "limits", json!(1)).await;
    for (name, trips) in [(id.to_string(), 1), ("limits".to_owned(), 2)] {
        app.services.app.keys.clear();
        app.round_trips.reset();
        app.get(&config_of(&name)).await.expect(200);
        assert_eq!(app.round_trips.sequential(), trips, "{name}");
    }
}

const MASK: &str = "********* (encrypted)";
const SECRET: &str = "{\"password\":\"hunter2\"}";

/// What a create of a flag with a secret payload sends.
fn secret(key: &str) -> Value {
    json!({"key": key, "is_remote_configuration": true, "has_encrypted_payloads": true,
           "filters": {"groups": [{"properties": []}], "payloads": {"true": SECRET}}})
}

fn payload(flag: &Value) -> &Value {
    &flag["filters"]["payloads"]["true"]
}

/// All stored data of the flag and its log, as one text.
async fn at_rest(app: &TestApp, id: u64) -> String {
    let records = &app.services.app.store.records;
    let mut texts = vec![records.get(&record(1, RecordKind::Flag, id)).await.unwrap().unwrap().text];
    let log = pennon_core::store::PartitionQuery::partition("PROJECT#1#ACTIVITY#FeatureFlag#2026-01");
    texts.extend(records.query(log).await.unwrap().into_iter().map(|item| item.text));
    texts.join("\n")
}

/// Sends a request to the same installation in a process with these payload keys.
async fn with_keys(app: &TestApp, keys: &str, method: &str, path: &str, body: Value) -> TestResponse {
    let core = pennon_core::app::App::new(app.services.app.store.clone(), app.services.app.clock)
        .with_payload_keys(PayloadKeys::parse(keys).unwrap());
    let flags = pennon_flags::Flags::new(core.clone(), app.services.events.clone());
    let services = pennon::api::Services { flags, app: core, ..app.services.clone() };
    let request = TestApp::request(Keys::OWNER, method, path, body);
    let response = pennon::api::api(&services).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec();
    let text = String::from_utf8(bytes.clone()).unwrap();
    TestResponse { status: parts.status, headers: parts.headers, text, bytes }
}

#[tokio::test]
async fn a_secret_payload_is_returned_in_clear_and_stored_encrypted() {
    let app = TestApp::new().await;
    let made = app.post(FLAGS, secret("s")).await.expect(201);
    let id = made["id"].as_u64().unwrap();
    let one = format!("{FLAGS}{id}/");
    assert_eq!((payload(&made), &made["has_encrypted_payloads"]), (&json!(SECRET), &json!(true)));
    assert_eq!(payload(&app.get(&one).await.expect(200)), SECRET);
    assert_eq!(payload(&app.get(FLAGS).await.expect(200)["results"][0]), SECRET);
    assert_eq!(app.get(&config_of("s")).await.expect(200), SECRET);
    let role = json!({"roles": [{"id": "01900000-0000-7000-8000-0000000000aa", "organization":
        "01900000-0000-7000-8000-000000000001", "name": "Eng", "members": []}]});
    let file = pennon::workspace::Workspace::parse(&role.to_string()).unwrap();
    let now = pennon_tests::NOW.parse().unwrap();
    pennon::workspace::apply(&app.services.app.store.records, &file, Default::default(), now).await.unwrap();
    let role = json!({"role_id": "01900000-0000-7000-8000-0000000000aa"});
    let access = app.post(&format!("{one}role_access/"), role).await.expect(201);
    assert_eq!(payload(&access["feature_flag"]), SECRET);

    app.patch(&one, json!({"name": "renamed"})).await.expect(200);
    let stored = at_rest(&app, id).await;
    assert!(stored.contains("pennon-sealed:1:") && !stored.contains("hunter2"), "{stored}");
    let feed = app.get("/flags/definitions?token=phc_project_1").await;
    assert_eq!(feed.expect(200)["flags"], json!([]), "SDKs request it separately");
}

#[tokio::test]
async fn a_mask_keeps_the_stored_payload_and_the_log_shows_masks_only() {
    let app = TestApp::new().await;
    let id = app.post(FLAGS, secret("s")).await.expect(201)["id"].as_u64().unwrap();
    let one = format!("{FLAGS}{id}/");
    let masked = json!({"filters": {"groups": [{"properties": [], "rollout_percentage": 5}],
                                    "payloads": {"true": MASK}}});
    let kept = app.patch(&one, masked).await.expect(200);
    assert_eq!(
        (payload(&kept), &kept["filters"]["groups"][0]["rollout_percentage"]),
        (&json!(SECRET), &json!(5))
    );
    let replaced =
        json!({"filters": {"groups": [{"properties": []}], "payloads": {"true": "[\"hunter3\"]"}}});
    assert_eq!(payload(&app.patch(&one, replaced).await.expect(200)), "[\"hunter3\"]");
    assert_eq!(app.get(&config_of("s")).await.expect(200), "[\"hunter3\"]");
    let number = json!({"filters": {"groups": [{"properties": []}], "payloads": {"true": 7}}});
    assert_eq!(payload(&app.patch(&one, number).await.expect(200)), 7, "numbers stay numbers");

    let stored = at_rest(&app, id).await;
    assert!(!stored.contains("hunter"), "{stored}");
    let log = app.get(&format!("{one}activity/")).await.expect(200);
    let changes = log["results"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|entry| entry["detail"]["changes"].as_array().cloned().unwrap_or_default());
    let filters: Vec<Value> = changes.filter(|change| change["field"] == "filters").collect();
    assert_eq!(filters.len(), 3, "each change of a payload has its entry");
    for change in filters {
        for side in ["before", "after"] {
            assert_eq!(change[side]["payloads"]["true"], MASK, "{change}");
        }
    }
    // Switching encryption off stores the payload in clear, if the user may read it.
    let open = app.patch(&one, json!({"has_encrypted_payloads": false})).await.expect(200);
    assert_eq!(payload(&open), 7);
    let closed = app.patch(&one, json!({"has_encrypted_payloads": true})).await.expect(200);
    assert_eq!(payload(&closed), 7);
    let text =
        app.services.app.store.records.get(&record(1, RecordKind::Flag, id)).await.unwrap().unwrap().text;
    let flag: Value = serde_json::from_str(&text).unwrap();
    assert!(payload(&flag).as_str().is_some_and(is_sealed), "{flag}");
}

#[tokio::test]
async fn secrets_are_for_remote_configurations_and_need_a_key() {
    let app = TestApp::new().await;
    let ordinary = json!({"key": "a", "has_encrypted_payloads": true});
    let detail = "Encrypted payloads require the flag to be a remote configuration.";
    app.post(FLAGS, ordinary).await.expect_invalid("invalid_input", detail, None);

    let keyless = with_keys(&app, "", "POST", FLAGS, secret("a")).await;
    let detail = format!("Encrypted payloads need the key that they are encrypted with in {SETTING}.");
    keyless.expect_invalid("invalid_input", &detail, Some("has_encrypted_payloads"));
    assert_eq!(app.get(FLAGS).await.expect(200)["count"], 0);
}

#[tokio::test]
async fn encryption_keys_are_rotated() {
    let old = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let new = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let app = TestApp::new().await;
    let id = app.post(FLAGS, secret("s")).await.expect(201)["id"].as_u64().unwrap();
    let one = format!("{FLAGS}{id}/");
    let both = format!("{new},{old}");
    assert_eq!(payload(&with_keys(&app, &both, "GET", &one, Value::Null).await.expect(200)), SECRET);

    // Without its key a payload is masked, cannot be read, and is kept by writes that do not name it.
    assert_eq!(payload(&with_keys(&app, new, "GET", &one, Value::Null).await.expect(200)), MASK);
    with_keys(&app, new, "GET", &config_of("s"), Value::Null).await.expect(500);
    let renamed = with_keys(&app, new, "PATCH", &one, json!({"name": "n"})).await.expect(200);
    assert_eq!((payload(&renamed), &renamed["name"]), (&json!(MASK), &json!("n")));
    let blind =
        with_keys(&app, new, "PATCH", &one, json!({"filters": {"groups": [], "payloads": {"true": MASK}}}));
    assert_eq!(blind.await.expect(400)["attr"], "has_encrypted_payloads");
    assert_eq!(payload(&app.get(&one).await.expect(200)), SECRET);

    let rewritten = json!({"filters": {"groups": [{"properties": []}], "payloads": {"true": "1"}}});
    with_keys(&app, &both, "PATCH", &one, rewritten).await.expect(200);
    assert_eq!(payload(&with_keys(&app, new, "GET", &one, Value::Null).await.expect(200)), "1");
}

#[tokio::test]
async fn the_largest_secret_fits() {
    let app = TestApp::new().await;
    // Text that hardly compresses, encrypted, at the limit of what filters may hold.
    let mut state = 1_u64;
    let noise: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from((state >> 33) % 43).unwrap())
    })
    .filter(|character| *character != '\\')
    .take(261_000)
    .collect();
    let mut body = secret("large");
    body["filters"]["payloads"]["true"] = json!([noise]);
    let made = app.post(FLAGS, body).await.expect(201);
    assert_eq!(payload(&made), &json!([noise]));
    assert_eq!(app.get(&config_of("large")).await.expect(200), json!([noise]));
}
