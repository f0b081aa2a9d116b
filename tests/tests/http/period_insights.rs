//! Stickiness and lifecycles over HTTP: every case of the corpus at its endpoint, and behaviour that all kinds share.

use std::collections::BTreeSet;

use pennon::delete::DeleteRequest;
use pennon_eventstore::ErasureTarget;
use pennon_tests::queries::{EndpointCase, World, differences, query_string};
use pennon_tests::{Keys, NOW, TestApp, TestResponse, as_worker};
use serde_json::{Map, Value, json};

const PROJECT: &str = "/api/projects/1";

/// The response to the request of a case, and the path of its result.
async fn send_case(app: &TestApp, case: &EndpointCase) -> (TestResponse, &'static str) {
    let body = &case.request["body"];
    match case.request["endpoint"].as_str().unwrap() {
        "query" => (case.send(app, "POST", "query/", json!({"query": body})).await, "/results"),
        "insight" => {
            let created = case.send(app, "POST", "insights/", body.clone()).await.expect(201);
            let path = format!("insights/{}/?refresh=blocking", created["id"]);
            (case.send(app, "GET", &path, Value::Null).await, "/result")
        }
        "trend" | "insights/trend" => {
            (case.send(app, "POST", "insights/trend/", body.clone()).await, "/result")
        }
        "lifecycle_people" => {
            let path = "persons/lifecycle/";
            (case.send(app, "POST", path, body.clone()).await, "/results/0/people")
        }
        "persons/stickiness" => {
            let path = format!("persons/stickiness/?{}", query_string(body.as_object().unwrap()));
            (case.send(app, "GET", &path, Value::Null).await, "/results/0/people")
        }
        other => panic!("{other}"),
    }
}

/// The distinct ids of persons, or the keys of groups.
fn ids(people: &Value) -> BTreeSet<BTreeSet<String>> {
    let texts = |list: &Value| -> BTreeSet<String> {
        list.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    };
    let one = |actor: &Value| match &actor["distinct_ids"] {
        Value::Null if actor.is_array() => texts(actor),
        Value::Null => [actor["id"].as_str().unwrap().to_owned()].into(),
        ids => texts(ids),
    };
    people.as_array().unwrap().iter().map(one).collect()
}

fn problems(expect: &Value, got: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(people) = expect.get("people") {
        if ids(people) != ids(got) {
            wrong.push(format!("want {people} got {got}"));
        }
        return wrong;
    }
    if let Some(result) = expect.get("result") {
        differences(result, got, "result", 1e-9, &mut wrong);
    }
    for (index, (status, data)) in expect["statuses"].as_object().into_iter().flatten().enumerate() {
        let row = &got[index];
        assert_eq!(row["status"], json!(status));
        differences(data, &row["data"], status, 1e-9, &mut wrong);
        for key in ["days", "labels"] {
            if let Some(texts) = expect.get(key) {
                differences(texts, &row[key], key, 0.0, &mut wrong);
            }
        }
    }
    wrong
}

/// Follows the links of rows and asserts their numbers of persons; returns the number of links.
async fn follow(app: &TestApp, case: &EndpointCase, rows: &Value) -> usize {
    let mut links = 0;
    for row in rows.as_array().unwrap() {
        for (number, link) in
            row["data"].as_array().unwrap().iter().zip(row["persons_urls"].as_array().unwrap())
        {
            let url = link["url"].as_str().unwrap();
            let page = case.send_to(app, "GET", url, Value::Null).await.expect(200);
            let want = number.as_f64().unwrap().abs();
            assert_eq!(page["total_count"].as_f64(), Some(want), "{}: {url}", case.name);
            links += 1;
        }
    }
    links
}

async fn check_file(file: &str, calculated_least: usize) {
    let (world, cases) = World::of_file(file);
    let app = world.install().await;
    let (mut wrong, mut calculated, mut links) = (Vec::new(), 0, 0);
    for case in &cases {
        let (response, place) = send_case(&app, case).await;
        let want = case.expect["status"].as_u64().unwrap();
        if u64::from(response.status.as_u16()) != want {
            wrong.push(format!("{}: status {}: {}", case.name, response.status, response.text));
            continue;
        }
        if want == 400 {
            let named = case.expect["mentions"].as_str().unwrap_or("s");
            assert!(response.text.to_lowercase().contains(&named.to_lowercase()), "{}", response.text);
            continue;
        }
        calculated += 1;
        let body = response.json();
        let got = body.pointer(place).cloned().unwrap_or_default();
        wrong.extend(problems(&case.expect, &got).into_iter().map(|line| format!("{}: {line}", case.name)));
        if place == "/results" && links < 60 {
            links += follow(&app, case, &got).await;
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(calculated >= calculated_least && links >= 60, "{calculated} calculated, {links} links");
}

#[tokio::test]
async fn stickiness_cases_have_the_expected_results() {
    check_file("stickiness.json", 35).await;
}

#[tokio::test]
async fn lifecycle_cases_have_the_expected_results() {
    check_file("lifecycle.json", 42).await;
}

async fn capture(app: &TestApp, events: Value) {
    let sent = app.call("", "POST", "/batch/", json!({"api_key": "phc_project_1", "batch": events})).await;
    assert_eq!(sent.expect(200), json!({"status": 1}));
}

fn event(who: &str, when: &str) -> Value {
    json!({"event": "seen", "distinct_id": who, "timestamp": when})
}

/// Ada on two days and Bob on one.
async fn visited() -> TestApp {
    let app = TestApp::new().await;
    let events = [
        event("ada", "2026-01-01T10:00:00Z"),
        event("ada", "2026-01-02T10:00:00Z"),
        event("bob", "2026-01-02T10:00:00Z"),
    ];
    capture(&app, json!(events)).await;
    app
}

fn node(kind: &str) -> Value {
    json!({"kind": kind, "series": [{"kind": "EventsNode", "event": "seen"}],
        "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-03"}})
}

/// The bars of stickiness, and the four lines of the lifecycle.
async fn numbers(app: &TestApp) -> Value {
    let refreshed = |kind: &str| json!({"query": node(kind), "refresh": "force_blocking"});
    let path = format!("{PROJECT}/query/");
    let stickiness = app.post(&path, refreshed("StickinessQuery")).await.expect(200);
    let lifecycle = app.post(&path, refreshed("LifecycleQuery")).await.expect(200);
    let lines: Vec<&Value> = (0..4).map(|status| &lifecycle["results"][status]["data"]).collect();
    json!([stickiness["results"][0]["data"], lines])
}

#[tokio::test]
async fn merged_persons_are_one_and_erased_ones_are_none() {
    let app = visited().await;
    let two = json!([[1, 1, 0], [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, -2.0]]]);
    assert_eq!(numbers(&app).await, two);
    capture(
        &app,
        json!([{"event": "$identify", "distinct_id": "ada", "timestamp": "2026-01-02T11:00:00Z",
        "properties": {"$anon_distinct_id": "bob"}}]),
    )
    .await;
    let one = json!([[0, 1, 0], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, -1.0]]]);
    assert_eq!(numbers(&app).await, one);
    let now = NOW.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp_micros();
    as_worker(app.services.events.compact(1, now)).await.unwrap();
    assert_eq!(numbers(&app).await, one);
    let request = DeleteRequest { project: 1, target: ErasureTarget::Person("ada".to_owned()) };
    request.erase(&app.services.app.store, &app.services.events, &|| now + 1).await.unwrap();
    assert_eq!(
        numbers(&app).await,
        json!([[0, 0, 0], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    );
}

#[tokio::test]
async fn older_endpoints_return_their_fields_and_csv() {
    let app = visited().await;
    let body = |marks: Value| {
        let mut body =
            json!({"events": [{"id": "seen"}], "date_from": "2026-01-01", "date_to": "2026-01-03"});
        body.as_object_mut().unwrap().extend(marks.as_object().unwrap().clone());
        body
    };
    for (path, marks) in [
        ("trend", json!({"shown_as": "Stickiness"})),
        ("trend", json!({"insight": "STICKINESS"})),
        ("stickiness", json!({})),
        ("trend", json!({"insight": "LIFECYCLE"})),
        ("trend", json!({"shown_as": "Lifecycle"})),
        ("lifecycle", json!({})),
    ] {
        let path = format!("{PROJECT}/insights/{path}/");
        let response = app.post(&path, body(marks.clone())).await.expect(200);
        let keys: Vec<&String> = response.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["result", "timezone", "last_refresh", "is_cached", "next"]);
        assert_eq!(response["next"], Value::Null);
        assert_eq!(
            app.post(&path, body(marks.clone())).await.expect(200)["is_cached"],
            true,
            "{path} {marks}"
        );
        let query: Map<String, Value> = body(marks.clone()).as_object().unwrap().clone();
        let got = app.get(&format!("{path}?{}", query_string(&query))).await.expect(200);
        assert_eq!(got["result"], response["result"]);
        let csv = app.post(&format!("{}.csv", path.trim_end_matches('/')), body(marks)).await;
        assert!(
            csv.text.starts_with("is_cached,last_refresh,") && csv.text.contains("result.0.count"),
            "{}",
            csv.text
        );
        let none = app.get(&path).await.expect(200);
        let empty = app.post(&path, json!({})).await;
        empty.expect_error(400, "validation_error", "required", "This field is required.", Some("events"));
        assert_eq!(none["result"], json!([]));
    }
}

#[tokio::test]
async fn saved_insights_are_listed_by_kind_and_calculated_on_dashboards() {
    let app = visited().await;
    let board =
        app.post(&format!("{PROJECT}/dashboards/"), json!({"name": "board"})).await.expect(201)["id"].clone();
    let mut made = Vec::new();
    for (kind, name) in [("StickinessQuery", "STICKINESS"), ("LifecycleQuery", "LIFECYCLE")] {
        let query = json!({"kind": "InsightVizNode", "source": node(kind)});
        let body = json!({"name": kind, "query": query, "dashboards": [board]});
        let of_node = app.post(&format!("{PROJECT}/insights/"), body).await.expect(201)["id"].clone();
        let filters = json!({"insight": name, "events": [{"id": "seen"}], "date_from": "2026-01-01", "date_to": "2026-01-03"});
        let of_filters =
            app.post(&format!("{PROJECT}/insights/"), json!({"filters": filters})).await.expect(201)["id"]
                .clone();
        let listed =
            app.get(&format!("{PROJECT}/insights/?insight={name}&refresh=blocking")).await.expect(200);
        let ids: BTreeSet<u64> =
            listed["results"].as_array().unwrap().iter().map(|one| one["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, [of_node.as_u64().unwrap(), of_filters.as_u64().unwrap()].into());
        // Both are one query, with one result.
        let get = async |id: &Value| {
            app.get(&format!("{PROJECT}/insights/{id}/?refresh=blocking")).await.expect(200)
        };
        let (one, other) = (get(&of_node).await, get(&of_filters).await);
        assert_eq!((&one["result"], &one["is_cached"]), (&other["result"], &json!(true)));
        assert_eq!(
            (&one["hasMore"], &one["columns"], &one["types"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
        made.push(of_node);
        // A node that cannot be calculated is stored.
        let mut without = node(kind);
        without["series"] = json!([]);
        let stored =
            app.post(&format!("{PROJECT}/insights/"), json!({"query": without})).await.expect(201)["id"]
                .clone();
        let refused = app.get(&format!("{PROJECT}/insights/{stored}/?refresh=blocking")).await.expect(400);
        assert!(refused["detail"].as_str().unwrap().contains("require at least one series"), "{refused}");
        let nothing = app
            .post(&format!("{PROJECT}/insights/"), json!({"filters": {"insight": name}}))
            .await
            .expect(201);
        let nothing = get(&nothing["id"]).await;
        assert_eq!((&nothing["result"], &nothing["query_status"]), (&Value::Null, &Value::Null));
    }
    let filters = json!({"filters": {"date_from": "2026-01-02", "date_to": "2026-01-03",
        "breakdown_filter": {"breakdown": "plan", "breakdown_type": "event"}}});
    app.patch(&format!("{PROJECT}/dashboards/{board}/"), filters).await.expect(200);
    let shown = app.get(&format!("{PROJECT}/dashboards/{board}/?refresh=blocking")).await.expect(200);
    let data = |id: &Value| {
        let tiles = shown["tiles"].as_array().unwrap();
        tiles.iter().map(|tile| &tile["insight"]).find(|one| one["id"] == *id).unwrap()["result"][0]["data"]
            .clone()
    };
    assert_eq!(data(&made[0]), json!([2, 0]));
    assert_eq!(data(&made[1]), json!([1.0, 0.0]));
}

#[tokio::test]
async fn people_lists_check_keys_and_parameters() {
    let app = visited().await;
    for (kind, path, more, attr) in [
        ("StickinessQuery", "stickiness", json!({"stickiness_days": 1}), "stickiness_days"),
        (
            "LifecycleQuery",
            "lifecycle",
            json!({"target_date": "2026-01-01", "lifecycle_type": "new"}),
            "target_date",
        ),
    ] {
        let path = format!("{PROJECT}/persons/{path}/");
        assert_eq!(app.call("", "GET", &path, Value::Null).await.status, 401);
        let weak = app.call(Keys::READ_FLAGS, "GET", &path, Value::Null).await.expect(403);
        assert_eq!(weak["detail"], "API key missing required scope 'person:read'");
        let mut body = json!({"query": node(kind)});
        let missing = app.post(&path, body.clone()).await.expect(400);
        assert_eq!((&missing["attr"], &missing["code"]), (&json!(attr), &json!("required")));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let page = app.post(&path, body.clone()).await.expect(200);
        assert_eq!(page["total_count"], 1);
        let wrong =
            app.post(&path, json!({"query": {"kind": "TrendsQuery", "series": []}})).await.expect(400);
        assert_eq!(wrong["attr"], "query");
        let none = app.post(&path, json!({})).await.expect(400);
        assert_eq!(none["attr"], "events");
    }
}
