//! The fields of insight bodies, and the limits of one insight at the limit and one past it.

use pennon_core::store::{Item, PartitionQuery};
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const INSIGHTS: &str = "/api/projects/1/insights/";

fn one(id: &Value) -> String {
    format!("{INSIGHTS}{id}/")
}

/// Dashboards 1 to `count` of project 1.
fn dashboards(count: u64) -> Value {
    let one = |id| json!({"project": "1", "id": id, "name": format!("D{id}")});
    json!({"dashboards": (1..=count).map(one).collect::<Vec<Value>>()})
}

/// JSON that does not compress, `bytes` long as JSON text.
fn noise(bytes: usize, seed: u64) -> Value {
    let mut state = seed;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // 94 printable letters without the two that JSON escapes.
        match char::from(b' ' + u8::try_from((state >> 33) % 95).unwrap()) {
            '"' | '\\' => 'x',
            letter => letter,
        }
    };
    let text: String = (0..bytes - "{\"x\":\"\"}".len()).map(|_| letter()).collect();
    json!({"x": text})
}

const NO_STRING: &str = "Not a valid string.";
const NO_BOOLEAN: &str = "Must be a valid boolean.";
const NO_INTEGER: &str = "A valid integer is required.";

#[tokio::test]
async fn every_field_is_validated_by_its_rule_and_nothing_is_written() {
    let more = json!([{"project": "1", "id": 1, "name": "live"}, {"project": "1", "id": 2, "name": "gone", "deleted": true},
                      {"project": "2", "id": 3, "name": "foreign"}]);
    let app = TestApp::with(json!({"dashboards": more})).await;
    let before =
        app.post(INSIGHTS, json!({"name": "kept", "tags": ["t"], "dashboards": [1]})).await.expect(201);
    let path = one(&before["id"]);
    let long = "x".repeat(401);
    let too_long = "Ensure this field has no more than 400 characters.";
    let list = |kind: &str| format!("Expected a list of items but got type \"{kind}\".");
    let missing = |id: &str| format!("Invalid pk \"{id}\" - object does not exist.");
    let mut table: Vec<(&str, Value, &str, String)> = Vec::new();
    for name in ["name", "derived_name", "description"] {
        table.push((name, json!(long), "max_length", too_long.to_owned()));
        table.extend(
            [json!(true), json!([]), json!({})].map(|bad| (name, bad, "invalid_input", NO_STRING.to_owned())),
        );
    }
    for name in ["favorited", "saved", "deleted"] {
        let bad = [json!("maybe"), json!(2), json!([]), json!("")];
        table.extend(bad.map(|bad| (name, bad, "invalid_input", NO_BOOLEAN.to_owned())));
    }
    table.extend(
        [json!("x"), json!(1.5), json!([])].map(|bad| ("order", bad, "invalid_input", NO_INTEGER.to_owned())),
    );
    table.push(("tags", json!("a"), "not_a_list", list("str")));
    table.push(("tags", json!({"a": 1}), "not_a_list", list("dict")));
    table.push(("tags", json!([["a"]]), "invalid_input", NO_STRING.to_owned()));
    table.push(("dashboards", json!(1), "not_a_list", list("int")));
    for (id, named) in
        [(json!(99), "99"), (json!(2), "2"), (json!(3), "3"), (json!(-1), "-1"), (json!("77"), "77")]
    {
        table.push(("dashboards", json!([1, id]), "does_not_exist", missing(named)));
    }
    let kib = |name: &str| format!("{name} must not be larger than 256 KiB as JSON.");
    table.push(("filters", noise(256 * 1024 + 1, 1), "invalid_input", kib("filters")));
    table.push(("filters", json!("{"), "invalid_input", "The text is not valid JSON.".to_owned()));
    let large = json!({"kind": "HogQLQuery", "query": "x".repeat(256 * 1024)});
    table.push(("query", large, "invalid_input", kib("query")));
    for (field, value, code, detail) in table {
        let body = json!({"name": "changed", field: value});
        // The field is last if its name is the problem.
        let body = if field == "name" { json!({"saved": true, "name": value}) } else { body };
        for response in [app.post(INSIGHTS, body.clone()).await, app.patch(&path, body).await] {
            response.expect_invalid(code, &detail, Some(field));
        }
    }
    for bad in [json!({"a": 1}), json!([1]), json!(null)] {
        let refused = app.post(INSIGHTS, json!({"dashboards": [bad]})).await.expect(400);
        assert_eq!((&refused["code"], &refused["attr"]), (&json!("incorrect_type"), &json!("dashboards")));
    }
    for field in ["favorited", "saved", "deleted", "tags", "dashboards"] {
        let refused = app.patch(&path, json!({field: null})).await;
        refused.expect_invalid("null", "This field may not be null.", Some(field));
    }
    assert_eq!(app.get(INSIGHTS).await.expect(200)["count"], 1, "nothing was made");
    let after = app.get(&path).await.expect(200);
    assert_eq!(after, before, "nothing was changed");
    assert_eq!(app.get(&format!("{INSIGHTS}activity/")).await.expect(200)["total_count"], 1);
}

#[tokio::test]
async fn a_query_is_validated_by_its_kind_and_unknown_keys_are_kept() {
    let app = TestApp::new().await;
    let viz = |source: Value| json!({"kind": "InsightVizNode", "source": source});
    let series = |series: Value| viz(json!({"kind": "TrendsQuery", "series": series}));
    for bad in [
        json!("{"),
        json!("[]"),
        json!("7"),
        json!(7),
        json!([]),
        json!({}),
        json!({"kind": 7}),
        json!({"kind": "Nonsense"}),
        json!({"kind": "InsightVizNode"}),
        viz(json!(null)),
        viz(json!({})),
        viz(json!({"kind": "TrendsQuery"})),
        viz(json!({"kind": "FunnelsQuery"})),
        series(json!({})),
        series(json!("x")),
        series(json!([{"kind": "OtherNode"}])),
        series(json!([7])),
        series(json!([{"kind": "ActionsNode"}])),
        series(json!([{"kind": "ActionsNode", "id": "x"}])),
        viz(json!({"kind": "TrendsQuery", "series": [], "interval": "fortnight"})),
        viz(json!({"kind": "TrendsQuery", "series": [], "trendsFilter": 7})),
        viz(json!({"kind": "FunnelsQuery", "series": [], "funnelsFilter": {"funnelOrderType": "sideways"}})),
    ] {
        let refused = app.post(INSIGHTS, json!({"query": bad})).await;
        let body = refused.expect(400);
        assert_eq!(
            (&body["type"], &body["code"]),
            (&json!("invalid_request"), &json!("parse_error")),
            "{bad}"
        );
        assert!(body["detail"].as_str().unwrap().len() > 10, "{body}");
    }
    let newer = json!({"kind": "InsightVizNode", "full": true, "source": {"kind": "TrendsQuery", "series": [
        {"kind": "EventsNode", "event": "viewed", "glow": [1.0, 2]}], "novelty": {"b": 1, "a": null}}});
    for stored in [
        json!(null),
        newer.clone(),
        newer["source"].clone(),
        viz(json!({"kind": "RetentionQuery", "retentionFilter": {}})),
        json!({"kind": "DataVisualizationNode", "source": {"kind": "HogQLQuery", "query": "select 1"}}),
        json!({"kind": "SomethingNewQuery", "x": 1}),
        json!({"kind": "SavedInsightNode", "shortId": "abc"}),
    ] {
        let made = app.post(INSIGHTS, json!({"query": stored})).await.expect(201);
        assert_eq!(made["query"].to_string(), stored.to_string(), "with its keys in their order");
        let as_text = app.patch(&one(&made["id"]), json!({"query": stored.to_string()})).await;
        if !stored.is_null() {
            assert_eq!(as_text.expect(200)["query"].to_string(), stored.to_string());
        }
    }
    // An insight that cannot be calculated is shown without numbers, and reports it if numbers are requested.
    let other = app.post(INSIGHTS, json!({"query": viz(json!({"kind": "PathsV2Query"}))})).await.expect(201);
    let shown = app.get(&format!("{}?refresh=blocking", one(&other["id"]))).await.expect(200);
    assert_eq!((&shown["result"], &shown["is_cached"]), (&Value::Null, &json!(false)));
    let status = &shown["query_status"];
    assert_eq!((&status["complete"], &status["error"]), (&json!(true), &json!(true)));
    assert!(status["error_message"].as_str().unwrap().contains("PathsV2Query"), "{status}");
    assert_eq!(app.get(&one(&other["id"])).await.expect(200)["query_status"], Value::Null);
}

#[tokio::test]
async fn values_are_coerced_as_in_the_contract() {
    let app = TestApp::new().await;
    let body = json!({
        "name": 12, "derived_name": null, "description": "x".repeat(400), "favorited": "YES", "saved": 1, "deleted": "off",
        "order": "7", "tags": [" B ", "b", "a", ""], "filters": [{"insight": "FUNNELS"}], "short_id": "mine", "id": 5,
        "dashboard_tiles": [{"id": 1}], "created_by": {"id": 2},
    });
    let made = app.post(INSIGHTS, body).await.expect(201);
    for (field, value) in [
        ("name", json!("12")),
        ("derived_name", json!(null)),
        ("favorited", json!(true)),
        ("saved", json!(true)),
        ("deleted", json!(false)),
        ("order", json!(7)),
        ("tags", json!(["a", "b"])),
        ("id", json!(1)),
        ("filters", json!({"insight": "FUNNELS"})),
        ("dashboard_tiles", json!([])),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    assert_eq!(made["created_by"]["id"], 1);
    let text =
        app.patch(&one(&made["id"]), json!({"filters": "{\"insight\": \"PATHS\"}", "order": null})).await;
    let text = text.expect(200);
    assert_eq!((&text["filters"], &text["order"]), (&json!({"insight": "PATHS"}), &Value::Null));
    // The maximum size.
    let large = app.post(INSIGHTS, json!({"filters": noise(256 * 1024, 3)})).await.expect(201);
    assert_eq!(app.get(&one(&large["id"])).await.expect(200)["filters"]["x"], large["filters"]["x"]);
}

#[tokio::test]
async fn filters_on_cohorts_of_every_type_are_stored_and_calculated() {
    let plan = json!({"key": "plan", "type": "person", "value": "pro", "operator": "exact"});
    let rules = json!({"properties": {"type": "AND", "values": [{"type": "AND", "values": [plan]}]}});
    let app = TestApp::with(json!({"cohorts": [
        {"project": "1", "id": 4, "name": "Listed", "is_static": true, "distinct_ids": ["ann", "bob"]},
        {"project": "1", "id": 5, "name": "Pro", "filters": rules},
    ]}))
    .await;
    let viewed = |id: &str, plan: &str| json!({"event": "viewed", "distinct_id": id, "timestamp": "2026-01-04T10:00:00Z", "$set": {"plan": plan}});
    let batch =
        json!([viewed("ann", "free"), viewed("bob", "free"), viewed("cy", "pro"), viewed("di", "free")]);
    app.capture(batch).await;
    for (kind, cohort, negated, count) in [
        ("static-cohort", 4, false, 2.0),
        ("precalculated-cohort", 4, false, 2.0),
        ("dynamic-cohort", 5, false, 1.0),
        ("cohort", 4, true, 2.0),
        ("dynamic-cohort", 5, true, 3.0),
    ] {
        let mut filter = json!({"key": "id", "type": kind, "value": cohort});
        if negated {
            filter["operator"] = json!("not_in");
        }
        let series = json!([{"kind": "EventsNode", "event": "viewed"}]);
        let query = json!({"kind": "TrendsQuery", "series": series, "properties": [filter]});
        let filters = json!({"insight": "TRENDS", "events": [{"id": "viewed"}], "properties": [filter]});
        for body in [json!({"query": query}), json!({"filters": filters})] {
            let made = app.post(&format!("{INSIGHTS}?refresh=blocking"), body.clone()).await.expect(201);
            assert_eq!(made["result"][0]["count"], count, "{kind}: {}", made["result"]);
            let path = format!("{}?refresh=force_blocking", one(&made["id"]));
            let read = app.get(&path).await.expect(200);
            assert_eq!(read["result"][0]["count"], count, "{kind}");
            for (name, sent) in body.as_object().unwrap() {
                assert_eq!(read[name], *sent, "as it was sent");
            }
            let changed = app.patch(&path, json!({"name": kind})).await.expect(200);
            assert_eq!(changed["name"], kind);
        }
        let direct = app.post("/api/projects/1/query/", json!({"query": query})).await.expect(200);
        assert_eq!(direct["results"][0]["count"], count, "{kind}");
    }
}

#[tokio::test]
async fn bodies_that_are_not_json_objects_are_rejected() {
    let app = TestApp::new().await;
    let id = app.post(INSIGHTS, json!({"name": "x"})).await.expect(201)["id"].clone();
    let send = async |method: &str, path: &str, kind: &str, body: &str| {
        let mut request = TestApp::request(Keys::OWNER, method, path, Value::Null);
        request.headers_mut().insert("content-type", kind.parse().unwrap());
        *request.body_mut() = body.to_owned().into();
        app.send(request).await
    };
    for (method, path) in [
        ("POST", INSIGHTS.to_owned()),
        ("PATCH", one(&id)),
        ("POST", format!("{INSIGHTS}viewed/")),
        ("POST", format!("{INSIGHTS}timing/")),
    ] {
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/xml",
        ] {
            let detail = format!("Unsupported media type \"{kind}\" in request.");
            send(method, &path, kind, "name=y").await.expect_error(
                415,
                "invalid_request",
                "unsupported_media_type",
                &detail,
                None,
            );
        }
        for body in ["{", "{\"a\": }", "\u{fffd}", "nul"] {
            let refused = send(method, &path, "application/json", body).await.expect(400);
            assert_eq!(
                (&refused["type"], &refused["code"]),
                (&json!("invalid_request"), &json!("parse_error"))
            );
        }
        for body in ["[]", "7", "\"x\"", "null"] {
            assert_eq!(
                send(method, &path, "application/json", body).await.expect(400)["code"],
                "invalid_input",
                "{body}"
            );
        }
    }
    for name in ["filters_override", "variables_override"] {
        let detail = format!("Invalid JSON passed in {name} parameter");
        for (path, bad) in
            [(one(&id), "%7B"), (one(&id), "%5B%5D"), (INSIGHTS.to_owned(), "7"), (INSIGHTS.to_owned(), "x")]
        {
            app.get(&format!("{path}?{name}={bad}")).await.expect_invalid(
                "invalid_input",
                &detail,
                Some(name),
            );
        }
        app.get(&format!("{}?{name}=", one(&id))).await.expect(200);
    }
    assert_eq!(app.get(&one(&id)).await.expect(200)["name"], "x");
}

/// The pointers from dashboards 1 to `count` to an insight.
async fn pointers(app: &TestApp, count: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for dashboard in 1..=count {
        let pk = format!("PROJECT#1#DASHBOARD#{dashboard}");
        let rows: Vec<Item> =
            app.services.app.store.records.query(PartitionQuery::partition(pk)).await.unwrap();
        found.extend(rows.iter().map(|_| dashboard));
    }
    found
}

#[tokio::test]
async fn an_insight_is_on_forty_dashboards_and_not_on_one_more() {
    let app = TestApp::with(dashboards(81)).await;
    let numbers = |from: u64, to: u64| json!((from..=to).collect::<Vec<u64>>());
    let detail = "An insight must not be on more than 40 dashboards.";
    let refused = app.post(INSIGHTS, json!({"name": "x", "dashboards": numbers(1, 41)})).await;
    refused.expect_invalid("invalid_input", detail, Some("dashboards"));
    let twice: Vec<u64> = (1..=40).chain(1..=40).collect();
    let made = app.post(INSIGHTS, json!({"name": "x", "dashboards": twice})).await.expect(201);
    assert_eq!(
        (&made["dashboards"], made["dashboard_tiles"].as_array().unwrap().len()),
        (&numbers(1, 40), 40)
    );
    let path = one(&made["id"]);
    app.patch(&path, json!({"dashboards": numbers(1, 41)})).await.expect_invalid(
        "invalid_input",
        detail,
        Some("dashboards"),
    );
    assert_eq!(pointers(&app, 81).await, (1..=40).collect::<Vec<u64>>());

    // Moved from all of them to forty others, with the largest record and log entry: one transaction.
    let content = |seed| {
        let query = noise(255 * 1024, seed + 1)["x"].clone();
        json!({"filters": noise(256 * 1024, seed), "query": {"kind": "HogQLQuery", "query": query}})
    };
    app.patch(&path, content(5)).await.expect(200);
    let mut body = content(7);
    (body["dashboards"], body["name"]) = (numbers(41, 80), json!("moved"));
    let moved = app.patch(&path, body).await.expect(200);
    assert_eq!(moved["dashboards"], numbers(41, 80));
    assert_eq!(pointers(&app, 81).await, (41..=80).collect::<Vec<u64>>());

    let gone = app.patch(&path, json!({"deleted": true})).await.expect(200);
    assert_eq!((&gone["deleted"], &gone["dashboards"]), (&json!(true), &json!([])));
    assert_eq!(pointers(&app, 81).await, [] as [u64; 0]);
    let back = app.patch(&path, json!({"deleted": false, "dashboards": numbers(2, 41)})).await.expect(200);
    assert_eq!(back["dashboards"], numbers(2, 41));
    let tiles = back["dashboard_tiles"].as_array().unwrap();
    assert!(
        tiles.len() == 40 && tiles.iter().all(|tile| tile["deleted"] == false),
        "all of them were there before"
    );
    assert_eq!(app.get(&path).await.expect(200)["filters"], moved["filters"]);
    let log = app.get(&format!("{path}activity/")).await.expect(200);
    let words: Vec<&Value> = log["results"].as_array().unwrap().iter().map(|it| &it["activity"]).collect();
    assert_eq!(words, ["restored", "deleted", "updated", "updated", "created"]);
}

#[tokio::test]
async fn an_insight_has_been_on_five_hundred_dashboards_at_most() {
    let app = TestApp::with(dashboards(501)).await;
    let made = app.post(INSIGHTS, json!({"name": "x"})).await.expect(201);
    let path = one(&made["id"]);
    for first in (1..=500).step_by(40) {
        let last = (first + 39).min(500);
        app.patch(&path, json!({"dashboards": (first..=last).collect::<Vec<u64>>()})).await.expect(200);
    }
    let refused = app.patch(&path, json!({"dashboards": [501]})).await;
    let detail = "An insight cannot have been on more than 500 dashboards.";
    refused.expect_invalid("invalid_input", detail, Some("dashboards"));
    let back = app.patch(&path, json!({"dashboards": [1, 500]})).await.expect(200);
    assert_eq!(back["dashboards"], json!([1, 500]), "one that it was on before has its tile still");
}
