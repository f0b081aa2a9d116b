//! Export of all events: each once, as it was sent, in the order of arrival.

use std::collections::BTreeSet;

use crate::support::{NOW, PROJECT, Place, event};
use pennon_eventstore::{Event, EventSink, EventStore, StoredEvent};
use serde_json::json;
use uuid::Uuid;

#[derive(Default)]
struct Collected {
    expected: u64,
    events: Vec<StoredEvent>,
    most: Option<usize>,
}

impl EventSink for Collected {
    fn expect(&mut self, events: u64) {
        self.expected = events;
    }

    fn take(&mut self, event: StoredEvent) {
        self.events.push(event);
    }

    fn is_done(&self) -> bool {
        self.most.is_some_and(|most| self.events.len() >= most)
    }
}

async fn collected(events: &EventStore) -> Collected {
    let mut all = events.each_event(PROJECT, Collected::default()).await.unwrap();
    assert_eq!(all.events.len() as u64, all.expected);
    all.events.sort_by_key(StoredEvent::place);
    all
}

/// Forty events with five distinct times and values of every type.
fn sent(uuid: u128) -> Event {
    let properties = match uuid % 5 {
        0 => json!({"number": 50, "n": uuid as u64}),
        1 => json!({"number": 50.0, "null": null}),
        2 => json!({"number": "50", "deep": {"list": [1, 2.5, {"a": "b"}]}}),
        3 => json!({"$set": {"plan": "x"}, "truth": true}),
        _ => json!({}),
    };
    event(
        uuid,
        ["view", "buy"][(uuid % 2) as usize],
        &format!("p{}", uuid % 7),
        (uuid % 5) as i64,
        properties,
    )
}

#[tokio::test]
async fn every_event_is_exported_once_and_as_it_was_sent() {
    let place = Place::new().await;
    let mut arrived: Vec<Event> = Vec::new();
    let mut imported = BTreeSet::new();
    assert!(collected(&place.events).await.events.is_empty());
    for step in 0..12_u128 {
        let now = NOW + step as i64;
        let mut new = (0..4).map(|n| sent(step * 10 + n + 1)).collect::<Vec<_>>();
        if step % 3 == 0 {
            imported.extend(new.iter().map(|event| event.uuid));
            let lines = (1..).zip(new.clone()).collect::<Vec<_>>();
            place.events.ingest(PROJECT, lines, now).await.unwrap();
        } else {
            // A copy of an earlier event, which is not exported again.
            let copy = Event { event: "copy".to_owned(), ..arrived[step as usize].clone() };
            let batch = new.iter().cloned().chain([copy]).collect::<Vec<_>>();
            place.events.append(PROJECT, &batch, now).await.unwrap();
        }
        arrived.append(&mut new);
        if step % 4 == 1 {
            place.events.compact(PROJECT, now).await.unwrap();
        }
        let mut expected = arrived.clone();
        expected.sort_by_key(|event| event.timestamp);
        let found = collected(&place.again()).await.events;
        assert_eq!(found.iter().map(|it| it.event.clone()).collect::<Vec<_>>(), expected, "step {step}");
        for it in found {
            assert_eq!(it.is_captured, !imported.contains(&it.event.uuid), "{:?}", it.event);
        }
    }
    let few = Collected { most: Some(1), ..Collected::default() };
    let few = place.again().each_event(PROJECT, few).await.unwrap();
    assert!((few.events.len() as u64) < few.expected, "a full batch gets no more events");
}

#[tokio::test]
async fn a_merge_has_the_ids_of_its_persons() {
    let requested = |name: &str, properties| {
        let merge = event(1, name, "ada", 0, properties);
        pennon_eventstore::requested_merge(PROJECT, &merge)
    };
    let ids = |id: &str| pennon_eventstore::derive_person_id(PROJECT, id);
    let expected: Option<(Uuid, Uuid)> = Some((ids("device"), ids("ada")));
    assert_eq!(requested("$identify", json!({"$anon_distinct_id": "device"})), expected);
    assert_eq!(requested("$create_alias", json!({"alias": "device"})), expected);
    assert_eq!(requested("$create_alias", json!({"alias": "anonymous"})), None);
}
