//! Reads of many flags during changes are never stale, never incomplete and always bounded.

use axum::http::header;
use pennon_core::store::{Item, WriteCondition, keys};
use pennon_eventstore::PersonRecord;
use pennon_flag_rules::FlagRow;
use pennon_tests::{Keys, TestApp, TestResponse, now_micros};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn one(id: u64) -> String {
    format!("{FLAGS}{id}/")
}

/// A workspace with one cohort: those whose mail address has one of `domains`.
fn cohort(domains: &[&str]) -> Value {
    let one = |domain| json!({"key": "email", "type": "person", "value": domain, "operator": "icontains"});
    let values: Vec<Value> = domains.iter().map(one).collect();
    json!({"cohorts": [{"project": "1", "id": 3, "name": "c", "filters": {"properties": {"type": "OR", "values": values}}}]})
}

#[tokio::test]
async fn a_static_cohort_is_created_with_the_current_criteria() {
    let app = TestApp::with(cohort(&["@x.io"])).await;
    let person = |name: &str, domain: &str| PersonRecord {
        distinct_ids: vec![name.to_owned()],
        properties: json!({"email": format!("{name}{domain}")}).as_object().unwrap().clone(),
        created_at: None,
    };
    let persons = vec![person("ann", "@x.io"), person("bob", "@y.io")];
    let now = now_micros();
    app.services.events.add_persons(1, persons, now).await.unwrap();
    let filters = json!({"groups": [{"properties": [{"key": "id", "type": "cohort", "value": 3}]}]});
    let made = app.post(FLAGS, json!({"key": "f", "filters": filters})).await.expect(201);
    let path = format!("{}create_static_cohort_for_flag/", one(made["id"].as_u64().unwrap()));
    let count = async || app.post(&path, json!({})).await.expect(201)["cohort"]["count"].clone();
    assert_eq!(count().await, 1);
    app.apply(cohort(&["@x.io", "@y.io"])).await;
    assert_eq!(count().await, 2, "the same process");
}

/// Sets the record size of the flag's row to so many KiB.
async fn claim_kib(app: &TestApp, id: u64, kib: usize) {
    let records = &app.services.app.store.records;
    let key = keys::flag_row(1, id);
    let item = records.get(&key).await.unwrap().unwrap();
    let row = FlagRow { kib, ..item.body().unwrap() };
    records
        .put(Item::new(key, &row).unwrap().with_version(item.version), WriteCondition::None)
        .await
        .unwrap();
    app.services.flags.memory.clear();
}

#[tokio::test]
async fn more_records_than_fit_into_memory_are_rejected_before_they_are_read() {
    const PATHS: [&str; 3] = ["local_evaluation/", "my_flags/", "evaluation_reasons/?distinct_id=a"];
    // The row has the length of its record, rounded down: up to 48 MiB.
    const MOST: usize = 48 * 1024 - 2;
    let app = TestApp::new().await;
    let (large, small) = (app.flag("large").await, app.flag("small").await);
    claim_kib(&app, large, MOST).await;
    for path in PATHS {
        app.get(&format!("{FLAGS}{path}")).await.expect(200);
    }
    claim_kib(&app, large, MOST + 1).await;
    // Changes that do not enlarge records succeed in a full project.
    app.patch(&one(small), json!({"active": false})).await.expect(200);
    for path in PATHS {
        app.services.flags.memory.clear();
        app.round_trips.reset();
        let refused = app.get(&format!("{FLAGS}{path}")).await;
        let detail = refused.expect(400)["detail"].as_str().unwrap().to_owned();
        refused.expect_invalid("invalid_input", &detail, None);
        assert!(detail.contains("49152 KiB"), "{detail}");
        let read: Vec<String> = app.round_trips.calls().into_iter().map(|call| call.operation).collect();
        assert!(read.len() < 20, "no record is read: {read:?}");
    }
    // The error of the feed is cached like a feed, and removed when the project changes.
    claim_kib(&app, large, MOST).await;
    assert_eq!(app.get(&format!("{FLAGS}local_evaluation/")).await.status, 400);
    app.patch(&one(small), json!({"active": true})).await.expect(200);
    app.get(&format!("{FLAGS}local_evaluation/")).await.expect(200);
}

#[tokio::test]
async fn a_page_is_full_if_flags_of_it_are_deleted_while_it_is_read() {
    const ROUNDS: usize = 30;
    let app = TestApp::new().await;
    let mut ids = Vec::new();
    for number in 0..ROUNDS + 10 {
        ids.push(app.flag(&format!("k{number}")).await);
    }
    for _ in 0..ROUNDS {
        // The newest comes first.
        let newest = ids.pop().unwrap();
        app.services.flags.memory.clear();
        let (page, path) = (format!("{FLAGS}?limit=10"), one(newest));
        let (page, gone) = tokio::join!(app.get(&page), app.patch(&path, json!({"deleted": true})));
        gone.expect(200);
        assert_eq!(page.expect(200)["results"].as_array().unwrap().len(), 10);
    }
}

#[tokio::test]
async fn my_flags_return_secret_payloads_like_other_reads() {
    const SECRET: &str = "{\"password\":\"hunter2\"}";
    let app = TestApp::new().await;
    let filters = json!({"groups": [{"properties": []}], "payloads": {"true": SECRET}});
    let body = json!({"key": "s", "is_remote_configuration": true, "has_encrypted_payloads": true, "filters": filters});
    app.post(FLAGS, body).await.expect(201);
    let mine = app.get(&format!("{FLAGS}my_flags/")).await.expect(200);
    assert_eq!(mine[0]["feature_flag"]["filters"]["payloads"]["true"], SECRET);
}

async fn with_gzip(app: &TestApp, path: &str) -> TestResponse {
    let mut request = TestApp::request(Keys::OWNER, "GET", path, Value::Null);
    request.headers_mut().insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
    app.send(request).await
}

#[tokio::test]
async fn long_my_flags_are_compressed_and_too_long_ones_rejected() {
    let app = TestApp::new().await;
    let path = format!("{FLAGS}my_flags/");
    let add = async |from: usize, to: usize| {
        for number in from..to {
            let value = json!([{"key": "email", "type": "person", "value": "x".repeat(250_000)}]);
            let filters = json!({"groups": [{"properties": value}]});
            app.post(FLAGS, json!({"key": format!("k{number}"), "filters": filters})).await.expect(201);
        }
    };
    add(0, 20).await;
    app.get(&path).await.expect(200);
    assert_eq!(with_gzip(&app, &path).await.header("content-encoding"), "gzip");
    add(20, 26).await;
    app.get(&path).await.expect(400);
    let packed = with_gzip(&app, &path).await;
    assert_eq!((packed.status.as_u16(), packed.header("content-encoding")), (200, "gzip"));
}
