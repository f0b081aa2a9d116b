#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{MappedRecord, Mapping, MappingContext, Vendor};
use crate::import::people::PeopleUpdate;
use crate::import::record::ImportRecord;
use crate::import::time::TimeFormats;
use crate::import::{ExtraFields, ImportOptions};

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn options() -> ImportOptions {
    ImportOptions {
        default_project: Some(7),
        group_types: BTreeMap::from([(7, vec!["team".to_owned(), "company".to_owned()])]),
        ..ImportOptions::default()
    }
}

fn map_by(mapping: &dyn Mapping, options: &ImportOptions, record: Value) -> Result<MappedRecord, String> {
    let extra = options.extra.unwrap_or(ExtraFields::Refuse);
    let mut times = TimeFormats::default();
    let mut context = MappingContext { line: 3, options, extra, content: &[5; 32], times: &mut times };
    mapping.map(object(record), &mut context)
}

fn map(vendor: Vendor, record: Value) -> Result<MappedRecord, String> {
    map_by(vendor.mapping(&options()).as_ref(), &options(), record)
}

/// Name, distinct id, time and properties of the event of a record.
fn event(mapped: &MappedRecord) -> (&str, &str, i64, Value) {
    match &mapped.record {
        Some(ImportRecord::Event(event)) => {
            (&event.event, &event.distinct_id, event.timestamp, Value::Object(event.properties.clone()))
        }
        other => panic!("no event but {other:?}"),
    }
}

fn uuid(mapped: &MappedRecord) -> Uuid {
    match &mapped.record {
        Some(ImportRecord::Event(event)) => event.uuid,
        other => panic!("no event but {other:?}"),
    }
}

fn merges(mapped: &MappedRecord) -> Vec<(&str, &str, bool)> {
    let merge = |fact| match fact {
        &PeopleUpdate::Merge { ref from, ref to, forced, .. } => Some((from.as_str(), to.as_str(), forced)),
        _ => None,
    };
    mapped.updates.iter().filter_map(merge).collect()
}

/// 2024-01-03T09:00:00Z.
const AT: i64 = 1_704_272_400_000_000;

#[test]
fn posthog_events_keep_their_names_and_update_persons() {
    let mapped = map(
        Vendor::Posthog,
        json!({"uuid": "018d0c6e-1000-7000-8000-000000000001", "event": "$identify", "distinct_id": "ann", "person_id": "P",
            "properties": "{\"$anon_distinct_id\": \"device\", \"$set\": {\"plan\": \"free\"}}", "person_properties": {"a": 1},
            "elements_chain": "a:b", "timestamp": "2024-01-03 09:00:00+00:00", "created_at": "2024-01-03", "_inserted_at": null}),
    )
    .unwrap();
    let properties =
        json!({"$anon_distinct_id": "device", "$set": {"plan": "free"}, "$elements_chain": "a:b"});
    assert_eq!(event(&mapped), ("$identify", "ann", AT, properties));
    assert_eq!(uuid(&mapped).to_string(), "018d0c6e-1000-7000-8000-000000000001");
    assert_eq!(merges(&mapped), [("device", "ann", false)]);
    let whole = PeopleUpdate::Properties {
        distinct_id: "ann".to_owned(),
        properties: object(json!({"a": 1})),
        at: AT,
        is_whole: true,
    };
    assert!(mapped.updates.contains(&whole) && mapped.updates.len() == 3, "{:?}", mapped.updates);
    assert_eq!(mapped.ignored.len(), 2);
}

#[test]
fn posthog_set_properties_count_without_person_properties() {
    let record = json!({"event": "buy", "distinct_id": "ann", "timestamp": "2024-01-03T09:00:00Z", "people_set_once": {"a": 0},
        "properties": {"$set": {"a": 1}}, "team_id": 2});
    let mapped = map(Vendor::Posthog, record).unwrap();
    let properties = object(json!({"a": 1}));
    let expected =
        PeopleUpdate::Properties { distinct_id: "ann".to_owned(), properties, at: AT, is_whole: false };
    assert_eq!(mapped.updates, [expected]);
}

#[test]
fn mixpanel_merges_are_no_events() {
    let of = |event: &str, properties: Value| {
        let mut properties = properties;
        properties["time"] = json!(AT / 1_000_000);
        map(Vendor::Mixpanel, json!({"event": event, "properties": properties}))
    };
    for (name, properties, want) in [
        ("$identify", json!({"$identified_id": "ann", "$anon_id": "d"}), vec![("d", "ann", false)]),
        ("$identify", json!({"distinct_id": "ann", "$anon_id": "d"}), vec![("d", "ann", false)]),
        ("$create_alias", json!({"distinct_id": "ann", "alias": "a2"}), vec![("a2", "ann", true)]),
        ("$merge", json!({"$distinct_ids": ["ann", "b", 3]}), vec![("b", "ann", true), ("3", "ann", true)]),
    ] {
        let mapped = of(name, properties).unwrap();
        assert!(mapped.record.is_none() && mapped.ignored.len() == 1, "{name}");
        assert_eq!(merges(&mapped), want, "{name}");
    }
    assert!(of("$merge", json!({})).unwrap_err().contains("$distinct_ids"));
    let mapped =
        of("buy", json!({"distinct_id": "ann", "$user_id": "ann", "$device_id": "d", "$insert_id": "i"}))
            .unwrap();
    assert_eq!(merges(&mapped), [("$device:d", "ann", false)]);
    let again = of("buy", json!({"distinct_id": "ann", "$insert_id": "i"})).unwrap();
    assert_eq!(uuid(&mapped), uuid(&again), "the vendor's identity of an event");
    assert_ne!(uuid(&mapped), uuid(&of("buy", json!({"distinct_id": "ben", "$insert_id": "i"})).unwrap()));
    let anonymous = of("buy", json!({"$device_id": "d"})).unwrap();
    assert_eq!(event(&anonymous).1, "$device:d");
    let before = of("buy", json!({"distinct_id": "ann", "$distinct_id_before_identity": "x"})).unwrap();
    assert_eq!(merges(&before), [("x", "ann", false)]);
}

#[test]
fn amplitude_devices_groups_and_sessions() {
    let mapped = map(
        Vendor::Amplitude,
        json!({"event_type": "buy", "event_time": "2024-01-03 09:00:00.000000", "user_id": "ann-user", "device_id": "d",
            "session_id": 17, "country": "CH", "event_properties": {"price": 1}, "user_properties": {"plan": "pro"},
            "groups": {"company": ["acme", "other"]}, "group_properties": {"company": {"acme": {"size": 4}}, "club": {"x": {}}},
            "uuid": "4a6f0c1e-aaaa-11ee-8000-000000000001", "server_upload_time": "x"}),
    )
    .unwrap();
    let properties = json!({"price": 1, "amplitude_groups": {"company": ["acme", "other"]}, "$groups": {"company": "acme"},
        "$session_id": "d-17", "$device_id": "d", "$geoip_country_name": "CH"});
    assert_eq!(event(&mapped), ("buy", "ann-user", AT, properties));
    assert_eq!(merges(&mapped), [("d", "ann-user", false)]);
    let group = mapped.updates.iter().find_map(|fact| match fact {
        PeopleUpdate::GroupProperties { index, key, .. } => Some((*index, key.as_str())),
        _ => None,
    });
    assert_eq!(group, Some((1, "acme")));
    assert_eq!(mapped.ignored.len(), 2, "bookkeeping fields, and groups of an undeclared type");
    let device =
        json!({"event_type": "$identify", "event_time": "2024-01-03", "device_id": "d", "amplitude_id": 1});
    let mapped = map(Vendor::Amplitude, device).unwrap();
    assert!(mapped.record.is_none());
    let without_ids =
        map(Vendor::Amplitude, json!({"event_type": "a", "event_time": "2024-01-03", "user_id": ""}));
    assert_eq!(without_ids.unwrap_err(), "there is neither user_id nor device_id");
}

#[test]
fn segment_calls() {
    let call = |kind: &str, more: Value| {
        let mut record = json!({"type": kind, "userId": "ann", "anonymousId": "a-1", "messageId": "m",
            "timestamp": "2024-01-03T09:00:00Z", "receivedAt": "2024-01-03T09:00:01Z", "writeKey": "k"});
        record.as_object_mut().unwrap().extend(object(more));
        map(Vendor::Segment, record)
    };
    let page = call(
        "page",
        json!({"name": "Home", "properties": {"url": "https://a/"}, "context": {"ip": "127.0.0.1", "groupId": "acme"}}),
    );
    let properties = json!({"url": "https://a/", "name": "Home", "$current_url": "https://a/", "$ip": "127.0.0.1",
        "$groups": {"company": "acme"}, "context": {"ip": "127.0.0.1", "groupId": "acme"}});
    let page = page.unwrap();
    assert_eq!(event(&page), ("$pageview", "ann", AT, properties));
    assert_eq!(merges(&page), [("a-1", "ann", false)]);
    let screen = call("screen", json!({"name": "Basket"})).unwrap();
    assert_eq!(event(&screen).3, json!({"$screen_name": "Basket"}));
    let alias = call("alias", json!({"previousId": "old"})).unwrap();
    assert_eq!(merges(&alias), [("a-1", "ann", false), ("old", "ann", true)]);
    let group = call("group", json!({"groupId": "acme", "traits": {"size": 4}})).unwrap();
    assert!(
        matches!(&group.updates[1], PeopleUpdate::GroupProperties { index: 1, key, .. } if key == "acme"),
        "{group:?}"
    );
    let identify = call("identify", json!({"traits": {"plan": "pro"}})).unwrap();
    assert!(identify.record.is_none() && identify.updates.len() == 2, "{identify:?}");
    assert!(call("track", json!({})).unwrap_err().contains("track needs event"));
    assert!(
        call("track", json!({"event": "a", "wish": 1}))
            .unwrap_err()
            .contains("`wish` is not a field of a track call")
    );
    assert!(call("dance", json!({})).unwrap_err().contains("none of track, page"));
}

#[test]
fn rules_of_the_command_line_rename_fields() {
    let rule = |text: &str| text.parse().unwrap();
    let options = ImportOptions {
        map: vec![
            rule("user=distinct_id"),
            rule("what=event"),
            rule("when=timestamp"),
            rule("a=b=properties.cost"),
        ],
        ..options()
    };
    let mapping = Vendor::Pennon.mapping(&options);
    let record =
        json!({"user": 5, "what": "buy", "when": 1_704_272_400, "a=b": 2, "person_id": "P", "project": 9});
    let mapped = map_by(mapping.as_ref(), &options, record).unwrap();
    assert_eq!(event(&mapped), ("buy", "5", AT, json!({"cost": 2})));
    assert_eq!(mapped.project, 9);
    assert_eq!(
        mapped.updates,
        [PeopleUpdate::SamePerson { person: "P".to_owned(), distinct_id: "5".to_owned() }]
    );
    let twice = json!({"user": 5, "distinct_id": 6, "what": "buy", "when": 1_704_272_400});
    assert!(map_by(mapping.as_ref(), &options, twice).unwrap_err().contains("`distinct_id` of its own too"));
    for wrong in ["user", "=event", "user=", "user=who", "user=properties."] {
        assert!(wrong.parse::<super::native::FieldRule>().is_err(), "{wrong}");
    }
}

#[test]
fn vendors_are_recognised_by_fields() {
    for (record, want) in [
        (json!({"event": "a", "distinct_id": "u", "timestamp": "2024-01-01", "price": 3}), None),
        (
            json!({"event": "a", "distinct_id": "u", "timestamp": "x", "person_id": "P", "properties": {"time": 1}}),
            None,
        ),
        (json!({"person": {}}), None),
        (
            json!({"event": "a", "distinct_id": "u", "timestamp": "x", "person_properties": {}}),
            Some(Vendor::Posthog),
        ),
        (json!({"distinct_id": "u", "person_id": "P", "person_version": 1}), Some(Vendor::Posthog)),
        (json!({"event": "a", "properties": {"time": 1, "distinct_id": "u"}}), Some(Vendor::Mixpanel)),
        (json!({"$distinct_id": "u", "$properties": {}}), Some(Vendor::Mixpanel)),
        (json!({"event_type": "a", "event_time": "x", "device_id": "d"}), Some(Vendor::Amplitude)),
        (json!({"type": "track", "event": "a", "userId": "u", "messageId": "m"}), Some(Vendor::Segment)),
        (json!({"type": "track"}), None),
    ] {
        let vendor = Vendor::detect(&object(record.clone())).map(|(vendor, _)| vendor);
        assert_eq!(vendor, want, "{record}");
    }
}
