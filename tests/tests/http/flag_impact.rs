//! The impact of a flag over HTTP: numbers of a small shop by hand, the persons behind them, caching, background calculation,
//! tables, and every refusal.

use axum::http::{StatusCode, header};
use http_body_util::BodyExt;
use pennon::delete::DeleteRequest;
use pennon_core::http::edge;
use pennon_eventstore::ErasureTarget;
use pennon_tests::{Keys, TestApp, now_micros};
use serde_json::{Value, json};
use tower::ServiceExt;

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn path(id: u64) -> String {
    format!("{FLAGS}{id}/impact/")
}

fn event(who: &str, name: &str, minute: u32, properties: Value) -> Value {
    let time = format!("2026-01-02T{:02}:{:02}:00Z", minute / 60, minute % 60);
    json!({"event": name, "distinct_id": who, "timestamp": time, "properties": properties})
}

fn call(who: &str, variant: Value, minute: u32) -> Value {
    let properties = json!({"$feature_flag": "checkout", "$feature_flag_response": variant});
    event(who, "$feature_flag_called", minute, properties)
}

/// Two variants of a flag, half of the persons each.
fn split() -> Value {
    json!({"groups": [{"properties": [], "rollout_percentage": 100}], "multivariate": {"variants": [
        {"key": "control", "rollout_percentage": 50}, {"key": "test", "rollout_percentage": 50},
    ]}})
}

/// Ann and bob saw control, cat, dan and eve test, and fay both. Bob viewed before, cat and dan bought after; eve bought too
/// late.
async fn shop() -> (TestApp, u64) {
    let app = TestApp::new().await;
    let flag = app.post(FLAGS, json!({"key": "checkout", "filters": split()})).await.expect(201);
    app.capture(json!([
        call("ann", json!("control"), 10),
        call("ann", json!("control"), 90),
        call("bob", json!("control"), 10),
        call("cat", json!("test"), 10),
        call("dan", json!("test"), 10),
        call("eve", json!("test"), 10),
        call("fay", json!("control"), 10),
        call("fay", json!("test"), 20),
        event("bob", "view", 5, json!({})),
        event("bob", "buy", 15, json!({"price": 3})),
        event("cat", "view", 10, json!({})),
        event("cat", "buy", 11, json!({"price": 10})),
        event("cat", "buy", 12, json!({"price": "2.5"})),
        event("dan", "view", 20, json!({})),
        event("dan", "buy", 30, json!({"price": "free"})),
        event("eve", "view", 20, json!({})),
        event("eve", "buy", 200, json!({"price": 100})),
        event("fay", "buy", 30, json!({"price": 7})),
    ]))
    .await;
    (app, flag["id"].as_u64().unwrap())
}

/// A funnel of view and buy within two hours.
fn funnel() -> Value {
    json!({
        "query": {"kind": "FunnelsQuery", "series": [{"kind": "EventsNode", "event": "view"}, {"kind": "EventsNode", "event": "buy"}],
            "funnelsFilter": {"funnelWindowInterval": 2, "funnelWindowIntervalUnit": "hour"}},
        "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-03"},
    })
}

fn trend(math: Value) -> Value {
    let mut series = json!({"kind": "EventsNode", "event": "buy"});
    series.as_object_mut().unwrap().extend(math.as_object().unwrap().clone());
    json!({"query": {"kind": "TrendsQuery", "series": [series], "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-03"}}})
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// By variant: exposed, converted, and the number.
fn numbers(result: &Value) -> Value {
    let number = if result["measure"] == "rate" { "rate" } else { "mean" };
    let rows = result["variants"].as_array().unwrap().iter();
    rows.map(|row| json!([row["variant"], row["exposed"], row["converted"], row[number]])).collect()
}

/// Follows each link of a result: as many persons as the number counts. Returns the names of the first list.
async fn follow(app: &TestApp, result: &Value) -> usize {
    let mut links = 0;
    let several = &result["several_variants"];
    let mut numbers = vec![(&several["persons_url"], &several["exposed"])];
    for row in result["variants"].as_array().unwrap() {
        numbers.push((&row["exposed_persons_url"], &row["exposed"]));
        numbers.push((&row["converted_persons_url"], &row["converted"]));
    }
    for (url, number) in numbers {
        let page = app.get(url.as_str().unwrap()).await.expect(200);
        assert_eq!(page["total_count"], *number, "{url}");
        links += 1;
    }
    links
}

#[tokio::test]
async fn each_metric_counts_what_persons_did_after_their_exposure() {
    let (app, id) = shop().await;
    for compacts in [false, true] {
        if compacts {
            app.compact().await;
        }
        let response = app.post(&path(id), with(funnel(), json!({"refresh": true}))).await.expect(200);
        let result = &response["results"];
        // Bob viewed before his exposure, and eve bought three hours after hers.
        assert_eq!(numbers(result), json!([["control", 2, 0, 0.0], ["test", 3, 2, 2.0 / 3.0]]));
        assert_eq!((&result["exposed"], &result["several_variants"]["exposed"]), (&json!(5), &json!(1)));
        assert_eq!(
            (&result["control"], &result["metric"], &result["actors"]),
            (&json!("control"), &json!("funnel"), &json!("persons"))
        );
        assert_eq!(follow(&app, result).await, 5);
        for (math, want) in [
            (json!({"math": "dau"}), json!([["control", 2, 1, 0.5], ["test", 3, 3, 1.0]])),
            (json!({}), json!([["control", 2, 1, 0.5], ["test", 3, 3, 4.0 / 3.0]])),
            (
                json!({"math": "sum", "math_property": "price"}),
                json!([["control", 2, 1, 1.5], ["test", 3, 3, 37.5]]),
            ),
        ] {
            let response = app.post(&path(id), with(trend(math), json!({"refresh": true}))).await.expect(200);
            assert_eq!(numbers(&response["results"]), want);
            assert_eq!(follow(&app, &response["results"]).await, 5);
        }
    }
    let environments = path(id).replace("projects", "environments");
    assert_eq!(app.post(&environments, funnel()).await.expect(200)["is_cached"], true);
}

#[tokio::test]
async fn exposure_can_be_a_property_of_events() {
    let (app, id) = shop().await;
    let viewed = |who: &str, variant: Value| event(who, "landed", 60, json!({"$feature/checkout": variant}));
    app.capture(json!([
        viewed("gil", json!("test")),
        event("gil", "buy", 61, json!({})),
        viewed("hal", json!("control")),
        event("ann", "other", 62, json!({"$feature/checkout": "test"})),
    ]))
    .await;
    let numbers_of = async |more: Value| {
        let body = with(trend(json!({"math": "dau"})), more);
        numbers(&app.post(&path(id), body).await.expect(200)["results"])
    };
    let every = numbers_of(json!({"exposure": "property"})).await;
    assert_eq!(every, json!([["control", 1, 0, 0.0], ["test", 2, 1, 0.5]]));
    let landed = numbers_of(json!({"exposure": "property", "exposure_event": "landed"})).await;
    assert_eq!(landed, json!([["control", 1, 0, 0.0], ["test", 1, 1, 1.0]]));
}

#[tokio::test]
async fn merged_persons_are_one_and_erased_persons_none() {
    let (app, id) = shop().await;
    let identify = json!({"event": "$identify", "distinct_id": "ann", "timestamp": "2026-01-02T02:00:00Z",
        "properties": {"$anon_distinct_id": "device"}});
    app.capture(json!([call("device", json!("test"), 20)])).await;
    let calculate = async || app.post(&path(id), with(funnel(), json!({"refresh": true}))).await.expect(200);
    let before = calculate().await;
    assert_eq!(numbers(&before["results"])[1][1], 4);
    app.capture(json!([identify])).await;
    let merged = calculate().await;
    assert_eq!(merged["results"]["several_variants"]["exposed"], 2);
    assert_eq!(numbers(&merged["results"]), json!([["control", 1, 0, 0.0], ["test", 3, 2, 2.0 / 3.0]]));
    app.compact().await;
    let request = DeleteRequest { project: 1, target: ErasureTarget::Person("cat".to_owned()) };
    let now = now_micros();
    request.erase(&app.services.app.store, &app.services.events, &|| now + 1).await.unwrap();
    let erased = app.post(&path(id), funnel()).await.expect(200);
    assert_eq!(numbers(&erased["results"]), json!([["control", 1, 0, 0.0], ["test", 2, 1, 0.5]]));
}

#[tokio::test]
async fn a_result_is_cached_until_the_flag_changes() {
    let (app, id) = shop().await;
    let calculate = async || app.post(&path(id), funnel()).await.expect(200);
    let (first, second) = (calculate().await, calculate().await);
    assert_eq!((&first["is_cached"], &second["is_cached"]), (&json!(false), &json!(true)));
    assert_eq!(first["results"], second["results"]);
    let mut filters = split();
    filters["multivariate"]["variants"][0]["rollout_percentage"] = json!(10);
    filters["multivariate"]["variants"][1]["rollout_percentage"] = json!(90);
    app.patch(&format!("{FLAGS}{id}/"), json!({"filters": filters})).await.expect(200);
    let changed = calculate().await;
    assert_eq!((&changed["is_cached"], changed["cache_key"] == first["cache_key"]), (&json!(false), false));
}

#[tokio::test]
async fn a_calculation_can_continue_in_the_background() {
    let (app, id) = shop().await;
    let body = with(funnel(), json!({"refresh": "async", "client_query_id": "mine"}));
    let started = app.post(&path(id), body).await.expect(200);
    assert_eq!((&started["results"], &started["query_status"]["complete"]), (&Value::Null, &json!(false)));
    app.work().await;
    let status = app.get("/api/projects/1/query/mine/").await.expect(200);
    let result = &status["query_status"]["results"]["results"];
    assert_eq!(numbers(result), json!([["control", 2, 0, 0.0], ["test", 3, 2, 2.0 / 3.0]]));
    let again = app.post(&path(id), funnel()).await.expect(200);
    assert_eq!((&again["is_cached"], &again["results"]), (&json!(true), result));
    let body = with(funnel(), json!({"refresh": "force_async", "client_query_id": "other"}));
    app.post(&path(id), body).await.expect(200);
    assert_eq!(
        app.call(Keys::OWNER, "DELETE", "/api/projects/1/query/other/", Value::Null).await.status,
        204
    );
    assert!(app.work().await.is_empty());
}

#[tokio::test]
async fn statistics_follow_the_method() {
    let app = TestApp::new().await;
    let flag = app.post(FLAGS, json!({"key": "checkout", "filters": split()})).await.expect(201);
    let id = flag["id"].as_u64().unwrap();
    let mut events = Vec::new();
    for person in 0..120 {
        let who = format!("p{person}");
        let variant = if person % 2 == 0 { "control" } else { "test" };
        events.push(call(&who, json!(variant), 10));
        // 12 of 60, and 30 of 60.
        if (variant == "control" && person % 10 == 0) || (variant == "test" && person % 4 == 1) {
            events.push(event(&who, "buy", 20, json!({"price": person % 7})));
        }
    }
    app.capture(json!(events)).await;
    let calculate = async |more: Value| {
        let body = with(trend(json!({"math": "dau"})), with(json!({"minimum_sample": 60}), more));
        app.post(&path(id), body).await.expect(200)["results"].clone()
    };
    let near = |value: &Value, want: f64| (value.as_f64().unwrap() - want).abs() < 1e-9;
    // Of Beta(12.5, 48.5) and Beta(30.5, 30.5), by scipy 1.17.1.
    let bayesian = calculate(json!({})).await;
    let test = &bayesian["variants"][1];
    assert!(near(&test["rate"], 0.5) && near(&test["comparison"]["difference"], 0.3), "{test}");
    assert_eq!((&test["comparison"]["p_value"], &test["verdict"]), (&Value::Null, &json!("higher")));
    let compared = &test["comparison"];
    assert!(near(&compared["chance_to_win"], 0.999_752_590_553_187), "{compared}");
    for (interval, (low, high)) in [
        ("difference_interval", (0.131_822_618_679_518_36, 0.451_325_429_048_095_1)),
        ("relative_interval", (0.463_607_360_529_088, 3.553_574_787_556_45)),
    ] {
        assert!(near(&compared[interval][0], low) && near(&compared[interval][1], high), "{compared}");
    }
    assert!(near(&test["chance_to_be_best"], 0.999_752_590_553_187), "{test}");
    assert!(near(&test["comparison"]["relative_difference"], 1.5));
    let ratio = &bayesian["sample_ratio"];
    assert_eq!(
        (&ratio["is_checked"], &ratio["is_mismatch"], &ratio["p_value"]),
        (&json!(true), &json!(false), &json!(1.0))
    );
    let frequentist = calculate(json!({"method": "frequentist", "control": "test"})).await;
    let control = &frequentist["variants"][1];
    assert_eq!((&frequentist["control"], &control["variant"]), (&json!("test"), &json!("control")));
    assert_eq!(
        (&control["comparison"]["chance_to_win"], &control["chance_to_be_best"]),
        (&Value::Null, &Value::Null)
    );
    assert!(near(&control["comparison"]["relative_difference"], -0.6));
    let (fixed, always) = (&control["comparison"]["p_value"], &control["comparison"]["always_valid_p_value"]);
    assert!(fixed.as_f64().unwrap() < always.as_f64().unwrap(), "{control}");
}

#[tokio::test]
async fn a_flag_of_groups_counts_groups() {
    let app = TestApp::new().await;
    let filters =
        json!({"groups": [{"properties": [], "rollout_percentage": 50}], "aggregation_group_type_index": 0});
    let flag = app.post(FLAGS, json!({"key": "checkout", "filters": filters})).await.expect(201);
    let id = flag["id"].as_u64().unwrap();
    let of = |mut event: Value, group: &str| {
        event["properties"]["$group_0"] = json!(group);
        event
    };
    app.capture(json!([
        of(call("ann", json!(true), 10), "acme"),
        of(call("bob", json!(true), 20), "acme"),
        of(call("cat", json!(false), 10), "hooli"),
        call("dan", json!(true), 10),
        of(event("bob", "view", 30, json!({})), "acme"),
        of(event("ann", "buy", 40, json!({})), "acme"),
    ]))
    .await;
    let result = &app.post(&path(id), funnel()).await.expect(200)["results"];
    assert_eq!(numbers(result), json!([["false", 1, 0, 0.0], ["true", 1, 1, 1.0]]));
    assert_eq!((&result["actors"], &result["control"]), (&json!("groups"), &json!("false")));
    assert_eq!(result["sample_ratio"]["is_checked"], false);
    assert_eq!(follow(&app, result).await, 5);
    app.post(&path(id), trend(json!({"math": "dau"}))).await.expect_field_error("invalid_input", "series");
}

#[tokio::test]
async fn a_table_has_a_row_for_each_variant() {
    let (app, id) = shop().await;
    let table = app.post(&format!("{}?format=csv", path(id)), funnel()).await;
    assert_eq!((table.status.as_u16(), table.header("content-type")), (200, "text/csv; charset=utf-8"));
    let rows: Vec<&str> = table.text.lines().collect();
    assert_eq!(rows[0], "variant,exposed,converted,rate,difference,low,high,relative,chance_to_win,verdict");
    assert!(rows[1].starts_with("control,2,0,0,") && rows[2].starts_with("test,3,2,0.666"), "{rows:?}");
    assert_eq!(rows[3], "several variants,1");
    let unknown = app.post(&format!("{}?format=xlsx", path(id)), funnel()).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn every_refusal_has_its_status_and_field() {
    let key = |label: &str| format!("phx_{label}_01234567890123456789");
    let scoped = |label: &str, scopes: Value| json!({"label": label, "user": "owner@example.com", "scopes": scopes, "projects": [], "value": key(label)});
    let keys = json!([
        scoped("flags", json!(["feature_flag:read"])),
        scoped("queries", json!(["query:read"])),
        scoped("both", json!(["feature_flag:read", "query:read"])),
    ]);
    let app = TestApp::with(json!({"keys": keys})).await;
    let id = app.flag("checkout").await;
    for (label, missing) in [("flags", "query:read"), ("queries", "feature_flag:read")] {
        let refused = app.call(&key(label), "POST", &path(id), funnel()).await;
        let detail = format!("API key missing required scope '{missing}'");
        refused.expect_error(403, "authentication_error", "permission_denied", &detail, None);
    }
    app.call(&key("both"), "POST", &path(id), funnel()).await.expect(200);
    for unknown in
        [path(id + 1), format!("{FLAGS}checkout/impact/"), format!("{FLAGS}99999999999999999999/impact/")]
    {
        assert_eq!(app.post(&unknown, funnel()).await.expect(404)["code"], "not_found", "{unknown}");
    }
    for (body, code, field) in [
        (json!({}), "required", "query"),
        (json!({"query": null}), "null", "query"),
        (with(funnel(), json!({"method": "guess"})), "invalid_input", "method"),
        (with(funnel(), json!({"exposure": "seen"})), "invalid_input", "exposure"),
        (with(funnel(), json!({"confidence_level": 1})), "invalid_input", "confidence_level"),
        (with(funnel(), json!({"minimum_sample": 0})), "invalid_input", "minimum_sample"),
        (with(funnel(), json!({"dateRange": {"date_from": "soon"}})), "invalid_input", "date_from"),
        (trend(json!({"math": "p90", "math_property": "price"})), "invalid_input", "series"),
        (with(funnel(), json!({"client_query_id": "x".repeat(2_000)})), "max_length", "client_query_id"),
    ] {
        app.post(&path(id), body).await.expect_field_error(code, field);
    }
    let people = "/api/projects/1/persons/flag_impact/";
    app.get(people).await.expect_field_error("required", "impact");
    app.get(&format!("{people}?impact=7")).await.expect_field_error("invalid_input", "impact");
    app.get(&format!("{people}?impact=%7B%7D")).await.expect_field_error("required", "flag");
    app.patch(&format!("{FLAGS}{id}/"), json!({"deleted": true})).await.expect(200);
    assert_eq!(app.post(&path(id), funnel()).await.status, 404);
}

#[tokio::test]
async fn a_cached_result_takes_two_round_trips() {
    let (app, id) = shop().await;
    app.post(&path(id), funnel()).await.expect(200);
    app.services.app.keys.clear();
    app.round_trips.reset();
    assert_eq!(app.post(&path(id), funnel()).await.expect(200)["is_cached"], true);
    assert_eq!(app.round_trips.sequential(), 2, "{:?}", app.round_trips.calls());
}

#[tokio::test]
async fn the_flags_function_redirects_a_trailing_slash_and_keeps_the_query() {
    let app = TestApp::new().await;
    let flags = pennon_flags::Flags::new(app.services.app.clone(), app.services.events.clone());
    let function = edge(pennon_flags::function_router(&flags), app.services.app.clock);
    for root in ["projects", "environments"] {
        let path = format!("/api/{root}/1/feature_flags/7/impact/?refresh=async");
        let request = TestApp::request(Keys::OWNER, "POST", &path, funnel());
        let response = function.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
        assert_eq!(response.headers()[header::LOCATION], "../impact?refresh=async");
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}
