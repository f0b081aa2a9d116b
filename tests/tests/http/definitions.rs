//! The definitions feed: access, content, and the cost of a poll.

use std::io::Read;

use axum::http::header;
use flate2::read::GzDecoder;
use pennon_core::store::{Item, keys};
use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const FEED: &str = "/api/projects/1/feature_flags/local_evaluation/";
const BY_TOKEN: &str = "/flags/definitions?token=phc_project_1&send_cohorts";

/// GET as the owner, with a header.
async fn get_with(app: &TestApp, path: &str, name: &'static str, value: &str) -> TestResponse {
    let mut request = TestApp::request(Keys::OWNER, "GET", path, Value::Null);
    request.headers_mut().insert(name, value.parse().unwrap());
    app.send(request).await
}

async fn poll(app: &TestApp, path: &str, tag: &str) -> TestResponse {
    get_with(app, path, "if-none-match", tag).await
}

/// The text of a compressed response.
fn unpacked(response: &TestResponse) -> String {
    assert_eq!(response.header("content-encoding"), "gzip");
    let mut text = String::new();
    GzDecoder::new(&response.bytes[..]).read_to_string(&mut text).unwrap();
    text
}

/// The sequential round trips and all operations of a request with a cold key.
async fn cost(app: &TestApp, path: &str, tag: Option<&str>) -> (TestResponse, usize, Vec<String>) {
    app.services.app.keys.wait_for_background_writes().await;
    app.services.app.keys.clear();
    app.round_trips.reset();
    let response = match tag {
        Some(tag) => poll(app, path, tag).await,
        None => get_with(app, path, "accept-encoding", "gzip").await,
    };
    let operations = app.round_trips.calls().into_iter().map(|call| call.operation).collect();
    (response, app.round_trips.sequential(), operations)
}

/// Clears the caches, as in a new process.
fn forget(app: &TestApp) {
    app.services.flags.feeds.clear();
    app.services.flags.memory.clear();
}

fn cohort(id: u64, values: Value) -> Value {
    json!({"project": "1", "id": id, "name": format!("cohort {id}"),
           "filters": {"properties": {"type": "OR", "values": values}}})
}

fn email(domain: &str) -> Value {
    json!({"key": "email", "type": "person", "value": domain, "operator": "icontains"})
}

fn on_cohort(id: u64) -> Value {
    json!({"groups": [{"properties": [{"key": "id", "type": "cohort", "value": id}], "rollout_percentage": 40}]})
}

#[tokio::test]
async fn the_document_has_every_field_of_the_contract() {
    let app =
        TestApp::with(json!({"cohorts": [cohort(3, json!([{"type": "OR", "values": [email("@x.io")]}]))]}))
            .await;
    let make = async |body: Value| app.post(FLAGS, body).await.expect(201)["id"].as_u64().unwrap();
    let base = make(json!({"key": "base", "name": "The base", "filters": {
        "groups": [{"properties": [], "rollout_percentage": 50}], "payloads": {"true": {"a": 1}}}}))
    .await;
    let mid = make(json!({"key": "mid", "filters": {"groups": [{"properties": [{"type": "flag",
        "key": base.to_string(), "operator": "flag_evaluates_to", "value": true}]}]}}))
    .await;
    make(
        json!({"key": "top", "filters": {"groups": [{"properties": [{"type": "flag", "key": mid.to_string(),
        "operator": "flag_evaluates_to", "value": true}], "rollout_percentage": 12.5}]}}),
    )
    .await;
    make(json!({"key": "of-cohort", "filters": on_cohort(3)})).await;
    let off = make(json!({"key": "off", "active": false})).await;
    make(json!({"key": "by-group", "filters": {"aggregation_group_type_index": 1, "groups": [{"properties":
        [{"key": "size", "type": "group", "group_type_index": 1, "value": "10", "operator": "gt"}]}]}}))
    .await;
    let gone = make(json!({"key": "gone"})).await;
    app.patch(&format!("{FLAGS}{gone}/"), json!({"deleted": true})).await.expect(200);

    let shown = app.get(&format!("{FEED}?send_cohorts")).await;
    let document = shown.expect(200);
    assert_eq!(shown.header("content-type"), "application/json");
    assert_eq!(
        document.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["flags", "group_type_mapping", "cohorts"]
    );
    assert_eq!(document["group_type_mapping"], json!({"0": "organization", "1": "company"}));
    let criteria = json!({"type": "OR", "values": [{"type": "OR", "values": [email("@x.io")]}]});
    assert_eq!(document["cohorts"], json!({"3": criteria}));
    let flags = document["flags"].as_array().unwrap();
    let keys: Vec<&str> = flags.iter().map(|flag| flag["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["base", "by-group", "mid", "of-cohort", "off", "top"], "by key, the inactive one too");
    assert_eq!(
        flags[0],
        json!({
            "id": base, "team_id": 1, "name": "The base", "key": "base",
            "filters": {"groups": [{"properties": [], "rollout_percentage": 50}], "payloads": {"true": "{\"a\":1}"}},
            "deleted": false, "active": true, "ensure_experience_continuity": false, "has_encrypted_payloads": false,
            "version": 1, "evaluation_runtime": "all", "bucketing_identifier": "distinct_id", "evaluation_tags": [],
            "evaluation_contexts": [],
        })
    );
    assert_eq!((&flags[4]["id"], &flags[4]["active"]), (&json!(off), &json!(false)));
    let dependency = &flags[5]["filters"]["groups"][0]["properties"][0];
    assert_eq!(
        (&dependency["key"], &dependency["dependency_chain"]),
        (&json!("mid"), &json!(["base", "mid"]))
    );
    assert_eq!(flags[5]["filters"]["groups"][0]["rollout_percentage"], json!(12.5));
    assert_eq!(flags[1]["filters"]["aggregation_group_type_index"], 1);

    let flattened = app.get(FEED).await.expect(200);
    assert_eq!(flattened["cohorts"], json!({}));
    let spelled_out = json!({"groups": [{"properties": [email("@x.io")], "rollout_percentage": 40}]});
    assert_eq!(flattened["flags"][3]["filters"], spelled_out);
}

#[tokio::test]
async fn every_route_and_spelling_serves_the_same_document() {
    let app = TestApp::with(json!({"cohorts": [cohort(3, json!([email("@x.io")]))]})).await;
    app.post(FLAGS, json!({"key": "a", "filters": on_cohort(3)})).await.expect(201);
    let sent = app.get(&format!("{FEED}?send_cohorts")).await;
    let flattened = app.get(FEED).await;
    assert_ne!(sent.header("etag"), flattened.header("etag"));
    for query in ["send_cohorts=", "send_cohorts=true", "send_cohorts=1", "send_cohorts=True"] {
        assert_eq!(app.get(&format!("{FEED}?{query}")).await.text, sent.text, "{query}");
    }
    for query in ["send_cohorts=false", "send_cohorts=0", "a=1"] {
        assert_eq!(app.get(&format!("{FEED}?{query}")).await.text, flattened.text, "{query}");
    }
    for path in [
        "/flags/definitions",
        "/flags/definitions/",
        "/flags/definitions/?send_cohorts",
        "/flags/definitions?token=phc_project_1&send_cohorts=false",
        "/api/feature_flag/local_evaluation/?token=phc_project_1&send_cohorts",
        "/api/feature_flag/local_evaluation?send_cohorts",
        "/api/environments/1/feature_flags/local_evaluation?send_cohorts",
        "/api/projects/@current/feature_flags/local_evaluation/?send_cohorts",
        "/api/projects/2/feature_flags/local_evaluation/?token=phc_project_1&send_cohorts",
    ] {
        let response = app.get(path).await;
        assert_eq!((response.status.as_u16(), &response.text), (200, &sent.text), "{path}");
    }
    let second = app.call(Keys::ONLY_SECOND, "GET", "/flags/definitions", Value::Null).await;
    assert_eq!(second.expect(200)["flags"], json!([]), "the key's own project");
}

#[tokio::test]
async fn keys_scopes_tokens_and_methods_are_checked_in_order() {
    let app = TestApp::new().await;
    let send_request =
        async |key: &str, method: &str, path: &str| app.call(key, method, path, Value::Null).await;
    for path in ["/flags/definitions", "/api/feature_flag/local_evaluation/"] {
        let with = |token: &str| format!("{path}?token={token}");
        assert_eq!(
            send_request("", "GET", &with("phc_project_1")).await.expect(401)["code"],
            "not_authenticated"
        );
        send_request("phx_unknown", "GET", &with("phc_unknown")).await.expect_error(
            401,
            "authentication_error",
            "authentication_failed",
            "Personal API key found in request Authorization header is invalid.",
            None,
        );
        let unknown = send_request(Keys::OWNER, "GET", &with("phc_unknown")).await;
        let detail = "Incorrect authentication credentials.";
        unknown.expect_error(401, "authentication_error", "authentication_failed", detail, None);
        let forbidden = async |key: &str, token: &str, detail: &str| {
            let refused = send_request(key, "GET", &with(token)).await;
            refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
        };
        let elsewhere = "API key does not have access to the requested project: ID 1.";
        forbidden(Keys::ONLY_SECOND, "phc_project_1", elsewhere).await;
        forbidden(Keys::NO_SCOPES, "phc_project_1", "API key missing required scope 'feature_flag:read'")
            .await;
        forbidden(Keys::STRANGER, "phc_project_1", "You don't have access to the project.").await;
        send_request(Keys::ONLY_SECOND, "GET", &with("phc_project_2")).await.expect(200);
        send_request(Keys::READ_FLAGS, "GET", &with("phc_project_1")).await.expect(200);

        let head = send_request(Keys::OWNER, "HEAD", path).await;
        assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
        assert!(head.header("etag").starts_with("W/\""));
        let options = send_request("", "OPTIONS", path).await;
        assert_eq!((options.status.as_u16(), options.text.as_str()), (204, ""));
        let mut allow: Vec<&str> = options.header("allow").split(", ").collect();
        allow.sort_unstable();
        assert_eq!(allow, ["GET", "HEAD", "OPTIONS"]);
        for method in ["POST", "PUT", "PATCH", "DELETE", "TRACE"] {
            let refused = send_request(Keys::OWNER, method, path).await;
            assert_eq!((refused.status.as_u16(), refused.header("allow")), (405, options.header("allow")));
        }
    }
}

#[tokio::test]
async fn an_etag_changes_only_with_the_content() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    let first = app.get(FEED).await;
    let tag = first.header("etag").to_owned();
    let hex = tag.strip_prefix("W/\"").and_then(|rest| rest.strip_suffix('"')).unwrap().to_owned();
    assert!(hex.len() == 16 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{tag}");
    assert_eq!(first.header("cache-control"), "private, must-revalidate");
    for sent in [tag.clone(), format!("\"{hex}\""), hex.clone(), format!("  {hex} "), format!("\"x\", {tag}")]
    {
        let response = poll(&app, FEED, &sent).await;
        assert_eq!((response.status.as_u16(), response.text.as_str()), (304, ""), "{sent}");
        assert_eq!(response.header("etag"), tag);
        assert_eq!(response.header("cache-control"), "private, must-revalidate");
        assert_eq!(response.header("content-type"), "");
    }
    assert_eq!(poll(&app, FEED, "\"wrong-etag\"").await.expect(200)["flags"][0]["key"], "a");

    // Flags of another project and a cohort that no flag uses change nothing here.
    app.post("/api/projects/2/feature_flags/", json!({"key": "other"})).await.expect(201);
    app.apply(json!({"cohorts": [cohort(5, json!([email("@y.io")]))]})).await;
    let other = app.post(FLAGS, json!({"key": "b"})).await.expect(201)["id"].as_u64().unwrap();
    assert_eq!(poll(&app, FEED, &tag).await.status, 200, "a new flag");
    app.patch(&format!("{FLAGS}{other}/"), json!({"deleted": true})).await.expect(200);
    assert_eq!(poll(&app, FEED, &tag).await.status, 304, "the text is what it was");

    app.patch(&format!("{FLAGS}{id}/"), json!({"active": false})).await.expect(200);
    let changed = poll(&app, FEED, &tag).await;
    assert_eq!(changed.expect(200)["flags"][0]["active"], false);
    assert_ne!(changed.header("etag"), tag);
    assert_eq!(poll(&app, FEED, changed.header("etag")).await.status, 304);
}

#[tokio::test]
async fn cohorts_and_group_types_from_the_workspace_file_show_at_once() {
    let nested = json!([{"key": "id", "type": "cohort", "value": 4}]);
    let app =
        TestApp::with(json!({"cohorts": [cohort(3, nested), cohort(4, json!([email("@x.io")]))]})).await;
    app.post(FLAGS, json!({"key": "a", "filters": on_cohort(3)})).await.expect(201);
    let path = format!("{FEED}?send_cohorts");
    let first = app.get(&path).await;
    let cohorts = first.expect(200)["cohorts"].clone();
    assert_eq!(cohorts.as_object().unwrap().keys().collect::<Vec<_>>(), ["3", "4"]);
    app.apply(json!({"cohorts": [cohort(4, json!([email("@new.io")]))]})).await;
    let changed = poll(&app, &path, first.header("etag")).await;
    assert_eq!(changed.expect(200)["cohorts"]["4"]["values"][0]["value"], "@new.io");
    let org = "01900000-0000-7000-8000-000000000001";
    app.apply(json!({"projects": [{"id": "1", "organization": org, "name": "Shop",
        "token": "phc_project_1", "group_types": ["team"]}]}))
        .await;
    let renamed = poll(&app, &path, changed.header("etag")).await;
    assert_eq!(renamed.expect(200)["group_type_mapping"], json!({"0": "team"}));
}

#[tokio::test]
async fn a_poll_of_an_unchanged_project_reads_two_small_items_and_the_key() {
    let app = TestApp::new().await;
    app.flag("a").await;
    let tag = app.get(BY_TOKEN).await.header("etag").to_owned();
    for path in [FEED, BY_TOKEN, "/flags/definitions/?send_cohorts"] {
        app.get(path).await.expect(200);
        let (unchanged, trips, operations) = cost(&app, path, Some(&tag)).await;
        assert_eq!((unchanged.status.as_u16(), trips), (304, 1), "{path}");
        let one_batch: &[&str] = &["BatchGetItem"];
        let beside_the_projects_of_the_organization: &[&str] = &["BatchGetItem", "Query"];
        let expected = if path.contains("/?") && path.starts_with("/flags") {
            beside_the_projects_of_the_organization
        } else {
            one_batch
        };
        let mut operations = operations;
        operations.sort();
        assert_eq!(operations, expected, "{path}");
        let (whole, trips, _) = cost(&app, path, None).await;
        assert_eq!((whole.status.as_u16(), trips), (200, 1), "{path}");
    }
}

#[tokio::test]
async fn the_first_poll_after_a_change_takes_four_round_trips_and_the_next_one() {
    let nested = json!([{"key": "id", "type": "cohort", "value": 4}]);
    let app =
        TestApp::with(json!({"cohorts": [cohort(3, nested), cohort(4, json!([email("@x.io")]))]})).await;
    let id = app.post(FLAGS, json!({"key": "a", "filters": on_cohort(3)})).await.expect(201)["id"].clone();
    for n in 0..130 {
        app.flag(&format!("flag-{n}")).await;
    }
    let path = format!("{FEED}?send_cohorts");
    forget(&app);
    let (first, trips, _) = cost(&app, &path, None).await;
    assert_eq!(first.status, 200);
    assert!(trips <= 4, "{trips} waits in a new process");
    assert_eq!(cost(&app, &path, None).await.1, 1);

    let tag = first.header("etag").to_owned();
    app.patch(&format!("{FLAGS}{id}/"), json!({"name": "changed"})).await.expect(200);
    let (second, trips, _) = cost(&app, &path, Some(&tag)).await;
    assert_eq!(second.status, 200);
    assert!(trips <= 4, "{trips} waits in a process that knew the feed before");
    assert_eq!(cost(&app, &path, Some(second.header("etag"))).await.1, 1);

    forget(&app);
    let (unchanged, trips, _) = cost(&app, &path, Some(second.header("etag"))).await;
    assert_eq!((unchanged.status.as_u16(), trips), (304, 1), "a new process reads the stored tag");
    let (whole, trips, _) = cost(&app, &path, None).await;
    assert_eq!((whole.status.as_u16(), trips), (200, 2), "and then the body");
    forget(&app);
    let (whole, trips, _) = cost(&app, &path, None).await;
    assert_eq!((whole.status.as_u16(), trips), (200, 1), "or both beside the key");
    assert_eq!(unpacked(&whole), app.get(&path).await.text);
}

#[tokio::test]
async fn an_inconsistent_stored_feed_is_rebuilt() {
    let app = TestApp::new().await;
    app.flag("a").await;
    let text = app.get(FEED).await.text;
    let records = &app.services.app.store.records;
    let part = keys::feed_part(1, "SENT", 0);
    for damage in ["gone", "foreign"] {
        if damage == "gone" {
            records.sweep(vec![part.clone()]).await.unwrap();
        } else {
            let stored = records.get(&part).await.unwrap().unwrap();
            let other = Item { text: "{\"mark\":\"other\"}".to_owned(), ..stored };
            records.replace(vec![other], Vec::new()).await.unwrap();
        }
        forget(&app);
        assert_eq!(app.get(FEED).await.text, text, "{damage}");
        forget(&app);
        let (_, trips, _) = cost(&app, &format!("{FEED}?send_cohorts"), None).await;
        assert_eq!(trips, 1, "it was stored again");
    }
}

#[tokio::test]
async fn two_processes_share_a_stored_feed() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    app.get(FEED).await.expect(200);
    let other = pennon_flags_of(&app);
    app.patch(&format!("{FLAGS}{id}/"), json!({"name": "new"})).await.expect(200);
    // The other process builds the feed; this one, with the old feed in its cache, reads it.
    let made = send(&other, FEED).await;
    assert_eq!(made["flags"][0]["name"], "new");
    app.round_trips.reset();
    assert_eq!(app.get(FEED).await.expect(200)["flags"][0]["name"], "new");
    let writes = app.round_trips.calls().iter().filter(|call| call.operation == "BatchWriteItem").count();
    assert_eq!(writes, 0);
}

/// The API of another process over the same tables.
fn pennon_flags_of(app: &TestApp) -> axum::Router {
    let core = pennon_core::app::App::new(app.services.app.store.clone(), app.services.app.clock);
    let services = pennon::api::Services {
        flags: pennon_flags::Flags::new(core.clone(), app.services.events.clone()),
        app: core,
        ..app.services.clone()
    };
    pennon::api::api(&services)
}

async fn send(router: &axum::Router, path: &str) -> Value {
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    let request = TestApp::request(Keys::OWNER, "GET", path, Value::Null);
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test]
async fn an_exhausted_quota_is_402_and_a_failure_500_in_their_own_formats() {
    let org = "01900000-0000-7000-8000-000000000001";
    let app = TestApp::with(json!({"projects": [{"id": "4", "organization": org, "token": "phc_four",
        "feature_flag_quota_exhausted": true}]}))
    .await;
    let exhausted = app.get("/flags/definitions?token=phc_four").await;
    let body = json!({"type": "quota_limited", "detail": "You have exceeded your feature flag request quota",
                      "code": "payment_required"});
    assert_eq!(exhausted.expect(402), body);
    assert_eq!(poll(&app, "/flags/definitions?token=phc_four", "*").await.expect(402), body);
    let stranger = app.call(Keys::STRANGER, "GET", "/flags/definitions?token=phc_four", Value::Null).await;
    stranger.expect(403);

    let id = app.flag("a").await;
    let at = keys::record(1, keys::RecordKind::Flag, id);
    let records = &app.services.app.store.records;
    let stored = records.get(&at).await.unwrap().unwrap();
    records.replace(vec![Item { text: "{}".to_owned(), ..stored }], Vec::new()).await.unwrap();
    forget(&app);
    let failed = app.get(FEED).await;
    let body =
        json!({"type": "server_error", "code": "unexpected_error", "detail": "An unexpected error occurred"});
    assert_eq!(failed.expect(500), body);
}

#[tokio::test]
async fn the_body_is_compressed_on_request() {
    let app = TestApp::new().await;
    app.flag("a").await;
    let plain = app.get(FEED).await;
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), ("", "Accept-Encoding"));
    let packed = get_with(&app, FEED, "accept-encoding", "gzip, deflate").await;
    assert_eq!(unpacked(&packed), plain.text);
    assert_eq!(packed.header("etag"), plain.header("etag"));
    assert_eq!(packed.header("vary"), "Accept-Encoding");
    assert!(packed.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json"));
}

/// Text that compresses to three quarters.
fn noise(seed: u64, length: usize) -> String {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from((state >> 33) % 43).unwrap())
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[tokio::test]
async fn a_document_larger_than_a_response_is_rejected_and_never_truncated() {
    let app = TestApp::new().await;
    let large = |n: u64| {
        json!({"key": format!("large-{n}"), "filters": {"groups": [{"properties": []}],
               "payloads": {"true": [noise(n, 260_000)]}}})
    };
    // 24 such flags take some 4.4 MB compressed, 6.2 MB as text.
    for n in 0..24 {
        app.post(FLAGS, large(n)).await.expect(201);
    }
    let packed = get_with(&app, FEED, "accept-encoding", "gzip").await;
    let document: Value = serde_json::from_str(&unpacked(&packed)).unwrap();
    assert_eq!((packed.status.as_u16(), document["flags"].as_array().unwrap().len()), (200, 24));
    assert!(packed.bytes.len() > 4_000_000 && packed.bytes.len() <= 4_500_000, "{}", packed.bytes.len());
    let plain = app.get(FEED).await.expect(400);
    assert_eq!((&plain["code"], &plain["attr"]), (&json!("invalid_input"), &Value::Null));
    assert!(plain["detail"].as_str().unwrap().contains("Accept-Encoding: gzip"), "{plain}");
    // A new process joins its parts.
    forget(&app);
    let (again, trips, _) = cost(&app, FEED, None).await;
    assert_eq!((again.bytes == packed.bytes, trips), (true, 2));
    let tag = packed.header("etag").to_owned();
    assert_eq!(poll(&app, FEED, &tag).await.status, 304, "a client that has it keeps it");

    // A write that makes it too large is refused where it is counted what there is; here nothing of it was.
    app.forget_room().await;
    let last = app.post(FLAGS, large(24)).await.expect(201);
    for _ in 0..2 {
        let refused = get_with(&app, FEED, "accept-encoding", "gzip").await.expect(400);
        let detail = refused["detail"].as_str().unwrap();
        assert!(
            refused["code"] == "invalid_input" && detail.contains("at most 4500000 bytes compressed"),
            "{detail}"
        );
        assert_eq!(poll(&app, FEED, "*").await.status, 400);
        assert_eq!(poll(&app, FEED, &tag).await.status, 400);
        // A new process learns it from the head, without making the document again.
        forget(&app);
    }
    let (refused, trips, _) = cost(&app, FEED, None).await;
    assert_eq!((refused.status.as_u16(), trips), (400, 1));
    app.patch(&format!("{FLAGS}{}/", last["id"]), json!({"deleted": true})).await.expect(200);
    assert_eq!(poll(&app, FEED, &tag).await.status, 304, "the document is what it was");
}
