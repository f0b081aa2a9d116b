//! Flags evaluated for one person: the groups that are looked up, the largest response, the rule for surveys, and the quota.

use axum::http::{HeaderValue, header};
use pennon_core::store::{Item, keys};
use pennon_eventstore::GroupRecord;
use pennon_tests::{TestApp, TestResponse, now_micros};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const TOKEN: &str = "phc_project_1";

async fn make(app: &TestApp, body: Value) {
    app.post(FLAGS, body).await.expect(201);
}

/// Sends a request as a server's SDK does.
async fn evaluate(app: &TestApp, path: &str, more: Value) -> TestResponse {
    let mut body = json!({"token": TOKEN, "distinct_id": "ann"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut request = TestApp::request("", "POST", path, body);
    request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("posthog-python/7.91.1"));
    app.send(request).await
}

/// Project 1 with these group types; a workspace file takes five.
async fn with_group_types(app: &TestApp, names: &[&str]) {
    let records = &app.services.app.store.records;
    let stored = records.get(&keys::project(1)).await.unwrap().unwrap();
    let mut project: Value = serde_json::from_str(&stored.text).unwrap();
    project["group_types"] = json!(names);
    records.replace(vec![Item { text: project.to_string(), ..stored }], Vec::new()).await.unwrap();
}

#[tokio::test]
async fn of_six_groups_the_sixth_counts_as_it_was_sent() {
    let app = TestApp::new().await;
    let names = ["organization", "company", "team", "site", "room", "desk"];
    with_group_types(&app, &names).await;
    let now = now_micros();
    let mut groups = Vec::new();
    for (index, name) in (0..).zip(names) {
        let size = json!([{"key": "size", "type": "group", "group_type_index": index, "value": "9"}]);
        let filters = json!({"groups": [{"properties": size}], "aggregation_group_type_index": index});
        make(&app, json!({"key": name, "filters": filters})).await;
        let properties = json!({"size": 9}).as_object().unwrap().clone();
        groups.push(GroupRecord { type_name: name.to_owned(), index, key: "acme".to_owned(), properties });
    }
    app.services.events.add_groups(1, groups, now).await.unwrap();

    let all: Value = names.iter().map(|name| ((*name).to_owned(), json!("acme"))).collect();
    let response = evaluate(&app, "/flags/?v=2", json!({"groups": all})).await.expect(200);
    for name in &names[..5] {
        assert_eq!(response["flags"][name]["enabled"], true, "{name}");
    }
    let sixth = &response["flags"]["desk"];
    assert_eq!(
        (&sixth["enabled"], &sixth["reason"]["code"], sixth.get("failed")),
        (&json!(false), &json!("no_condition_match"), None)
    );
    let sent = json!({"groups": all, "group_properties": {"desk": {"size": 9}}});
    assert_eq!(evaluate(&app, "/flags/?v=2", sent).await.expect(200)["flags"]["desk"]["enabled"], true);
    // It is the number of groups that counts, not the index.
    let alone = evaluate(&app, "/flags/?v=2", json!({"groups": {"desk": "acme"}})).await.expect(200);
    assert_eq!(alone["flags"]["desk"]["enabled"], true);
}

#[tokio::test]
async fn a_response_above_its_limit_is_an_error() {
    let app = TestApp::new().await;
    let payload = |bytes: usize| json!({"true": format!("\"{}\"", "x".repeat(bytes - 2))});
    let large = async |number: usize, bytes: usize| {
        let filters = json!({"groups": [{}], "payloads": payload(bytes)});
        make(&app, json!({"key": format!("large-{number}"), "filters": filters})).await;
    };
    for number in 0..17 {
        large(number, 250_000).await;
    }
    let below = evaluate(&app, "/flags/?v=2", json!({})).await;
    assert_eq!(below.status, 200);
    let left = 4_500_000 - below.text.len();
    // A record has fewer than 400 bytes besides the payload.
    large(17, left - 400).await;
    assert_eq!(evaluate(&app, "/flags/?v=2", json!({})).await.status, 200);
    large(18, 20_000).await;
    for path in ["/flags/?v=2", "/flags/?v=1", "/decide/?v=4"] {
        let above = evaluate(&app, path, json!({})).await.expect(500);
        assert_eq!((&above["type"], &above["attr"]), (&json!("server_error"), &Value::Null), "{path}");
    }
    let some = evaluate(&app, "/flags/?v=2", json!({"flag_keys": ["large-1", "large-18"]})).await;
    assert_eq!(some.expect(200)["flags"].as_object().unwrap().len(), 2);
    assert_eq!(evaluate(&app, "/decide/?v=2", json!({})).await.status, 200, "without payloads it is short");
}

#[tokio::test]
async fn only_flags_of_surveys_are_evaluated_if_requested() {
    let app = TestApp::new().await;
    make(&app, json!({"key": "plain"})).await;
    make(&app, json!({"key": "survey-targeting-one"})).await;
    let on_plain = json!([{"type": "flag", "key": "1", "operator": "flag_evaluates_to", "value": true}]);
    let filters = json!({"groups": [{"properties": on_plain}]});
    make(&app, json!({"key": "survey-targeting-two", "filters": filters})).await;
    let values = async |query: &str| {
        let response = evaluate(&app, &format!("/flags/?v=1{query}"), json!({})).await.expect(200);
        response["featureFlags"].clone()
    };
    let all = json!({"plain": true, "survey-targeting-one": true, "survey-targeting-two": true});
    // A flag that is left out counts as false where another one depends on it.
    let surveys = json!({"survey-targeting-one": true, "survey-targeting-two": false});
    for (query, expected) in [
        ("", &all),
        ("&only_evaluate_survey_feature_flags=true", &surveys),
        ("&only_evaluate_survey_feature_flags=1", &surveys),
        ("&only_evaluate_survey_feature_flags=false", &all),
        ("&only_evaluate_survey_feature_flags=0", &all),
    ] {
        assert_eq!(values(query).await, *expected, "{query}");
    }
    let named = json!({"flag_keys": ["plain", "survey-targeting-one"]});
    let both = evaluate(&app, "/flags/?v=1&only_evaluate_survey_feature_flags=true", named).await.expect(200);
    assert_eq!(both["featureFlags"], json!({"survey-targeting-one": true}));
}

#[tokio::test]
async fn a_used_up_quota_is_429_in_the_remote_protocol() {
    let org = "01900000-0000-7000-8000-000000000001";
    let app = TestApp::with(json!({"projects": [{"id": "4", "organization": org, "token": "phc_four",
        "feature_flag_quota_exhausted": true}]}))
    .await;
    app.post("/api/projects/4/feature_flags/", json!({"key": "any"})).await.expect(201);
    let send = async |path: &str, body: Value| {
        let mut request = TestApp::request("", "POST", path, body);
        request.headers_mut().insert("x-api-key", HeaderValue::from_static("phc_four"));
        app.send(request).await
    };
    let context = json!({"context": {"targetingKey": "ann"}});
    for path in ["/ofrep/v1/evaluate/flags", "/ofrep/v1/evaluate/flags/any", "/ofrep/v1/evaluate/flags/none"]
    {
        let refused = send(path, context.clone()).await;
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "3600"), "{path}");
        // Credentials, body and context come first.
        assert_eq!(send(path, json!({})).await.expect(400)["errorCode"], "INVALID_CONTEXT");
    }
    let body = json!({"token": "phc_four", "distinct_id": "ann"});
    let other = app.call("", "POST", "/flags/?v=2", body).await.expect(200);
    assert_eq!((&other["flags"], &other["quotaLimited"]), (&json!({}), &json!(["feature_flags"])));
}
