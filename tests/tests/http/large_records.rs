//! Records and responses that are larger than one item, or one response, can be.

use axum::http::header;
use pennon_core::store::{
    Item, Key, PARTED_BYTES_MAX, PartitionQuery, StoreError, Table, Write, WriteCondition,
};
use pennon_tests::{Keys, TestApp, noise};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

async fn table() -> (TestApp, Table) {
    let app = TestApp::new().await;
    let records = app.services.app.store.records.clone();
    (app, records)
}

fn key(sk: &str) -> Key {
    Key::new("TEST", sk)
}

fn item(sk: &str, text: &str) -> Item {
    Item::new(key(sk), &text).unwrap()
}

async fn parts(records: &Table, sk: &str) -> usize {
    records.query(PartitionQuery::partition(format!("TEST#{sk}#PART"))).await.unwrap().len()
}

#[tokio::test]
async fn a_long_body_is_returned_by_every_kind_of_read() {
    let (_app, records) = table().await;
    let long = noise(1, 1_500_000);
    records.put(item("b", &long), WriteCondition::Absent).await.unwrap();
    records.put(item("a", "short"), WriteCondition::Absent).await.unwrap();
    let got = records.get(&key("b")).await.unwrap().unwrap();
    assert_eq!(got.body::<String>().unwrap(), long);
    let batch = records.batch_get(&[key("b"), key("none"), key("a"), key("b")]).await.unwrap();
    let texts: Vec<Option<String>> =
        batch.iter().map(|item| item.as_ref().map(|item| item.body().unwrap())).collect();
    assert_eq!(texts, [Some(long.clone()), None, Some("short".to_owned()), Some(long.clone())]);
    let listed = records.query(PartitionQuery::partition("TEST")).await.unwrap();
    let bodies: Vec<String> = listed.iter().map(|item| item.body().unwrap()).collect();
    assert_eq!(bodies, ["short".to_owned(), long]);
}

#[tokio::test]
async fn a_replaced_body_leaves_no_parts_behind() {
    let (_app, records) = table().await;
    records.put(item("a", &noise(1, 1_500_000)), WriteCondition::Absent).await.unwrap();
    let old = records.get(&key("a")).await.unwrap().unwrap();
    assert_eq!(parts(&records, "a").await, 4);
    let shorter = noise(2, 700_000);
    records.put(item("a", &shorter).replacing(&old), WriteCondition::Present).await.unwrap();
    assert_eq!(parts(&records, "a").await, 2);
    let old = records.get(&key("a")).await.unwrap().unwrap();
    assert_eq!(old.body::<String>().unwrap(), shorter);
    records.put(item("a", "short").replacing(&old), WriteCondition::Present).await.unwrap();
    assert_eq!(parts(&records, "a").await, 0);
    assert_eq!(records.get(&key("a")).await.unwrap().unwrap().body::<String>().unwrap(), "short");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_and_nothing_is_written() {
    let (_app, records) = table().await;
    let beyond = noise(1, PARTED_BYTES_MAX * 3 / 2);
    let writes = vec![
        Write::Put(item("a", "beside"), WriteCondition::None),
        Write::Put(item("b", &beyond), WriteCondition::None),
    ];
    assert!(matches!(records.transact(writes).await, Err(StoreError::TooLarge)));
    assert_eq!(records.query(PartitionQuery::partition("TEST")).await.unwrap().len(), 0);
    // A failed condition has the caller's index, also if the write has parts.
    let writes = vec![
        Write::Put(item("b", &noise(1, 900_000)), WriteCondition::None),
        Write::Check(key("none"), WriteCondition::Present),
    ];
    assert!(records.transact(writes).await.is_err_and(|error| error.is_condition(1)));
    assert_eq!(parts(&records, "b").await, 0);
}

#[tokio::test]
async fn a_concurrent_reader_gets_a_complete_body() {
    let (_app, records) = table().await;
    let bodies: Vec<String> =
        (0..4).map(|seed| noise(seed, 500_000 + 200_000 * usize::try_from(seed).unwrap())).collect();
    records.put(item("a", &bodies[0]), WriteCondition::Absent).await.unwrap();
    let write = async {
        for round in 0..12 {
            records.put(item("a", &bodies[round % 4]), WriteCondition::Present).await.unwrap();
        }
    };
    let read = async {
        for _ in 0..12 {
            let got = records.get(&key("a")).await.unwrap().unwrap().body::<String>().unwrap();
            assert!(bodies.contains(&got));
        }
    };
    tokio::join!(write, read);
}

/// The log of this change holds both texts, which together do not fit into an item.
#[tokio::test]
async fn filters_of_the_largest_size_can_be_changed_to_others_of_that_size() {
    let app = TestApp::new().await;
    let filters = |seed: u64| {
        let value = noise(seed, 262_000);
        json!({"groups": [{"properties": [{"key": "email", "type": "person", "value": value}]}]})
    };
    let made = app.post(FLAGS, json!({"key": "long", "filters": filters(1)})).await.expect(201);
    let path = format!("{FLAGS}{}/", made["id"]);
    app.patch(&path, json!({"filters": filters(2)})).await.expect(200);
    assert_eq!(app.get(&path).await.expect(200)["filters"], filters(2));
}

async fn list(app: &TestApp, limit: usize, gzip: bool) -> (u16, Value, bool) {
    let mut request = TestApp::request(Keys::OWNER, "GET", &format!("{FLAGS}?limit={limit}"), Value::Null);
    if gzip {
        request.headers_mut().insert(header::ACCEPT_ENCODING, "gzip, deflate".parse().unwrap());
    }
    let response = app.send(request).await;
    let packed = response.header("content-encoding") == "gzip";
    let body = if packed { Value::Null } else { response.json() };
    (response.status.as_u16(), body, packed)
}

fn named_limit(refusal: &Value) -> usize {
    assert_eq!((&refusal["code"], &refusal["attr"]), (&json!("invalid_input"), &json!("limit")));
    let detail = refusal["detail"].as_str().unwrap();
    let number =
        detail.strip_prefix("The response is too large. The largest limit that fits here is ").unwrap();
    number.strip_suffix('.').unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_page_that_exceeds_the_gateway_is_rejected_with_the_largest_possible_limit() {
    let app = TestApp::new().await;
    for number in 0..36 {
        let value = noise(number, 200_000);
        let filters =
            json!({"groups": [{"properties": [{"key": "email", "type": "person", "value": value}]}]});
        // More than the definitions feed may have, which writes keep to where it is counted.
        app.forget_room().await;
        app.post(FLAGS, json!({"key": format!("k{number}"), "filters": filters})).await.expect(201);
    }
    assert_eq!(list(&app, 10, true).await.0, 200);
    let mut most = Vec::new();
    for gzip in [false, true] {
        let (status, refusal, _) = list(&app, 100, gzip).await;
        assert_eq!(status, 400, "{refusal}");
        let limit = named_limit(&refusal);
        let (status, page, packed) = list(&app, limit, gzip).await;
        assert_eq!((status, packed), (200, gzip));
        if !gzip {
            assert_eq!(page["results"].as_array().unwrap().len(), limit, "never a shortened page");
        }
        let (status, refusal, _) = list(&app, limit + 1, gzip).await;
        assert_eq!((status, named_limit(&refusal)), (400, limit));
        most.push(limit);
    }
    assert!((29..30).contains(&most[0]), "6 MB of 200 KB each: {most:?}");
    assert!(most[1] < 36, "{most:?}");
}
