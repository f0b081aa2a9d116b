//! Erasure: what is erased is gone from every read at once, all else stays as it was, and what comes later counts.

use crate::support::{MINUTE, NOW, PROJECT, Place, PlainRow, event, expected, request, rows, simple};
use pennon_eventstore::{Doomed, Effort, Erased, Event, EventStore, GRACE_MICROS, PersonRecord, derived};
use serde_json::json;

async fn all(events: &EventStore) -> Vec<PlainRow> {
    rows(&events.scan(PROJECT, &[], &request(&[], &["n"])).await.unwrap())
}

fn want(sent: &[Event]) -> Vec<PlainRow> {
    let who = |who: &str| derived(PROJECT, if who == "phone" { "ada" } else { who });
    expected(sent, &request(&[], &["n"]), who)
}

/// Two segments, an object of imported persons and a block; ada has two ids.
async fn history(place: &Place) -> Vec<Event> {
    let mut sent = Vec::new();
    for round in 0..3_u128 {
        let mut batch = vec![
            event(round * 10, "a", "ada", 10 + round as i64, json!({"$set": {"mail": "ada@x"}, "n": 1})),
            simple(round * 10 + 1, "a", "bob", 20 + round as i64),
            simple(round * 10 + 2, "b", "phone", 30 + round as i64),
            event(round * 10 + 3, "b", "cy", 5, json!({"$set": {"mail": "cy@x"}})),
        ];
        if round == 0 {
            batch.push(event(90, "$identify", "ada", 40, json!({"$anon_distinct_id": "phone"})));
        }
        place.events.append(PROJECT, &batch, NOW + round as i64).await.unwrap();
        sent.extend(batch);
        if round < 2 {
            place.events.compact_blocks(PROJECT, NOW + round as i64).await.unwrap();
        }
    }
    let person = |ids: &[&str]| PersonRecord {
        distinct_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        properties: json!({"from": "import"}).as_object().unwrap().clone(),
        created_at: None,
    };
    place.events.add_persons(PROJECT, vec![person(&["ada"]), person(&["dora"])], NOW).await.unwrap();
    sent
}

#[tokio::test]
async fn a_person_is_gone_with_all_ids_and_nobody_else_changes() {
    for (name, is_uuid) in [("ada", false), ("phone", false), ("ada", true)] {
        let place = Place::new().await;
        let sent = history(&place).await;
        let before = place.events.count_people(PROJECT).await.unwrap();
        let name = if is_uuid { derived(PROJECT, name).to_string() } else { name.to_owned() };
        let doomed = Doomed::Person(name);
        let would = place.events.would_erase(PROJECT, &doomed).await.unwrap();
        assert_eq!((would.events, would.persons), (7, 1));
        assert_eq!(all(&place.events).await, want(&sent), "asking changes nothing");
        let erased = place.events.erase(PROJECT, &doomed, NOW + 100).await.unwrap();
        assert_eq!((erased.events, erased.persons), (7, 1));
        let mut left = sent.clone();
        left.retain(|event| event.distinct_id != "ada" && event.distinct_id != "phone");
        for events in [place.events.clone(), place.again()] {
            assert_eq!(all(&events).await, want(&left));
            assert_eq!(events.count_people(PROJECT).await.unwrap(), before - 1);
            assert_eq!(events.earliest(PROJECT).await.unwrap(), Some(5));
            for id in ["ada", "phone"] {
                let subject = events.subject(PROJECT, id, &[], None).await.unwrap();
                assert!(subject.person.properties.is_empty(), "{id} {:?}", subject.person.properties);
            }
            let cy = events.subject(PROJECT, "cy", &[], None).await.unwrap();
            assert_eq!(cy.person.properties["mail"], "cy@x");
            let dora = events.subject(PROJECT, "dora", &[], None).await.unwrap();
            assert_eq!(dora.person.properties["from"], "import");
        }
        // What comes later counts, a copy of what was erased included.
        place.events.append(PROJECT, &sent[..1], NOW + 200).await.unwrap();
        left.push(sent[0].clone());
        assert_eq!(all(&place.events).await, want(&left));
        // The old files go after the grace period.
        let files = place.files().len();
        for later in 1..4 {
            place.events.sweep(PROJECT, NOW + later * (GRACE_MICROS + MINUTE)).await.unwrap();
            assert_eq!(all(&place.again()).await, want(&left));
        }
        assert!(place.files().len() < files);
    }
}

#[tokio::test]
async fn nobody_is_erased_who_is_not_there() {
    let place = Place::new().await;
    let sent = history(&place).await;
    for name in ["nobody", "00000000-0000-4000-8000-000000000000", ""] {
        let doomed = Doomed::Person(name.to_owned());
        assert_eq!(place.events.would_erase(PROJECT, &doomed).await.unwrap(), Erased::default());
        assert_eq!(place.events.erase(PROJECT, &doomed, NOW).await.unwrap(), Erased::default());
    }
    assert_eq!(all(&place.events).await, want(&sent));
}

#[tokio::test]
async fn old_events_go_and_what_they_said_of_persons_stays() {
    let place = Place::new().await;
    let sent = history(&place).await;
    let people = place.events.count_people(PROJECT).await.unwrap();
    for before in [i64::MIN, 5, 6, 11, 33, i64::MAX] {
        let count = sent.iter().filter(|event| event.timestamp < before).count();
        let gone = sent.len() - all(&place.events).await.len();
        let would = place.events.would_erase(PROJECT, &Doomed::Before(before)).await.unwrap();
        let erased = place.events.erase(PROJECT, &Doomed::Before(before), NOW).await.unwrap();
        assert_eq!((would.events, erased.events), ((count - gone) as u64, (count - gone) as u64), "{before}");
        let left = sent.iter().filter(|event| event.timestamp >= before).cloned().collect::<Vec<_>>();
        assert_eq!(all(&place.again()).await, want(&left));
        let earliest = left.iter().map(|event| event.timestamp).min();
        assert_eq!(place.again().earliest(PROJECT).await.unwrap(), earliest);
        assert_eq!(place.again().count_people(PROJECT).await.unwrap(), people);
        let ada = place.again().subject(PROJECT, "phone", &[], None).await.unwrap();
        assert_eq!(ada.person.properties["mail"], "ada@x");
        while place.events.merge_segments(PROJECT, NOW, Effort::Fewest).await.unwrap().goes_on() {}
        assert_eq!(place.again().count_people(PROJECT).await.unwrap(), people);
    }
}

#[tokio::test]
async fn a_project_is_emptied_and_another_one_is_not() {
    let place = Place::new().await;
    let sent = history(&place).await;
    place.events.append(PROJECT + 1, &sent, NOW).await.unwrap();
    let would = place.events.would_erase(PROJECT, &Doomed::Project).await.unwrap();
    assert_eq!((would.events, would.persons), (sent.len() as u64, 4));
    place.events.erase(PROJECT, &Doomed::Project, NOW).await.unwrap();
    assert!(all(&place.again()).await.is_empty());
    assert_eq!(place.again().count_people(PROJECT).await.unwrap(), 0);
    assert_eq!(place.again().earliest(PROJECT).await.unwrap(), None);
    assert_eq!(place.again().scan(PROJECT + 1, &[], &request(&[], &[])).await.unwrap().stats.rows, 13);
    place.events.append(PROJECT, &sent[..2], NOW).await.unwrap();
    assert_eq!(all(&place.events).await, want(&sent[..2]));
    for later in 1..4 {
        place.events.sweep(PROJECT, NOW + later * (GRACE_MICROS + MINUTE)).await.unwrap();
    }
    assert_eq!(all(&place.again()).await, want(&sent[..2]));
    let left = place.files().into_iter().filter(|file| file.contains(&format!("project={PROJECT}/")));
    assert_eq!(left.count(), 0, "the two events wait in a block");
}
