//! Limits of insights, dashboards, cohorts, actions and of the references of flags: a request at the limit is accepted, one past it
//! is refused by field and changes nothing.

use pennon_eventstore::derive_person_id;
use pennon_tests::{TestApp, percent_encoded};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cohorts::shop;

const PROJECT: &str = "/api/projects/1";

fn text(length: usize) -> String {
    "x".repeat(length)
}

/// An object whose compact text has exactly this many bytes.
fn object_of(bytes: usize) -> Value {
    json!({"a": text(bytes - json!({"a": ""}).to_string().len())})
}

/// The text of an object that is nested so many levels, itself included.
fn nested(levels: usize) -> String {
    format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1))
}

fn list(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("t{number}")).collect()
}

/// Path, field, body at the limit, body past it.
type Row = (String, &'static str, Value, Value);

fn rows(dashboard: &Value, tile: &Value) -> Vec<Row> {
    let of = |path: &str, field: &'static str, value: &dyn Fn(usize) -> Value, most: usize| {
        let body = |size: usize| {
            let mut body = json!({field: value(size)});
            if path == "cohorts" {
                body["is_static"] = json!(true);
            }
            body
        };
        (format!("{PROJECT}/{path}/"), field, body(most), body(most + 1))
    };
    let texts = |length: usize| json!(text(length));
    let query = |bytes: usize| {
        let empty = json!({"kind": "TrendsQuery", "series": [], "a": ""}).to_string().len();
        json!({"kind": "TrendsQuery", "series": [], "a": text(bytes - empty)})
    };
    let steps = |count: usize| json!(vec![json!({"event": "seen"}); count]);
    let static_with = |bytes: usize| json!({"is_static": true, "distinct_ids": [text(bytes)]});
    let layouts = |bytes: usize| json!({"tiles": [{"id": tile, "layouts": object_of(bytes)}]});
    let event = |bytes: usize| json!({"steps": [{"event": text(bytes)}]});
    let theme = |length: usize| json!({"settings": {"theme": text(length)}});
    let one = format!("{PROJECT}/dashboards/{dashboard}/");
    let sharing = format!("{one}sharing/");
    vec![
        of("insights", "name", &texts, 400),
        of("insights", "filters", &object_of, 262_144),
        of("insights", "query", &query, 262_144),
        of("insights", "filters", &|levels| json!(nested(levels)), 64),
        of("insights", "tags", &|count| json!(list(count)), 100),
        of("insights", "tags", &|length| json!([text(length)]), 255),
        of("dashboards", "name", &texts, 400),
        of("dashboards", "description", &texts, 4_000),
        of("dashboards", "filters", &object_of, 262_144),
        of("cohorts", "name", &texts, 400),
        of("cohorts", "description", &texts, 4_000),
        of("actions", "name", &texts, 400),
        of("actions", "description", &texts, 4_000),
        of("actions", "slack_message_format", &texts, 1_200),
        of("actions", "steps", &steps, 100),
        (format!("{PROJECT}/actions/"), "steps__0__event", event(4_096), event(4_097)),
        (format!("{PROJECT}/cohorts/"), "distinct_ids", static_with(1_000), static_with(1_001)),
        (one, "tiles__0__layouts", layouts(4_096), layouts(4_097)),
        (sharing, "settings__theme", theme(50), theme(51)),
    ]
}

/// The numbers of insights, dashboards, cohorts and actions.
async fn counts(app: &TestApp) -> Vec<Value> {
    let mut counts = Vec::new();
    for kind in ["insights", "dashboards", "cohorts", "actions"] {
        counts.push(app.get(&format!("{PROJECT}/{kind}/?limit=1")).await.expect(200)["count"].clone());
    }
    counts
}

#[tokio::test]
async fn limits_hold_at_the_limit_and_one_past_it() {
    let app = TestApp::new().await;
    let dashboard =
        app.post(&format!("{PROJECT}/dashboards/"), json!({"name": "D"})).await.expect(201)["id"].clone();
    let insight = json!({"name": "I", "dashboards": [dashboard]});
    app.post(&format!("{PROJECT}/insights/"), insight).await.expect(201);
    let shown = app.get(&format!("{PROJECT}/dashboards/{dashboard}/")).await.expect(200);
    let mut wrong = Vec::new();
    for (path, field, most, more) in rows(&dashboard, &shown["tiles"][0]["id"]) {
        let before = counts(&app).await;
        let is_change = path.contains("dashboards/") && !path.ends_with("dashboards/");
        let send = async |body: Value| {
            if is_change { app.patch(&path, body).await } else { app.post(&path, body).await }
        };
        let refused = send(more).await;
        if refused.status != 400 || refused.json()["attr"] != json!(field) {
            wrong.push(format!("{path} {field} past the limit: {} {:.300}", refused.status, refused.text));
        }
        if counts(&app).await != before {
            wrong.push(format!("{path} {field} past the limit: something was stored"));
        }
        let accepted = send(most).await;
        if !accepted.status.is_success() {
            wrong.push(format!("{path} {field} at the limit: {} {:.300}", accepted.status, accepted.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn parameters_of_lists_hold_at_the_limit_and_one_past_it() {
    let app = TestApp::new().await;
    let search = |length: usize| format!("search={}", text(length));
    let tags = |count: usize| format!("tags={}", percent_encoded(&json!(list(count)).to_string()));
    let users = |count: usize| format!("created_by={}", percent_encoded(&json!(vec![1; count]).to_string()));
    let dashboards =
        |count: usize| format!("dashboards={}", percent_encoded(&json!(vec![1; count]).to_string()));
    let rows = [
        ("insights", "search", search(400), search(401)),
        ("dashboards", "search", search(400), search(401)),
        ("cohorts", "search", search(400), search(401)),
        ("actions", "search", search(400), search(401)),
        ("insights", "tags", tags(500), tags(501)),
        ("insights", "created_by", users(500), users(501)),
        ("insights", "dashboards", dashboards(500), dashboards(501)),
    ];
    for (kind, field, most, more) in rows {
        let accepted = app.get(&format!("{PROJECT}/{kind}/?{most}")).await;
        assert_eq!(accepted.status, 200, "{kind} {field}: {}", accepted.text);
        let refused = app.get(&format!("{PROJECT}/{kind}/?{more}")).await.expect(400);
        assert_eq!(refused["attr"], field, "{kind}");
    }
}

/// The body's own object is the first of the 64 levels.
#[tokio::test]
async fn a_body_is_nested_sixty_four_levels() {
    let app = TestApp::new().await;
    let body = |key: &str, levels: usize| {
        let inner = (0..levels - 1).fold(json!(1), |inner, _| json!([inner]));
        json!({"key": key, "unknown": inner})
    };
    let flags = format!("{PROJECT}/feature_flags/");
    app.post(&flags, body("most", 64)).await.expect(201);
    let refused = app.post(&flags, body("more", 65)).await.expect(400);
    assert_eq!((&refused["type"], &refused["code"]), (&json!("invalid_request"), &json!("parse_error")));
    assert_eq!(app.get(&flags).await.expect(200)["count"], 1);
}

#[tokio::test]
async fn a_request_adds_a_thousand_persons_to_a_cohort() {
    let app = shop().await;
    let cohorts = format!("{PROJECT}/cohorts/");
    let cohort = app
        .post(&cohorts, json!({"name": "L", "is_static": true, "distinct_ids": ["bob"]}))
        .await
        .expect(201);
    let path = format!("{cohorts}{}/add_persons_to_static_cohort/", cohort["id"]);
    let persons = |count: usize| {
        let mut ids = vec![derive_person_id(1, "cat")];
        ids.extend((1..count as u128).map(Uuid::from_u128));
        json!({"person_ids": ids})
    };
    assert_eq!(app.patch(&path, persons(1_001)).await.expect(400)["attr"], "person_ids");
    let one = format!("{cohorts}{}/", cohort["id"]);
    assert_eq!(app.get(&one).await.expect(200)["count"], 1);
    app.patch(&path, persons(1_000)).await.expect(200);
    assert_eq!(app.get(&one).await.expect(200)["count"], 2, "the others of the thousand are no persons");
}

async fn cohorts(app: &TestApp, count: usize) -> Vec<Value> {
    let mut ids = Vec::new();
    for number in 0..count {
        let rule = json!([{"key": "vip", "type": "person", "value": ["true"], "operator": "exact"}]);
        let filters = json!({"properties": {"type": "OR", "values": [{"type": "AND", "values": rule}]}});
        let body = json!({"name": format!("cohort {number}"), "filters": filters});
        ids.push(app.post(&format!("{PROJECT}/cohorts/"), body).await.expect(201)["id"].clone());
    }
    ids
}

#[tokio::test]
async fn a_cohort_refers_to_eighty_others() {
    let app = TestApp::new().await;
    let ids = cohorts(&app, 81).await;
    let body = |count: usize| {
        let rules: Vec<Value> =
            ids[..count].iter().map(|id| json!({"key": "id", "type": "cohort", "value": id})).collect();
        json!({"name": "all", "filters": {"properties": {"type": "OR", "values": [{"type": "OR", "values": rules}]}}})
    };
    let path = format!("{PROJECT}/cohorts/");
    let refused = app.post(&path, body(81)).await.expect(400);
    assert_eq!((&refused["attr"], &refused["code"]), (&json!("filters"), &json!("invalid_input")));
    assert_eq!(app.get(&path).await.expect(200)["count"], 81);
    app.post(&path, body(80)).await.expect(201);
}

/// A flag whose conditions have these properties, 100 in each.
fn flag_with(properties: &[Value]) -> Value {
    let groups: Vec<Value> = properties.chunks(100).map(|some| json!({"properties": some})).collect();
    json!({"key": "all", "filters": {"groups": groups}})
}

#[tokio::test]
async fn a_flag_refers_to_two_hundred_cohorts_and_two_hundred_flags() {
    let app = TestApp::new().await;
    let cohorts: Vec<Value> = cohorts(&app, 201)
        .await
        .iter()
        .map(|id| json!({"key": "id", "type": "cohort", "value": id}))
        .collect();
    let mut flags = Vec::new();
    for number in 0..201 {
        let id = app.flag(&format!("flag-{number}")).await;
        let key = id.to_string();
        flags.push(json!({"key": key, "type": "flag", "operator": "flag_evaluates_to", "value": true}));
    }
    let path = format!("{PROJECT}/feature_flags/");
    for (what, references) in [("cohorts", &cohorts), ("flags", &flags)] {
        let refused = app.post(&path, flag_with(references)).await.expect(400);
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains("200") && detail.contains(what), "{refused}");
    }
    let both: Vec<Value> = cohorts[..200].iter().chain(&flags[..200]).cloned().collect();
    app.post(&path, flag_with(&both)).await.expect(201);
}

#[tokio::test]
async fn a_flag_is_linked_to_five_hundred_dashboards() {
    let app = TestApp::new().await;
    let mut ids = Vec::new();
    for number in 0..501 {
        let body = json!({"name": format!("dashboard {number}")});
        ids.push(app.post(&format!("{PROJECT}/dashboards/"), body).await.expect(201)["id"].clone());
    }
    let path = format!("{PROJECT}/feature_flags/");
    let body = |count: usize| json!({"key": "linked", "analytics_dashboards": ids[..count]});
    let refused = app.post(&path, body(501)).await.expect(400);
    assert_eq!(refused["attr"], "analytics_dashboards");
    let made = app.post(&path, body(500)).await.expect(201);
    assert_eq!(made["analytics_dashboards"].as_array().unwrap().len(), 500);
}
