//! Many waiting blocks: compaction reads them in batches of bounded memory, and counts every event once.

use pennon_core::store::{Item, Key, PartitionQuery, Write, WriteCondition};
use pennon_eventstore::Settings;
use serde_json::json;

use crate::support::{NOW, PROJECT, Place, event, request, rows, simple};

/// The block with the checksum that it has at `key`.
fn stored_at(key: &Key, block: &[u8]) -> Vec<u8> {
    let (id, _) = key.sk.rsplit_once('-').unwrap();
    let covered = [format!("{PROJECT}/{id}/").as_bytes(), &block[..4], &block[8..]].concat();
    [&block[..4], &crc32fast::hash(&covered).to_le_bytes(), &block[8..]].concat()
}

/// The partition of waiting blocks, and the form of their sort keys, as the store's key grammar has it.
fn place_of(n: u64) -> Key {
    let id = format!("{:020}-{:08x}-{:08x}-01-00", NOW as u64 + n, 0, n);
    Key::new(format!("PROJECT#{PROJECT}#SHARD#{}", n % 4), id)
}

#[tokio::test]
async fn many_blocks_are_compacted_eight_thousand_at_a_time() {
    const BLOCKS: u64 = 23_000;
    let place = Place::with(Settings { waiting_blocks: 6_000, ..Settings::default() }).await;
    // One stored block; the others are copies of it, as if it had been sent repeatedly.
    place.events.append(PROJECT, &[simple(1, "a", "ada", 1)], NOW).await.unwrap();
    let mut block = None;
    for shard in 0..4 {
        let query = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SHARD#{shard}"));
        block = block.or(place.store.blocks.query(query).await.unwrap().pop());
    }
    let block = block.unwrap();
    for some in (1..BLOCKS).collect::<Vec<_>>().chunks(100) {
        let puts = some.iter().map(|n| {
            let key = place_of(*n);
            let bytes = stored_at(&key, &block.bytes);
            Write::Put(Item::binary(key, bytes), WriteCondition::Absent)
        });
        place.store.blocks.transact(puts.collect()).await.unwrap();
    }
    let first = place.events.compact_blocks(PROJECT, NOW).await.unwrap();
    // 2,000 items of each of the four partitions; blocks newer than the end of any of them wait.
    assert!((7_800..=8_000).contains(&first.blocks) && first.more, "{first:?}");
    assert_eq!((first.events, first.copies), (1, first.blocks as u64 - 1));
    assert!(first.inflated < 1_600_000, "{first:?}");
    let second = place.events.compact_blocks(PROJECT, NOW).await.unwrap();
    assert!((7_800..=8_000).contains(&second.blocks) && second.more, "{second:?}");
    assert_eq!((second.events, second.copies), (0, second.blocks as u64));
    // Too many for a query, which is rejected and requested again later.
    let requested = place.events.scan(PROJECT, &[], &request(&[], &[])).await;
    assert!(matches!(requested, Err(error) if error.to_string().contains("wait for compaction")));
}

#[tokio::test]
async fn large_blocks_are_compacted_as_many_as_fit_into_memory() {
    const MEGABYTES: u64 = 6;
    let place = Place::with(Settings { range_rows: 5, ..Settings::default() }).await;
    let text = "x".repeat(1 << 20);
    let mut sent = 0;
    for block in 0..24_u64 {
        let large =
            |n: u64| event(u128::from(block * 100 + n), "a", &format!("p{n}"), n as i64, json!({"k": text}));
        let batch = (0..MEGABYTES).map(large).collect::<Vec<_>>();
        place.events.append(PROJECT, &batch, NOW + block as i64).await.unwrap();
        sent += batch.len();
    }
    let mut runs = Vec::new();
    loop {
        let done = place.events.compact_blocks(PROJECT, NOW).await.unwrap();
        runs.push(done.blocks);
        assert!(done.inflated <= 64 << 20, "{done:?}");
        if !done.more {
            break;
        }
    }
    // Ten blocks of six and a little more MiB fit into 64.
    assert_eq!(runs, [10, 10, 4]);
    let scan = place.events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap();
    assert_eq!(rows(&scan).len(), sent);
}
