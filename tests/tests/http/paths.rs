//! Paths over HTTP: every case of the corpus, saved insights, people, tables, background calculations, merges and erasure.

use std::collections::{BTreeMap, BTreeSet};

use pennon::delete::DeleteRequest;
use pennon_calculation::jobs::JobOutcome;
use pennon_eventstore::ErasureTarget;
use pennon_tests::queries::{EndpointCase, World, differences, query_string};
use pennon_tests::{NOW, TestApp, TestResponse, as_worker};
use serde_json::{Value, json};

const INSIGHTS: &str = "/api/projects/1/insights/";
const QUERY: &str = "/api/projects/1/query/";
const PATHS: &str = "/api/projects/1/insights/path/";
const PEOPLE: &str = "/api/projects/1/persons/path/";

/// Sends the request of a case to its endpoint; the response, and its result.
async fn send(app: &TestApp, case: &EndpointCase) -> (TestResponse, Value) {
    let body = case.request["body"].clone();
    match case.request["endpoint"].as_str().unwrap() {
        "query" => {
            let response = case.send(app, "POST", "query/", json!({"query": body})).await;
            let result =
                if response.status == 200 { response.json()["results"].clone() } else { Value::Null };
            (response, result)
        }
        "insight" => {
            let made = case.send(app, "POST", "insights/", body).await.expect(201);
            let path = format!("insights/{}/?refresh=blocking", made["id"]);
            let response = case.send(app, "GET", &path, Value::Null).await;
            let result = response.json()["result"].clone();
            (response, result)
        }
        path => {
            let query = query_string(body.as_object().unwrap());
            let response = case.send(app, "GET", &format!("{path}/?{query}"), Value::Null).await;
            let result = response.json()["results"][0]["people"].clone();
            (response, result)
        }
    }
}

fn ids(people: &Value) -> BTreeSet<Vec<String>> {
    let texts = |ids: &Value| {
        let mut texts: Vec<String> =
            ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        texts.sort();
        texts
    };
    people
        .as_array()
        .unwrap()
        .iter()
        .map(|one| texts(if one.is_array() { one } else { &one["distinct_ids"] }))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_has_the_expected_edges_and_people() {
    let (world, cases) = World::of_file("paths.json");
    let app = world.install().await;
    assert_eq!(cases.len(), 47);
    let mut failed = Vec::new();
    for case in &cases {
        let (response, result) = send(&app, case).await;
        let expect = &case.expect;
        let mut wrong = Vec::new();
        if expect["status"] != json!(response.status.as_u16()) {
            wrong.push(format!("status {}: {}", response.status, response.text));
        } else if expect["people"].is_array() {
            if ids(&result) != ids(&expect["people"]) {
                wrong.push(format!("people {result}"));
            }
        } else if expect["result"].is_array() {
            differences(&expect["result"], &result, "result", 1e-9, &mut wrong);
        }
        if !wrong.is_empty() {
            failed.push(format!("{}: {}", case.name, wrong.join("; ")));
        }
    }
    assert!(failed.is_empty(), "{} wrong:\n{}", failed.len(), failed.join("\n"));
}

fn page(who: &str, url: &str, minute: u32) -> Value {
    json!({"event": "$pageview", "distinct_id": who, "timestamp": format!("2026-01-04T01:{minute:02}:00Z"),
        "properties": {"$current_url": url}})
}

async fn capture(app: &TestApp, events: Value) {
    app.call("", "POST", "/batch/", json!({"api_key": "phc_project_1", "batch": events})).await.expect(200);
}

/// Ann goes /1 /2 /3, Bob /1 /2.
async fn site() -> TestApp {
    let app = TestApp::new().await;
    capture(
        &app,
        json!([
            page("ann", "/1", 1),
            page("ann", "/2", 2),
            page("ann", "/3", 3),
            page("bob", "/1", 1),
            page("bob", "/2", 2)
        ]),
    )
    .await;
    app
}

fn node(filter: Value) -> Value {
    json!({"kind": "PathsQuery", "pathsFilter": filter})
}

fn edge(source: &str, target: &str, value: u32) -> Value {
    json!({"source": source, "target": target, "value": value, "average_conversion_time": 60_000.0})
}

fn both() -> Value {
    json!([edge("1_/1", "2_/2", 2), edge("2_/2", "3_/3", 1)])
}

#[tokio::test]
async fn all_ways_to_request_paths_share_one_result() {
    let app = site().await;
    let direct = app.post(QUERY, json!({"query": node(json!({}))})).await.expect(200);
    assert_eq!(
        (&direct["results"], &direct["is_cached"], &direct["hasMore"]),
        (&both(), &json!(false), &Value::Null)
    );
    let wrapped =
        json!({"kind": "InsightVizNode", "source": node(json!({"stepLimit": 5, "pathEndKey": "2_/2"}))});
    let again = app.post(QUERY, json!({"query": wrapped})).await.expect(200);
    assert_eq!((&again["results"], &again["is_cached"]), (&both(), &json!(true)), "an equal query");
    let saved = app.post(INSIGHTS, json!({"query": wrapped, "name": "flow"})).await.expect(201);
    let shown = app.get(&format!("{INSIGHTS}{}/?refresh=force_cache", saved["id"])).await.expect(200);
    assert_eq!((&shown["result"], &shown["is_cached"]), (&both(), &json!(true)));
    for field in ["hasMore", "columns", "types"] {
        assert_eq!(shown[field], Value::Null, "{field}");
    }
    let filters = json!({"filters": {"insight": "PATHS", "step_limit": "2"}});
    let legacy = app.post(&format!("{INSIGHTS}?refresh=blocking"), filters).await.expect(201);
    assert_eq!(legacy["result"], json!([edge("1_/1", "2_/2", 2)]));
    let listed = app.get(&format!("{INSIGHTS}?insight=PATHS&refresh=blocking&order=id")).await.expect(200);
    let rows = listed["results"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["result"]), (2, &both()));
    let endpoint = app.post(PATHS, json!({"exclude_events": ["/2"]})).await.expect(200);
    assert_eq!(
        endpoint["result"],
        json!([{"source": "1_/1", "target": "2_/3", "value": 1, "average_conversion_time": 120_000.0}])
    );
    assert_eq!((&endpoint["timezone"], &endpoint["is_cached"]), (&json!("UTC"), &json!(false)));
    let get = app.get(&format!("{PATHS}?exclude_events=%5B%22%2F2%22%5D&edge_limit=50")).await.expect(200);
    assert_eq!((&get["result"], &get["is_cached"]), (&endpoint["result"], &json!(true)));
    assert_eq!(app.get(PATHS).await.expect(200)["result"], both(), "nothing is required");
}

#[tokio::test]
async fn paths_are_on_dashboards_shared_and_exported() {
    let app = site().await;
    let dashboard =
        app.post("/api/projects/1/dashboards/", json!({"name": "D"})).await.expect(201)["id"].clone();
    let body = json!({"query": node(json!({})), "name": "flow", "dashboards": [dashboard]});
    let id = app.post(INSIGHTS, body).await.expect(201)["id"].clone();
    let tiles =
        app.get(&format!("/api/projects/1/dashboards/{dashboard}/?refresh=blocking")).await.expect(200);
    assert_eq!(tiles["tiles"][0]["insight"]["result"], both());
    let sharing = app.patch(&format!("{INSIGHTS}{id}/sharing/"), json!({"enabled": true})).await.expect(200);
    let token = sharing["access_token"].as_str().unwrap();
    let shared =
        app.call("", "GET", &format!("{INSIGHTS}{id}/?sharing_access_token={token}"), Value::Null).await;
    assert_eq!(shared.expect(200)["result"], both());
    let table = app.get(&format!("{INSIGHTS}{id}/?format=csv&refresh=blocking")).await;
    assert_eq!(table.header("content-type"), "text/csv; charset=utf-8");
    assert!(table.text.contains("1_/1") && table.text.contains("60000"), "{}", table.text);
    let table = app.get("/api/projects/1/insights/path.csv").await;
    assert!(table.text.contains("result.0.source") && table.text.contains("2_/2"), "{}", table.text);
}

#[tokio::test]
async fn paths_are_calculated_in_the_background() {
    let app = site().await;
    let id = app.post(INSIGHTS, json!({"query": node(json!({}))})).await.expect(201)["id"].clone();
    let path = format!("{INSIGHTS}{id}/");
    let begun = app.get(&format!("{path}?refresh=async")).await.expect(200);
    assert_eq!((&begun["result"], &begun["query_status"]["complete"]), (&Value::Null, &json!(false)));
    assert_eq!(app.work().await, [JobOutcome::Done]);
    let shown = app.get(&format!("{path}?refresh=force_cache")).await.expect(200);
    assert_eq!((&shown["result"], &shown["is_cached"]), (&both(), &json!(true)));
}

#[tokio::test]
async fn people_behind_a_step_are_listed_in_pages() {
    let app = site().await;
    let people = |response: &Value| ids(&response["results"][0]["people"]);
    let named = |names: &[&str]| -> BTreeSet<Vec<String>> {
        names.iter().map(|name| vec![(*name).to_owned()]).collect()
    };
    let query = json!({"query": node(json!({"pathDropoffKey": "2_/2"}))});
    let dropped = app.post(PEOPLE, query.clone()).await.expect(200);
    assert_eq!((people(&dropped), &dropped["total_count"]), (named(&["bob"]), &json!(1)));
    assert_eq!(dropped["results"][0]["people"][0]["matched_times"], json!(["2026-01-04T01:02:00Z"]));
    let mut ended = query.clone();
    ended["path_dropoff_key"] = json!("3_/3");
    assert_eq!(people(&app.post(PEOPLE, ended).await.expect(200)), named(&["ann"]));
    let first =
        app.get(&format!("{PEOPLE}?path_start_key=1_%2F1&path_end_key=2_%2F2&limit=1")).await.expect(200);
    assert_eq!((&first["total_count"], people(&first).len()), (&json!(2), 1));
    let next = first["next"].as_str().unwrap();
    let rest = app.get(&next[next.find("/api/").unwrap()..]).await.expect(200);
    let both: BTreeSet<_> = people(&first).union(&people(&rest)).cloned().collect();
    assert_eq!((both, &rest["next"]), (named(&["ann", "bob"]), &Value::Null));
    for (body, attr) in [
        (json!({"path_end_key": "/2"}), "path_end_key"),
        (json!({"query": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode"}]}}), "query"),
        (json!({"include_event_types": ["x"]}), "include_event_types"),
    ] {
        assert_eq!(app.post(PEOPLE, body).await.expect(400)["attr"], attr);
    }
}

#[tokio::test]
async fn merged_persons_walk_one_path_and_erased_ones_none() {
    let app = site().await;
    let fields = json!({"include_event_types": ["$pageview"]});
    let result = |response: &Value| response["result"].clone();
    assert_eq!(result(&app.post(PATHS, fields.clone()).await.expect(200)), both());
    let now = NOW.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp_micros();
    as_worker(app.services.events.compact(1, now)).await.unwrap();
    let erase = |who: &str| DeleteRequest { project: 1, target: ErasureTarget::Person(who.to_owned()) };
    let (store, events) = (&app.services.app.store, &app.services.events);
    erase("ann").erase(store, events, &|| now + 1).await.unwrap();
    // Without `refresh`: the cached result is not used.
    assert_eq!(result(&app.post(PATHS, fields.clone()).await.expect(200)), json!([edge("1_/1", "2_/2", 1)]));

    let merge = json!([page("cy", "/0", 0), {"event": "$identify", "distinct_id": "bob", "timestamp": "2026-01-04T05:00:00Z",
        "properties": {"$anon_distinct_id": "cy"}}]);
    capture(&app, merge).await;
    let mut forced = fields.clone();
    forced["refresh"] = json!(true);
    let merged = app.post(PATHS, forced).await.expect(200);
    assert_eq!(result(&merged), json!([edge("1_/0", "2_/1", 1), edge("2_/1", "3_/2", 1)]));
}

#[tokio::test]
async fn a_project_has_its_path_cleaning_filters() {
    let filters = json!([{"alias": "<n>", "regex": "[0-9]+"}, {"alias": "", "regex": "\\?.*"}]);
    let organization = "01900000-0000-7000-8000-000000000001";
    let project = json!({"id": "50", "organization": organization, "token": "phc_nine", "path_cleaning_filters": filters});
    let app = TestApp::with(json!({"projects": [project]})).await;
    assert_eq!(app.get("/api/projects/50/").await.expect(200)["path_cleaning_filters"], filters);
    assert_eq!(app.get("/api/projects/1/").await.expect(200)["path_cleaning_filters"], json!([]));
    let batch = json!([page("ann", "/1?x=1", 1), page("ann", "/22", 2), page("ann", "/end", 3)]);
    app.call("", "POST", "/batch/", json!({"api_key": "phc_nine", "batch": batch})).await.expect(200);
    let edges = |filter: Value| {
        let app = &app;
        async move {
            let response =
                app.post("/api/projects/50/query/", json!({"query": node(filter)})).await.expect(200);
            let edge = |edge: &Value| {
                (edge["source"].as_str().unwrap().to_owned(), edge["target"].as_str().unwrap().to_owned())
            };
            response["results"].as_array().unwrap().iter().map(edge).collect::<BTreeMap<_, _>>()
        }
    };
    let pair = |source: &str, target: &str| (source.to_owned(), target.to_owned());
    assert_eq!(edges(json!({"pathReplacements": true})).await, BTreeMap::from([pair("1_/<n>", "2_/end")]));
    let plain = BTreeMap::from([pair("1_/1?x=1", "2_/22"), pair("2_/22", "3_/end")]);
    assert_eq!(edges(json!({})).await, plain);
}
