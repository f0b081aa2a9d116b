//! Publication over a bucket or a directory: the bucket of `PENNON_TEST_EVENTS_URL`, for which `scripts/test_s3.sh` starts a
//! server, else a directory.

use std::collections::BTreeSet;

use pennon::embedded::Embedded;
use pennon_eventstore::{EventStore, GRACE_MICROS};
use pennon_iceberg::TablePublisher;
use serde_json::{Value, json};

use crate::support::{MINUTE, NOW, PROJECT, PublishAt, event};

#[tokio::test(flavor = "multi_thread")]
async fn tables_in_a_bucket_are_committed_once_and_swept() {
    let directory = tempfile::tempdir().unwrap();
    let bucket = std::env::var("PENNON_TEST_EVENTS_URL").ok();
    let url = bucket.unwrap_or_else(|| format!("file://{}", directory.path().display()));
    let url = format!("{url}/tables");
    let store = Embedded::in_memory().await.unwrap().store(None);
    let open = || EventStore::open(store.clone(), &url).unwrap();
    let events = open();
    let publishers = [TablePublisher::new(open()), TablePublisher::new(open())];
    let files = async || {
        let listed = events.table_files().list(&format!("project={PROJECT}")).await.unwrap();
        listed.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>()
    };
    let mut at = NOW;
    for round in 1..=3 {
        events.append(PROJECT, &[event(round, "ada", json!({"n": 1}))], at).await.unwrap();
        events.compact_blocks(PROJECT, at).await.unwrap();
        let runs = publishers.iter().map(|publisher| publisher.publish_at(at));
        let runs = futures::future::join_all(runs).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(runs.iter().filter(|run| run.events).count(), 1, "{runs:?}");
        at += 11 * MINUTE;
    }
    let folder = format!("project={PROJECT}/events");
    let get = async |name: &str| {
        let body = events.table_files().get(&format!("{folder}/metadata/{name}")).await.unwrap();
        String::from_utf8(body.unwrap().to_vec()).unwrap()
    };
    assert_eq!(get("version-hint.text").await, "3");
    let metadata: Value = serde_json::from_str(&get("v3.metadata.json").await).unwrap();
    assert_eq!(metadata["location"], format!("{url}/iceberg/{folder}"));
    assert_eq!(metadata["snapshots"][0]["summary"]["total-records"], "3");
    // Only the last version is left after the grace period.
    publishers[0].publish_at(at + GRACE_MICROS).await.unwrap();
    publishers[1].publish_at(at + GRACE_MICROS).await.unwrap();
    let left = files().await;
    assert_eq!(left.len(), 9, "{left:?}");
    assert_eq!(publishers[0].remove_tables(PROJECT).await.unwrap(), 9);
    assert!(files().await.is_empty());
}
