//! Wakes and leases of compaction, and merges that killed their process.

use pennon_core::store::{Item, Key, PartitionQuery, Write, WriteCondition};
use pennon_eventstore::{CompactionTask, MergeMode, Settings};
use serde_json::{Value, json};

use crate::support::{MINUTE, NOW, PROJECT, Place, request, simple};

const BLOCKS: CompactionTask = CompactionTask::Blocks(PROJECT);
const MERGES: CompactionTask = CompactionTask::Merges(PROJECT);

/// The sort keys of a partition of compaction, by the key grammar.
async fn sort_keys(place: &Place, pk: &str) -> Vec<String> {
    let items = place.store.records.query(PartitionQuery::partition(pk)).await.unwrap();
    items.into_iter().map(|item| item.key.sk).collect()
}

#[tokio::test]
async fn captured_blocks_wake_compaction_once_a_minute_whichever_process_stores_them() {
    let place = Place::new().await;
    let processes = [place.appending(), place.appending()];
    let pk = format!("COMPACTION#{PROJECT}");
    for second in 0..150 {
        let event = simple(second, "a", "p", 1);
        let at = NOW - NOW % MINUTE + second as i64 * 1_000_000;
        processes[second as usize % 2].append(PROJECT, &[event], at).await.unwrap();
    }
    let minute = NOW / MINUTE;
    let expected = (0..3).map(|later| format!("WAKE#{:012}", minute + later)).collect::<Vec<_>>();
    assert_eq!(sort_keys(&place, &pk).await, expected);
    let woken = expected.iter().map(|sk| CompactionTask::of_wake(&Key::new(&pk, sk)));
    assert_eq!(woken.collect::<Vec<_>>(), [Some(BLOCKS); 3]);
    // A local server needs no row: it compacts by itself.
    let local = Place::new().await;
    local.events.append(PROJECT, &[simple(1, "a", "p", 1)], NOW).await.unwrap();
    assert_eq!(sort_keys(&local, &pk).await, Vec::<String>::new());
}

#[tokio::test]
async fn one_process_at_a_time_has_the_lease_of_a_task() {
    let place = Place::new().await;
    let (one, other) = (place.again(), place.again());
    let held = one.lease_compaction(BLOCKS, NOW, NOW + MINUTE).await.unwrap().unwrap();
    assert!(other.lease_compaction(BLOCKS, NOW + MINUTE - 1, NOW + 2 * MINUTE).await.unwrap().is_none());
    // Merges have their own lease.
    let merges = other.lease_compaction(MERGES, NOW, NOW + MINUTE).await.unwrap().unwrap();
    assert!(one.renew_compaction(&held, NOW + 2 * MINUTE).await.unwrap());
    assert!(other.lease_compaction(BLOCKS, NOW + MINUTE, NOW + 3 * MINUTE).await.unwrap().is_none());
    // It expires with the process that held it, which must not renew or release the lease of the next one.
    let next = other.lease_compaction(BLOCKS, NOW + 2 * MINUTE, NOW + 3 * MINUTE).await.unwrap().unwrap();
    assert!(!one.renew_compaction(&held, NOW + 9 * MINUTE).await.unwrap());
    one.release_compaction(held).await.unwrap();
    assert!(one.lease_compaction(BLOCKS, NOW + 2 * MINUTE, NOW + 4 * MINUTE).await.unwrap().is_none());
    other.release_compaction(next).await.unwrap();
    other.release_compaction(merges).await.unwrap();
    assert!(one.lease_compaction(BLOCKS, NOW, NOW + MINUTE).await.unwrap().is_some());
}

#[tokio::test]
async fn few_new_blocks_are_not_worth_a_segment() {
    let place = Place::new().await;
    let compacted = async |at| place.again().compact_due_blocks(PROJECT, at).await.unwrap().blocks;
    assert_eq!(compacted(NOW).await, 0, "no block");
    place.events.append(PROJECT, &[simple(0, "a", "p", 1)], NOW).await.unwrap();
    assert_eq!(compacted(NOW + 5 * MINUTE - 1).await, 0);
    assert_eq!(compacted(NOW + 5 * MINUTE).await, 1, "it waited for five minutes");
    for n in 1..100 {
        place.events.append(PROJECT, &[simple(n, "a", "p", 1)], NOW + MINUTE).await.unwrap();
    }
    assert_eq!(compacted(NOW + MINUTE).await, 0, "99 blocks");
    place.events.append(PROJECT, &[simple(100, "a", "p", 1)], NOW + MINUTE).await.unwrap();
    assert_eq!(compacted(NOW + MINUTE).await, 100);
}

/// Imports segments of ten events each; gives the ids of all listed ones, in order of their first events.
async fn segments(place: &Place, count: u64) -> Vec<String> {
    for segment in 0..count {
        let line = |n: u64| (n, simple(u128::from(n), "a", &format!("p{n}"), n as i64));
        let lines = (segment * 10..segment * 10 + 10).map(line).collect();
        place.events.ingest(PROJECT, lines, NOW).await.unwrap();
    }
    let manifest = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SEGMENT")).prefix("SEGMENT#");
    let items = place.store.records.query(manifest).await.unwrap();
    let entries = items.iter().map(|item| item.body::<Value>().unwrap());
    let entries = entries.map(|it| (it["min_time"].as_i64(), it["id"].as_str().unwrap().to_owned()));
    let mut entries = entries.collect::<Vec<_>>();
    entries.sort();
    entries.into_iter().map(|(_, id)| id).collect()
}

/// The rows that a process leaves if it is killed while it merges these segments.
fn attempt(segments: &[String], at: i64) -> Item {
    let key = Key::new(format!("COMPACTION#{PROJECT}#MERGES"), format!("ATTEMPT#{at:020}-0"));
    Item::new(key, &json!({"segments": segments, "at": at})).unwrap()
}

#[tokio::test]
async fn a_merge_that_killed_its_process_is_not_chosen_again_as_a_whole() {
    let place = Place::new().await;
    let ids = segments(&place, 4).await;
    assert!(place.events.is_merge_due(PROJECT, NOW).await.unwrap());
    place.store.records.put(attempt(&ids, NOW), WriteCondition::None).await.unwrap();
    let again = place.again();
    let done = again.merge_segments(PROJECT, NOW + 1, MergeMode::Due).await.unwrap();
    assert_eq!(done.merged_segments, 2, "half of them, which may be what fits");
    assert_eq!(segments(&place, 0).await.len(), 5, "two of them are replaced");
}

#[tokio::test]
async fn segments_that_killed_every_process_are_not_merged_for_an_hour() {
    let place = Place::new().await;
    let ids = segments(&place, 4).await;
    for (number, segments) in [&ids[..], &ids[..2], &ids[2..], &ids[1..3]].into_iter().enumerate() {
        place.store.records.put(attempt(segments, NOW + number as i64), WriteCondition::None).await.unwrap();
    }
    let done = place.again().merge_segments(PROJECT, NOW + 1, MergeMode::Due).await.unwrap();
    assert_eq!(done.merged_segments, 0);
    assert!(!place.again().is_merge_due(PROJECT, NOW + 1).await.unwrap());
    // An hour later there may be more memory.
    let done = place.again().merge_segments(PROJECT, NOW + 60 * MINUTE, MergeMode::Due).await.unwrap();
    assert_eq!(done.merged_segments, 4);
}

#[tokio::test]
async fn a_merge_that_ended_leaves_no_attempt() {
    let place = Place::new().await;
    segments(&place, 4).await;
    assert_eq!(place.events.merge_segments(PROJECT, NOW, MergeMode::Due).await.unwrap().merged_segments, 4);
    assert_eq!(sort_keys(&place, &format!("COMPACTION#{PROJECT}#MERGES")).await, Vec::<String>::new());
}

#[tokio::test]
async fn more_waiting_blocks_than_a_query_reads_are_a_503_until_they_are_compacted() {
    let place = Place::with(Settings { waiting_blocks: 20, ..Settings::default() }).await;
    for n in 0..21 {
        place.events.append(PROJECT, &[simple(n, "a", "p", 1)], NOW).await.unwrap();
    }
    let scanned = place.events.scan(PROJECT, &[], &request(&[], &[])).await;
    assert!(matches!(scanned, Err(error) if error.to_string().contains("wait for compaction")));
    // One less is read.
    let mut blocks = Vec::new();
    for partition in 0..4 {
        let query = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SHARD#{partition}"));
        blocks.extend(place.store.blocks.query(query).await.unwrap());
    }
    let one = Write::Delete(blocks.swap_remove(0).key, WriteCondition::None);
    place.store.blocks.transact(vec![one]).await.unwrap();
    assert_eq!(place.events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.rows, 20);
}
