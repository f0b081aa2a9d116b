//! The number of block partitions: nothing is lost if it is raised while processes with the old number write and read.

use std::collections::BTreeSet;

use pennon_core::store::{Item, PartitionQuery, WriteCondition};
use pennon_eventstore::{BlockPartitions, ErasureTarget, Event, EventStore};

use crate::support::{NOW, PROJECT, Place, request, rows, simple};

async fn set(place: &Place, count: u8) {
    let (key, body) = BlockPartitions::new(count).unwrap().row(PROJECT);
    place.store.records.put(Item::new(key, &body).unwrap(), WriteCondition::None).await.unwrap();
}

/// The partitions that have blocks, by the key grammar.
async fn used(place: &Place) -> BTreeSet<u8> {
    let mut used = BTreeSet::new();
    for partition in 0..64 {
        let query = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SHARD#{partition}"));
        if !place.store.blocks.query(query).await.unwrap().is_empty() {
            used.insert(partition);
        }
    }
    used
}

/// Appends `count` batches of one event each.
async fn append(events: &EventStore, first: u128, count: u128) -> Vec<Event> {
    let mut sent = Vec::new();
    for n in first..first + count {
        let event = simple(n, "a", &format!("p{n}"), n as i64);
        events.append(PROJECT, std::slice::from_ref(&event), NOW + n as i64).await.unwrap();
        sent.push(event);
    }
    sent
}

async fn counted(events: &EventStore) -> usize {
    rows(&events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap()).len()
}

#[tokio::test]
async fn processes_with_the_old_number_neither_lose_nor_miss_events() {
    let place = Place::new().await;
    let (old_writer, old_reader) = (place.again(), place.again());
    append(&old_writer, 1, 40).await;
    assert_eq!(counted(&old_reader).await, 40);
    assert!(used(&place).await.iter().all(|partition| *partition < 4));
    for (count, first) in [(16, 41), (64, 241)] {
        set(&place, count).await;
        // Started later, so it knows the new number.
        append(&place.again(), first, 180).await;
        let highest = used(&place).await.into_iter().max().unwrap();
        assert!((count / 2..count).contains(&highest), "180 blocks in {count} partitions reach {highest}");
        // Every kind of reader with the old number.
        let total = (first + 179) as usize;
        assert_eq!(counted(&old_reader).await, total, "a scan, {count} partitions");
        // It writes to the old partitions, and a process that has never read finds the event.
        append(&old_writer, first + 180, 20).await;
        assert_eq!(counted(&place.again()).await, total + 20, "{count} partitions");
    }
    // A compaction with the old number compacts all blocks, the oldest first.
    let compactor = old_reader;
    while compactor.compact_blocks(PROJECT, NOW).await.unwrap().has_more_work() {}
    assert_eq!(used(&place).await, BTreeSet::new());
    assert_eq!(counted(&place.again()).await, 440);
}

#[tokio::test]
async fn the_first_read_of_a_process_finds_every_partition_in_lists_and_definitions() {
    let place = Place::new().await;
    set(&place, 32).await;
    append(&place.events, 1, 120).await;
    assert!(used(&place).await.len() > 16);
    let names = place.again().event_names(PROJECT).await.unwrap();
    assert_eq!(names.iter().map(|name| name.events).sum::<u64>(), 120, "{names:?}");
    assert_eq!(place.again().earliest(PROJECT).await.unwrap(), Some(1));
    let report = place.again().check(PROJECT, false, &mut |_| {}).await.unwrap();
    assert_eq!((report.blocks, report.damaged.len()), (120, 0));
    let erased = place.again().erase(PROJECT, &ErasureTarget::Project, &|| NOW).await.unwrap();
    assert_eq!(erased.events, 120);
    assert_eq!(used(&place).await, BTreeSet::new());
}

#[tokio::test]
async fn an_interrupted_compaction_is_completed_in_the_partitions_of_its_blocks() {
    let place = Place::new().await;
    set(&place, 8).await;
    append(&place.events, 1, 60).await;
    let rows = async |partition: u8| {
        let query = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SHARD#{partition}"));
        place.store.blocks.query(query).await.unwrap()
    };
    let mut before = Vec::new();
    for partition in 0..8 {
        before.extend(rows(partition).await);
    }
    place.events.compact_blocks(PROJECT, NOW).await.unwrap();
    // As if it had stopped before it deleted the blocks.
    for item in before {
        place.store.blocks.put(item, WriteCondition::None).await.unwrap();
    }
    assert_eq!(counted(&place.again()).await, 60, "replaced blocks do not count");
    let done = place.again().compact_blocks(PROJECT, NOW).await.unwrap();
    assert_eq!((done.blocks, done.more), (0, false));
    assert_eq!(used(&place).await, BTreeSet::new());
    assert_eq!(counted(&place.again()).await, 60);
}

#[tokio::test]
async fn a_number_of_a_newer_format_is_refused() {
    let place = Place::new().await;
    append(&place.events, 1, 1).await;
    let (key, mut body) = BlockPartitions::new(16).unwrap().row(PROJECT);
    body["format"] = 3.into();
    place.store.records.put(Item::new(key, &body).unwrap(), WriteCondition::None).await.unwrap();
    let refused =
        place.again().scan(PROJECT, &[], &request(&[], &[])).await.err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|text| text.contains("newer release")), "{refused:?}");
}
