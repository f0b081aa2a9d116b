//! An object store that is throttled, fails, returns half or loses its responses: calls are retried, then fail, and
//! nothing is lost or counted twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::faulty::{Always, Chance, Fault, Faults, Faulty, Once};
use crate::support::{MINUTE, NOW, PROJECT, request, rows, simple};
use object_store::memory::InMemory;
use pennon::embedded::Embedded;
use pennon_eventstore::{EventStore, EventStoreError, GRACE_MICROS, Settings};
use proptest::prelude::*;

fn faulty(faults: impl Faults + 'static) -> Arc<Faulty> {
    Faulty::new(Arc::new(InMemory::new()), faults)
}

async fn over(objects: &Arc<Faulty>) -> (EventStore, pennon_core::store::Store) {
    let store = Embedded::in_memory().await.unwrap().store(None);
    (
        EventStore::with_object_store(
            store.clone(),
            objects.clone(),
            Duration::from_micros(100),
            Settings::default(),
        ),
        store,
    )
}

#[tokio::test]
async fn a_store_that_is_down_is_retried_a_few_times_and_then_reported() {
    for fault in [Fault::Before, Fault::After, Fault::Cut] {
        let objects = faulty(Always(Fault::None));
        let (events, store) = over(&objects).await;
        events.append(PROJECT, &[simple(1, "a", "ada", 1)], NOW).await.unwrap();
        events.compact(PROJECT, NOW).await.unwrap();
        objects.set(Always(fault));
        let before = objects.calls.load(Ordering::Relaxed);
        let cold = EventStore::with_object_store(
            store,
            objects.clone(),
            Duration::from_micros(100),
            Settings::default(),
        );
        let error = cold.scan(PROJECT, &[], &request(&[], &[])).await.unwrap_err();
        assert!(matches!(error, EventStoreError::Objects(_)), "{fault:?}: {error}");
        let calls = objects.calls.load(Ordering::Relaxed) - before;
        assert!((2..=40).contains(&calls), "{fault:?}: {calls} calls");
        // This is not damage: nothing is quarantined, and everything works when the store is back.
        objects.set(Always(Fault::None));
        assert!(cold.check(PROJECT, false, &mut |_| {}).await.unwrap().damaged.is_empty());
        assert_eq!(cold.scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.rows, 1);
    }
}

#[tokio::test]
async fn a_response_with_a_flipped_bit_is_read_again() {
    let objects = faulty(Always(Fault::None));
    let (events, _) = over(&objects).await;
    events.append(PROJECT, &[simple(1, "a", "ada", 1)], NOW).await.unwrap();
    events.compact(PROJECT, NOW).await.unwrap();
    for fault in [Fault::Flip, Fault::Cut, Fault::Before] {
        objects.set(Once(fault));
        assert_eq!(events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.rows, 1, "{fault:?}");
    }
    assert!(events.damage(PROJECT).await.unwrap().is_empty());
    // If it is flipped in every response, the object is damaged.
    objects.set(Always(Fault::Flip));
    let error = events.check(PROJECT, false, &mut |_| {}).await.unwrap();
    assert_eq!(error.damaged.len(), 1);
}

#[tokio::test]
async fn events_that_cannot_be_written_to_a_segment_stay_in_their_blocks() {
    let objects = faulty(Always(Fault::Before));
    let (events, _) = over(&objects).await;
    let sent = (0..50).map(|n| simple(n, "a", "ada", n as i64)).collect::<Vec<_>>();
    events.append(PROJECT, &sent, NOW).await.unwrap();
    assert!(matches!(events.compact(PROJECT, NOW).await, Err(EventStoreError::Objects(_))));
    let import = vec![(0, simple(99, "a", "ada", 1))];
    assert!(matches!(events.ingest(PROJECT, import, NOW).await, Err(EventStoreError::Objects(_))));
    // Events in blocks are counted without any object.
    assert_eq!(events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.rows, 50);
    objects.set(Always(Fault::None));
    assert_eq!(events.compact(PROJECT, NOW).await.unwrap().events, 50);
    assert_eq!(events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.rows, 50);
}

/// Uuids of a scan; each once.
async fn uuids(events: &EventStore) -> Result<BTreeSet<u128>, EventStoreError> {
    let scan = events.scan(PROJECT, &[], &request(&[], &[])).await?;
    let found = rows(&scan).iter().map(|row| row.2 as u128).collect::<Vec<_>>();
    let set = found.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(found.len(), set.len(), "an event twice");
    Ok(set)
}

fn passing<T>(result: Result<T, EventStoreError>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(EventStoreError::Objects(_)) => None,
        Err(other) => panic!("{other}"),
    }
}

async fn faulty_life(seed: u64, one_in: u64, steps: Vec<u8>) {
    let objects = faulty(Chance { state: seed | 1, one_in });
    let (events, store) = over(&objects).await;
    // The time of each event is derived from its uuid, so that a scan identifies the events.
    let (mut sent, mut acknowledged, mut now) = (BTreeSet::new(), BTreeSet::new(), NOW);
    for (n, step) in steps.into_iter().enumerate() {
        now += MINUTE;
        let fresh = (0..7).map(|k| (n * 7 + k) as u128).collect::<Vec<_>>();
        // One of them may have existed before.
        let mut batch = fresh.iter().map(|n| simple(*n, "a", "ada", *n as i64)).collect::<Vec<_>>();
        batch.extend(sent.first().map(|n: &u128| simple(*n, "a", "ada", *n as i64)));
        match step {
            0..=3 => {
                events.append(PROJECT, &batch, now).await.unwrap();
                sent.extend(&fresh);
                acknowledged.extend(&fresh);
            }
            4 | 5 => {
                sent.extend(&fresh);
                let lines = batch.into_iter().enumerate().map(|(line, event)| (line as u64, event)).collect();
                if passing(events.ingest(PROJECT, lines, now).await).is_some() {
                    acknowledged.extend(&fresh);
                }
            }
            6..=8 => {
                passing(events.compact(PROJECT, now).await);
            }
            _ => {
                now += GRACE_MICROS;
                passing(events.sweep(PROJECT, now).await);
            }
        }
        if let Some(found) = passing(uuids(&events).await) {
            assert!(acknowledged.is_subset(&found) && found.is_subset(&sent), "{acknowledged:?} {found:?}");
        }
    }
    objects.set(Always(Fault::None));
    let events = EventStore::with_object_store(
        store,
        objects.clone(),
        Duration::from_micros(100),
        Settings::default(),
    );
    let found = uuids(&events).await.unwrap();
    assert!(acknowledged.is_subset(&found) && found.is_subset(&sent));
    while events.compact(PROJECT, now).await.unwrap().more {}
    events.sweep(PROJECT, now + 3 * GRACE_MICROS).await.unwrap();
    assert_eq!(uuids(&events).await.unwrap(), found);
    assert!(events.check(PROJECT, false, &mut |_| {}).await.unwrap().damaged.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_store_that_fails_by_chance_loses_and_doubles_nothing(
        seed in any::<u64>(),
        one_in in 2..12_u64,
        steps in prop::collection::vec(0..10_u8, 5..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(faulty_life(seed, one_in, steps));
    }
}
