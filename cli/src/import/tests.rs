#![allow(clippy::unwrap_used)]

use pennon_eventstore::EventStore;
use serde_json::json;

use super::chunk::Chunk;
use super::{ImportOptions, Summary, check, import_file};
use crate::embedded::Embedded;

const NOW: i64 = 1_700_000_000_000_000;

fn options() -> ImportOptions {
    ImportOptions { default_project: Some(1), ..ImportOptions::default() }
}

#[tokio::test]
async fn an_import_that_stopped_halfway_is_finished_by_another() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::in_memory().await.unwrap().store(None);
    let events = EventStore::open(store, &format!("file://{}/events", directory.path().display())).unwrap();
    let line = |n: usize| json!({"event": "seen", "distinct_id": n % 7, "timestamp": "2024-01-01T00:00:00Z"});
    let text = (0..1000).map(|n| line(n).to_string()).collect::<Vec<_>>().join("\n");
    let path = directory.path().join("lines.jsonl");
    std::fs::write(&path, text).unwrap();
    // What a stopped import leaves: a part of the file.
    let (content, _) = check(&path, &options(), &mut |_| {}).await.unwrap();
    let mut source = super::source::Source::open(&path, options(), Some(content)).unwrap();
    let mut part = Chunk::new(NOW - 1000);
    assert_eq!(source.take(400, &mut part).unwrap(), 400);
    let mut stopped = Summary::default();
    part.store(&events, &mut stopped).await.unwrap();
    assert_eq!(stopped.events, 400);
    for (new, copies) in [(600, 400), (0, 1000)] {
        let summary = import_file(&events, &path, options(), NOW, &mut |_| {}).await.unwrap();
        assert_eq!((summary.events, summary.copies), (new, copies));
    }
}
