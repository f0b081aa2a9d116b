//! Nothing of another project: every route and credential, every position of an id, and every field of a response that is sent
//! back. The routes come from the route tables, the fields from the OpenAPI document.
//!
//! Project 9 of another organization is filled with records whose texts contain [`MARK`]; the caller has a key for project 1.

use std::collections::BTreeSet;

use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Map, Value, json};

/// Is in every text of the other project.
const MARK: &str = "zephyrine";
/// Where records of the other project are read.
const LISTS: [&str; 8] = [
    "feature_flags",
    "insights",
    "dashboards",
    "cohorts",
    "actions",
    "persons",
    "events",
    "event_definitions",
];

/// The other project, and the ids of its records.
struct OtherProject {
    app: TestApp,
    ids: BTreeSet<String>,
    flag: Value,
    cohort: Value,
    action: Value,
    dashboard: Value,
    insight: Value,
    share: String,
}

impl OtherProject {
    async fn new(app: TestApp) -> OtherProject {
        let at = |path: &str| format!("/api/projects/9/{path}/");
        let make = async |path: &str, body: Value| {
            let made = app.call(Keys::STRANGER, "POST", &at(path), body).await;
            assert!((200..300).contains(&made.status.as_u16()), "{path}: {}", made.text);
            made.json()
        };
        let event = json!({"event": MARK, "distinct_id": MARK, "timestamp": "2026-01-02T00:00:00Z",
                           "properties": {MARK: MARK, "$set": {"email": MARK}}});
        app.call("", "POST", "/batch/", json!({"api_key": "phc_project_9", "batch": [event]}))
            .await
            .expect(200);
        let cohort = make("cohorts", json!({"name": MARK, "is_static": true})).await;
        let action = make("actions", json!({"name": MARK, "steps": [{"event": MARK}]})).await;
        let dashboard = make("dashboards", json!({"name": MARK})).await;
        let flag = json!({"key": MARK, "name": MARK, "filters": {"groups": [{"rollout_percentage": 100}]}});
        let flag = make("feature_flags", flag).await;
        let insight = json!({"name": MARK, "dashboards": [dashboard["id"]],
                             "query": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": MARK}]}});
        let insight = make("insights", insight).await;
        let sharing = at(&format!("insights/{}/sharing", insight["id"]));
        let shared = app.call(Keys::STRANGER, "PATCH", &sharing, json!({"enabled": true})).await.expect(200);
        let share = shared["access_token"].as_str().unwrap().to_owned();
        let persons = app.call(Keys::STRANGER, "GET", &at("persons"), Value::Null).await.expect(200);
        let names = app.call(Keys::STRANGER, "GET", &at("event_definitions"), Value::Null).await.expect(200);
        let ids = [&cohort, &action, &dashboard, &flag, &insight].map(|made| made["id"].clone()).into_iter();
        let listed = [&persons["results"][0]["id"], &names["results"][0]["id"], &insight["short_id"]];
        let ids = ids.chain(listed.map(Value::clone)).map(|id| text_of(&id));
        let ids = ids.chain([MARK.to_owned(), share.clone()]).collect();
        OtherProject { app, ids, flag, cohort, action, dashboard, insight, share }
    }

    /// What the owner of the other project sees of it.
    async fn contents(&self) -> Vec<String> {
        let mut contents = Vec::new();
        for list in LISTS {
            let path = format!("/api/projects/9/{list}/");
            contents.push(self.app.call(Keys::STRANGER, "GET", &path, Value::Null).await.text);
        }
        for list in ["feature_flags", "insights", "dashboards", "cohorts", "actions"] {
            let path = format!("/api/projects/9/{list}/activity/");
            contents.push(self.app.call(Keys::STRANGER, "GET", &path, Value::Null).await.text);
        }
        contents
    }
}

/// An id of the same form that no record has.
fn unknown_like(id: &str) -> String {
    match (id.parse::<u64>(), id.parse::<uuid::Uuid>()) {
        (Ok(_), _) => "987654".to_owned(),
        (_, Ok(_)) => "01900000-0000-7000-8000-00000000abcd".to_owned(),
        _ => "q".repeat(id.len()),
    }
}

fn text_of(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// The methods and paths below a project that require a key.
fn project_routes() -> Vec<(String, String)> {
    let routes = pennon::api::function_routes().into_iter();
    let below = routes.filter(|route| route.path.starts_with("/api/projects/{project_id}"));
    let below: BTreeSet<_> = below.map(|route| (route.method, route.path)).collect();
    below.into_iter().collect()
}

/// Fails if a response has anything of the other project, in its body or its headers. What the caller sent may be in it.
fn assert_silent(response: &TestResponse, sent: &str, place: &str) {
    let without_sent = response.text.replace(sent, "");
    assert!(!without_sent.contains(MARK), "{place}: {}", response.text);
    let headers = format!("{:?}", response.headers).replace(sent, "");
    assert!(!headers.contains(MARK), "{place}: {headers}");
    assert!(!response.status.is_server_error(), "{place}: {} {}", response.status, response.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_another_project_are_unknown_in_every_path() {
    let other = OtherProject::new(TestApp::new().await).await;
    let before = other.contents().await;
    let own = json!({"key": "own", "filters": {"groups": [{"rollout_percentage": 100}]}});
    let own = other.app.post("/api/projects/1/feature_flags/", own).await.expect(201);
    let mut calls = 0;
    for (method, path) in project_routes() {
        let path = path.replace("{project_id}", "1");
        if !path.contains('{') {
            continue;
        }
        for id in &other.ids {
            let of_own_flag = path.replace("{feature_flag_id}", &text_of(&own["id"]));
            for path in [path.replace("{feature_flag_id}", "{id}"), of_own_flag] {
                let unknown = unknown_like(id);
                let [response, expected] = [id, &unknown].map(async |id| {
                    let path = path.replace("{id}", id).replace("{key}", id);
                    // The second time, because the first one fills caches.
                    other.app.call(Keys::OWNER, &method, &path, json!({})).await;
                    other.app.round_trips.reset();
                    let response = other.app.call(Keys::OWNER, &method, &path, json!({})).await;
                    assert_silent(&response, id, &format!("{method} {path}"));
                    // Equal calls to the store, one after the other, take equal times.
                    (response.status, response.text.replace(id, "ID"), other.app.round_trips.sequential())
                });
                assert_eq!(response.await, expected.await, "{method} {path} {id}");
                calls += 1;
            }
        }
    }
    assert!(calls > 600, "{calls} calls");
    assert_eq!(other.contents().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_credential_of_another_project_is_refused_by_every_route() {
    let other = OtherProject::new(TestApp::new().await).await;
    let before = other.contents().await;
    let revoked = other
        .app
        .call(Keys::STRANGER, "POST", "/api/personal_api_keys/", json!({"label": "revoked", "scopes": ["*"]}))
        .await
        .expect(201);
    let path = format!("/api/personal_api_keys/{}/", text_of(&revoked["id"]));
    assert_eq!(other.app.call(Keys::STRANGER, "DELETE", &path, Value::Null).await.status, 204);
    let secret = revoked["value"].as_str().unwrap().to_owned();
    let credentials = [
        ("no key", ""),
        ("an unknown key", "phx_unknown"),
        ("a revoked key", &secret),
        ("the token of the project", "phc_project_9"),
        ("the token of a shared page", &other.share),
        ("a key of another organization", Keys::OWNER),
        ("a key of a member of another organization", Keys::MEMBER),
        ("a key for another project", Keys::ONLY_SECOND),
        ("a key without scopes", Keys::NO_SCOPES),
    ];
    for (method, path) in project_routes() {
        let ids = ["{id}", "{feature_flag_id}"];
        let path = path.replace("{project_id}", "9").replace("{key}", MARK);
        let path = ids.iter().fold(path, |path, name| path.replace(name, &text_of(&other.flag["id"])));
        for (name, credential) in credentials {
            let response = other.app.call(credential, &method, &path, json!({})).await;
            let place = format!("{name}: {method} {path}");
            let status = response.status.as_u16();
            assert!(status == 401 || status == 403, "{place}: {status} {}", response.text);
            assert_silent(&response, MARK, &place);
        }
    }
    assert_eq!(other.contents().await, before);
}

#[tokio::test]
async fn ids_of_another_project_are_unknown_in_bodies_and_query_strings() {
    let other = OtherProject::new(TestApp::new().await).await;
    let before = other.contents().await;
    let OtherProject { app, flag, cohort, action, dashboard, insight, .. } = &other;
    let in_cohort = json!({"key": "id", "type": "cohort", "value": cohort["id"]});
    let depends =
        json!({"key": text_of(&flag["id"]), "type": "flag", "value": true, "operator": "flag_evaluates_to"});
    let flag_with = |property: &Value| json!({"key": "own", "filters": {"groups": [{"properties": [property], "rollout_percentage": 100}]}});
    let trend = |more: Value| {
        let mut query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": MARK}]});
        query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        query
    };
    let actions = json!({"series": [{"kind": "ActionsNode", "id": action["id"]}]});
    let nested = json!({"name": "own", "filters": {"properties": {"type": "OR", "values": [{"type": "OR", "values": [in_cohort]}]}}});
    let refused = [
        ("POST", "feature_flags/", flag_with(&in_cohort)),
        ("POST", "feature_flags/", flag_with(&depends)),
        ("POST", "feature_flags/", json!({"key": "own", "analytics_dashboards": [dashboard["id"]]})),
        (
            "POST",
            "insights/",
            json!({"name": "own", "dashboards": [dashboard["id"]], "query": trend(json!({}))}),
        ),
        ("POST", "query/", json!({"query": trend(json!({"properties": [in_cohort]}))})),
        (
            "POST",
            "query/",
            json!({"query": trend(json!({"breakdownFilter": {"breakdown": [cohort["id"]], "breakdown_type": "cohort"}}))}),
        ),
        ("POST", "cohorts/", nested),
    ];
    for (method, path, body) in refused {
        let response = app.call(Keys::OWNER, method, &format!("/api/projects/1/{path}"), body.clone()).await;
        assert_eq!(response.status, 400, "{path} {body}: {}", response.text);
        assert_silent(&response, MARK, path);
    }
    // What is selected by such an id is nothing.
    let condition = json!({"condition": {"properties": [in_cohort]}});
    let reached = app.post("/api/projects/1/feature_flags/user_blast_radius/", condition).await.expect(200);
    assert_eq!(reached["users_affected"], 0);
    let matched = app.post("/api/projects/1/query/", json!({"query": trend(actions)})).await;
    assert_silent(&matched, MARK, "an action of the other project");
    assert_eq!(matched.expect(200)["results"], json!([]));
    for list in [
        format!("insights/?dashboards=[{}]", dashboard["id"]),
        format!("insights/?short_id={}", text_of(&insight["short_id"])),
        format!("persons/?distinct_id={MARK}"),
        format!("persons/?search={MARK}"),
        format!("events/?event={MARK}"),
        format!("events/?distinct_id={MARK}"),
        format!("feature_flags/?search={MARK}"),
        format!("events/values/?key={MARK}"),
        format!("persons/values/?key={MARK}"),
    ] {
        let response = app.get(&format!("/api/projects/1/{list}")).await;
        assert_silent(&response, MARK, &list);
        let listed = response.json();
        let results = listed.get("results").unwrap_or(&listed);
        assert!(results.as_array().is_none_or(Vec::is_empty), "{list}: {}", response.text);
    }
    // A token in the query string selects a project, and the key has no access to it.
    for path in ["feature_flags/", "feature_flags/1/role_access/", "insights/", "persons/"] {
        let response = app.get(&format!("/api/projects/1/{path}?token=phc_project_9")).await;
        assert!(response.status.is_client_error(), "{path}: {}", response.text);
        assert_silent(&response, "phc_project_9", path);
    }
    assert_eq!(other.contents().await, before);
}

#[tokio::test]
async fn cursors_of_another_project_lead_to_nothing_of_it() {
    let other = OtherProject::new(TestApp::new().await).await;
    let events: Vec<Value> = (0..5)
        .map(|n| json!({"event": MARK, "distinct_id": MARK, "timestamp": format!("2026-01-03T00:0{n}:00Z")}))
        .collect();
    let sent = json!({"api_key": "phc_project_9", "batch": events});
    other.app.call("", "POST", "/batch/", sent).await.expect(200);
    let mut followed = 0;
    for list in [
        "events/?limit=1",
        "feature_flags/activity/?limit=1",
        "insights/activity/?limit=1",
        "event_definitions/?limit=1",
    ] {
        let path = format!("/api/projects/9/{list}");
        let page = other.app.call(Keys::STRANGER, "GET", &path, Value::Null).await.expect(200);
        let Some(next) = page["next"].as_str() else { continue };
        let query = next.split_once('?').unwrap().1;
        let name = list.split_once('?').unwrap().0;
        let response = other.app.get(&format!("/api/projects/1/{name}?{query}")).await;
        assert_silent(&response, MARK, next);
        followed += 1;
    }
    assert!(followed >= 1, "{followed}");
}

/// Fields that a change sets, whatever it contains.
const CHANGE_FIELDS: [&str; 5] =
    ["updated_at", "last_modified_at", "last_modified_by", "version", "last_refresh"];

/// The fields that the body of an operation may have.
fn request_fields(document: &Value, path: &str, method: &str) -> BTreeSet<String> {
    let content = &document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"];
    let mut schemas = vec![content.clone()];
    let mut fields = BTreeSet::new();
    while let Some(schema) = schemas.pop() {
        if let Some(name) = schema["$ref"].as_str() {
            schemas.push(document["components"]["schemas"][name.rsplit('/').next().unwrap()].clone());
        }
        for kind in ["allOf", "anyOf", "oneOf"] {
            schemas.extend(schema[kind].as_array().into_iter().flatten().cloned());
        }
        fields.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
    }
    fields
}

/// Another value of the same type.
fn changed(value: &Value) -> Value {
    match value {
        Value::Null => json!("changed"),
        Value::Bool(is_set) => json!(!is_set),
        Value::Number(number) => json!(number.as_i64().unwrap_or_default() + 1_000),
        Value::String(_) => json!("2001-01-01T00:00:00Z"),
        Value::Array(_) => json!([{"id": 9}]),
        Value::Object(_) => json!({"id": 9}),
    }
}

#[tokio::test]
async fn fields_of_a_response_that_a_body_does_not_have_change_nothing() {
    let app = TestApp::new().await;
    let document = pennon_openapi::document("0");
    let query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "seen"}]});
    let created = [
        ("feature_flags", json!({"key": "own", "filters": {"groups": [{"rollout_percentage": 100}]}})),
        ("insights", json!({"name": "own", "query": query})),
        ("dashboards", json!({"name": "own"})),
        ("cohorts", json!({"name": "own", "is_static": true})),
        ("actions", json!({"name": "own", "steps": [{"event": "seen"}]})),
    ];
    for (list, body) in created {
        let base = format!("/api/projects/1/{list}/");
        let made = app.post(&base, body.clone()).await.expect(201);
        let path = format!("{base}{}/", made["id"]);
        let before = app.get(&path).await.expect(200);
        let described = format!("/api/projects/{{project_id}}/{list}/");
        for (method, below) in [("PATCH", "{id}/"), ("PUT", "{id}/"), ("POST", "")] {
            let described = format!("{described}{below}");
            let method_name = method.to_lowercase();
            if document["paths"][&described].get(&method_name).is_none() {
                assert_eq!((list, method), ("insights", "PUT"), "a write that the document does not have");
                continue;
            }
            let accepted = request_fields(&document, &described, &method_name);
            assert!(accepted.len() > 2, "{method} {list}: {accepted:?}");
            let fields = before.as_object().unwrap().iter();
            let others: Map<String, Value> = fields
                .filter(|(name, _)| !accepted.contains(*name))
                .map(|(name, value)| (name.clone(), changed(value)))
                .collect();
            assert!(others.contains_key("id") && others.contains_key("created_by"), "{list}: {others:?}");
            // A PATCH of these fields alone; the others with all that their bodies need.
            let mut sent = if method == "PATCH" { json!({}) } else { body.clone() };
            sent.as_object_mut().unwrap().extend(others.clone());
            if method == "POST" && list == "feature_flags" {
                sent["key"] = json!("another");
            }
            let sent_to = if method == "POST" { &base } else { &path };
            let response = app.call(Keys::OWNER, method, sent_to, sent).await;
            let status = response.status.as_u16();
            assert!([200, 201, 400].contains(&status), "{method} {list}: {}", response.text);
            let after = app.get(&path).await.expect(200);
            for name in others.keys().filter(|name| !CHANGE_FIELDS.contains(&name.as_str())) {
                assert_eq!(after[name], before[name], "{method} {list}: {name}, after {}", response.text);
            }
            if status == 201 {
                let created = response.json();
                for (name, value) in others {
                    assert_ne!(created[&name], value, "{method} {list}: {name}");
                }
            }
        }
    }
}
