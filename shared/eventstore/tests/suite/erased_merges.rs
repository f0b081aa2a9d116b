//! Merges of an erased person do not come back from the previous object of folded merges, or from a damaged one.

use crate::erasure::{history, traces};
use crate::merges::{folded, rows_of_the_log};
use crate::support::{MINUTE, NOW, PROJECT, Place, event};
use pennon_eventstore::{ErasureTarget, EventStore, EventStoreError, GRACE_MICROS, derive_person_id};
use serde_json::json;

const ERASED: [&str; 2] = ["ada", "phone"];

/// Merges of `devices` with eve, each a row of the log.
async fn merge(place: &Place, devices: std::ops::Range<u128>, now: i64) {
    for n in devices {
        let requested = event(1000 + n, "$identify", "eve", 9, json!({"$anon_distinct_id": format!("e{n}")}));
        place.events.append(PROJECT, &[requested], now).await.unwrap();
    }
}

fn damage(object: &str) {
    let mut bytes = std::fs::read(object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(object, bytes).unwrap();
}

async fn is(events: &EventStore, id: &str, person: &str) {
    assert_eq!(events.person_of(PROJECT, id).await.unwrap(), derive_person_id(PROJECT, person), "{id}");
}

#[tokio::test]
async fn erased_persons_stay_erased_whichever_merge_object_is_damaged() {
    let place = Place::new().await;
    history(&place).await;
    for (devices, at) in [(0..300, NOW + 10), (300..600, NOW + 20)] {
        merge(&place, devices, at).await;
        place.events.compact(PROJECT, at).await.unwrap();
    }
    place.events.sweep(PROJECT, NOW + 21).await.unwrap();
    let knows = place.again();
    is(&knows, "phone", "ada").await;
    // Both objects contain eve. The newer one is damaged, so she is removed from the older one and the rows since.
    let objects = folded(&place);
    assert_eq!(objects.len(), 2);
    damage(&objects[1]);
    is(&place.again(), "phone", "ada").await;
    let doomed = ErasureTarget::Person("phone".to_owned());
    place.again().erase(PROJECT, &doomed, &|| NOW + 100).await.unwrap();
    let mut now = NOW;
    for _ in 0..3 {
        now += GRACE_MICROS + MINUTE;
        place.events.sweep(PROJECT, now).await.unwrap();
    }
    assert_eq!(traces(&place, &ERASED).await, Vec::<String>::new());
    assert_eq!((rows_of_the_log(&place).await, folded(&place).len()), (1, 1));
    assert!(place.events.damage(PROJECT).await.unwrap().is_empty());
    let check = async |events: &EventStore, devices: u128| {
        is(events, "phone", "phone").await;
        for n in [0, 299, 300, devices - 1] {
            is(events, &format!("e{n}"), "eve").await;
        }
    };
    for events in [&place.events, &knows, &place.again()] {
        check(events, 600).await;
    }
    // The object of the erasure is the second one from the next folding on, and has no erased person.
    merge(&place, 600..900, now).await;
    place.events.compact(PROJECT, now + 1).await.unwrap();
    let (erasure, newest) = (folded(&place).remove(0), folded(&place).pop().unwrap());
    damage(&newest);
    check(&place.again(), 900).await;
    place.events.sweep(PROJECT, now + GRACE_MICROS + 1).await.unwrap();
    assert_eq!(folded(&place), [erasure.clone(), newest.clone()]);
    for events in [&place.events, &knows, &place.again()] {
        check(events, 900).await;
    }
    // Without both there is an error, and no result from the rows alone.
    damage(&erasure);
    for _ in 0..2 {
        let requested = place.again().person_of(PROJECT, "phone").await;
        assert!(matches!(requested, Err(EventStoreError::Damaged { .. })), "{requested:?}");
        // The request may need the merges.
        if let Err(error) = place.again().compact(PROJECT, now + GRACE_MICROS + 2).await {
            assert!(matches!(error, EventStoreError::Damaged { .. }), "{error}");
        }
        place.again().sweep(PROJECT, now + 3 * GRACE_MICROS).await.unwrap();
    }
    assert_eq!(folded(&place), [erasure.clone(), newest]);
    assert_eq!(traces(&place, &ERASED).await, Vec::<String>::new());
    // One restored object is enough.
    damage(&erasure);
    check(&place.again(), 900).await;
}

#[tokio::test]
async fn rows_and_objects_from_before_an_erasure_are_removed_if_its_own_object_is_damaged() {
    let place = Place::new().await;
    history(&place).await;
    merge(&place, 0..300, NOW + 10).await;
    place.events.compact(PROJECT, NOW + 10).await.unwrap();
    place.events.erase(PROJECT, &ErasureTarget::Person("ada".to_owned()), &|| NOW + 100).await.unwrap();
    assert_ne!(traces(&place, &ERASED).await, Vec::<String>::new());
    damage(&folded(&place).pop().unwrap());
    for later in 1..4 {
        place.again().sweep(PROJECT, NOW + later * (GRACE_MICROS + MINUTE)).await.unwrap();
    }
    assert_eq!(traces(&place, &ERASED).await, Vec::<String>::new());
    assert_eq!((rows_of_the_log(&place).await, folded(&place).len()), (1, 1));
}
