#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use pennon_core::store::{Store, keys};
use pennon_eventstore::{ErasureTarget, Event, EventStore, GroupRecord, PersonRecord};
use serde_json::{Map, Value, json};

use super::checkpoint::Checkpoints;
use super::chunk::Chunk;
use super::record::{ImportRecord, SourceRecord};
use super::{ImportOptions, ImportPhase, Summary, check, import_file};
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
    // A stopped import has stored a part of the file.
    let content = check(&path, &options(), &mut |_| {}).await.unwrap().content_info;
    let mut source = super::source::ImportSource::open(&path, options(), Some(content), false).unwrap();
    let mut chunk = Chunk::new(NOW - 1000);
    assert_eq!(source.read_into(&mut chunk, 400).unwrap(), 400);
    let mut stopped = Summary::default();
    chunk.store(&events, &mut stopped).await.unwrap();
    assert_eq!(stopped.events, 400);
    for (new, duplicates) in [(600, 400), (0, 1000)] {
        let summary = import_file(&events, &path, options(), NOW, &mut |_| {}).await.unwrap();
        assert_eq!((summary.events, summary.copies), (new, duplicates));
    }
}

/// A file of 1000 events, of which an interrupted import has stored the first 400 and a checkpoint of them.
async fn interrupted_import() -> (tempfile::TempDir, PathBuf, Store, EventStore, ImportOptions) {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::in_memory().await.unwrap().store(None);
    let events =
        EventStore::open(store.clone(), &format!("file://{}/events", directory.path().display())).unwrap();
    let line = |n: usize| json!({"event": "seen", "distinct_id": n % 7, "timestamp": "2024-01-01T00:00:00Z"});
    let text = (0..1000).map(|n| line(n).to_string()).collect::<Vec<_>>().join("\n");
    let path = directory.path().join("lines.jsonl");
    std::fs::write(&path, text).unwrap();
    let options = ImportOptions { checkpoints: Some(store.records.clone()), ..options() };
    let content = check(&path, &options, &mut |_| {}).await.unwrap().content_info;
    let (mut checkpoints, found) = Checkpoints::open(&events, &options, &content.digest).await.unwrap();
    assert!(found.is_none());
    let mut source = super::source::ImportSource::open(&path, options.clone(), Some(content), false).unwrap();
    let mut chunk = Chunk::new(NOW - 1000);
    assert_eq!(source.read_into(&mut chunk, 400).unwrap(), 400);
    let mut stored = Summary::default();
    chunk.store(&events, &mut stored).await.unwrap();
    checkpoints.store(400, &stored, NOW).await.unwrap();
    (directory, path, store, events, options)
}

#[tokio::test]
async fn an_interrupted_import_continues_after_what_it_has_stored() {
    let (_directory, path, _, events, options) = interrupted_import().await;
    let mut phases = Vec::new();
    let summary =
        import_file(&events, &path, options.clone(), NOW, &mut |it| phases.push(it.phase)).await.unwrap();
    assert_eq!((summary.continued_after, summary.events, summary.copies), (400, 600, 400));
    assert_eq!(summary.projects.iter().copied().collect::<Vec<_>>(), [1]);
    assert!(phases.contains(&ImportPhase::Skipping));
    let line = "continued after 400 lines, which an interrupted import had stored";
    assert!(summary.text_lines().contains(&line.to_owned()), "{:?}", summary.text_lines());
    // A complete import leaves no checkpoint: the next one compares every event.
    let again = import_file(&events, &path, options, NOW, &mut |_| {}).await.unwrap();
    assert_eq!((again.continued_after, again.events, again.copies), (0, 0, 1000));
}

#[tokio::test]
async fn a_checkpoint_from_before_an_erasure_or_of_other_options_counts_for_nothing() {
    let (_directory, path, store, events, options) = interrupted_import().await;
    let other = ImportOptions { default_project: Some(2), ..options.clone() };
    let summary = import_file(&events, &path, other, NOW, &mut |_| {}).await.unwrap();
    assert_eq!((summary.continued_after, summary.events), (0, 1000));
    events.erase(1, &ErasureTarget::Project, &|| NOW).await.unwrap();
    store.records.increment(&keys::erasures(1), 1).await.unwrap();
    let summary = import_file(&events, &path, options, NOW, &mut |_| {}).await.unwrap();
    assert_eq!((summary.continued_after, summary.events, summary.copies), (0, 1000, 0));
}

#[tokio::test]
async fn the_progress_of_folded_persons_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::in_memory().await.unwrap().store(None);
    let events = EventStore::open(store, &format!("file://{}/events", directory.path().display())).unwrap();
    // 12,000 persons with two distinct ids each.
    let line = |n: usize| json!({"event": "seen", "distinct_id": format!("d{n}"), "person_id": n / 2, "timestamp": "2024-01-01T00:00:00Z"});
    let text = (0..24_000).map(|n| line(n).to_string()).collect::<Vec<_>>().join("\n");
    let path = directory.path().join("lines.jsonl");
    std::fs::write(&path, text).unwrap();
    let mut seen = Vec::new();
    let summary =
        import_file(&events, &path, options(), NOW, &mut |progress| seen.push(progress)).await.unwrap();
    assert_eq!(summary.persons, 12_000);
    let phases: Vec<ImportPhase> = seen.iter().map(|progress| progress.phase).collect();
    assert!(phases.is_sorted_by_key(|phase| *phase as u8), "{phases:?}");
    let steps = seen.iter().filter(|progress| progress.phase == ImportPhase::StoringPeople);
    let steps: Vec<(u64, u64)> = steps.map(|progress| (progress.done, progress.total)).collect();
    // Merged with what is stored in batches of 10,000, and then stored.
    assert_eq!(steps, [(10_000, 24_000), (12_000, 24_000), (24_000, 24_000)]);
    // A file without persons has no such phase.
    let path = directory.path().join("one.jsonl");
    std::fs::write(&path, json!({"event": "a", "distinct_id": "d1", "timestamp": "2024-01-02"}).to_string())
        .unwrap();
    let mut seen = Vec::new();
    import_file(&events, &path, options(), NOW, &mut |progress| seen.push(progress.phase)).await.unwrap();
    assert!(!seen.contains(&ImportPhase::StoringPeople), "{seen:?}");
}

/// The number of such records that fill a chunk, and their bytes of text.
fn fill_chunk(record: impl Fn(u64) -> ImportRecord, bytes: usize) -> (u64, usize) {
    let mut chunk = Chunk::new(NOW);
    let mut count = 0;
    while !chunk.is_full() {
        count += 1;
        let source = SourceRecord { line: count, project: 1 + count % 3, record: record(count) };
        chunk.push(source).unwrap();
        assert!(count < 200_000, "it is never full");
    }
    (count, count as usize * bytes)
}

#[test]
fn few_long_records_fill_a_chunk() {
    let text = |n: u64, bytes: usize| format!("{n:06}{}", "x".repeat(bytes.saturating_sub(6)));
    let properties = |n: u64, bytes: usize| Map::from_iter([("k".to_owned(), Value::from(text(n, bytes)))]);
    let person = |n: u64| PersonRecord {
        distinct_ids: vec![n.to_string()],
        properties: properties(n, 20_000),
        created_at: None,
    };
    let (_, bytes) = fill_chunk(|n| ImportRecord::Person(person(n)), 20_000);
    assert!(bytes > 64 << 20 && bytes < 128 << 20, "{bytes} bytes of persons");
    let group = |n: u64| GroupRecord {
        type_name: "company".to_owned(),
        index: 0,
        key: n.to_string(),
        properties: properties(n, 20_000),
    };
    let (_, bytes) = fill_chunk(|n| ImportRecord::Group(group(n)), 20_000);
    assert!(bytes > 64 << 20 && bytes < 128 << 20, "{bytes} bytes of groups");
    let event = |n: u64| Event {
        uuid: uuid::Uuid::from_u128(n.into()),
        event: "a".to_owned(),
        distinct_id: n.to_string(),
        timestamp: NOW,
        properties: properties(n, 3 << 20),
    };
    let (_, bytes) = fill_chunk(|n| ImportRecord::Event(event(n)), 3 << 20);
    assert!(bytes > 64 << 20 && bytes < 192 << 20, "{bytes} bytes of events");
    let short = |n: u64| PersonRecord { properties: properties(n, 1), ..person(0) };
    assert_eq!(fill_chunk(|n| ImportRecord::Person(short(n)), 1).0, 100_000);
}
