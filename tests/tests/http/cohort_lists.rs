//! Member lists of static cohorts over HTTP: additions, removals, and declarations of workspace files.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use pennon::workspace::{ApplyOptions, Workspace, apply};
use pennon_core::store::{PartitionQuery, keys};
use pennon_eventstore::derive_person_id;
use pennon_insights::run_scheduled_tasks;
use pennon_tests::{Keys, TestApp, TestResponse, as_worker};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cohorts::{COHORTS, FLAGS, counted, made, one, rule, shop, vip};

/// Sends a form with a file, and fields beside it.
async fn upload(app: &TestApp, method: &str, path: &str, fields: &[(&str, &str)], csv: &str) -> TestResponse {
    let mut body = String::new();
    for (name, value) in fields {
        body += &format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    body += &format!(
        "--XX\r\nContent-Disposition: form-data; name=\"csv\"; filename=\"a.csv\"\r\nContent-Type: text/csv\r\n\r\n{csv}\r\n--XX--\r\n"
    );
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "api.test")
        .header("authorization", format!("Bearer {}", Keys::OWNER))
        .header("content-type", "multipart/form-data; boundary=XX")
        .body(Body::from(body))
        .unwrap();
    app.send(request).await
}

#[tokio::test]
async fn members_are_added_by_ids_and_tables_and_removed() {
    let app = shop().await;
    let ids = |who: &[&str]| who.iter().map(|id| derive_person_id(1, id)).collect::<Vec<Uuid>>();
    let body = json!({"name": "L", "is_static": true, "distinct_ids": ["ann", "ann@home"],
                      "_create_static_person_ids": ids(&["bob", "unknown"])});
    let cohort = made(&app, body).await;
    let id = &cohort["id"];
    // Ann is one person; an unknown id is no person.
    assert_eq!((&cohort["count"], counted(&app, id).await), (&json!(2), json!(2.0)));
    assert_eq!(cohort["last_calculation"], "2026-01-05T10:00:00Z");
    let add = format!("{}add_persons_to_static_cohort/", one(id));
    let remove = format!("{}remove_person_from_static_cohort/", one(id));
    let done = app.patch(&add, json!({"person_ids": ids(&["cat", "unknown"])})).await.expect(200);
    assert_eq!(done, json!({"success": true}));
    assert_eq!(
        (&app.get(&one(id)).await.expect(200)["count"], counted(&app, id).await),
        (&json!(3), json!(3.0))
    );
    // Any of her ids removes Ann completely.
    app.patch(&remove, json!({"person_id": derive_person_id(1, "ann@home")})).await.expect(200);
    assert_eq!(
        (&app.get(&one(id)).await.expect(200)["count"], counted(&app, id).await),
        (&json!(2), json!(2.0))
    );
    for (body, status, text) in [
        (json!({"person_id": derive_person_id(1, "ann")}), 404, "Person is not part of the cohort"),
        (json!({"person_id": Uuid::nil()}), 404, "does not exist"),
        (json!({}), 400, "person_id is required"),
        (json!({"person_id": 5}), 400, "person_id must be a string"),
        (json!({"person_id": "x"}), 400, "person_id must be a valid UUID"),
    ] {
        let refused = app.patch(&remove, body.clone()).await.expect(status);
        assert!(refused["detail"].as_str().unwrap().contains(text), "{body}: {refused}");
    }
    for (body, text) in [
        (json!({}), "person_ids must be a list"),
        (json!({"person_ids": []}), "person_ids cannot be empty"),
        (json!({"person_ids": vec![Uuid::nil(); 1001]}), "List size exceeds limit"),
        (json!({"person_ids": [Uuid::nil()]}), "No valid users to add to cohort"),
        (json!({"person_ids": ["x"]}), "is not a valid UUID"),
    ] {
        let refused = app.patch(&add, body.clone()).await.expect(400);
        assert!(refused["detail"].as_str().unwrap().contains(text), "{body}: {refused}");
        assert_eq!(refused["attr"], "person_ids");
    }
    let before = app.activity("Cohort").await.len();
    app.patch(&one(id), json!({"distinct_ids": ["dan"]})).await.expect(200);
    assert_eq!(app.activity("Cohort").await.len(), before + 1, "the change of members is logged");
    let words: Vec<Value> = app.activity("Cohort").await.iter().map(|it| it["activity"].clone()).collect();
    assert!(
        words.contains(&json!("persons_added_manually")) && words.contains(&json!("person_removed_manually"))
    );
    let rules = made(&app, json!({"filters": rule(vip())})).await["id"].clone();
    app.patch(&format!("{}add_persons_to_static_cohort/", one(&rules)), json!({"person_ids": ids(&["cat"])}))
        .await
        .expect_invalid("invalid_input", "Can only add users to static cohorts", None);
    app.patch(&one(&rules), json!({"is_static": true})).await.expect(400);
}

#[tokio::test]
async fn a_table_of_members_is_uploaded_in_a_form() {
    let app = shop().await;
    let fields = [("name", "Table"), ("is_static", "true")];
    let made =
        upload(&app, "POST", COHORTS, &fields, "name,distinct_id\nA,ann@home\nB,bob\n").await.expect(201);
    assert_eq!((&made["name"], &made["count"]), (&json!("Table"), &json!(2)));
    let id = &made["id"];
    let more =
        upload(&app, "PATCH", &one(id), &[], "email\ncat@example.com\nnobody@example.com").await.expect(200);
    assert_eq!((&more["count"], counted(&app, id).await), (&json!(3), json!(3.0)));
    let same = upload(
        &app,
        "PATCH",
        &one(id),
        &[("description", "d")],
        &format!("person_id\n{}", derive_person_id(1, "ann")),
    )
    .await;
    assert_eq!((&same.expect(200)["count"], &same.json()["description"]), (&json!(3), &json!("d")));
    for csv in ["", "a,b\n1,2", "person_id\nx", "distinct_id\n"] {
        let refused = upload(&app, "PATCH", &one(id), &[], csv).await.expect(400);
        assert_eq!(refused["attr"], "csv", "{csv}");
    }
    let long = "x".repeat(1001);
    assert_eq!(upload(&app, "PATCH", &one(id), &[], &long).await.expect(400)["attr"], "csv");
    let rules = json!({"name": "rules", "filters": rule(vip())});
    let rules = app.post(COHORTS, rules).await.expect(201)["id"].clone();
    assert_eq!(upload(&app, "PATCH", &one(&rules), &[], "ann").await.expect(400)["attr"], "csv");
}

#[tokio::test]
async fn a_changed_long_list_is_a_new_object_and_the_old_one_is_removed() {
    let app = shop().await;
    let many = (0..1500).map(|n| format!("user-{n}")).collect::<Vec<_>>();
    let cohort = made(&app, json!({"name": "L", "is_static": true, "distinct_ids": many})).await;
    let id = &cohort["id"];
    assert_eq!(cohort["count"], 1500);
    let records = &app.services.app.store.records;
    assert!(records.query(PartitionQuery::partition(keys::SCHEDULED_TASKS)).await.unwrap().is_empty());
    let record: Value = records
        .get(&keys::record(1, keys::RecordKind::Cohort, id.as_u64().unwrap()))
        .await
        .unwrap()
        .unwrap()
        .body()
        .unwrap();
    assert!(record["members"].is_object() && record["distinct_ids"] == json!([]), "{record}");
    let more = app.patch(&one(id), json!({"distinct_ids": ["ann", "ann@home", "user-7"]})).await.expect(200);
    assert_eq!((&more["count"], counted(&app, id).await), (&json!(1501), json!(1.0)));
    // No member of concurrent additions is lost.
    let adds = (0..4).map(|n| {
        let app = &app;
        async move { app.patch(&one(id), json!({"distinct_ids": [format!("late-{n}")]})).await }
    });
    for added in futures::future::join_all(adds).await {
        added.expect(200);
    }
    let remove = format!("{}remove_person_from_static_cohort/", one(id));
    app.patch(&remove, json!({"person_id": derive_person_id(1, "ann")})).await.expect(200);
    let now = app.get(&one(id)).await.expect(200);
    assert_eq!((&now["count"], counted(&app, id).await), (&json!(1504), json!(0.0)));
    // Unlisted lists are removed, and the current one stays.
    let due = records.query(PartitionQuery::partition(keys::SCHEDULED_TASKS)).await.unwrap().len();
    assert!(due >= 6, "{due}");
    let later = "2026-01-05T12:00:00Z".parse().unwrap();
    let run = as_worker(run_scheduled_tasks(records, later, Duration::from_secs(60))).await.unwrap();
    assert_eq!((run.notes, run.failed), (due, 0));
    let added = app.patch(&one(id), json!({"distinct_ids": ["bob"]})).await.expect(200);
    assert_eq!((&added["count"], counted(&app, id).await), (&json!(1505), json!(1.0)));
}

#[tokio::test]
async fn a_cohort_made_of_a_flag_is_one_of_them() {
    let app = shop().await;
    let groups = json!([{"properties": [vip()], "rollout_percentage": 100}]);
    let flag =
        app.post(FLAGS, json!({"key": "f", "filters": {"groups": groups}})).await.expect(201)["id"].clone();
    let path = format!("{FLAGS}{flag}/create_static_cohort_for_flag/");
    let cohort = app.post(&path, json!({})).await.expect(201)["cohort"].clone();
    let list = app.get(COHORTS).await.expect(200);
    assert_eq!((&list["count"], &list["results"][0]["name"]), (&json!(1), &cohort["name"]));
    assert_eq!(list["results"][0]["count"], 2);
    let more =
        app.patch(&one(&cohort["id"]), json!({"distinct_ids": ["cat"], "name": "mine"})).await.expect(200);
    assert_eq!((&more["count"], counted(&app, &cohort["id"]).await), (&json!(3), json!(3.0)));
}

/// A list may be uploaded before the events of its members.
#[tokio::test]
async fn a_distinct_id_without_a_person_stays_on_the_list() {
    let app = shop().await;
    let cohort = made(&app, json!({"name": "L", "is_static": true, "distinct_ids": ["ann", "late"]})).await;
    let id = &cohort["id"];
    assert_eq!((&cohort["count"], counted(&app, id).await), (&json!(2), json!(1.0)));
    let member = json!([{"key": "id", "type": "cohort", "value": id}]);
    let flag = json!({"key": "f", "filters": {"groups": [{"properties": member}]}});
    app.post(FLAGS, flag).await.expect(201);
    for (who, value) in [("ann", true), ("late", true), ("never", false)] {
        let path = format!("{FLAGS}evaluation_reasons/?distinct_id={who}");
        assert_eq!(app.get(&path).await.expect(200)["f"]["value"], value, "{who}");
    }
    let event = json!({"event": "signed up", "distinct_id": "late", "timestamp": "2026-01-05T09:00:00Z"});
    app.capture(json!([event])).await;
    let member = json!([{"key": "id", "type": "cohort", "value": id}]);
    let events = json!([{"id": "signed up", "math": "dau", "properties": member}]);
    let body = json!({"events": events, "refresh": true});
    let trend = app.post("/api/projects/1/insights/trend/", body).await.expect(200);
    assert_eq!(trend["result"][0]["count"], 2.0);
    assert_eq!(app.get(&one(id)).await.expect(200)["count"], 2);
}

#[tokio::test]
async fn workspace_files_and_http_write_the_same_records_and_keep_each_others_fields() {
    let declared = |name: &str, who: &[&str]| json!([{"project": "1", "id": 7, "name": name, "is_static": true, "distinct_ids": who}]);
    let app = TestApp::with(json!({"cohorts": declared("file", &["a", "b"])})).await;
    let applied = async |cohorts: Value| {
        let records = &app.services.app.store.records;
        let state = pennon::workspace::Declarations::load(records).await.unwrap().workspace();
        let file = Workspace::parse(&json!({"cohorts": cohorts}).to_string()).unwrap();
        let whole = Workspace { cohorts: file.cohorts, ..state };
        apply(
            records,
            &whole,
            ApplyOptions { prune: true, dry_run: false },
            pennon_tests::NOW.parse().unwrap(),
        )
        .await
        .unwrap()
        .plan
    };
    let seven = json!(7);
    // The members of a file are not counted.
    let shown = app.get(&one(&seven)).await.expect(200);
    assert_eq!(
        (&shown["name"], &shown["count"], &shown["created_by"]),
        (&json!("file"), &Value::Null, &Value::Null)
    );
    let edit = json!({"description": "d", "distinct_ids": ["c"], "name": "edited"});
    assert_eq!(app.patch(&one(&seven), edit).await.expect(200)["count"], 3);
    assert!(applied(declared("file", &["a", "b"])).await.is_empty());
    assert_eq!(app.get(&one(&seven)).await.expect(200)["name"], "edited");
    let many = (0..1100).map(|n| format!("u{n}")).collect::<Vec<_>>();
    assert_eq!(app.patch(&one(&seven), json!({"distinct_ids": many})).await.expect(200)["count"], 1103);
    // The file changes the list and the name; the description stays.
    assert_eq!(applied(declared("file", &["a", "z"])).await, ["~ cohort 1/7 \"file\""]);
    let now = app.get(&one(&seven)).await.expect(200);
    assert_eq!(
        (&now["name"], &now["description"], &now["count"]),
        (&json!("file"), &json!("d"), &Value::Null)
    );
    assert_eq!(app.patch(&one(&seven), json!({"distinct_ids": ["z", "y"]})).await.expect(200)["count"], 3);
    let records = &app.services.app.store.records;
    assert_eq!(
        records.query(PartitionQuery::partition(keys::SCHEDULED_TASKS)).await.unwrap().len(),
        1,
        "the unlisted long list"
    );
    applied(json!([])).await;
    assert_eq!(app.get(&one(&seven)).await.status, 404);
    assert_eq!(app.get(COHORTS).await.expect(200)["count"], 0);
}
