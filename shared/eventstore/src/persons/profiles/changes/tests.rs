#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

/// Pseudo-random numbers from a fixed seed.
struct Noise(u64);

impl Noise {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn person(n: u64) -> Uuid {
    Uuid::from_u128(u128::from(n))
}

/// An event of one of a few distinct ids.
#[derive(Debug, Clone)]
struct PropertyEvent {
    id: u64,
    at: ChangeOrder,
    properties: Map<String, Value>,
}

fn random_event(noise: &mut Noise, ids: u64, seq: u64, values: u64) -> PropertyEvent {
    let id = noise.below(ids);
    let key = |noise: &mut Noise| format!("k{}", noise.below(3));
    let mut properties = Map::new();
    if noise.below(3) == 0 {
        properties.insert("$set".into(), json!({ key(noise): noise.below(4) }));
    }
    if noise.below(2) == 0 {
        properties.insert("$set_once".into(), json!({ key(noise): format!("once {}", noise.below(values)) }));
    }
    if noise.below(4) == 0 {
        properties.insert("$unset".into(), json!([key(noise)]));
    }
    let at = ChangeOrder { time: noise.below(12) as Micros, seq: u128::from(seq) };
    PropertyEvent { id, at, properties }
}

/// The final properties of the person of each id, by applying the rule to one event after the other.
fn apply_events(
    events: &[PropertyEvent],
    bases: &BTreeMap<u64, Map<String, Value>>,
    joined: &[(Micros, u64, u64)],
) -> Map<String, Value> {
    let mut person_of = bases.keys().map(|id| (*id, *id)).collect::<BTreeMap<_, _>>();
    let mut properties = bases.clone();
    // A merge is not earlier than the merges before it.
    let mut joined = joined.to_vec();
    for later in 1..joined.len() {
        joined[later].0 = joined[later].0.max(joined[later - 1].0);
    }
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.at);
    let join = |person_of: &mut BTreeMap<u64, u64>,
                properties: &mut BTreeMap<u64, Map<String, Value>>,
                from: u64,
                to: u64| {
        let (from, to) = (person_of[&from], person_of[&to]);
        if from != to {
            let mut both = properties.remove(&from).unwrap();
            both.extend(properties.remove(&to).unwrap());
            properties.insert(to, both);
            person_of.values_mut().filter(|person| **person == from).for_each(|person| *person = to);
        }
    };
    let mut next = 0;
    for event in events {
        while next < joined.len() && joined[next].0 <= event.at.time {
            join(&mut person_of, &mut properties, joined[next].1, joined[next].2);
            next += 1;
        }
        let own = properties.get_mut(&person_of[&event.id]).unwrap();
        for (key, value) in object(&event.properties, "$set_once") {
            own.entry(key.clone()).or_insert(value.clone());
        }
        for (key, value) in object(&event.properties, "$set") {
            own.insert(key.clone(), value.clone());
        }
        for key in event.properties.get("$unset").and_then(Value::as_array).into_iter().flatten() {
            own.remove(key.as_str().unwrap());
        }
    }
    for (_, from, to) in &joined[next..] {
        join(&mut person_of, &mut properties, *from, *to);
    }
    assert_eq!(properties.len(), 1);
    properties.into_values().next().unwrap()
}

/// The partial profiles of a person, of events that were combined in random portions.
fn parts(
    noise: &mut Noise,
    events: &[PropertyEvent],
    bases: &BTreeMap<u64, Map<String, Value>>,
) -> BTreeMap<Uuid, ProfilePart> {
    let portions = 1 + noise.below(4);
    let mut files: Vec<BTreeMap<u64, ProfileChanges>> = vec![BTreeMap::new(); portions as usize];
    let mut events = events.to_vec();
    for last in (1..events.len()).rev() {
        events.swap(last, noise.below(last as u64 + 1) as usize);
    }
    for event in events {
        let file = &mut files[noise.below(portions) as usize];
        file.entry(event.id).or_default().take_event(&event.properties, event.at);
    }
    let part =
        |base: &Map<String, Value>| ProfilePart { base: base.clone(), changes: ProfileChanges::default() };
    let mut parts = bases.iter().map(|(id, base)| (person(*id), part(base))).collect::<BTreeMap<_, _>>();
    for file in files {
        for (id, changes) in file {
            let stored = ProfileChanges::decode(&changes.encode()).unwrap();
            assert_eq!(stored, changes);
            parts.get_mut(&person(id)).unwrap().changes.merge(stored);
        }
    }
    parts
}

fn bases(noise: &mut Noise, ids: u64) -> BTreeMap<u64, Map<String, Value>> {
    let base = |noise: &mut Noise| match noise.below(2) {
        0 => Map::new(),
        _ => map(json!({ format!("k{}", noise.below(3)): "base" })),
    };
    (0..ids).map(|id| (id, base(noise))).collect()
}

#[test]
fn stored_changes_give_the_result_of_applying_each_event() {
    let mut noise = Noise(1);
    for round in 0..3000 {
        let ids = 1 + noise.below(4);
        let count = noise.below(14);
        // One value per `$set_once` key; the next test has several.
        let events = (0..count).map(|seq| random_event(&mut noise, ids, seq, 1)).collect::<Vec<_>>();
        let bases = bases(&mut noise, ids);
        let joined = (1..ids).map(|id| (noise.below(12) as Micros, id, noise.below(id))).collect::<Vec<_>>();
        let want = apply_events(&events, &bases, &joined);
        let of = |(place, (time, from, to)): (usize, &(Micros, u64, u64))| OrderedMerge {
            place,
            time: *time,
            from: person(*from),
            to: person(*to),
        };
        let joined = joined.iter().enumerate().map(of).collect::<Vec<_>>();
        let got = merged_properties(&parts(&mut noise, &events, &bases), &joined);
        assert_eq!(got, want, "round {round}: {events:?} {bases:?} {joined:?}");
    }
}

#[test]
fn the_result_does_not_depend_on_how_events_are_combined() {
    let mut noise = Noise(2);
    for _ in 0..3000 {
        let count = noise.below(14);
        let events = (0..count).map(|seq| random_event(&mut noise, 2, seq, 5)).collect::<Vec<_>>();
        let bases = bases(&mut noise, 2);
        let joined =
            [OrderedMerge { place: 0, time: noise.below(12) as Micros, from: person(1), to: person(0) }];
        let once = merged_properties(&parts(&mut noise, &events, &bases), &joined);
        assert_eq!(merged_properties(&parts(&mut noise, &events, &bases), &joined), once);
    }
}

#[test]
fn a_person_that_was_never_merged_is_its_base_and_its_changes() {
    let mut noise = Noise(3);
    for _ in 0..3000 {
        let count = noise.below(14);
        let events = (0..count).map(|seq| random_event(&mut noise, 1, seq, 3)).collect::<Vec<_>>();
        let bases = bases(&mut noise, 1);
        let parts = parts(&mut noise, &events, &bases);
        let part = &parts[&person(0)];
        let mut direct = part.base.clone();
        part.changes.apply(&mut direct);
        assert_eq!(direct, merged_properties(&parts, &[]));
    }
}

#[test]
fn events_without_a_profile_and_other_forms_change_nothing() {
    let at = ChangeOrder { time: 0, seq: 0 };
    for properties in [
        json!({"$set": {"a": 1}, "$process_person_profile": false}),
        json!({"$set": "a", "$set_once": ["a"], "$unset": {"a": 1}}),
        json!({"set": {"a": 1}}),
    ] {
        let mut changes = ProfileChanges::default();
        changes.take_event(&map(properties), at);
        assert!(changes.is_empty());
    }
    let mut changes = ProfileChanges::default();
    changes.take_event(&map(json!({"$set": {"a": null}, "$process_person_profile": true})), at);
    let mut properties = Map::new();
    changes.apply(&mut properties);
    assert_eq!(Value::from(properties), json!({"a": null}));
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let mut changes = ProfileChanges::default();
    let properties = map(json!({"$set": {"a": [1, {"b": 50.0}]}, "$set_once": {"c": "x"}, "$unset": ["d"]}));
    changes.take_event(&properties, ChangeOrder { time: -5, seq: u128::MAX });
    let bytes = changes.encode();
    assert_eq!(ProfileChanges::decode(&bytes).unwrap(), changes);
    for length in 0..bytes.len() {
        assert!(ProfileChanges::decode(&bytes[..length]).is_err());
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        let _ = ProfileChanges::decode(&changed);
    }
}
