//! When persons were created: by the times of their earliest events, wherever these are stored, and by the times that imports
//! recorded.

use std::collections::BTreeMap;

use crate::support::{NOW, PROJECT, Place, event, simple};
use pennon_eventstore::{Event, EventStore, FirstEventTimes, MergeMode, PersonRecord, derive_person_id};
use serde_json::{Map, json};
use uuid::Uuid;

async fn load(events: &EventStore) -> FirstEventTimes {
    events.first_event_times(PROJECT, &events.query_memory()).await.unwrap()
}

/// The earliest time of each person of all lists.
fn times(found: &FirstEventTimes) -> BTreeMap<Uuid, i64> {
    let mut times = BTreeMap::new();
    for list in &found.lists {
        assert!(list.persons.is_sorted_by(|one, next| one < next));
        assert_eq!(list.persons.len(), list.times.len());
        for (person, time) in list.persons.iter().zip(list.times.iter()) {
            let known = times.entry(*person).or_insert(*time);
            *known = (*known).min(*time);
        }
    }
    times
}

/// The first event of each uuid counts, for the canonical distinct id of its person.
fn assert_first_times(found: &FirstEventTimes, sent: &[Event], canonical: impl Fn(&str) -> String) {
    let (mut uuids, mut want) = (Vec::new(), BTreeMap::new());
    for event in sent {
        if !uuids.contains(&event.uuid) {
            uuids.push(event.uuid);
            let known = want.entry(canonical(&event.distinct_id)).or_insert(event.timestamp);
            *known = (*known).min(event.timestamp);
        }
    }
    let found = times(found);
    for (who, time) in want {
        assert_eq!(found.get(&derive_person_id(PROJECT, &who)), Some(&time), "{who}");
    }
}

#[tokio::test]
async fn events_of_segments_blocks_and_merged_persons_count() {
    let place = Place::new().await;
    let own = |who: &str| who.to_owned();
    // Three segments; p3 is first seen in the second one, p8 in the last one.
    let made = |n: u128| {
        let who = if n < 40 { n % 3 } else { n % 8 + u128::from(n > 100) };
        simple(n, ["seen", "bought"][n as usize % 2], &format!("p{who}"), 1_000 - n as i64 / 2)
    };
    let mut sent: Vec<Event> = (0..120).map(made).collect();
    for (part, at) in sent.chunks(40).zip(0..) {
        let lines = part.iter().cloned().enumerate().map(|(line, event)| (line as u64, event));
        place.events.ingest(PROJECT, lines.collect(), NOW + at).await.unwrap();
    }
    let first = load(&place.events).await;
    assert_first_times(&first, &sent, own);
    assert_eq!((first.stats.segments, first.stats.rows_decoded), (3, 120));
    let second = load(&place.events).await;
    assert_eq!((second.stats.rows_decoded, second.stats.bytes_read), (0, 0));
    assert_eq!(times(&second), times(&first));

    // Events of blocks: an earlier one, one of a new person, and an earlier one that repeats a stored uuid.
    let waiting = [simple(200, "late", "p3", 5), simple(201, "seen", "new", 7), simple(0, "seen", "p0", 1)];
    place.events.append(PROJECT, &waiting, NOW + 10).await.unwrap();
    sent.extend(waiting);
    assert_first_times(&load(&place.events).await, &sent, own);

    let merge = event(300, "$merge_dangerously", "p1", 2_000, json!({"alias": "p3"}));
    place.events.append(PROJECT, std::slice::from_ref(&merge), NOW + 11).await.unwrap();
    sent.push(merge);
    let merged = |who: &str| if who == "p3" { "p1".to_owned() } else { who.to_owned() };
    assert_first_times(&load(&place.events).await, &sent, merged);
    place.events.compact_blocks(PROJECT, NOW + 12).await.unwrap();
    assert_first_times(&load(&place.events).await, &sent, merged);
    while place.events.merge_segments(PROJECT, NOW + 13, MergeMode::Fewest).await.unwrap().has_more_work() {}
    for store in [place.events.clone(), place.again()] {
        let found = load(&store).await;
        assert_first_times(&found, &sent, merged);
        assert_eq!(found.stats.segments, 1);
    }
}

/// They leave the cache to the rows of other queries.
#[tokio::test]
async fn the_rows_behind_the_times_are_not_cached() {
    let place = Place::new().await;
    let events = (0..5_000).map(|n| simple(n, "seen", &format!("p{}", n % 10), n as i64));
    let lines = events.enumerate().map(|(line, event)| (line as u64, event));
    place.events.ingest(PROJECT, lines.collect(), NOW).await.unwrap();
    let found = load(&place.events).await;
    assert_eq!(times(&found).len(), 10);
    assert_eq!(found.stats.rows_decoded, 5_000);
    let scan =
        place.events.scan(PROJECT, &[], &crate::support::without_arrivals(&["seen"], &[])).await.unwrap();
    assert_eq!(scan.stats.rows_decoded, 5_000, "the rows were cached");
}

/// Of several records of a person the earliest time counts; records without a time do not.
#[tokio::test]
async fn recorded_creation_times_are_by_canonical_person() {
    let place = Place::new().await;
    let record = |ids: &[&str], created_at| PersonRecord {
        distinct_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        properties: Map::new(),
        created_at,
    };
    // A file without times, then one with some.
    let without = vec![record(&["a"], None), record(&["d", "d2"], None)];
    place.events.add_persons(PROJECT, without, NOW).await.unwrap();
    let with = vec![
        record(&["b"], Some(30)),
        record(&["c", "a"], Some(20)),
        record(&["e"], None),
        record(&["f"], Some(7)),
    ];
    place.events.add_persons(PROJECT, with, NOW + 1).await.unwrap();
    let later = vec![record(&["b", "b2"], Some(10)), record(&["f"], Some(9))];
    place.events.add_persons(PROJECT, later, NOW + 2).await.unwrap();
    let found = place.events.imported_creations(PROJECT, &place.events.query_memory()).await.unwrap();
    assert!(found.is_sorted_by(|one, next| one.0 < next.0));
    let canonical = place.events.canonical_persons(PROJECT).await.unwrap();
    let mut want = [("b", 10), ("a", 20), ("f", 7)]
        .map(|(id, time)| (canonical.of(derive_person_id(PROJECT, id)), time));
    want.sort_unstable();
    assert_eq!(found, want);
}
