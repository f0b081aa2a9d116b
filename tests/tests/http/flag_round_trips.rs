//! The number of sequential round trips to the store of flag requests. The tests fail if it grows.

use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn one(id: u64) -> String {
    format!("{FLAGS}{id}/")
}

/// Two cohorts, and an organization in which members edit by their roles only.
async fn app() -> TestApp {
    let cohort = |id: u64, name: &str| json!({"project": "1", "id": id, "name": name, "is_static": true, "distinct_ids": []});
    TestApp::with(json!({"cohorts": [cohort(5, "Five"), cohort(6, "Six")]})).await
}

/// Checks the sequential round trips of a response.
#[track_caller]
fn waited(app: &TestApp, response: &TestResponse, expected: usize, what: &str) {
    assert!(response.status.is_success(), "{what}: {}", response.text);
    let waits = app.round_trips.sequential();
    assert_eq!(waits, expected, "{what}: {:?}", app.round_trips.calls());
}

async fn cold(app: &TestApp, method: &str, path: &str, body: Value, expected: usize, what: &str) -> Value {
    app.services.app.keys.clear();
    app.services.flags.memory.clear();
    app.round_trips.reset();
    let response = app.call(Keys::OWNER, method, path, body).await;
    waited(app, &response, expected, what);
    response.json()
}

async fn warm(app: &TestApp, path: &str, expected: usize, what: &str) -> Value {
    app.round_trips.reset();
    let response = app.get(path).await;
    waited(app, &response, expected, what);
    response.json()
}

fn filters(properties: Value) -> Value {
    json!({"groups": [{"properties": properties}]})
}

fn on_flag(id: u64) -> Value {
    json!({"type": "flag", "key": id.to_string(), "operator": "flag_evaluates_to", "value": true})
}

fn in_cohort(id: u64) -> Value {
    json!({"type": "cohort", "key": "id", "value": id, "operator": "in"})
}

#[tokio::test]
async fn a_flag_takes_one_round_trip_and_two_with_names_of_cohorts() {
    let app = app().await;
    let plain = app.flag("plain").await;
    let body = json!({"key": "named", "filters": filters(json!([in_cohort(5)]))});
    let named = app.post(FLAGS, body).await.expect(201)["id"].as_u64().unwrap();
    cold(&app, "GET", &one(plain), Value::Null, 1, "plain").await;
    let shown = cold(&app, "GET", &one(named), Value::Null, 2, "with a cohort").await;
    assert_eq!(shown["filters"]["groups"][0]["properties"][0]["cohort_name"], "Five");
    warm(&app, &one(named), 2, "names are remembered with the version that they were read with").await;
    assert_eq!(warm(&app, &one(named), 1, "remembered names").await, shown);
}

#[tokio::test]
async fn a_list_takes_two_round_trips_and_one_if_nothing_changed() {
    let app = app().await;
    for number in 0..12 {
        let body =
            json!({"key": format!("k{number}"), "filters": filters(json!([in_cohort(5 + number % 2)]))});
        app.post(FLAGS, body).await.expect(201);
    }
    let first = cold(&app, "GET", FLAGS, Value::Null, 2, "cold").await;
    assert_eq!(first["count"], 12);
    assert_eq!(warm(&app, FLAGS, 1, "warm").await, first);
    assert_eq!(warm(&app, &format!("{FLAGS}?search=k1&limit=2"), 1, "another page").await["count"], 3);
    let id = first["results"][3]["id"].as_u64().unwrap();
    app.patch(&one(id), json!({"name": "changed"})).await.expect(200);
    let after = warm(&app, FLAGS, 2, "after a change").await;
    assert_eq!(after["results"][3]["name"], "changed");
    assert_eq!(warm(&app, FLAGS, 1, "warm again").await, after);
    app.patch(&one(id), json!({"deleted": true})).await.expect(200);
    assert_eq!(warm(&app, FLAGS, 2, "after a deletion").await["count"], 11);
    app.patch(&one(id), json!({"deleted": false})).await.expect(200);
    let restored = warm(&app, FLAGS, 2, "after a restore").await;
    assert_eq!((&restored["count"], &restored["results"][3]["id"]), (&json!(12), &json!(id)));
    // Two changes since: the rows are read again, and of the records only those that changed.
    for id in [id, id + 1] {
        app.patch(&one(id), json!({"tags": ["x"]})).await.expect(200);
    }
    let tagged = format!("{FLAGS}?tags=%5B%22x%22%5D");
    assert_eq!(warm(&app, &tagged, 3, "after two changes").await["count"], 2);
}

#[tokio::test]
async fn a_change_takes_two_round_trips_for_any_field() {
    let app = app().await;
    let (a, b) = (app.flag("a").await, app.flag("b").await);
    let patch = async |id: u64, body: Value, what: &str| cold(&app, "PATCH", &one(id), body, 2, what).await;
    patch(a, json!({"name": "x"}), "a name").await;
    patch(a, json!({"key": "a", "name": "y", "active": true}), "what a provisioning tool sends").await;
    patch(a, json!({"key": "c"}), "a key").await;
    let named = patch(b, json!({"filters": filters(json!([in_cohort(6)]))}), "a cohort").await;
    assert_eq!(named["filters"]["groups"][0]["properties"][0]["cohort_name"], "Six");
    let named = patch(b, json!({"name": "still"}), "a flag with a cohort").await;
    assert_eq!(named["filters"]["groups"][0]["properties"][0]["cohort_name"], "Six");
    patch(b, json!({"filters": filters(json!([on_flag(a)]))}), "a dependency").await;
    patch(b, json!({"active": false}), "switching off").await;
    patch(b, json!({"deleted": true}), "deleting").await;
    patch(a, json!({"deleted": true}), "deleting what others depended on").await;
    patch(a, json!({"deleted": false}), "restoring").await;
    // Its dependencies are known after it is read, and must not form a circle.
    let (body, what) = (json!({"deleted": false}), "restoring what depends on others");
    assert_eq!(cold(&app, "PATCH", &one(b), body, 3, what).await["deleted"], false);
    let on =
        cold(&app, "PATCH", &one(b), json!({"active": true}), 3, "switching on what depends on others").await;
    assert_eq!(on["active"], true);
    patch(a, json!({"name": "z", "tags": ["t"]}), "what others depend on").await;
}

#[tokio::test]
async fn a_create_takes_three_round_trips_for_any_references() {
    let app = app().await;
    let a = app.flag("a").await;
    cold(&app, "POST", FLAGS, json!({"key": "plain"}), 3, "plain").await;
    let mentioning = filters(json!([on_flag(a), in_cohort(5)]));
    let made = cold(&app, "POST", FLAGS, json!({"key": "m", "filters": mentioning}), 3, "mentioning").await;
    assert_eq!(made["filters"]["groups"][0]["properties"][1]["cohort_name"], "Five");
    app.patch(&one(made["id"].as_u64().unwrap()), json!({"deleted": true})).await.expect(200);
    cold(&app, "POST", FLAGS, json!({"key": "m"}), 3, "in the place of a deleted flag").await;
}

#[tokio::test]
async fn dependents_prevent_a_change_without_reading_the_rows() {
    let app = app().await;
    let a = app.flag("a").await;
    for key in ["x", "y"] {
        app.post(FLAGS, json!({"key": key, "filters": filters(json!([on_flag(a)]))})).await.expect(201);
    }
    app.services.flags.memory.clear();
    app.round_trips.reset();
    let refused = app.patch(&one(a), json!({"active": false})).await;
    let detail = "Cannot disable this feature flag because other flags depend on it: x (ID: 2), y (ID: 3). \
                  Please update or disable the dependent flags first.";
    refused.expect_invalid("invalid_input", detail, None);
    assert_eq!(app.round_trips.sequential(), 1);
    app.patch(&one(2), json!({"active": false})).await.expect(200);
    let refused = app.patch(&one(a), json!({"deleted": true})).await.expect(400);
    assert!(refused["detail"].as_str().unwrap().contains("depend on it: y (ID: 3). "), "{refused}");
    app.patch(&one(3), json!({"filters": {"groups": []}})).await.expect(200);
    app.patch(&one(a), json!({"active": false})).await.expect(200);
    let refused = app.patch(&one(2), json!({"active": true})).await;
    let detail = "Cannot enable this feature flag because it depends on disabled flags: a (ID: 1). \
                  Please enable the dependency flags first.";
    refused.expect_invalid("invalid_input", detail, None);
}

/// A flag may depend on more flags than fit into a transaction.
#[tokio::test]
async fn a_flag_may_depend_on_many_others() {
    let app = app().await;
    let mut ids = Vec::new();
    for number in 0..40 {
        ids.push(app.flag(&format!("d{number}")).await);
    }
    let all = filters(ids.iter().map(|id| on_flag(*id)).collect());
    let made = app.post(FLAGS, json!({"key": "many", "filters": all})).await.expect(201);
    let id = made["id"].as_u64().unwrap();
    app.patch(&one(id), json!({"filters": all})).await.expect(200);
    app.services.flags.memory.clear();
    app.patch(&one(id), json!({"active": false, "filters": all})).await.expect(200);
    app.patch(&one(ids[7]), json!({"active": false})).await.expect(200);
    let refused = app.patch(&one(id), json!({"active": true})).await.expect(400);
    assert!(
        refused["detail"].as_str().unwrap().contains("depends on disabled flags: d7 (ID: 8). "),
        "{refused}"
    );
}
