//! Invalid bodies and parameters over HTTP, and limits: one beyond the stated limit is rejected, nothing of it
//! is written, and a value at the limit is accepted.

use axum::body::Body;
use axum::http::{Request, header};
use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

/// Everything that is stored of flag 1, and how many flags there are.
async fn stored(app: &TestApp) -> (Value, Value) {
    let flag = app.get(&format!("{FLAGS}1/")).await.expect(200);
    (flag, app.get(FLAGS).await.expect(200)["count"].clone())
}

/// Filters of one condition.
fn condition(condition: Value) -> Value {
    json!({"filters": {"groups": [condition]}})
}

/// Filters of one condition with one property.
fn property(property: Value) -> Value {
    condition(json!({"properties": [property]}))
}

/// Filters of one condition and other fields.
fn filters(more: Value) -> Value {
    let mut filters = json!({"groups": [{}]});
    more.as_object().unwrap().iter().for_each(|(name, value)| filters[name] = value.clone());
    json!({"filters": filters})
}

/// A request with a body as it is.
async fn raw(app: &TestApp, media_type: &str, body: impl Into<Body>) -> TestResponse {
    let request = Request::post(FLAGS)
        .header(header::AUTHORIZATION, format!("Bearer {}", Keys::OWNER))
        .header(header::CONTENT_TYPE, media_type);
    app.send(request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn bodies_that_are_not_objects_are_rejected() {
    let app = TestApp::new().await;
    for (body, kind) in [("[]", "list"), ("\"a\"", "str"), ("1", "int"), ("1.5", "float"), ("false", "bool")]
    {
        let detail = format!("Invalid data. Expected a dictionary, but got {kind}.");
        raw(&app, "application/json", body).await.expect_invalid("invalid_input", &detail, None);
    }
    for body in ["{", "{\"key\": }", "key=a", "\u{feff}{}", "{\"key\": \"a\"} x"] {
        let refused = raw(&app, "application/json", body).await.expect(400);
        assert_eq!((&refused["type"], &refused["code"]), (&json!("invalid_request"), &json!("parse_error")));
        assert!(refused["detail"].as_str().unwrap().starts_with("JSON parse error - "), "{refused}");
    }
    let refused = raw(&app, "application/json", vec![b'{', 0xff, b'}']).await.expect(400);
    assert_eq!(refused["code"], "parse_error");
    let foreign = raw(&app, "text/csv", "a,b").await;
    let detail = "Unsupported media type \"text/csv\" in request.";
    foreign.expect_error(415, "invalid_request", "unsupported_media_type", detail, None);
    let form = raw(&app, "application/x-www-form-urlencoded", "key=form&active=no").await.expect(201);
    assert_eq!((&form["key"], &form["active"]), (&json!("form"), &json!(false)));
    assert_eq!(app.get(FLAGS).await.expect(200)["count"], 1);
}

#[tokio::test]
async fn a_body_may_have_six_million_bytes() {
    let app = TestApp::new().await;
    let of = |bytes: usize, key: &str| {
        let start = format!("{{\"key\": \"{key}\", \"unknown\": \"");
        format!("{start}{}\"}}", "x".repeat(bytes - start.len() - 2))
    };
    let most = raw(&app, "application/json", of(6_000_000, "most")).await;
    assert_eq!(most.status, 201, "{}", most.text);
    let more = raw(&app, "application/json", of(6_000_001, "more")).await;
    let detail = "Request body is too large.";
    more.expect_error(413, "invalid_request", "payload_too_large", detail, None);
    assert_eq!(app.get(FLAGS).await.expect(200)["count"], 1);
}

/// `depth` lists inside each other.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

/// Filters whose compact text has exactly this many bytes.
fn filters_of(bytes: usize) -> Value {
    let empty = json!({"groups": [{}], "x": ""});
    json!({"groups": [{}], "x": "x".repeat(bytes - empty.to_string().len())})
}

/// Each limit: a value at it is accepted, one beyond it is rejected, on create and on change.
#[tokio::test]
async fn limits_hold_at_the_limit_and_one_past_it() {
    let app = TestApp::new().await;
    app.flag("on").await;
    let groups = |count: usize| json!({"filters": {"groups": vec![json!({}); count]}});
    let person = |value: Value| json!({"key": "p", "type": "person", "value": value});
    let properties = |count: usize| condition(json!({"properties": vec![person(json!("x")); count]}));
    let pattern =
        |bytes: usize| json!({"key": "p", "type": "person", "operator": "regex", "value": "a".repeat(bytes)});
    let patterns = |count: usize| condition(json!({"properties": vec![pattern(3); count]}));
    let variants = |count: usize| {
        let of = |number: usize| {
            let share = if number == 0 { 100 } else { 0 };
            json!({"key": format!("v{number}"), "rollout_percentage": share})
        };
        filters(json!({"multivariate": {"variants": (0..count).map(of).collect::<Vec<_>>()}}))
    };
    let tags = |count: usize| json!({"tags": (0..count).map(|n| format!("t{n}")).collect::<Vec<_>>()});
    let rollback = |bytes: usize| json!({"rollback_conditions": "x".repeat(bytes - 2)});
    let rows: Vec<(&str, Value, Value, &str)> = vec![
        ("name", json!({"name": "n".repeat(10_000)}), json!({"name": "n".repeat(10_001)}), "name"),
        ("size", json!({"filters": filters_of(262_144)}), json!({"filters": filters_of(262_145)}), "filters"),
        ("conditions", groups(1000), groups(1001), "filters"),
        ("properties", properties(200), properties(201), "filters"),
        (
            "values",
            property(person(json!(vec!["x"; 1000]))),
            property(person(json!(vec!["x"; 1001]))),
            "filters",
        ),
        ("pattern", property(pattern(4096)), property(pattern(4097)), "filters"),
        ("patterns", patterns(100), patterns(101), "filters"),
        ("variants", variants(200), variants(201), "filters"),
        ("nesting", filters(json!({"x": nested(31)})), filters(json!({"x": nested(32)})), "filters"),
        ("tags", tags(100), tags(101), "tags"),
        ("tag", json!({"tags": ["t".repeat(255)]}), json!({"tags": ["t".repeat(256)]}), "tags"),
        ("rollback", rollback(32_768), rollback(32_769), "rollback_conditions"),
        (
            "rollback nesting",
            json!({"rollback_conditions": nested(32)}),
            json!({"rollback_conditions": nested(33)}),
            "rollback_conditions",
        ),
    ];
    for (number, (what, most, more, attr)) in rows.into_iter().enumerate() {
        let before = stored(&app).await;
        let refused = app.patch(&format!("{FLAGS}1/"), more.clone()).await.expect(400);
        assert_eq!(
            (&refused["type"], &refused["attr"]),
            (&json!("validation_error"), &json!(attr)),
            "{what}"
        );
        let with_key = |mut body: Value| {
            body["key"] = json!(format!("limit-{number}"));
            body
        };
        assert_eq!(app.post(FLAGS, with_key(more)).await.expect(400), refused, "{what}");
        assert_eq!(stored(&app).await, before, "{what}: a refused write has no effect");
        for response in
            [app.patch(&format!("{FLAGS}1/"), most.clone()).await, app.post(FLAGS, with_key(most)).await]
        {
            assert!(response.status.is_success(), "{what}: {}", response.text);
        }
    }
    let key = |chars: usize| json!({"key": "k".repeat(chars)});
    app.post(FLAGS, key(400)).await.expect(201);
    let detail = "Ensure this field has no more than 400 characters.";
    app.post(FLAGS, key(401)).await.expect_invalid("max_length", detail, Some("key"));
}

#[tokio::test]
async fn parameters_of_lists_are_validated() {
    let app = TestApp::new().await;
    app.flag("on").await;
    let search = |chars: usize| format!("{FLAGS}?search={}", "s".repeat(chars));
    app.get(&search(200)).await.expect(200);
    let detail = "Search term cannot exceed 200 characters";
    app.get(&search(201)).await.expect_invalid("invalid_input", detail, None);
    let bad = app.get(&format!("{FLAGS}?order=filters")).await;
    bad.expect_invalid("invalid_choice", "\"filters\" is not a valid choice.", Some("order"));
    let bad = app.get(&format!("{FLAGS}?created_by_id=x")).await;
    bad.expect_invalid("invalid_input", "A valid integer is required.", Some("created_by_id"));
    for odd in [
        "limit=0",
        "limit=-1",
        "limit=abc",
        "limit=1e3",
        "offset=-1",
        "offset=x",
        "tags=[",
        "active=",
        "type=x",
    ] {
        app.get(&format!("{FLAGS}?{odd}")).await.expect(200);
    }
    let large = app.get(&format!("{FLAGS}?limit=99999999999999999999&offset=1")).await.expect(200);
    assert_eq!(large["previous"], format!("http://api.test{FLAGS}?limit=100"));
    let large = app.get(&format!("{FLAGS}?limit=5000&offset=1")).await.expect(200);
    assert_eq!(large["previous"], format!("http://api.test{FLAGS}?limit=1000"));
    let missing = format!("{FLAGS}18446744073709551616/");
    for path in [missing.as_str(), "/api/projects/1/feature_flags/x/", "/api/projects/1/feature_flags/-1/"] {
        let response = app.get(path).await;
        response.expect_error(404, "invalid_request", "not_found", "Not found.", None);
    }
}
