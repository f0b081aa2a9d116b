//! Persons and groups are the same after compaction, imports and restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use crate::support::{NOW, PROJECT, Place, event, simple};
use pennon_eventstore::{
    Event, EventStore, EventStoreError, Group, GroupRecord, GroupType, PersonRecord, derive_person_id,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

struct Noise(u64);

impl Noise {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn id(&mut self) -> &'static str {
        IDS[self.below(IDS.len() as u64) as usize]
    }

    fn event(&mut self, uuid: u128) -> Event {
        let (who, other) = (self.id(), self.id());
        let time = self.below(50) as i64;
        let key = format!("k{}", self.below(3));
        let value = self.below(5);
        match self.below(12) {
            0 => {
                event(uuid, "$identify", who, time, json!({"$anon_distinct_id": other, "$set": {key: value}}))
            }
            1 => event(uuid, "$create_alias", who, time, json!({"alias": other})),
            2 => event(uuid, "$merge_dangerously", who, time, json!({"alias": other})),
            3 => {
                let group =
                    json!({"$group_type": "company", "$group_key": other, "$group_set": {key: value}});
                event(uuid, "$groupidentify", who, time, group)
            }
            4 | 5 => event(uuid, "seen", who, time, json!({"$unset": [key], "x": 1})),
            6 | 7 => event(uuid, "seen", who, time, json!({"$set_once": {key: value}})),
            8 => simple(uuid, "seen", who, time),
            _ => event(uuid, "$set", who, time, json!({"$set": {key: value}, "$set_once": {"first": value}})),
        }
    }
}

fn person(ids: &[&str], properties: Value) -> PersonRecord {
    PersonRecord {
        distinct_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        properties: properties.as_object().unwrap().clone(),
        created_at: None,
    }
}

fn company() -> GroupType {
    GroupType { index: 0, name: "company".to_owned() }
}

fn keys() -> BTreeSet<String> {
    ["k0", "k1", "k2", "first", "city"].map(str::to_owned).into()
}

/// All persons and groups, after checking that all lookups agree.
#[derive(Debug, PartialEq)]
struct StoredPeople {
    people: BTreeMap<Uuid, (String, Map<String, Value>)>,
    groups: Vec<Group>,
}

async fn stored_people(events: &EventStore) -> StoredPeople {
    let mut people = BTreeMap::new();
    let all = events.people(PROJECT, &keys()).await.unwrap();
    let count = all.count();
    all.each(|id, first, properties| {
        assert!(people.insert(id, (first.to_owned(), properties.clone())).is_none());
        ControlFlow::Continue(())
    });
    assert_eq!(people.len() as u64, count);
    assert_eq!(events.count_people(PROJECT).await.unwrap(), count);
    let ids = people.keys().rev().copied().collect::<Vec<_>>();
    for (id, person) in ids.iter().zip(events.persons(PROJECT, &ids).await.unwrap()) {
        assert_eq!((person.id, &person.properties), (*id, &people[id].1));
        assert!(person.distinct_ids.contains(&people[id].0), "{person:?}");
        for distinct_id in &person.distinct_ids {
            assert_eq!(events.person_of(PROJECT, distinct_id).await.unwrap(), *id);
        }
    }
    let mut every = events.scan_all_persons(PROJECT).await.unwrap();
    assert_eq!(every.count() as u64, count);
    let page = events.next_person_page(&mut every).await.unwrap();
    let paged = page.iter().map(|person| (person.id, &person.properties)).collect::<Vec<_>>();
    assert_eq!(paged, people.iter().map(|(id, (_, properties))| (*id, properties)).collect::<Vec<_>>());
    assert!(events.next_person_page(&mut every).await.unwrap().is_empty());
    let mut whole = BTreeMap::new();
    events.load_people_with_all_properties(PROJECT, &events.query_memory()).await.unwrap().each(
        |id, first, properties| {
            whole.insert(id, (first.to_owned(), properties.clone()));
            ControlFlow::Continue(())
        },
    );
    assert_eq!(whole, people, "persons with all properties, and with all that are named");
    let groups = events.groups_of(PROJECT, &company(), &keys()).await.unwrap();
    assert_eq!(events.load_groups_with_all_properties(PROJECT, &company()).await.unwrap(), groups);
    assert_eq!(events.load_groups_for_export(PROJECT, &company()).await.unwrap(), groups);
    let requested = groups.iter().map(|group| (company(), group.key.clone())).collect::<Vec<_>>();
    for id in IDS {
        let waiting_events = events.waiting_blocks_if_few(PROJECT).await.unwrap();
        let subject = events.subject(PROJECT, id, &requested, waiting_events).await.unwrap();
        let own = events.person_of(PROJECT, id).await.unwrap();
        let listed = people.get(&own).map(|(_, properties)| properties.clone()).unwrap_or_default();
        assert_eq!(subject.person.properties, listed, "{id}");
        assert!(subject.person.ids.contains(&derive_person_id(PROJECT, id)));
        let single = subject.groups.into_iter().collect::<Vec<_>>();
        assert_eq!(single, groups.iter().map(|group| group.properties.clone()).collect::<Vec<_>>());
    }
    for (id, (first, _)) in &people {
        assert_eq!(events.person_of(PROJECT, first).await.unwrap(), *id);
    }
    StoredPeople { people, groups }
}

#[tokio::test]
async fn the_last_of_several_records_of_one_instant_counts() {
    let place = Place::new().await;
    for n in 0..12 {
        place.events.add_persons(PROJECT, vec![person(&["a"], json!({"k0": n}))], NOW).await.unwrap();
        let group = GroupRecord {
            type_name: "company".to_owned(),
            index: 0,
            key: "g".to_owned(),
            properties: json!({"k0": n}).as_object().unwrap().clone(),
        };
        place.events.add_groups(PROJECT, vec![group], NOW).await.unwrap();
        let stored = stored_people(&place.again()).await;
        assert_eq!(stored.people[&derive_person_id(PROJECT, "a")].1, *json!({"k0": n}).as_object().unwrap());
        assert_eq!(stored.groups[0].properties["k0"], n);
    }
    // A clock that is behind does not make a record older.
    place
        .events
        .add_persons(PROJECT, vec![person(&["a"], json!({"k0": 12}))], NOW - 1_000_000)
        .await
        .unwrap();
    assert_eq!(stored_people(&place.events).await.people[&derive_person_id(PROJECT, "a")].1["k0"], 12);
}

#[tokio::test]
async fn persons_and_groups_do_not_depend_on_compaction() {
    for round in 0..5 {
        let mut noise = Noise(round);
        let (plain, other) = (Place::new().await, Place::new().await);
        let mut again = other.again();
        for step in 0..14_u64 {
            let now = NOW + step as i64;
            match noise.below(6) {
                0 => {
                    let record = person(&[noise.id(), noise.id()], json!({"city": step, "k1": "imported"}));
                    for events in [&plain.events, &again] {
                        events.add_persons(PROJECT, vec![record.clone()], now).await.unwrap();
                    }
                }
                1 => {
                    let imported = (0..3).map(|n| (n + 1, noise.event(u128::from(1000 + step * 10 + n))));
                    let imported = imported.collect::<Vec<_>>();
                    for events in [&plain.events, &again] {
                        events.ingest(PROJECT, imported.clone(), now).await.unwrap();
                    }
                }
                _ => {
                    // Some of them twice, and some of them imported before.
                    let sent = (0..4).map(|n| {
                        let uuid = if noise.below(5) == 0 { 1000 + noise.below(140) } else { step * 10 + n };
                        noise.event(u128::from(uuid))
                    });
                    let sent = sent.collect::<Vec<_>>();
                    for events in [&plain.events, &again] {
                        events.append(PROJECT, &sent, now).await.unwrap();
                    }
                }
            }
            if noise.below(3) == 0 {
                again.compact(PROJECT, now).await.unwrap();
            }
            if noise.below(4) == 0 {
                again = other.again();
            }
        }
        let want = stored_people(&plain.events).await;
        assert_eq!(stored_people(&again).await, want, "round {round}");
        again.compact(PROJECT, NOW + 100).await.unwrap();
        assert_eq!(stored_people(&other.again()).await, want, "round {round}");
    }
}

#[tokio::test]
async fn merging_segments_does_not_change_persons() {
    let place = Place::new().await;
    let mut noise = Noise(77);
    for step in 0..12_u64 {
        let sent = (0..3).map(|n| noise.event(u128::from(step * 10 + n))).collect::<Vec<_>>();
        if step == 5 {
            let imported = (1..).zip(sent).collect();
            place.events.ingest(PROJECT, imported, NOW).await.unwrap();
        } else {
            place.events.append(PROJECT, &sent, NOW + step as i64).await.unwrap();
        }
        if step == 3 {
            let want = stored_people(&place.events).await;
            place.events.compact(PROJECT, NOW).await.unwrap();
            assert_eq!(stored_people(&place.events).await, want);
        } else if step > 3 {
            place.events.compact(PROJECT, NOW).await.unwrap();
        }
    }
    let want = stored_people(&place.events).await;
    assert_eq!(stored_people(&place.again()).await, want);
}

#[tokio::test]
async fn captured_events_change_what_was_imported_and_imported_events_change_nothing() {
    let place = Place::new().await;
    let events = &place.events;
    events
        .add_persons(PROJECT, vec![person(&["a", "b"], json!({"city": "Bern", "k0": 1}))], NOW)
        .await
        .unwrap();
    let imported = event(1, "$set", "a", 5, json!({"$set": {"city": "Rome"}}));
    events.ingest(PROJECT, vec![(1, imported), (2, simple(2, "seen", "z", 6))], NOW).await.unwrap();
    let person =
        async |id| Value::from(events.subject(PROJECT, id, &[], None).await.unwrap().person.properties);
    assert_eq!(person("b").await, json!({"city": "Bern", "k0": 1}));
    let sent =
        event(3, "seen", "b", 1, json!({"$set": {"city": "Oslo"}, "$unset": ["k0"], "$set_once": {"k1": 7}}));
    events.append(PROJECT, std::slice::from_ref(&sent), NOW).await.unwrap();
    assert_eq!(person("a").await, json!({"city": "Oslo", "k1": 7}));
    // A copy of the event with other properties changes nothing.
    let copy = event(3, "seen", "c", 99, json!({"$set": {"city": "Nice"}}));
    events.append(PROJECT, &[copy], NOW + 1).await.unwrap();
    for _ in 0..2 {
        assert_eq!(person("a").await, json!({"city": "Oslo", "k1": 7}));
        assert_eq!(person("c").await, json!({}));
        assert_eq!(events.count_people(PROJECT).await.unwrap(), 2);
        events.compact(PROJECT, NOW + 2).await.unwrap();
    }
}

#[tokio::test]
async fn a_merge_prefers_properties_of_the_target_and_keeps_those_of_both() {
    let place = Place::new().await;
    let events = &place.events;
    let sent = [
        event(1, "$set", "ada", 1, json!({"$set": {"plan": "pro"}})),
        event(2, "$set", "anon", 5, json!({"$set": {"plan": "free", "source": "ad"}})),
        event(3, "$identify", "ada", 9, json!({"$anon_distinct_id": "anon", "$set": {"email": "ada@x.com"}})),
    ];
    events.append(PROJECT, &sent, NOW).await.unwrap();
    let person =
        async |id| Value::from(events.subject(PROJECT, id, &[], None).await.unwrap().person.properties);
    for _ in 0..2 {
        for id in ["ada", "anon"] {
            assert_eq!(person(id).await, json!({"plan": "pro", "source": "ad", "email": "ada@x.com"}));
        }
        events.compact(PROJECT, NOW).await.unwrap();
    }
    events
        .append(PROJECT, &[event(4, "$set", "anon", 12, json!({"$set": {"plan": "team"}}))], NOW)
        .await
        .unwrap();
    assert_eq!(person("ada").await["plan"], "team");
    let people = events.people(PROJECT, &["plan".to_owned()].into()).await.unwrap();
    let mut listed = Vec::new();
    people.each(|_, first, properties| {
        listed.push((first.to_owned(), properties["plan"].clone()));
        ControlFlow::Continue(())
    });
    assert_eq!(listed, [("ada".to_owned(), json!("team"))], "the id that came first is the person's first");
}

#[tokio::test]
async fn groups_are_imported_and_identified() {
    let place = Place::new().await;
    let events = &place.events;
    let record = |index, key: &str, size: u64| GroupRecord {
        type_name: "company".into(),
        index,
        key: key.into(),
        properties: json!({"size": size}).as_object().unwrap().clone(),
    };
    events
        .add_groups(PROJECT, vec![record(0, "x", 1), record(1, "x", 2), record(0, "y", 3)], NOW)
        .await
        .unwrap();
    let identify = |uuid, key: Value, set: Value| {
        let properties = json!({"$group_type": "company", "$group_key": key, "$group_set": set});
        event(uuid, "$groupidentify", "a", 5, properties)
    };
    let sent = [
        identify(1, json!("x"), json!({"tier": "gold"})),
        identify(2, json!(7), Value::Null),
        identify(3, json!(""), json!({})),
    ];
    events.append(PROJECT, &sent, NOW).await.unwrap();
    let keys = ["size", "tier"].map(str::to_owned).into();
    for _ in 0..2 {
        let groups = events.groups_of(PROJECT, &company(), &keys).await.unwrap();
        let groups = groups.into_iter().map(|group| (group.key, Value::from(group.properties)));
        let want = [("7", json!({})), ("x", json!({"size": 1, "tier": "gold"})), ("y", json!({"size": 3}))];
        assert_eq!(groups.collect::<Vec<_>>(), want.map(|(key, properties)| (key.to_owned(), properties)));
        events.compact(PROJECT, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn values_that_do_not_fit_into_memory_are_refused() {
    let place = Place::new().await;
    let long = "x".repeat(1 << 20);
    for batch in 0..4 {
        let records = (0..33).map(|n| person(&[&format!("{batch} {n}")], json!({"long": long, "short": 1})));
        place.events.add_persons(PROJECT, records.collect(), NOW + batch).await.unwrap();
    }
    let of = |key: &str| [key.to_owned()].into();
    assert_eq!(place.events.people(PROJECT, &of("short")).await.unwrap().count(), 132);
    let refused = place.events.people(PROJECT, &of("long")).await;
    assert!(matches!(refused, Err(EventStoreError::TooLarge(_))), "{refused:?}");
}

#[tokio::test]
async fn an_id_without_events_is_listed_with_the_person_that_it_was_merged_into() {
    let place = Place::new().await;
    let events = &place.events;
    let sent = [
        event(1, "$create_alias", "ada", 1, json!({"alias": "old"})),
        event(2, "$identify", "ada", 2, json!({"$anon_distinct_id": "device"})),
        // Rejected, because the id belongs to ada.
        event(3, "$identify", "bob", 3, json!({"$anon_distinct_id": "device"})),
        event(4, "$merge_dangerously", "bob", 4, json!({"alias": "undefined"})),
        simple(5, "seen", "device", 5),
    ];
    events.append(PROJECT, &sent, NOW).await.unwrap();
    // An imported event merges no persons.
    let imported = event(6, "$create_alias", "bob", 6, json!({"alias": "unused"}));
    events.ingest(PROJECT, vec![(1, imported)], NOW).await.unwrap();
    let ids = ["ada", "bob", "unused"].map(|id| derive_person_id(PROJECT, id));
    for _ in 0..2 {
        let stored = events.persons(PROJECT, &ids).await.unwrap();
        let listed = stored.into_iter().map(|person| person.distinct_ids).collect::<Vec<_>>();
        assert_eq!(listed, [vec!["ada", "device", "old"], vec!["bob"], vec![]]);
        assert_eq!(place.again().count_people(PROJECT).await.unwrap(), 2);
        assert_lookups_agree(events, &ids[..2]).await;
        events.compact(PROJECT, NOW + 1).await.unwrap();
    }
}

async fn assert_lookups_agree(events: &EventStore, ids: &[Uuid]) {
    let mut found = Vec::new();
    events.people(PROJECT, &keys()).await.unwrap().each(|id, first, _| {
        found.push((id, first.to_owned()));
        ControlFlow::Continue(())
    });
    found.sort_by_key(|(id, _)| ids.iter().position(|own| own == id));
    assert_eq!(found, [(ids[0], "ada".to_owned()), (ids[1], "bob".to_owned())]);
}

#[tokio::test]
async fn an_event_without_a_person_profile_creates_no_group_either() {
    let place = Place::new().await;
    let identify = |uuid, key: &str, wants: Value| {
        let properties = json!({"$group_type": "company", "$group_key": key, "$process_person_profile": wants,
            "$group_set": {"k0": 1}});
        event(uuid, "$groupidentify", "a", 5, properties)
    };
    let sent = [
        identify(1, "no", json!(false)),
        identify(2, "yes", json!(true)),
        identify(3, "odd", json!("false")),
    ];
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    for _ in 0..2 {
        let groups = place.events.groups_of(PROJECT, &company(), &keys()).await.unwrap();
        assert_eq!(groups.into_iter().map(|group| group.key).collect::<Vec<_>>(), ["odd", "yes"]);
        place.events.compact(PROJECT, NOW).await.unwrap();
    }
}
