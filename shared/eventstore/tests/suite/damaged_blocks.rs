//! Blocks of captured events whose stored bytes have changed: no result is wrong, and no other block is affected.

use pennon_core::store::{Item, PartitionQuery, WriteCondition};
use pennon_eventstore::{ErasureTarget, Event, EventStore, EventStoreError};
use serde_json::json;

use crate::support::{NOW, PROJECT, Place, PlainRow, event, expected, request, rows};

const OTHER: u64 = PROJECT + 1;

fn made(n: u128) -> Event {
    let properties = json!({"price": n as f64 / 7.0, "$set": {"plan": n as u64 % 4}});
    event(n, "bought", &format!("p{}", n % 5), NOW + n as i64, properties)
}

/// The rows of the waiting blocks, oldest first.
async fn stored(place: &Place) -> Vec<Item> {
    let mut items = Vec::new();
    for shard in 0..4 {
        let query = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SHARD#{shard}"));
        items.extend(place.store.blocks.query(query).await.unwrap());
    }
    items.sort_by(|a, b| a.key.sk.cmp(&b.key.sk));
    items
}

async fn put(place: &Place, row: &Item, bytes: Vec<u8>) {
    let row = Item { bytes, ..row.clone() };
    place.store.blocks.put(row, WriteCondition::None).await.unwrap();
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

/// The id of the block whose only part is this row.
fn id(row: &Item) -> String {
    row.key.sk.rsplit_once('-').unwrap().0.to_owned()
}

fn named(error: EventStoreError) -> String {
    match error {
        EventStoreError::DamagedBlock { project: PROJECT, block, .. } => block,
        other => panic!("{other}"),
    }
}

async fn scanned(events: &EventStore, project: u64) -> Result<Vec<PlainRow>, EventStoreError> {
    events.scan(project, &[], &request(&[], &["price"])).await.map(|scan| rows(&scan))
}

fn want(project: u64, sent: &[Event]) -> Vec<PlainRow> {
    expected(sent, &request(&[], &["price"]), |who| pennon_eventstore::derive_person_id(project, who))
}

/// Three blocks of four events each, and the same in another project.
async fn filled(place: &Place) -> Vec<Event> {
    let sent = (1..=12).map(made).collect::<Vec<_>>();
    for (n, batch) in (0..).zip(sent.chunks(4)) {
        place.events.append(PROJECT, batch, NOW + n).await.unwrap();
        place.events.append(OTHER, batch, NOW + n).await.unwrap();
    }
    sent
}

#[tokio::test]
async fn every_flipped_bit_of_a_stored_block_is_an_error_that_names_the_block() {
    let place = Place::new().await;
    let sent = [made(1), made(2)];
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let row = stored(&place).await.remove(0);
    for bit in 0..row.bytes.len() * 8 {
        put(&place, &row, flipped(&row.bytes, bit)).await;
        assert_eq!(named(scanned(&place.events, PROJECT).await.unwrap_err()), id(&row), "bit {bit}");
    }
    put(&place, &row, row.bytes.clone()).await;
    assert_eq!(scanned(&place.events, PROJECT).await.unwrap(), want(PROJECT, &sent));
}

#[tokio::test]
async fn a_damaged_block_is_kept_and_everything_else_works() {
    let place = Place::new().await;
    let sent = filled(&place).await;
    let row = stored(&place).await.remove(1);
    put(&place, &row, flipped(&row.bytes, 8 * 40)).await;
    for events in [place.events.clone(), place.again()] {
        assert_eq!(named(scanned(&events, PROJECT).await.unwrap_err()), id(&row));
        assert_eq!(named(events.count_people(PROJECT).await.unwrap_err()), id(&row));
        assert_eq!(named(events.subject(PROJECT, "p1", &[], None).await.unwrap_err()), id(&row));
        assert_eq!(named(events.earliest(PROJECT).await.unwrap_err()), id(&row));
        assert_eq!(scanned(&events, OTHER).await.unwrap(), want(OTHER, &sent));
    }
    let noted = place.events.damage(PROJECT).await.unwrap();
    assert_eq!(noted.keys().collect::<Vec<_>>(), [&id(&row)]);
    assert!(noted[&id(&row)].what.contains("checksum"), "{noted:?}");

    // Capture continues, and the other blocks are compacted; more follow later.
    place.events.append(PROJECT, &[made(13)], NOW + 10).await.unwrap();
    let done = place.events.compact(PROJECT, NOW + 11).await.unwrap();
    assert_eq!((done.blocks, done.events, done.damaged_blocks, done.more), (3, 9, 1, false));
    let again = place.events.compact(PROJECT, NOW + 12).await.unwrap();
    assert_eq!((again.blocks, again.damaged_blocks, again.more), (0, 1, false));
    assert_eq!(stored(&place).await.len(), 1);
    assert_eq!(named(scanned(&place.events, PROJECT).await.unwrap_err()), id(&row));

    // It may contain events to erase.
    for doomed in [ErasureTarget::Person("p1".into()), ErasureTarget::Before(NOW + 5)] {
        let refused = place.events.erase(PROJECT, &doomed, &|| NOW + 20).await.unwrap_err();
        assert_eq!(named(refused), id(&row));
    }
    let checked = place.again().check(PROJECT, false, &mut |_| {}).await.unwrap();
    let [found] = &checked.damaged[..] else { panic!("{checked:?}") };
    assert_eq!((found.id.as_str(), found.kind, found.from), (id(&row).as_str(), "block", NOW + 1));
    let other = place.events.check(OTHER, false, &mut |_| {}).await.unwrap();
    assert_eq!((other.blocks, other.damaged.len()), (3, 0));

    // After it was restored, it counts at once, a check reports it, and it is compacted like any other block.
    put(&place, &row, row.bytes.clone()).await;
    let all = [&sent[..], &[made(13)]].concat();
    assert_eq!(scanned(&place.events, PROJECT).await.unwrap(), want(PROJECT, &all));
    let checked = place.events.check(PROJECT, false, &mut |_| {}).await.unwrap();
    assert_eq!((checked.restored, checked.damaged.len()), (vec![id(&row)], 0));
    let done = place.events.compact(PROJECT, NOW + 30).await.unwrap();
    assert_eq!((done.blocks, done.events, done.damaged_blocks), (1, 4, 0));
    assert!(place.events.damage(PROJECT).await.unwrap().is_empty());
    assert_eq!(scanned(&place.again(), PROJECT).await.unwrap(), want(PROJECT, &all));
}

#[tokio::test]
async fn only_a_damaged_block_is_dropped_together_with_its_quarantine_entry() {
    let place = Place::new().await;
    let sent = filled(&place).await;
    let stored_rows = stored(&place).await;
    put(&place, &stored_rows[0], vec![1, 2, 3]).await;
    assert!(scanned(&place.events, PROJECT).await.is_err());
    let (damaged, whole) = (id(&stored_rows[0]), id(&stored_rows[1]));
    assert!(!place.events.drop_segment(PROJECT, &whole, NOW + 9).await.unwrap());
    assert!(!place.events.drop_segment(OTHER, &damaged, NOW + 9).await.unwrap());
    assert!(place.events.drop_segment(PROJECT, &damaged, NOW + 9).await.unwrap());
    assert!(!place.events.drop_segment(PROJECT, &damaged, NOW + 9).await.unwrap());
    assert_eq!(scanned(&place.events, PROJECT).await.unwrap(), want(PROJECT, &sent[4..]));
    assert!(place.events.damage(PROJECT).await.unwrap().is_empty());

    // Repaired by a restore of the tables: a check with `lift` removes the entry.
    put(&place, &stored_rows[1], vec![1, 2, 3]).await;
    assert!(scanned(&place.events, PROJECT).await.is_err());
    put(&place, &stored_rows[1], stored_rows[1].bytes.clone()).await;
    let checked = place.events.check(PROJECT, true, &mut |_| {}).await.unwrap();
    assert_eq!((checked.lifted, checked.blocks), (vec![whole], 2));
    assert!(place.events.damage(PROJECT).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_project_is_erased_with_its_damaged_blocks() {
    let place = Place::new().await;
    filled(&place).await;
    let row = stored(&place).await.remove(2);
    put(&place, &row, flipped(&row.bytes, 77)).await;
    assert!(scanned(&place.events, PROJECT).await.is_err());
    let erased = place.events.erase(PROJECT, &ErasureTarget::Project, &|| NOW + 100).await.unwrap();
    assert!(erased.uncounted, "{erased:?}");
    assert!(stored(&place).await.is_empty());
    assert!(place.events.damage(PROJECT).await.unwrap().is_empty());
    assert!(scanned(&place.events, PROJECT).await.unwrap().is_empty());
}

#[tokio::test]
async fn many_damaged_blocks_do_not_delay_other_blocks() {
    const DAMAGED: u64 = 1200;
    let place = Place::new().await;
    for n in 0..DAMAGED {
        place.events.append(PROJECT, &[made(1)], NOW + n as i64).await.unwrap();
    }
    for row in stored(&place).await {
        put(&place, &row, flipped(&row.bytes, 100)).await;
    }
    place.events.append(PROJECT, &[made(2)], NOW + DAMAGED as i64).await.unwrap();
    let done = place.events.compact_blocks(PROJECT, NOW).await.unwrap();
    assert_eq!((done.blocks, done.damaged_blocks as u64), (1, DAMAGED));
    let checked = place.events.check(PROJECT, false, &mut |_| {}).await.unwrap();
    assert_eq!(checked.damaged.len() as u64, DAMAGED);
}

/// An event whose block is of several parts.
fn large(n: u128) -> Event {
    let noise = (0..60_000_u32)
        .map(|at| uuid::Uuid::new_v5(&uuid::Uuid::nil(), &at.to_le_bytes()).simple().to_string());
    event(n, "large", "p1", NOW, json!({"noise": noise.collect::<String>()}))
}

#[tokio::test]
async fn a_block_without_all_its_parts_is_damaged_unless_it_is_being_written() {
    let place = Place::new().await;
    let sent = [large(1)];
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let parts = stored(&place).await;
    assert!(parts.len() > 2, "{} parts", parts.len());
    for lost in &parts {
        place.store.blocks.sweep(vec![lost.key.clone()]).await.unwrap();
        assert_eq!(named(scanned(&place.events, PROJECT).await.unwrap_err()), id(lost));
        assert_eq!(place.events.compact(PROJECT, NOW + 1).await.unwrap().damaged_blocks, 1);
        put(&place, lost, lost.bytes.clone()).await;
        assert_eq!(scanned(&place.events, PROJECT).await.unwrap(), want(PROJECT, &sent));
    }
    place.events.compact(PROJECT, NOW + 2).await.unwrap();
    assert!(stored(&place).await.is_empty());

    // A block that arrived just now; its other parts may still be written.
    let now = chrono::Utc::now().timestamp_micros();
    place.events.append(PROJECT, &[large(2)], now).await.unwrap();
    for part in stored(&place).await {
        place.store.blocks.sweep(vec![part.key.clone()]).await.unwrap();
        assert_eq!(scanned(&place.events, PROJECT).await.unwrap(), want(PROJECT, &sent));
        // A part that is too short does not belong to such a block.
        if !part.key.sk.ends_with("-00") {
            let first = stored(&place).await.remove(0);
            put(&place, &first, first.bytes[1..].to_vec()).await;
            assert_eq!(named(scanned(&place.events, PROJECT).await.unwrap_err()), id(&part));
            put(&place, &first, first.bytes.clone()).await;
        }
        put(&place, &part, part.bytes.clone()).await;
    }
    assert_eq!(scanned(&place.events, PROJECT).await.unwrap().len(), 2);
}
