//! Overrides of experience continuity, with concurrent writes, merges and erasures.

use std::collections::BTreeSet;

use pennon_core::store::{PartitionQuery, keys};
use pennon_eventstore::ErasureTarget;
use pennon_tests::TestApp;
use serde_json::{Value, json};

const TOKEN: &str = "phc_project_1";

/// An installation with one flag that follows a person through a login, whose two variants are shared evenly by hash.
async fn app() -> TestApp {
    let app = TestApp::new().await;
    let variants = json!([{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]);
    let filters = json!({"groups": [{"rollout_percentage": 100}], "multivariate": {"variants": variants}});
    let body = json!({"key": "kept", "ensure_experience_continuity": true, "filters": filters});
    app.post("/api/projects/1/feature_flags/", body).await.expect(201);
    app
}

async fn variant(app: &TestApp, id: &str, anonymous: Option<&str>) -> String {
    let mut body = json!({"token": TOKEN, "distinct_id": id});
    if let Some(anonymous) = anonymous {
        body["$anon_distinct_id"] = anonymous.into();
    }
    let response = app.call("", "POST", "/flags/?v=2", body).await.expect(200);
    response["flags"]["kept"]["variant"].as_str().unwrap().to_owned()
}

/// Two ids before a login with different variants of the flag.
async fn two(app: &TestApp) -> (String, String) {
    let mut by_variant = std::collections::BTreeMap::new();
    for number in 0..20 {
        let id = format!("anon-{number}");
        by_variant.entry(variant(app, &id, None).await).or_insert(id);
    }
    (by_variant["a"].clone(), by_variant["b"].clone())
}

/// The ids that are stored for persons of the project.
async fn stored(app: &TestApp) -> usize {
    let mut count = 0;
    for shard in 0..32 {
        let query = PartitionQuery::partition(format!("PROJECT#1#CONTINUITY#{shard}"));
        count += app.services.app.store.records.query(query).await.unwrap().len();
    }
    count
}

#[tokio::test]
async fn one_of_many_concurrent_overrides_is_stored() {
    let app = app().await;
    let (a, b) = two(&app).await;
    let logins = (0..16).map(|number| {
        let (app, anonymous) = (&app, if number % 2 == 0 { &a } else { &b });
        async move { variant(app, "user", Some(anonymous)).await }
    });
    let seen: BTreeSet<String> = futures::future::join_all(logins).await.into_iter().collect();
    assert_eq!(seen.len(), 1, "all responses have the override that stays: {seen:?}");
    assert_eq!(stored(&app).await, 1);
    for anonymous in [None, Some(&*a), Some(&*b)] {
        assert!(seen.contains(&variant(&app, "user", anonymous).await));
    }
    assert!(seen.contains(&variant(&app.another_process(), "user", None).await));
}

#[tokio::test]
async fn an_override_is_found_by_all_ids_of_the_person_and_the_older_stays() {
    let app = app().await;
    let (a, b) = two(&app).await;
    assert_eq!(variant(&app, "first", Some(&a)).await, "a");
    let later = app.another_process();
    let mut second = TestApp::request(
        "",
        "POST",
        "/flags/?v=2",
        json!({"token": TOKEN, "distinct_id": "second", "$anon_distinct_id": b}),
    );
    second.headers_mut().insert("x-pennon-now", "2026-01-05T11:00:00Z".parse().unwrap());
    assert_eq!(later.send(second).await.expect(200)["flags"]["kept"]["variant"], "b");
    let alias = json!({"event": "$create_alias", "distinct_id": "second", "properties": {"alias": "first"}});
    app.call("", "POST", "/batch/", json!({"api_key": TOKEN, "batch": [alias]})).await.expect(200);
    for app in [&app, &later, &app.another_process()] {
        for id in ["first", "second"] {
            assert_eq!(variant(app, id, None).await, "a", "{id}");
        }
    }
}

/// Without `distinct_id` the owner of the key is evaluated, also by the list of its own flags.
#[tokio::test]
async fn reasons_and_own_flags_follow_stored_overrides() {
    const PROJECT: &str = "/api/projects/1/feature_flags";
    let app = app().await;
    let by_variant = two(&app).await;
    let me = app.get("/api/users/@me/").await.expect(200)["distinct_id"].as_str().unwrap().to_owned();
    for id in ["ann", &me] {
        // The id before the login has the other variant than the one after it.
        let own = variant(&app, id, None).await;
        let (anonymous, kept) = if own == "a" { (&by_variant.1, "b") } else { (&by_variant.0, "a") };
        let reasons = format!("{PROJECT}/evaluation_reasons/?distinct_id={id}");
        assert_eq!(app.get(&reasons).await.expect(200)["kept"]["value"], json!(own), "{id}");
        assert_eq!(variant(&app, id, Some(anonymous)).await, kept);
        let shown = app.get(&reasons).await.expect(200);
        assert_eq!(shown["kept"]["value"], kept, "{id}");
        assert_eq!(shown["kept"]["evaluation"]["reason"], "condition_match");
    }
    let of_owner = app.get(&format!("{PROJECT}/evaluation_reasons/")).await.expect(200);
    let named = app.get(&format!("{PROJECT}/evaluation_reasons/?distinct_id={me}")).await.expect(200);
    assert_eq!(of_owner, named);
    let mine = app.get(&format!("{PROJECT}/my_flags/")).await.expect(200);
    assert_eq!(mine[0]["value"], named["kept"]["value"]);
}

#[tokio::test]
async fn overrides_are_erased_with_the_person_and_with_the_project() {
    let app = app().await;
    let (a, b) = two(&app).await;
    for (id, anonymous) in [("ann", &a), ("bob", &b), ("eve", &b)] {
        variant(&app, id, Some(anonymous)).await;
    }
    let seen = json!([{"event": "seen", "distinct_id": "ann"}]);
    app.call("", "POST", "/batch/", json!({"api_key": TOKEN, "batch": seen})).await.expect(200);
    let events = &app.services.events;
    let now = || app.services.app.clock.now(None).timestamp_micros();
    assert_eq!(stored(&app).await, 3);
    // A person with events, and one with only an override.
    for (left, id) in [(2, "ann"), (1, "bob")] {
        let person = ErasureTarget::Person(id.to_owned());
        assert_eq!(events.preview_erasure(1, &person).await.unwrap().persons, 1, "{id}");
        assert_eq!(events.erase(1, &person, &now).await.unwrap().persons, 1, "{id}");
        assert_eq!(stored(&app).await, left, "{id}");
    }
    events.erase(1, &ErasureTarget::Project, &now).await.unwrap();
    assert_eq!(stored(&app).await, 0);
}

#[tokio::test]
async fn overrides_expire_long_after_their_last_use_and_reads_extend_them_rarely() {
    let app = app().await;
    let (a, _) = two(&app).await;
    variant(&app, "ann", Some(&a)).await;
    let row = async || {
        for shard in 0..32 {
            let query = PartitionQuery::partition(format!("PROJECT#1#CONTINUITY#{shard}"));
            if let Some(item) = app.services.app.store.records.query(query).await.unwrap().into_iter().next()
            {
                return item;
            }
        }
        panic!("no row")
    };
    let day = 86_400;
    let start = app.services.app.clock.now(None).timestamp();
    let first = row().await.expires_at.unwrap();
    assert!(first >= start + 365 * day);
    let at = async |days: i64| {
        let when = app.services.app.clock.now(None) + chrono::TimeDelta::days(days);
        let body: Value = json!({"token": TOKEN, "distinct_id": "ann"});
        let mut request = TestApp::request("", "POST", "/flags/?v=2", body);
        request.headers_mut().insert("x-pennon-now", when.to_rfc3339().parse().unwrap());
        app.send(request).await.expect(200);
        row().await.expires_at.unwrap()
    };
    assert_eq!(at(20).await, first, "a read writes nothing");
    let extended = at(40).await;
    assert!(extended >= start + (40 + 365) * day, "{extended}");
    let key = keys::project(1);
    assert!(app.services.app.store.records.get(&key).await.unwrap().is_some());
}
