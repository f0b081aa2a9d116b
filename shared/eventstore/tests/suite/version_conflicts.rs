//! Writers that lose version conflicts repeatedly: they retry, each event is counted once, and at their time limit they
//! return an error and store nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{MINUTE, NOW, PROJECT, Place, event, expected, request, rows, simple};
use pennon_core::store::local_backend::{BackendFuture, LocalBackend, PartitionPage, PartitionRange};
use pennon_core::store::{Attributes, ItemChange, Key, PartitionQuery, Store, StoreError};
use pennon_eventstore::{
    ErasureTarget, Event, EventStore, EventStoreError, GRACE_MICROS, GroupRecord, MergeMode, PersonRecord,
    Settings, derive_person_id,
};
use serde_json::{Map, json};

/// A large number of consecutive conflicts.
const CONFLICTS: u64 = 20;

/// A concurrent change that is committed first.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Other {
    /// Imports a group.
    Group,
    /// Captures and compacts a copy of the event with this number, another one each time.
    Copy,
    /// Erases ada.
    Erasure,
    /// Erases old events.
    Retention,
}

/// Wraps the store of one writer: before each of its manifest changes, another change is committed, so many times.
#[derive(Debug)]
struct Faster {
    left: AtomicU64,
    other: Other,
    events: EventStore,
}

impl Faster {
    async fn erase(&self, doomed: ErasureTarget) {
        self.events.erase(PROJECT, &doomed, &|| NOW + 1).await.unwrap();
    }

    async fn disturb(&self, left: u64) {
        match self.other {
            Other::Group => {
                let group = GroupRecord {
                    type_name: "company".into(),
                    index: 0,
                    key: format!("c{left}"),
                    properties: Map::new(),
                };
                self.events.add_groups(PROJECT, vec![group], NOW).await.unwrap();
            }
            Other::Copy => {
                self.events.append(PROJECT, &[made(left)], NOW + 1).await.unwrap();
                self.events.compact_blocks(PROJECT, NOW + 1).await.unwrap();
            }
            Other::Erasure => self.erase(ErasureTarget::Person("ada".into())).await,
            Other::Retention => self.erase(ErasureTarget::Before(1000)).await,
        }
    }
}

impl LocalBackend for Faster {
    fn items(&self, _: &str, _: &[&Key]) -> Option<Result<Vec<Attributes>, StoreError>> {
        None
    }

    fn page(&self, _: &str, _: PartitionRange) -> BackendFuture<'_, Result<PartitionPage, StoreError>> {
        Box::pin(async { None })
    }

    fn transact(&self, _: &str, changes: Arc<Vec<ItemChange>>) -> BackendFuture<'_, Result<i64, StoreError>> {
        Box::pin(async move {
            let is_manifest = changes.iter().any(|change| change.key.sk == "HEAD");
            let one_less = |left: u64| left.checked_sub(1);
            if is_manifest
                && let Ok(left) = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
            {
                self.disturb(left).await;
            }
            None
        })
    }
}

fn impatient(turns_in_all: Duration) -> Settings {
    Settings { turns_in_all, longest_turn_wait: Duration::from_micros(100), ..Settings::default() }
}

/// A writer with so many conflicts, and their counter.
fn slower(place: &Place, other: Other, times: u64, turns_in_all: Duration) -> (EventStore, Arc<Faster>) {
    let faster = Arc::new(Faster { left: AtomicU64::new(times), other, events: place.again() });
    let direct: Arc<dyn LocalBackend> = faster.clone();
    let url = format!("file://{}/events", place.directory.path().display());
    let store: Store = place.store.clone().with_local_backend(&direct);
    (EventStore::open_with(store, &url, impatient(turns_in_all)).unwrap(), faster)
}

fn made(n: u64) -> Event {
    event(u128::from(n), "a", &format!("p{}", n % 5), n as i64, json!({"n": n}))
}

fn history() -> Vec<(u64, Event)> {
    (0..100).map(|n| (n, made(n))).collect()
}

async fn all(events: &EventStore) -> Vec<crate::support::PlainRow> {
    rows(&events.scan(PROJECT, &[], &request(&[], &["n"])).await.unwrap())
}

fn want(sent: &[Event]) -> Vec<crate::support::PlainRow> {
    expected(sent, &request(&[], &["n"]), |who| derive_person_id(PROJECT, who))
}

/// Objects that no manifest names.
async fn left_over(place: &Place) -> usize {
    let later = chrono::Utc::now().timestamp_micros() + 2 * pennon_eventstore::ORPHANED_MICROS;
    place.again().sweep_orphans(PROJECT, later).await.unwrap()
}

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn an_import_retries_until_it_commits() {
    let place = Place::new().await;
    let (events, faster) = slower(&place, Other::Group, CONFLICTS, LONG);
    let done = events.ingest(PROJECT, history(), NOW).await.unwrap();
    assert_eq!((done.stored, done.copies), (100, 0));
    let person = PersonRecord { distinct_ids: vec!["x".into()], properties: Map::new(), created_at: None };
    faster.left.store(CONFLICTS, Ordering::SeqCst);
    events.add_persons(PROJECT, vec![person], NOW).await.unwrap();
    assert_eq!(faster.left.load(Ordering::SeqCst), 0, "all of them were met");
    let sent = history().into_iter().map(|(_, event)| event).collect::<Vec<_>>();
    assert_eq!(all(&place.again()).await, want(&sent));
    assert_eq!(place.again().groups(PROJECT).await.unwrap().len(), CONFLICTS as usize);
    assert_eq!(left_over(&place).await, 0);
}

#[tokio::test]
async fn events_that_others_store_meanwhile_are_copies() {
    let place = Place::new().await;
    let (events, _) = slower(&place, Other::Copy, CONFLICTS, LONG);
    let done = events.ingest(PROJECT, history(), NOW).await.unwrap();
    assert_eq!((done.stored, done.copies), (100 - CONFLICTS, CONFLICTS));
    let sent = history().into_iter().map(|(_, event)| event).collect::<Vec<_>>();
    assert_eq!(all(&place.again()).await, want(&sent));
    assert_eq!(left_over(&place).await, 0);
    // The same for captured events.
    let place = Place::new().await;
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let (events, _) = slower(&place, Other::Copy, CONFLICTS, LONG);
    events.compact_blocks(PROJECT, NOW + 2).await.unwrap();
    while place.again().compact_blocks(PROJECT, NOW + 3).await.unwrap().has_more_work() {}
    assert_eq!(all(&place.again()).await, want(&sent));
    assert_eq!(left_over(&place).await, 0);
}

#[tokio::test]
async fn erasure_compaction_and_merging_retry_too() {
    let place = Place::new().await;
    for part in 0..4 {
        let lines = history().into_iter().skip(part * 25).take(25).collect();
        place.events.ingest(PROJECT, lines, NOW).await.unwrap();
    }
    place.events.append(PROJECT, &[simple(900, "a", "p1", 900)], NOW + 1).await.unwrap();
    let (events, faster) = slower(&place, Other::Group, CONFLICTS, LONG);
    let again = || faster.left.store(CONFLICTS, Ordering::SeqCst);
    assert_eq!(events.compact_blocks(PROJECT, NOW + 2).await.unwrap().events, 1);
    again();
    assert_eq!(events.merge_segments(PROJECT, NOW + 3, MergeMode::Fewest).await.unwrap().merged_segments, 5);
    again();
    let erased = events.erase(PROJECT, &ErasureTarget::Person("p1".into()), &|| NOW + 4).await.unwrap();
    assert_eq!(erased.events, 21);
    again();
    let erased = events.erase(PROJECT, &ErasureTarget::Before(10), &|| NOW + 5).await.unwrap();
    assert_eq!(erased.events, 8);
    assert_eq!(faster.left.load(Ordering::SeqCst), 0, "all of them were met");
    let mut sent = history().into_iter().map(|(_, event)| event).collect::<Vec<_>>();
    sent.retain(|event| event.distinct_id != "p1" && event.timestamp >= 10);
    assert_eq!(all(&place.again()).await, want(&sent));
    assert_eq!(left_over(&place).await, 0);
}

#[tokio::test]
async fn a_person_erased_while_an_import_retries_is_a_new_person() {
    let place = Place::new().await;
    let identify = event(900, "$identify", "ada", 1, json!({"$anon_distinct_id": "phone"}));
    place.events.append(PROJECT, &[identify], NOW - MINUTE).await.unwrap();
    place.events.compact_blocks(PROJECT, NOW - MINUTE).await.unwrap();
    let (events, _) = slower(&place, Other::Erasure, 1, LONG);
    let sent = (0..4).map(|n| simple(n, "a", "phone", n as i64)).collect::<Vec<_>>();
    let lines = (0..).zip(sent.clone()).collect();
    assert_eq!(events.ingest(PROJECT, lines, NOW).await.unwrap().stored, 4);
    // She is a separate person, not merged with the former one.
    assert_eq!(all(&place.again()).await, want(&sent));
    assert_eq!(left_over(&place).await, 0);
}

#[tokio::test]
async fn events_erased_while_a_compaction_retries_stay_erased() {
    for other in [Other::Retention, Other::Erasure] {
        let place = Place::new().await;
        let old = (0..10).map(|n| simple(n, "a", "ada", n as i64)).collect::<Vec<_>>();
        place.events.append(PROJECT, &old, NOW).await.unwrap();
        let (events, _) = slower(&place, other, 1, LONG);
        events.compact_blocks(PROJECT, NOW + 2).await.unwrap();
        assert_eq!(all(&place.again()).await, Vec::new(), "{other:?}");
        assert_eq!(left_over(&place).await, 0);
    }
}

#[tokio::test]
async fn after_the_time_limit_nothing_is_stored_and_the_same_call_succeeds_later() {
    let place = Place::new().await;
    let (events, faster) = slower(&place, Other::Group, u64::MAX, Duration::ZERO);
    let refused = events.ingest(PROJECT, history(), NOW).await.unwrap_err();
    assert!(matches!(refused, EventStoreError::Contended), "{refused}");
    assert!(refused.to_string().contains("the same call goes on from there"), "{refused}");
    let person = PersonRecord { distinct_ids: vec!["x".into()], properties: Map::new(), created_at: None };
    assert!(events.add_persons(PROJECT, vec![person], NOW).await.is_err());
    place.events.ingest(PROJECT, vec![(0, simple(900, "a", "p1", 1))], NOW).await.unwrap();
    assert!(events.erase(PROJECT, &ErasureTarget::Person("p1".into()), &|| NOW).await.is_err());
    assert_eq!(left_over(&place).await, 0);
    assert_eq!(place.again().scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.rows, 1);
    faster.left.store(0, Ordering::SeqCst);
    assert_eq!(events.ingest(PROJECT, history(), NOW).await.unwrap().stored, 100);
    assert_eq!(events.erase(PROJECT, &ErasureTarget::Person("p1".into()), &|| NOW).await.unwrap().events, 21);
}

#[tokio::test]
async fn the_grace_period_of_a_merge_starts_at_its_commit() {
    let place = Place::new().await;
    for part in 0..4 {
        let lines = history().into_iter().skip(part * 25).take(25).collect();
        place.events.ingest(PROJECT, lines, NOW).await.unwrap();
    }
    place.events.merge_segments(PROJECT, NOW, MergeMode::Due).await.unwrap();
    let manifest = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SEGMENT")).prefix("SEGMENT#");
    let entries = place.store.records.query(manifest).await.unwrap();
    let entries = entries.iter().map(|item| item.body::<serde_json::Value>().unwrap());
    let merged = entries.filter(|entry| entry["replaces_segments"] != json!([])).collect::<Vec<_>>();
    // It took a while.
    let at = merged[0]["at"].as_i64().unwrap();
    assert!(merged.len() == 1 && at > NOW, "{merged:?}");
    assert_eq!(place.events.sweep(PROJECT, at + GRACE_MICROS - 1).await.unwrap().segments, 0);
    assert_eq!(place.events.sweep(PROJECT, at + GRACE_MICROS).await.unwrap().segments, 4);
}
