//! A write of one item is not a transaction: it costs half, and does not conflict with other single writes.

use pennon_core::store::{Item, Key, StoreError, Write, WriteCondition};
use pennon_tests::{Fault, Faults, TestApp};
use serde_json::{Value, json};

fn item(version: u64) -> Item {
    Item::new(Key::new("TEST", "one"), &json!({"version": version})).unwrap().with_version(version)
}

async fn capture(app: &TestApp, events: Value) {
    app.call("", "POST", "/batch/", json!({"api_key": "phc_project_1", "batch": events})).await.expect(200);
}

#[tokio::test]
async fn conditions_of_single_writes_hold_as_in_a_transaction() {
    let app = TestApp::new().await;
    let records = &app.services.app.store.records;
    let put = async |version, condition| records.put(item(version), condition).await;
    let delete = async |condition| records.transact(vec![Write::Delete(item(0).key, condition)]).await;
    let has_failed = |result: Result<(), StoreError>| result.is_err_and(|error| error.is_condition(0));
    assert!(has_failed(put(1, WriteCondition::Present).await));
    assert!(has_failed(delete(WriteCondition::Present).await));
    put(1, WriteCondition::Absent).await.unwrap();
    assert!(has_failed(put(2, WriteCondition::Absent).await));
    assert!(has_failed(put(2, WriteCondition::Version(7)).await));
    put(2, WriteCondition::Version(1)).await.unwrap();
    assert!(has_failed(delete(WriteCondition::Version(1)).await));
    let counted = Item { count: 5, ..item(3) };
    records.put(counted.clone(), WriteCondition::CountAtMost(0)).await.unwrap();
    assert!(has_failed(records.put(counted, WriteCondition::CountAtMost(4)).await));
    assert_eq!(records.get(&item(0).key).await.unwrap().unwrap().version, 3);
    delete(WriteCondition::Version(3)).await.unwrap();
    delete(WriteCondition::None).await.unwrap();
    assert_eq!(records.get(&item(0).key).await.unwrap(), None);
    let operations = app.round_trips.calls().into_iter().map(|call| call.operation).collect::<Vec<_>>();
    let transactions = operations.iter().filter(|operation| *operation == "TransactWriteItems").count();
    // The writes of the workspace, before the test began, are of other processes.
    assert_eq!(transactions, 0, "{operations:?}");
}

#[tokio::test]
async fn a_captured_event_is_one_put_and_one_unit() {
    let app = TestApp::new().await.metered();
    let event = |n: usize| json!({"event": "seen", "distinct_id": format!("p{n}")});
    capture(&app, json!([event(0)])).await;
    app.round_trips.reset();
    app.meter.take();
    capture(&app, json!([event(1)])).await;
    let calls = app.round_trips.calls();
    assert_eq!(calls.iter().map(|call| call.operation.as_str()).collect::<Vec<_>>(), ["PutItem"]);
    assert_eq!(app.meter.take().writes, 1.0);
}

#[tokio::test]
async fn a_cold_process_reads_the_rows_of_a_project_before_it_writes_them() {
    let app = TestApp::new().await;
    let event = json!([{"event": "seen", "distinct_id": "p"}]);
    // The token, the rows, each of the two that are missing, the block.
    app.round_trips.reset();
    capture(&app, event.clone()).await;
    let operations =
        |app: &TestApp| app.round_trips.calls().into_iter().map(|call| call.operation).collect::<Vec<_>>();
    assert_eq!(operations(&app), ["GetItem", "BatchGetItem", "PutItem", "PutItem", "PutItem"]);
    let other = app.another_process();
    capture(&other, event).await;
    assert_eq!(operations(&other), ["GetItem", "BatchGetItem", "PutItem"]);
    assert_eq!(other.round_trips.sequential(), 3);
}

#[tokio::test]
async fn a_single_write_that_conflicts_with_a_transaction_is_retried() {
    let faults = Faults::new(11, &[(Fault::Conflict, 300)]);
    let app = TestApp::failing(&faults).await;
    let records = &app.services.app.store.records;
    for version in 1..40 {
        let condition =
            if version == 1 { WriteCondition::Absent } else { WriteCondition::Version(version - 1) };
        records.put(item(version), condition).await.unwrap();
    }
    assert!(faults.counts()[&Fault::Conflict] > 5, "{:?}", faults.counts());
    assert_eq!(records.get(&item(0).key).await.unwrap().unwrap().version, 39);
}

#[tokio::test]
async fn events_whose_response_was_lost_count_once_when_the_sdk_repeats_the_put() {
    let faults = Faults::new(5, &[(Fault::ResponseLost, 200)]);
    let app = TestApp::failing(&faults).await;
    for n in 0..40 {
        let event = json!({"event": "seen", "distinct_id": format!("p{n}")});
        capture(&app, json!([event])).await;
    }
    assert!(faults.counts()[&Fault::ResponseLost] > 3, "{:?}", faults.counts());
    faults.stop();
    let trend = json!({"events": [{"id": "seen"}], "date_from": "-1d"});
    let trend = app.post("/api/projects/1/insights/trend/", trend).await.expect(200);
    assert_eq!(trend["result"][0]["count"], 40.0);
}
