//! Tables and objects of the same and of different installations: with the wrong ones, nothing is moved or removed.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{NOW, PROJECT, Place, simple};
use pennon::embedded::Embedded;
use pennon_core::store::{Item, PartitionQuery, Store};
use pennon_eventstore::{EventStore, EventStoreError, ORPHANED_MICROS};

const DAY: i64 = 24 * 3600 * 1_000_000;

/// A place with an id and so many segments.
async fn claimed(segments: u128) -> Place {
    let place = Place::new().await;
    place.events.claim_installation().await.unwrap();
    for n in 0..segments {
        add(&place.events, n).await;
    }
    place
}

async fn add(events: &EventStore, n: u128) {
    events.append(PROJECT, &[simple(n, "a", "ada", n as i64)], NOW + n as i64).await.unwrap();
    events.compact_blocks(PROJECT, NOW + n as i64).await.unwrap();
}

fn events_over(store: Store, place: &Place) -> EventStore {
    EventStore::open(store, &format!("file://{}/events", place.directory.path().display())).unwrap()
}

/// The files of a place without the folder that they lie in.
fn names(place: &Place) -> BTreeSet<String> {
    let name = |file: &String| Path::new(file).file_name().unwrap().to_string_lossy().into_owned();
    place.files().iter().map(name).collect()
}

fn marks(place: &Place) -> usize {
    place.files().iter().filter(|file| file.contains("/installation/project=")).count()
}

async fn rows(store: &Store) -> Vec<Item> {
    let mut rows = Vec::new();
    for pk in ["EVENTS", "PROJECT#7#SEGMENT"] {
        rows.extend(store.records.query(PartitionQuery::partition(pk)).await.unwrap());
    }
    rows
}

/// Other tables with these rows.
async fn tables_with(rows: Vec<Item>) -> Store {
    let store = Embedded::in_memory().await.unwrap().store(None);
    store.records.replace(rows, Vec::new()).await.unwrap();
    store
}

fn is_refused<T: std::fmt::Debug>(done: Result<T, EventStoreError>, words: &str) {
    match done {
        Err(EventStoreError::WrongInstallation(error)) => assert!(error.contains(words), "{error}"),
        other => panic!("{words}: {other:?}"),
    }
}

#[tokio::test]
async fn each_project_has_one_mark_and_every_process_finds_its_own() {
    let place = claimed(3).await;
    assert_eq!(marks(&place), 1);
    for _ in 0..2 {
        let again = place.again();
        again.claim_installation().await.unwrap();
        again.verify_installation().await.unwrap();
        add(&again, 10).await;
    }
    assert_eq!(marks(&place), 1);
}

#[tokio::test]
async fn lost_and_older_tables_are_refused_and_sweep_nothing_however_old_the_objects_are() {
    let place = claimed(1).await;
    let older = rows(&place.store).await;
    add(&place.events, 1).await;
    let files = place.files();
    let later = chrono::Utc::now().timestamp_micros() + 1000 * DAY;
    for (rows, words) in [(Vec::new(), "the tables are empty"), (older, "the tables are older")] {
        let events = events_over(tables_with(rows).await, &place);
        is_refused(events.claim_installation().await, words);
        is_refused(events.verify_installation().await, words);
        is_refused(events.sweep_orphans(PROJECT, later).await, words);
        assert_eq!(place.files(), files);
    }
    assert_eq!(place.again().sweep_orphans(PROJECT, later).await.unwrap(), 0);
}

#[tokio::test]
async fn a_process_that_is_killed_before_its_mark_leaves_nothing_to_refuse() {
    let place = Place::new().await;
    place.events.claim_installation().await.unwrap();
    // A process without the id writes no mark, like one that was killed.
    let killed = place.again();
    add(&killed, 0).await;
    add(&killed, 1).await;
    assert_eq!(marks(&place), 0);
    place.again().claim_installation().await.unwrap();
    add(&place.events, 2).await;
    assert_eq!(marks(&place), 1);
    place.again().claim_installation().await.unwrap();
}

#[tokio::test]
async fn two_that_claim_at_once_agree() {
    let place = Place::new().await;
    let (a, b) = (place.again(), place.again());
    let (first, second) = tokio::join!(a.claim_installation(), b.claim_installation());
    first.unwrap();
    second.unwrap();
    place.again().claim_installation().await.unwrap();
    let ids = place.files().iter().filter(|file| file.contains("/installation/")).count();
    assert_eq!(ids, 1);
}

#[tokio::test]
async fn orphans_are_moved_and_kept_for_thirty_days() {
    let place = claimed(1).await;
    let folder = place.directory.path().join(format!("events/project={PROJECT}/events"));
    for file in ["0000-left.parquet", "0000-left.sums"] {
        std::fs::write(folder.join(file), "left by a writer that stopped").unwrap();
    }
    let now = chrono::Utc::now().timestamp_micros() + ORPHANED_MICROS + DAY;
    let before = names(&place);
    place.events.sweep_orphans(PROJECT, now).await.unwrap();
    let orphans = place.events.orphans(PROJECT).await.unwrap();
    assert_eq!(orphans.len(), 2, "{orphans:?}");
    assert!(!folder.join("0000-left.parquet").exists());
    assert_eq!(names(&place).len(), before.len());
    for (days, left) in [(1, 2), (29, 2), (30, 2), (32, 0)] {
        place.events.sweep_orphans(PROJECT, now + days * DAY).await.unwrap();
        assert_eq!(place.events.orphans(PROJECT).await.unwrap().len(), left, "after {days} days");
    }
    assert!(place.events.check(PROJECT, false, &mut |_| {}).await.unwrap().damaged.is_empty());
}

#[tokio::test]
async fn adopting_keeps_objects_that_the_tables_do_not_list() {
    let place = claimed(1).await;
    let older = tables_with(rows(&place.store).await).await;
    add(&place.events, 1).await;
    let before = names(&place);
    let events = events_over(older.clone(), &place);
    let adopted = events.adopt_installation(NOW).await.unwrap();
    assert!(adopted.kept > 0 && adopted.missing == 0, "{adopted:?}");
    assert!(before.is_subset(&names(&place)));
    events_over(older.clone(), &place).claim_installation().await.unwrap();
    let kept = names(&place);
    events.sweep_orphans(PROJECT, chrono::Utc::now().timestamp_micros() + 1000 * DAY).await.unwrap();
    assert_eq!(names(&place), kept);
    assert!(events.check(PROJECT, false, &mut |_| {}).await.unwrap().damaged.is_empty());
    is_refused(place.again().claim_installation().await, "the tables are of installation");
    // Empty tables keep all objects.
    let empty = events_over(tables_with(Vec::new()).await, &place);
    empty.adopt_installation(NOW + 1).await.unwrap();
    assert!(kept.is_subset(&names(&place)));
    assert_eq!(empty.sweep_orphans(PROJECT, i64::MAX).await.unwrap(), 0);
}
