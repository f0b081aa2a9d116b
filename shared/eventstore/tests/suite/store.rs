//! Events are captured, compacted and scanned.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::support::{MINUTE, NOW, PROJECT, Place, event, expected, request, rows, simple};
use pennon_analytics::scan::{ColumnKey, ScanRequest};
use pennon_core::store::PartitionQuery;
use pennon_eventstore::{
    EventStore, EventStoreError, GRACE_MICROS, PersonRecord, Settings, SweepReport, derive_person_id,
};
use serde_json::{Map, Value, json};

async fn all(events: &EventStore) -> Vec<crate::support::PlainRow> {
    rows(&events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap())
}

#[tokio::test]
async fn captured_events_are_counted_at_once_and_after_a_restart() {
    let place = Place::new().await;
    let sent = [simple(1, "b", "ada", 30), simple(2, "a", "bob", 20), simple(3, "a", "ada", 10)];
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let want = expected(&sent, &request(&[], &[]), |who| derive_person_id(PROJECT, who));
    assert_eq!(all(&place.events).await, want);
    assert_eq!(all(&place.again()).await, want);
    assert_eq!(place.events.earliest(PROJECT).await.unwrap(), Some(10));
    assert_eq!(place.events.projects().await.unwrap(), [PROJECT]);
    assert_eq!(place.events.earliest(PROJECT + 1).await.unwrap(), None);
    assert!(place.events.scan(PROJECT + 1, &[], &request(&[], &[])).await.unwrap().partitions.is_empty());
}

#[tokio::test]
async fn a_scan_returns_only_the_requested_events() {
    let place = Place::new().await;
    let sent =
        (0..50).map(|n| simple(n, ["a", "b", "c"][n as usize % 3], "ada", n as i64)).collect::<Vec<_>>();
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let narrow = ScanRequest { from: 10, to: 20, ..request(&["a", "c", "x"], &["k"]) };
    let want = expected(&sent, &narrow, |who| derive_person_id(PROJECT, who));
    for _ in 0..2 {
        let scan = place.events.scan(PROJECT, &[], &narrow).await.unwrap();
        assert_eq!(rows(&scan), want);
        assert_eq!(scan.partitions[0].runs.len(), 2);
        place.events.compact(PROJECT, NOW).await.unwrap();
    }
    assert!(want.iter().all(|row| (10..=20).contains(&row.2)) && !want.is_empty());
}

#[tokio::test]
async fn values_are_unchanged_in_blocks_and_segments() {
    let place = Place::new().await;
    let values = [
        json!(50),
        json!(50.0),
        json!(0.1),
        json!(null),
        json!("50"),
        json!(""),
        json!(true),
        json!([1, {"a": null}]),
        json!({"deep": {"er": [1.5, 2]}}),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e300),
        json!(59.845),
        json!("ü\n"),
    ];
    let mut sent = Vec::new();
    for (n, value) in values.iter().enumerate() {
        let n = n as u128;
        sent.push(event(n, "mixed", "ada", n as i64, json!({"k": value, "f.g": 1.0})));
        sent.push(event(
            100 + n,
            "text",
            "ada",
            n as i64,
            json!({"t": "x", "i": n as i64, "b": n.is_multiple_of(2)}),
        ));
        sent.push(event(200 + n, "absent", "ada", n as i64, json!({})));
    }
    // A column of texts with one stray number and one null.
    sent.push(event(300, "text", "ada", 99, json!({"t": 1.0})));
    sent.push(event(301, "text", "ada", 99, json!({"t": null})));
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let requested = request(&[], &["k", "t", "i", "b", "f.g", "absent"]);
    let want = expected(&sent, &requested, |who| derive_person_id(PROJECT, who));
    for _ in 0..2 {
        let got = rows(&place.events.scan(PROJECT, &[], &requested).await.unwrap());
        assert_eq!(got, want);
        place.events.compact(PROJECT, NOW).await.unwrap();
    }
    assert_ne!(json!(50), json!(50.0), "or this test shows nothing");
}

#[tokio::test]
async fn thousands_of_property_keys_are_kept() {
    let place = Place::new().await;
    let bomb = (0..10_000).map(|n| (format!("key {n}"), json!(n))).collect::<Map<_, _>>();
    let sent = [event(1, "a", "ada", 1, bomb.clone().into())];
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    place.events.compact(PROJECT, NOW).await.unwrap();
    let requested = request(&[], &["key 0", "key 9999", "key 10000"]);
    let got = rows(&place.events.scan(PROJECT, &[], &requested).await.unwrap());
    assert_eq!(got[0].4, [Some(json!(0)), None, Some(json!(9999)), Some(bomb.into())]);
}

#[tokio::test]
async fn a_copy_counts_once_wherever_it_is_stored() {
    let place = Place::new().await;
    let first = simple(1, "a", "ada", 10);
    let copy = simple(1, "b", "bob", 5);
    let want =
        expected(std::slice::from_ref(&first), &request(&[], &[]), |who| derive_person_id(PROJECT, who));
    // In one block, in two blocks, after a segment, and imported after a block and after a segment.
    place.events.append(PROJECT, &[first.clone(), copy.clone()], NOW).await.unwrap();
    assert_eq!(all(&place.events).await, want);
    place.events.append(PROJECT, std::slice::from_ref(&copy), NOW + 1).await.unwrap();
    assert_eq!(all(&place.events).await, want);
    let imported = place.events.ingest(PROJECT, vec![(0, copy.clone())], NOW + 2).await.unwrap();
    assert_eq!((imported.stored, imported.copies), (0, 1));
    let compacted = place.events.compact(PROJECT, NOW + 3).await.unwrap();
    assert_eq!((compacted.blocks, compacted.events, compacted.copies), (2, 1, 2));
    assert_eq!(all(&place.events).await, want);
    place.events.append(PROJECT, std::slice::from_ref(&copy), NOW + 4).await.unwrap();
    assert_eq!(all(&place.events).await, want);
    let imported = place.events.ingest(PROJECT, vec![(0, copy.clone())], NOW + 5).await.unwrap();
    assert_eq!((imported.stored, imported.copies), (0, 1));
    let compacted = place.events.compact(PROJECT, NOW + 6).await.unwrap();
    assert_eq!((compacted.blocks, compacted.events, compacted.copies), (1, 0, 1));
    assert_eq!(all(&place.events).await, want);
    // The same uuid in another project is another event.
    place.events.append(PROJECT + 1, &[copy], NOW).await.unwrap();
    assert_eq!(place.events.scan(PROJECT + 1, &[], &request(&[], &[])).await.unwrap().stats.rows, 1);
}

#[tokio::test]
async fn equal_times_keep_their_arrival_order() {
    let place = Place::new().await;
    // The clock stands still: batches of one instant keep the order in which they came.
    let sent = (0..60).map(|n| event(1000 - n, "a", "ada", 0, json!({"n": n as i64}))).collect::<Vec<_>>();
    for batch in sent.chunks(7) {
        place.events.append(PROJECT, batch, NOW).await.unwrap();
    }
    for step in 0..3 {
        let got = rows(&place.events.scan(PROJECT, &[], &request(&["a"], &["n"])).await.unwrap());
        let order = got.iter().map(|row| row.4[0].clone().unwrap()).collect::<Vec<_>>();
        assert_eq!(order, (0..60).map(|n| json!(n)).collect::<Vec<_>>(), "step {step}");
        place.events.compact(PROJECT, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn groups_are_columns_by_the_index_of_their_type() {
    let place = Place::new().await;
    let sent = [
        event(1, "a", "ada", 1, json!({"$groups": {"company": "acme", "team": 5}})),
        event(2, "a", "ada", 2, json!({"$group_0": "own"})),
        event(3, "a", "ada", 3, json!({"$groups": {"team": "t"}, "$group_1": "beaten"})),
        event(4, "a", "ada", 4, json!({"$groups": "nonsense"})),
    ];
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let types = ["company".to_owned(), "team".to_owned()];
    for _ in 0..2 {
        let scan =
            place.events.scan(PROJECT, &types, &request(&[], &["$group_0", "$group_1", "$group_2"])).await;
        let got = rows(&scan.unwrap()).into_iter().map(|row| row.4).collect::<Vec<_>>();
        let text = |text: &str| Some(json!(text));
        // Properties of the event itself come last.
        let own = |at: usize| Some(Value::from(sent[at].properties.clone()));
        assert_eq!(got[0], [text("acme"), text("5"), None, own(0)]);
        assert_eq!(got[1], [text("own"), None, None, own(1)]);
        assert_eq!(got[2], [None, text("t"), None, own(2)]);
        assert_eq!(got[3], [None, None, None, own(3)]);
        place.events.compact(PROJECT, NOW).await.unwrap();
    }
}

async fn persons(events: &EventStore) -> usize {
    let scan = events.scan(PROJECT, &[], &request(&["seen"], &[])).await.unwrap();
    rows(&scan).iter().map(|row| row.1).collect::<BTreeSet<_>>().len()
}

#[tokio::test]
async fn identifying_makes_one_person_at_once() {
    let place = Place::new().await;
    let seen = ["anon", "ada", "phone", "bob"].iter().enumerate();
    let seen = seen.map(|(n, who)| simple(n as u128, "seen", who, n as i64)).collect::<Vec<_>>();
    place.events.append(PROJECT, &seen[..2], NOW).await.unwrap();
    place.events.compact(PROJECT, NOW).await.unwrap();
    place.events.append(PROJECT, &seen[2..], NOW).await.unwrap();
    assert_eq!(persons(&place.events).await, 4);
    let identify = |uuid, who: &str, device: &str| {
        event(uuid, "$identify", who, 9, json!({"$anon_distinct_id": device}))
    };
    place.events.append(PROJECT, &[identify(10, "ada", "anon")], NOW).await.unwrap();
    assert_eq!(persons(&place.events).await, 3);
    let alias = event(11, "$create_alias", "ada", 9, json!({"alias": "phone"}));
    place.events.append(PROJECT, &[alias], NOW).await.unwrap();
    assert_eq!(persons(&place.events).await, 2);
    assert_eq!(place.events.person_of(PROJECT, "anon").await.unwrap(), derive_person_id(PROJECT, "ada"));
    // The device already belongs to Ada, who is identified: neither request merges her with Bob.
    place
        .events
        .append(PROJECT, &[identify(12, "bob", "anon"), identify(13, "bob", "ada")], NOW)
        .await
        .unwrap();
    assert_eq!(persons(&place.events).await, 2);
    let forced = event(14, "$merge_dangerously", "bob", 9, json!({"alias": "ada"}));
    place.events.append(PROJECT, std::slice::from_ref(&forced), NOW).await.unwrap();
    assert_eq!(persons(&place.events).await, 1);
    // A cycle, and the whole once more, change nothing.
    let back = event(15, "$merge_dangerously", "ada", 9, json!({"alias": "bob"}));
    place.events.append(PROJECT, &[back, forced, identify(16, "ada", "anon")], NOW).await.unwrap();
    assert_eq!(persons(&place.events).await, 1);
    place.events.compact(PROJECT, NOW).await.unwrap();
    assert_eq!(persons(&place.again()).await, 1);
}

#[tokio::test]
async fn imported_persons_have_their_earlier_and_later_events() {
    let place = Place::new().await;
    place.events.append(PROJECT, &[simple(1, "seen", "a", 1), simple(2, "seen", "b", 2)], NOW).await.unwrap();
    place.events.ingest(PROJECT, vec![(1, simple(3, "seen", "c", 3))], NOW).await.unwrap();
    assert_eq!(persons(&place.events).await, 3);
    let record = |ids: &[&str], city: &str| PersonRecord {
        distinct_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        properties: json!({"city": city}).as_object().unwrap().clone(),
        created_at: Some(5),
    };
    place.events.add_persons(PROJECT, vec![record(&["a", "b", "c", "d"], "Bern")], NOW).await.unwrap();
    assert_eq!(persons(&place.events).await, 1);
    place.events.append(PROJECT, &[simple(4, "seen", "d", 4)], NOW + 1).await.unwrap();
    assert_eq!(persons(&place.events).await, 1);
    // A later record with a known id is of the same person.
    place
        .events
        .add_persons(PROJECT, vec![record(&["e", "b"], "Rome"), record(&["x"], "Oslo")], NOW + 1)
        .await
        .unwrap();
    assert_eq!(place.events.count_people(PROJECT).await.unwrap(), 2);
    for who in ["a", "e"] {
        let person = place.events.subject(PROJECT, who, &[], None).await.unwrap().person;
        assert_eq!(person.properties, json!({"city": "Rome"}).as_object().unwrap().clone());
        assert_eq!(person.ids, ["a", "b", "c", "d", "e"].map(|id| derive_person_id(PROJECT, id)).into());
    }
    let mut people = Vec::new();
    let all = place.events.people(PROJECT, &["city".to_owned()].into()).await.unwrap();
    all.each(|_, who, properties| {
        people.push(format!("{who} {}", properties["city"]));
        ControlFlow::Continue(())
    });
    people.sort();
    assert_eq!(people, ["a \"Rome\"", "x \"Oslo\""]);
    assert_eq!(place.events.person_of(PROJECT, "e").await.unwrap(), derive_person_id(PROJECT, "a"));
    place.events.compact(PROJECT, NOW + 1).await.unwrap();
    assert_eq!(persons(&place.again()).await, 1);
}

#[tokio::test]
async fn concurrent_compactions_lose_and_double_nothing() {
    let place = Place::new().await;
    let sent = (0..40).map(|n| simple(n, "a", &format!("p{}", n % 9), n as i64)).collect::<Vec<_>>();
    for batch in sent.chunks(4) {
        place.events.append(PROJECT, batch, NOW).await.unwrap();
    }
    let want = expected(&sent, &request(&[], &[]), |who| derive_person_id(PROJECT, who));
    let others = (0..4).map(|_| place.again()).collect::<Vec<_>>();
    let runs = others.iter().map(|events| events.compact(PROJECT, NOW));
    let mut blocks = 0;
    for run in futures::future::join_all(runs).await {
        blocks += run.unwrap().blocks;
    }
    assert_eq!(blocks, 10, "each block is compacted by one of them");
    assert_eq!(all(&place.events).await, want);
}

fn block_lists(place: &Place) -> usize {
    place.files().iter().filter(|name| name.ends_with(".blocks")).count()
}

#[tokio::test]
async fn segments_are_removed_after_the_grace_period_and_blocks_at_once() {
    let place = Place::new().await;
    let mut sent = Vec::new();
    for round in 0..12 {
        let batch =
            (0..5).map(|n| simple(round * 5 + n, "a", &format!("p{n}"), n as i64)).collect::<Vec<_>>();
        place.events.append(PROJECT, &batch, NOW + round as i64).await.unwrap();
        place.events.compact(PROJECT, NOW + round as i64).await.unwrap();
        sent.extend(batch);
    }
    let want = expected(&sent, &request(&[], &[]), |who| derive_person_id(PROJECT, who));
    let early = place.events.sweep(PROJECT, NOW + GRACE_MICROS - MINUTE).await.unwrap();
    assert_eq!((early.blocks, early.segments), (0, 0));
    assert_eq!(all(&place.events).await, want);
    let (files, lists) = (place.files().len(), block_lists(&place));
    let swept = place.events.sweep(PROJECT, NOW + GRACE_MICROS + MINUTE).await.unwrap();
    assert!(swept.segments >= 9, "{swept:?}");
    // Events, persons, hashes, distinct ids and checksums of each, and the lists of blocks of some.
    let lists = lists - block_lists(&place);
    assert!(lists <= swept.segments, "{lists} of {swept:?}");
    assert_eq!(place.files().len(), files - 5 * swept.segments - lists);
    assert_eq!(all(&place.events).await, want);
    assert_eq!(all(&place.again()).await, want);
    // A replaced segment is removed one sweep after the segments that it replaced, along the whole chain.
    let mut sweeps = 1;
    while place.events.sweep(PROJECT, NOW + GRACE_MICROS + MINUTE).await.unwrap() != SweepReport::default() {
        assert_eq!(all(&place.again()).await, want);
        sweeps += 1;
    }
    assert!(sweeps <= 12, "{sweeps} sweeps for 12 compactions");
    // A copy of a compacted and swept event is still recognised.
    place.events.append(PROJECT, &sent[..3], NOW + GRACE_MICROS).await.unwrap();
    assert_eq!(all(&place.events).await, want);
}

#[tokio::test]
async fn more_blocks_than_one_run_takes_are_compacted_by_several() {
    let place = Place::with(Settings { compacted_bytes: 32 << 10, ..Settings::default() }).await;
    let mut sent = Vec::new();
    for n in 0..1300_u64 {
        // Every tenth is a copy of an earlier one, and must lose also when it is compacted by another run.
        let uuid = if n % 10 == 9 { n / 2 } else { 10_000 + n };
        let one = [event(u128::from(uuid), "a", "ada", 0, json!({"n": n}))];
        place.events.append(PROJECT, &one, NOW + n as i64).await.unwrap();
        sent.extend(one);
    }
    let requested = request(&[], &["n"]);
    let want = expected(&sent, &requested, |who| derive_person_id(PROJECT, who));
    let mut runs = 0;
    loop {
        let done = place.events.compact(PROJECT, NOW).await.unwrap();
        assert_eq!(rows(&place.events.scan(PROJECT, &[], &requested).await.unwrap()), want);
        runs += 1;
        if !done.more {
            break;
        }
    }
    assert!((2..20).contains(&runs), "{runs} runs");
    let shard =
        |n: u8| place.store.blocks.query(PartitionQuery::partition(format!("PROJECT#{PROJECT}#SHARD#{n}")));
    for n in 0..4 {
        assert!(shard(n).await.unwrap().is_empty(), "blocks that a segment holds are gone");
    }
    assert_eq!(place.events.scan(PROJECT, &[], &requested).await.unwrap().stats.waiting_rows, 0);
}

#[tokio::test]
async fn a_clock_that_stands_still_or_goes_back_doubles_nothing() {
    let place = Place::new().await;
    let mut sent = Vec::new();
    for round in 0..30_i64 {
        let batch = [simple(round as u128, "a", "ada", round)];
        place.events.append(PROJECT, &batch, NOW).await.unwrap();
        place.events.compact(PROJECT, NOW - round * GRACE_MICROS * 2).await.unwrap();
        place.events.sweep(PROJECT, NOW + MINUTE - round * GRACE_MICROS).await.unwrap();
        sent.extend(batch);
    }
    place.events.sweep(PROJECT, NOW + 2 * GRACE_MICROS).await.unwrap();
    let want = expected(&sent, &request(&[], &[]), |who| derive_person_id(PROJECT, who));
    assert_eq!(all(&place.events).await, want);
}

#[tokio::test]
async fn a_damaged_segment_is_reported() {
    let place = Place::new().await;
    place.events.append(PROJECT, &[simple(1, "a", "ada", 1)], NOW).await.unwrap();
    place.events.compact(PROJECT, NOW).await.unwrap();
    let files = place.files().into_iter().filter(|name| name.ends_with(".parquet")).collect::<Vec<_>>();
    assert_eq!(files.len(), 2, "events and distinct ids");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        for at in (0..bytes.len()).step_by(211) {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            std::fs::write(&file, &changed).unwrap();
            // For any damage: the right result or an error.
            let events = place.again();
            if let Ok(scan) = events.scan(PROJECT, &[], &request(&[], &["k"])).await {
                assert_eq!(scan.stats.rows, 1);
            }
            if let Ok(found) = events.count_people(PROJECT).await {
                assert_eq!(found, 1);
            }
            let _ = events.subject(PROJECT, "ada", &[], None).await;
        }
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        let events = place.again();
        if file.ends_with(".ids.parquet") {
            assert!(events.count_people(PROJECT).await.is_err());
            assert!(events.subject(PROJECT, "ada", &[], None).await.is_err());
        } else {
            assert!(events.scan(PROJECT, &[], &request(&[], &[])).await.is_err());
        }
        std::fs::write(&file, &bytes).unwrap();
    }
    assert_eq!(all(&place.again()).await.len(), 1);
    assert_eq!(place.again().count_people(PROJECT).await.unwrap(), 1);
}

#[tokio::test]
async fn a_batch_above_the_limit_of_a_transaction_is_rejected_completely() {
    let place = Place::new().await;
    let mut noise = 1_u64;
    let mut text = |length: usize| {
        let letters = (0..length).map(|_| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b' ' + (noise >> 58) as u8)
        });
        letters.collect::<String>()
    };
    // One event that takes several items.
    let large = event(1, "a", "ada", 1, json!({"k": text(900_000)}));
    place.events.append(PROJECT, std::slice::from_ref(&large), NOW).await.unwrap();
    let requested = request(&[], &["k"]);
    let want = expected(&[large], &requested, |who| derive_person_id(PROJECT, who));
    assert_eq!(rows(&place.events.scan(PROJECT, &[], &requested).await.unwrap()), want);
    let too_large =
        (0..8).map(|n| event(10 + n, "a", "ada", 1, json!({"k": text(900_000)}))).collect::<Vec<_>>();
    let refused = place.events.append(PROJECT, &too_large, NOW).await;
    assert!(matches!(refused, Err(EventStoreError::TooLarge(_))));
    assert_eq!(all(&place.events).await.len(), 1);
}

#[tokio::test]
async fn many_persons_are_divided_into_partitions_and_pages_are_skipped() {
    let place = Place::with(Settings { range_rows: 40_000, ..Settings::default() }).await;
    let names = (0..20).map(|n| format!("event {n:02}")).collect::<Vec<_>>();
    let sent = (0..150_000_u64).map(|n| {
        let name = &names[(n % 20) as usize];
        (n, simple(u128::from(n), name, &format!("p{}", n % 5000), (n / 3) as i64))
    });
    let sent = sent.collect::<Vec<_>>();
    let ingested = place.events.ingest(PROJECT, sent.clone(), NOW).await.unwrap();
    assert_eq!((ingested.stored, ingested.copies), (150_000, 0));
    let arrived = sent.into_iter().map(|(_, event)| event).collect::<Vec<_>>();
    let one = request(&["event 07"], &[]);
    let scan = place.events.scan(PROJECT, &[], &one).await.unwrap();
    assert_eq!(rows(&scan), expected(&arrived, &one, |who| derive_person_id(PROJECT, who)));
    assert_eq!((scan.stats.rows_decoded, scan.stats.rows_touched), (7500, 7500), "{:?}", scan.stats);
    let scan = place.events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap();
    assert_eq!(scan.partitions.len(), 4);
    assert_eq!(rows(&scan), expected(&arrived, &request(&[], &[]), |who| derive_person_id(PROJECT, who)));
    assert!(scan.partitions[0].runs[0].columns.contains_key(&ColumnKey::DistinctId));
}
