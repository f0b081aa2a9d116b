//! Feature flags over HTTP.

use pennon_core::store::keys::{self, FLAG_ROW_SHARDS, RecordKind, flag_rows_pk};
use pennon_core::store::{Item, PartitionQuery, Write, WriteCondition};
use pennon_tests::{Faults, Keys, TestApp};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn one(id: u64) -> String {
    format!("{FLAGS}{id}/")
}

#[tokio::test]
async fn a_new_flag_has_the_fields_of_the_contract_in_their_order() {
    let app = TestApp::new().await;
    let made = app.post(FLAGS, json!({"key": "omega-feature"})).await;
    let olive = json!({
        "id": 1, "uuid": made.expect(201)["created_by"]["uuid"], "distinct_id": "user-1", "first_name": "Olive",
        "last_name": "", "email": "owner@example.com", "is_email_verified": null, "hedgehog_config": null,
        "role_at_organization": null,
    });
    let expected = json!({
        "id": 1, "name": "", "key": "omega-feature",
        "filters": {"groups": [{"properties": [], "rollout_percentage": null}]}, "deleted": false, "active": true,
        "created_by": olive, "created_at": "2026-01-05T10:00:00Z", "updated_at": "2026-01-05T10:00:00Z", "version": 1,
        "last_modified_by": olive, "is_simple_flag": true, "rollout_percentage": null,
        "ensure_experience_continuity": false, "experiment_set": [], "surveys": [], "features": [],
        "rollback_conditions": null, "performed_rollback": null, "can_edit": true, "tags": [], "evaluation_tags": [],
        "evaluation_contexts": [], "usage_dashboard": null, "analytics_dashboards": [],
        "has_enriched_analytics": false, "user_access_level": "manager", "creation_context": "feature_flags",
        "is_remote_configuration": false, "has_encrypted_payloads": false, "status": "ACTIVE",
        "evaluation_runtime": "all", "bucketing_identifier": "distinct_id", "last_called_at": null,
    });
    assert_eq!(made.text, expected.to_string());
    assert_eq!(app.get(&one(1)).await.text, expected.to_string());
    assert_eq!(app.get("/api/environments/1/feature_flags/1").await.text, expected.to_string());
}

#[tokio::test]
async fn a_key_is_unique_among_live_flags_and_free_after_a_deletion() {
    let app = TestApp::new().await;
    let first = app.flag("a").await;
    let taken = app.post(FLAGS, json!({"key": "a"})).await;
    taken.expect_invalid("unique", "There is already a feature flag with this key.", Some("key"));
    let other_project = app.post("/api/projects/2/feature_flags/", json!({"key": "a"})).await;
    assert_eq!(other_project.status, 201);
    app.patch(&one(first), json!({"deleted": true})).await.expect(200);
    assert_eq!(app.get(&one(first)).await.expect(200)["status"], "DELETED");
    let second = app.flag("a").await;
    let b = app.flag("b").await;
    let renamed = app.patch(&one(b), json!({"key": "a"})).await;
    renamed.expect_invalid("unique", "There is already a feature flag with this key.", Some("key"));
    app.patch(&one(second), json!({"key": "c"})).await.expect(200);
    assert_eq!(app.patch(&one(b), json!({"key": "a"})).await.expect(200)["key"], "a");
}

#[tokio::test]
async fn a_restore_requires_a_free_key() {
    let app = TestApp::new().await;
    let first = app.flag("a").await;
    app.patch(&one(first), json!({"deleted": true})).await.expect(200);
    let other = app.flag("b").await;
    app.patch(&one(other), json!({"key": "a"})).await.expect(200);
    let refused = app.patch(&one(first), json!({"deleted": false})).await;
    refused.expect_invalid("unique", &taken_by(other), Some("key"));
    app.patch(&one(other), json!({"key": "b"})).await.expect(200);
    assert_eq!(app.patch(&one(first), json!({"deleted": false})).await.expect(200)["deleted"], false);
    assert_eq!(app.get(FLAGS).await.expect(200)["count"], 2);
}

/// The error of restoring a deleted flag whose key the live flag `id` has.
fn taken_by(id: u64) -> String {
    format!(
        "There is already a feature flag with this key (ID: {id}). To restore this flag, send another `key` in the same \
         request."
    )
}

/// More deleted flags than one transaction could change have the key; each keeps its record and its log.
#[tokio::test]
async fn deleted_flags_stay_when_a_new_flag_takes_their_key() {
    let app = TestApp::new().await;
    let mut deleted = Vec::new();
    for number in 0..60 {
        let id = app.flag("worn").await;
        app.patch(&one(id), json!({"name": format!("flag {number}"), "deleted": true})).await.expect(200);
        deleted.push(id);
    }
    let live = app.flag("worn").await;
    for (number, id) in deleted.iter().enumerate() {
        let flag = app.get(&one(*id)).await.expect(200);
        assert_eq!((&flag["id"], &flag["key"], &flag["deleted"]), (&json!(id), &json!("worn"), &json!(true)));
        assert_eq!((&flag["name"], &flag["status"]), (&json!(format!("flag {number}")), &json!("DELETED")));
        let log = app.get(&format!("{}activity/", one(*id))).await.expect(200);
        assert_eq!((&log["total_count"], &log["results"][0]["activity"]), (&json!(2), &json!("deleted")));
    }
    let listed = app.get(FLAGS).await.expect(200);
    assert_eq!((&listed["count"], &listed["results"][0]["id"]), (&json!(1), &json!(live)));

    let first = deleted[0];
    for body in [json!({"deleted": false}), json!({"key": "worn", "deleted": false})] {
        let refused = app.patch(&one(first), body).await;
        refused.expect_invalid("unique", &taken_by(live), Some("key"));
    }
    assert_eq!(app.get(&one(first)).await.expect(200)["version"], 2, "a refused restore changes nothing");
    let restored = app.patch(&one(first), json!({"key": "worn-2", "deleted": false})).await.expect(200);
    assert_eq!((&restored["key"], &restored["deleted"]), (&json!("worn-2"), &json!(false)));
    app.patch(&one(live), json!({"deleted": true})).await.expect(200);
    let restored = app.patch(&one(deleted[1]), json!({"deleted": false})).await.expect(200);
    assert_eq!((&restored["key"], &restored["version"]), (&json!("worn"), &json!(3)));
    let refused = app.patch(&one(live), json!({"deleted": false})).await;
    refused.expect_invalid("unique", &taken_by(deleted[1]), Some("key"));
    assert_eq!(app.get(FLAGS).await.expect(200)["count"], 2);
}

#[tokio::test]
async fn every_write_raises_the_version_and_leaves_one_activity_entry() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    app.patch(&one(id), json!({"name": "A", "filters": {"groups": [{"rollout_percentage": 74}]}}))
        .await
        .expect(200);
    app.call(Keys::MEMBER, "PATCH", &one(id), json!({"deleted": true})).await.expect(200);
    let restored = app.patch(&one(id), json!({"deleted": false})).await.expect(200);
    assert_eq!(restored["version"], 4);
    let log = app.activity("FeatureFlag").await;
    let kinds: Vec<&str> = log.iter().map(|entry| entry["activity"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["created", "updated", "deleted", "restored"]);
    assert_eq!(log[2]["user"], json!({"first_name": "Mel", "email": "member@example.com"}));
    let filters = json!({"type": "FeatureFlag", "action": "created", "field": "filters", "before": null,
                         "after": {"groups": [{"rollout_percentage": 74}]}});
    assert_eq!(log[1]["detail"]["changes"][1], filters);
    let refused = app.patch(&one(id), json!({"key": ""})).await;
    refused.expect_invalid("blank", "This field may not be blank.", Some("key"));
    assert_eq!(app.activity("FeatureFlag").await.len(), 4, "a refused write leaves no entry");
    let own = format!("PROJECT#1#ACTIVITY#FeatureFlag#ITEM#{id}");
    let pointers = app.services.app.store.records.query(PartitionQuery::partition(own)).await.unwrap();
    assert_eq!(pointers.len(), 4);
}

#[tokio::test]
async fn a_list_has_pages_search_and_filters() {
    let app = TestApp::new().await;
    for key in ["alpha", "beta", "gamma-one", "gamma-two"] {
        app.flag(key).await;
    }
    app.call(Keys::MEMBER, "POST", FLAGS, json!({"key": "mels", "active": false})).await.expect(201);
    let keys = |page: Value| -> Vec<String> {
        page["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|flag| flag["key"].as_str().unwrap().to_owned())
            .collect()
    };
    let page = app.get(&format!("{FLAGS}?limit=2&offset=2")).await.expect(200);
    assert_eq!(page["count"], 5);
    assert_eq!(page["next"], "http://api.test/api/projects/1/feature_flags/?limit=2&offset=4");
    assert_eq!(page["previous"], "http://api.test/api/projects/1/feature_flags/?limit=2");
    assert_eq!(keys(page), ["gamma-one", "beta"]);
    assert_eq!(keys(app.get(&format!("{FLAGS}?search=GAMMA%20t")).await.expect(200)), ["gamma-two"]);
    assert_eq!(keys(app.get(&format!("{FLAGS}?search=gamma%20o")).await.expect(200)), ["gamma-one"]);
    assert_eq!(keys(app.get(&format!("{FLAGS}?active=false")).await.expect(200)), ["mels"]);
    assert_eq!(keys(app.get(&format!("{FLAGS}?created_by_id=2")).await.expect(200)), ["mels"]);
    assert_eq!(keys(app.get(&format!("{FLAGS}?type=multivariant")).await.expect(200)), Vec::<String>::new());
    assert_eq!(keys(app.get(&format!("{FLAGS}?order=key&limit=1")).await.expect(200)), ["alpha"]);
    let bad = app.get(&format!("{FLAGS}?created_by_id=me")).await;
    bad.expect_invalid("invalid_input", "A valid integer is required.", Some("created_by_id"));
}

#[tokio::test]
async fn a_hard_delete_is_refused_without_a_body() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    for path in [one(id), one(999)] {
        let refused = app.call(Keys::OWNER, "DELETE", &path, Value::Null).await;
        assert_eq!((refused.status.as_u16(), refused.text.as_str()), (405, ""));
        assert_eq!(refused.header("allow"), "GET, HEAD, OPTIONS, PATCH, PUT");
        assert_eq!(refused.header("content-type"), "");
    }
    assert_eq!(app.get(&one(id)).await.expect(200)["deleted"], false);
}

#[tokio::test]
async fn an_overlapping_change_of_an_older_version_is_a_conflict() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    let original = app.get(&one(id)).await.expect(200);
    app.patch(&one(id), json!({"name": "theirs"})).await.expect(200);
    let overlapping = json!({"name": "mine", "version": 1, "original_flag": original});
    let conflict = app.patch(&one(id), overlapping).await;
    let detail = "The feature flag was updated by owner@example.com since you started editing it. \
                  Please refresh and try again.";
    conflict.expect_error(409, "server_error", "conflict", detail, None);
    let apart = json!({"active": false, "version": 1, "original_flag": original});
    let merged = app.patch(&one(id), apart).await.expect(200);
    assert_eq!((&merged["name"], &merged["active"]), (&json!("theirs"), &json!(false)));
}

#[tokio::test]
async fn concurrent_creates_of_one_key_make_one_flag_and_concurrent_changes_are_all_kept() {
    let app = TestApp::new().await;
    let creates = (0..16).map(|_| app.post(FLAGS, json!({"key": "once"})));
    let statuses: Vec<u16> =
        futures::future::join_all(creates).await.iter().map(|it| it.status.as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 400).count(), 15, "{statuses:?}");
    let flags = app.get(FLAGS).await.expect(200);
    let id = flags["results"][0]["id"].as_u64().unwrap();
    let changes =
        [json!({"name": "n"}), json!({"active": false}), json!({"tags": ["t"]}), json!({"key": "k"})];
    let path = one(id);
    let responses = futures::future::join_all(changes.into_iter().map(|body| app.patch(&path, body))).await;
    assert!(responses.iter().all(|response| response.status == 200));
    let flag = app.get(&path).await.expect(200);
    assert_eq!(flag["version"], 5);
    let kept = (&flag["name"], &flag["active"], &flag["tags"], &flag["key"]);
    assert_eq!(kept, (&json!("n"), &json!(false), &json!(["t"]), &json!("k")));
    assert_eq!(app.activity("FeatureFlag").await.len(), 5);
    let shards = (0..FLAG_ROW_SHARDS).map(|shard| PartitionQuery::partition(flag_rows_pk(1, shard)));
    let shards = shards.map(|query| app.services.app.store.records.query(query));
    let rows = futures::future::try_join_all(shards).await.unwrap();
    assert_eq!(rows.iter().flatten().count(), 1);
}

/// Filters with one property.
fn with(property: Value) -> Value {
    json!({"filters": {"groups": [{"properties": [property]}]}})
}

/// Filters that depend on a flag.
fn on(id: u64) -> Value {
    with(json!({"type": "flag", "key": id.to_string(), "operator": "flag_evaluates_to", "value": true}))
}

/// Flags x, y and z: y depends on x, and x, which is deleted, on z.
async fn half_a_circle(app: &TestApp, round: usize) -> [u64; 3] {
    let [mut x, mut y, mut z] = [0; 3];
    for (name, id) in [("x", &mut x), ("y", &mut y), ("z", &mut z)] {
        *id = app.flag(&format!("{name}{round}")).await;
    }
    app.patch(&one(y), on(x)).await.expect(200);
    app.patch(&one(y), json!({"active": false})).await.expect(200);
    app.patch(&one(x), json!({"deleted": true})).await.expect(200);
    app.patch(&one(y), json!({"active": true})).await.expect(200);
    app.patch(&one(x), on(z)).await.expect(200);
    [x, y, z]
}

#[tokio::test]
async fn a_restore_never_creates_circular_dependencies() {
    let app = TestApp::new().await;
    let [x, y, z] = half_a_circle(&app, 0).await;
    app.patch(&one(z), on(y)).await.expect(200);
    let refused = app.patch(&one(x), json!({"deleted": false})).await;
    let detail = "Circular dependency detected: x0 → z0 → y0 → x0";
    refused.expect_invalid("invalid_input", detail, Some("filters"));
    assert_eq!(app.get(&one(x)).await.expect(200)["deleted"], true);
    let elsewhere = json!({"deleted": false, "filters": {"groups": [{}]}});
    app.patch(&one(x), elsewhere).await.expect(200);

    for round in 1..5 {
        let [x, y, z] = half_a_circle(&app, round).await;
        let (x, z) = (one(x), one(z));
        let (a, b) = tokio::join!(app.patch(&x, json!({"deleted": false})), app.patch(&z, on(y)));
        let mut statuses = [a.status.as_u16(), b.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 400], "{} {}", a.text, b.text);
    }
}

#[tokio::test]
async fn invalid_keys_are_rejected_without_a_lookup() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    let long = "漢".repeat(400);
    let detail = "Only letters, numbers, hyphens (-) & underscores (_) are allowed.";
    app.post(FLAGS, json!({"key": long})).await.expect_invalid("invalid_key", detail, Some("key"));
    app.patch(&one(id), json!({"key": long})).await.expect_invalid("invalid_key", detail, Some("key"));
    for (method, path) in [("PATCH", one(id)), ("POST", FLAGS.to_owned())] {
        let stranger = app.call("phx_unknown", method, &path, json!({"key": long})).await;
        assert_eq!(stranger.status, 401, "{}", stranger.text);
    }
    let missing = app.get(&format!("{FLAGS}{}/remote_config", "%E6%BC%A2".repeat(400))).await;
    assert_eq!((missing.status.as_u16(), missing.text.as_str()), (404, ""));
}

#[tokio::test]
async fn a_written_change_is_returned_if_names_cannot_be_read() {
    let faults = Faults::new(1, &[]);
    let app = TestApp::failing(&faults).await;
    let cohort = json!({"id": 5, "name": "testers", "is_static": true, "deleted": false});
    let cohort = Item::new(keys::record(1, RecordKind::Cohort, 5), &cohort).unwrap();
    app.services.app.store.records.transact(vec![Write::Put(cohort, WriteCondition::None)]).await.unwrap();
    let id = app.flag("a").await;
    app.patch(&one(id), with(json!({"type": "cohort", "key": "id", "value": 5}))).await.expect(200);
    faults.deny_reads_of("PROJECT#1#COHORT");
    let name = |flag: &Value| flag["filters"]["groups"][0]["properties"][0]["cohort_name"].clone();
    let changed = app.patch(&one(id), json!({"name": "A"})).await.expect(200);
    assert_eq!((&changed["name"], &changed["version"]), (&json!("A"), &json!(3)));
    assert_eq!(name(&changed), "testers", "as it was shown before");
    let cold = app.another_process();
    let changed = cold.patch(&one(id), json!({"name": "B"})).await.expect(200);
    assert_eq!((&changed["name"], name(&changed)), (&json!("B"), Value::Null));
    faults.stop();
    assert_eq!(
        name(&cold.get(&one(id)).await.expect(200)),
        "testers",
        "what was not known is not remembered"
    );
}

#[tokio::test]
async fn an_older_cohort_on_events_is_rejected_as_a_condition_too() {
    let visitors = json!([{"event_id": "$pageview", "days": 7}]);
    let app = TestApp::with(json!({"cohorts": [
        {"project": "1", "id": 2, "name": "visitors", "groups": visitors},
    ]}))
    .await;
    let mut body = with(json!({"type": "cohort", "key": "id", "value": 2}));
    body["key"] = json!("a");
    let detail = "Cohort 'visitors' with filters on events cannot be used in feature flags.";
    app.post(FLAGS, body).await.expect_invalid("behavioral_cohort_found", detail, Some("filters"));
}

#[tokio::test]
async fn concurrent_changes_never_make_flags_depend_on_each_other() {
    let app = TestApp::new().await;
    for round in 0..8 {
        let (x, y) = (app.flag(&format!("x{round}")).await, app.flag(&format!("y{round}")).await);
        let (x_path, y_path) = (one(x), one(y));
        let (a, b) = tokio::join!(app.patch(&x_path, on(y)), app.patch(&y_path, on(x)));
        let mut statuses = [a.status.as_u16(), b.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 400], "{} {}", a.text, b.text);
    }
}
