#![allow(clippy::unwrap_used)]

use std::io::Write;

use axum::http::StatusCode;
use flate2::Compression;
use flate2::write::GzEncoder;
use pennon_core::http::SdkBody;
use pennon_eventstore::{Event, parse_timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::batch_builder::{Batch, RequestMetadata};
use crate::decode::decode;
use crate::error::CaptureError;
use crate::event::CaptureFormat;
use crate::normalize::normalize;
use pennon_core::limits::capture::{EVENT_BYTES_MAX, EVENTS_MAX, INFLATED_BYTES_MAX};

mod arbitrary_input;
mod body_encodings;

const NOW: &str = "2024-05-01T12:00:00Z";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn undecodable_bodies_are_rejected() {
    let status = |sent: SdkBody<'_>| {
        let error = |json: &[u8]| {
            normalize(json, CaptureFormat::Batch, &metadata(), &mut || Uuid::nil()).unwrap_err()
        };
        decode(&sent).map_or_else(|error| error, |payload| error(&payload.json)).status
    };
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    let deeper = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let half = gzip(b"{\"event\": \"a\"}");
    let bad: [&[u8]; 11] = [
        b"",
        b" ",
        b"{",
        b"nonsense",
        b"{\"a\": NaN}",
        b"{\"a\": 1e999}",
        b"{\"a\": \"\xff\"}",
        b"{\"a\": \"\0\"}",
        deep.as_bytes(),
        deeper.as_bytes(),
        &half[..half.len() / 2],
    ];
    for body in bad {
        assert_eq!(
            status(SdkBody { body, ..SdkBody::default() }),
            StatusCode::BAD_REQUEST,
            "{:?}",
            &body[..body.len().min(20)]
        );
    }
    assert_eq!(
        status(SdkBody { body: b"{}", content_encoding: Some("br"), ..SdkBody::default() }),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        status(SdkBody { body: b"{}", compression: Some("lz64"), ..SdkBody::default() }),
        StatusCode::BAD_REQUEST
    );
    let form = Some("application/x-www-form-urlencoded");
    for body in ["x=1", "data=", "data=%", "data=!!!", "data=e30&compression=lz"] {
        assert_eq!(
            status(SdkBody { body: body.as_bytes(), content_type: form, ..SdkBody::default() }),
            StatusCode::BAD_REQUEST
        );
    }
    let bomb = gzip(&vec![b' '; INFLATED_BYTES_MAX + 1]);
    assert!(bomb.len() < 100_000);
    assert_eq!(status(SdkBody { body: &bomb, ..SdkBody::default() }), StatusCode::PAYLOAD_TOO_LARGE);
}

#[test]
fn a_body_is_decompressed_up_to_the_limit() {
    let decompressed = |bytes: usize| {
        let mut body = br#"{"event": "a", "distinct_id": "d"}"#.to_vec();
        body.resize(bytes, b' ');
        let body = gzip(&body);
        let decoded = decode(&SdkBody { body: &body, ..SdkBody::default() });
        decoded.map(|payload| payload.json.len()).map_err(|error| error.status)
    };
    assert_eq!(decompressed(INFLATED_BYTES_MAX), Ok(INFLATED_BYTES_MAX));
    assert_eq!(decompressed(INFLATED_BYTES_MAX + 1), Err(StatusCode::PAYLOAD_TOO_LARGE));
}

fn metadata() -> RequestMetadata {
    RequestMetadata { now: parse_timestamp(NOW).unwrap(), ..RequestMetadata::default() }
}

fn read(value: Value) -> Result<Batch, CaptureError> {
    read_text(value.to_string().as_bytes())
}

fn read_text(json: &[u8]) -> Result<Batch, CaptureError> {
    normalize(json, CaptureFormat::Batch, &metadata(), &mut || Uuid::from_u128(99))
}

/// The events of a body that is accepted.
fn events(value: Value) -> Vec<Event> {
    read(value).unwrap().captured.in_full().unwrap()
}

/// Normalizes a body of the analytics format.
fn analytics(value: Value, metadata: &RequestMetadata) -> Result<Batch, CaptureError> {
    normalize(value.to_string().as_bytes(), CaptureFormat::Analytics, metadata, &mut || Uuid::from_u128(99))
}

#[test]
fn a_batch_a_list_and_a_single_event_are_the_same() {
    let event = json!({
        "event": "bought", "distinct_id": "ada", "timestamp": "2024-04-30T10:00:00.123456+02:00",
        "uuid": "01890000-0000-7000-8000-000000000001", "type": "capture", "library": "x",
        "properties": {"price": 50, "tax": 50.0, "nothing": null},
    });
    let batch = read(json!({"api_key": "phc_1", "batch": [event]})).unwrap();
    assert_eq!(batch.token.as_deref(), Some("phc_1"));
    let all = batch.captured.in_full().unwrap();
    let got = &all[0];
    assert_eq!((got.event.as_str(), got.distinct_id.as_str()), ("bought", "ada"));
    assert_eq!(got.uuid, Uuid::from_u128(0x0189_0000_0000_7000_8000_0000_0000_0001));
    assert_eq!(got.timestamp, parse_timestamp("2024-04-30T08:00:00.123456Z").unwrap());
    assert_eq!(Value::from(got.properties.clone()), event["properties"]);
    let mut single = event.clone();
    single["api_key"] = "phc_1".into();
    assert_eq!(read(single.clone()).unwrap().token, batch.token);
    assert_eq!(events(single), all);
    let mut own = event;
    own["properties"]["token"] = "phc_1".into();
    assert_eq!(read(json!([own])).unwrap().token, batch.token);
}

#[test]
fn client_clock_skew_is_corrected_and_offsets_are_subtracted() {
    let at = |event: Value, envelope: Value| {
        let mut body = json!({"api_key": "t", "batch": [{"event": "a", "distinct_id": "d"}]});
        body["batch"][0].as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        body.as_object_mut().unwrap().extend(envelope.as_object().unwrap().clone());
        events(body)[0].timestamp
    };
    let time = |text: &str| parse_timestamp(text).unwrap();
    let happened = json!({"timestamp": "2024-05-01T09:59:00Z"});
    assert_eq!(at(happened.clone(), json!({})), time("2024-05-01T09:59:00Z"));
    // The client's clock is two hours behind: it sent at ten what arrived at twelve.
    assert_eq!(
        at(happened.clone(), json!({"sent_at": "2024-05-01T10:00:00Z"})),
        time("2024-05-01T11:59:00Z")
    );
    assert_eq!(
        at(happened.clone(), json!({"sent_at": "2024-05-01T10:00:00Z", "historical_migration": true})),
        time("2024-05-01T09:59:00Z")
    );
    let keep = json!({"timestamp": "2024-05-01T09:59:00Z", "properties": {"$ignore_sent_at": true}});
    assert_eq!(at(keep, json!({"sent_at": "2024-05-01T10:00:00Z"})), time("2024-05-01T09:59:00Z"));
    assert_eq!(at(json!({"offset": 1500}), json!({})), time("2024-05-01T11:59:58.5Z"));
    assert_eq!(
        at(json!({"offset": 1500, "timestamp": null}), json!({"sent_at": null})),
        time("2024-05-01T11:59:58.5Z")
    );
    assert_eq!(at(json!({}), json!({"sent_at": "2024-05-01T10:00:00Z"})), time(NOW));
    let query = RequestMetadata { sent_at: Some(time("2024-05-01T10:00:00Z")), ..metadata() };
    let event = json!({"event": "a", "distinct_id": "d", "timestamp": "2024-05-01T09:59:00Z"}).to_string();
    let batch = normalize(event.as_bytes(), CaptureFormat::Batch, &query, &mut || Uuid::nil()).unwrap();
    assert_eq!(batch.captured.events[0].timestamp, time("2024-05-01T11:59:00Z"));
}

#[test]
fn ids_and_person_changes_are_read_from_all_their_fields() {
    let event = |event: Value| events(event).remove(0);
    let got = event(json!({
        "event": "$identify", "properties": {"distinct_id": 7, "$set": {"a": 1, "b": 1}},
        "$set": {"b": 2}, "$set_once": {"c": 3}, "$unset": ["d"],
    }));
    assert_eq!(got.distinct_id, "7");
    assert_eq!(got.uuid, Uuid::from_u128(99));
    let want = json!({"distinct_id": 7, "$set": {"a": 1, "b": 2}, "$set_once": {"c": 3}, "$unset": ["d"]});
    assert_eq!(Value::from(got.properties), want);
    assert_eq!(event(json!({"event": "a", "distinct_id": "x".repeat(300)})).distinct_id, "x".repeat(200));
    assert_eq!(event(json!({"event": "", "distinct_id": "d"})).event, "");
    for none in [json!(null), json!(""), json!("00000000-0000-0000-0000-000000000000")] {
        assert_eq!(event(json!({"event": "a", "distinct_id": "d", "uuid": none})).uuid, Uuid::from_u128(99));
    }
}

#[test]
fn errors_name_the_missing_or_invalid_field() {
    let invalid_field = |body: Value| {
        let error = read(body).unwrap_err();
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
        error.attr.unwrap_or_default()
    };
    let with = |key: &str, value: Value| {
        let mut event = json!({"event": "a", "distinct_id": "d"});
        event[key] = value;
        json!({"api_key": "t", "batch": [{"event": "a", "distinct_id": "d"}, event]})
    };
    assert!(read(with("offset", json!(9.9e13))).is_ok());
    for (key, value) in [
        ("event", json!(null)),
        ("event", json!(5)),
        ("distinct_id", json!(null)),
        ("distinct_id", json!("")),
        ("uuid", json!("x")),
        ("uuid", json!(5)),
        ("timestamp", json!(5)),
        ("offset", json!("x")),
        ("offset", json!(1e300)),
        ("offset", json!(1e14)),
        ("properties", json!([])),
    ] {
        assert_eq!(invalid_field(with(key, value.clone())), format!("batch[1].{key}"), "{key} {value}");
    }
    assert_eq!(invalid_field(json!({"event": "a"})), "distinct_id");
    assert_eq!(invalid_field(json!({"distinct_id": "a"})), "event");
    assert_eq!(invalid_field(json!([1])), "[0]");
    assert_eq!(invalid_field(json!([[]])), "[0]");
    assert_eq!(invalid_field(json!({"batch": [null]})), "batch[0]");
    assert_eq!(invalid_field(json!({"batch": {}})), "batch");
    assert_eq!(invalid_field(json!({"batch": []})), "batch");
    assert_eq!(invalid_field(json!([])), "batch");
    assert_eq!(
        invalid_field(json!({"sent_at": 5, "batch": [{"event": "a", "distinct_id": "d"}]})),
        "sent_at"
    );
    let two = json!([
        {"event": "a", "distinct_id": "d", "properties": {"token": "t1"}},
        {"event": "a", "distinct_id": "d", "properties": {"token": "t2"}},
    ]);
    let error = read(two).unwrap_err();
    assert_eq!(
        (error.status, error.attr.as_deref()),
        (StatusCode::UNAUTHORIZED, Some("[1].properties.token"))
    );
    for body in [json!(null), json!("a"), json!(5)] {
        assert_eq!(read(body).unwrap_err().status, StatusCode::BAD_REQUEST);
    }
}

/// An event of that size as capture counts it: property names count 4 and strings 3 bytes more than their length, the object
/// 2; names of other fields count 10.
fn event_of(bytes: usize) -> Value {
    let around = (10 + "a".len() + 3) + (10 + "d".len() + 3) + 2 + ("k".len() + 4) + 3;
    json!({"event": "a", "distinct_id": "d", "properties": {"k": "x".repeat(bytes - around)}})
}

#[test]
fn limits_hold_at_the_limit_and_one_past_it() {
    let status = |body: Value| read(body).map_or_else(|error| error.status, |_| StatusCode::OK);
    assert_eq!(status(event_of(EVENT_BYTES_MAX)), StatusCode::OK);
    assert_eq!(status(event_of(EVENT_BYTES_MAX + 1)), StatusCode::PAYLOAD_TOO_LARGE);
    let event = json!({"event": "a", "distinct_id": "d"});
    assert_eq!(status(Value::Array(vec![event.clone(); EVENTS_MAX + 1])), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(events(Value::Array(vec![event.clone(); EVENTS_MAX])).len(), EVENTS_MAX);
    // An object with two fields `batch`: the lists count together.
    let twice = |half: usize| {
        let list = Value::Array(vec![event.clone(); half]);
        let body = format!(r#"{{"api_key": "t", "batch": {list}, "batch": {list}}}"#);
        normalize(body.as_bytes(), CaptureFormat::Batch, &metadata(), &mut || Uuid::from_u128(1))
    };
    assert_eq!(twice(EVENTS_MAX / 2).unwrap().outcomes.len(), EVENTS_MAX);
    assert_eq!(twice(EVENTS_MAX / 2 + 1).unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
    let bomb = (0..10_000).map(|n| (format!("k{n}"), json!(n))).collect::<serde_json::Map<_, _>>();
    let kept = events(json!({"event": "a", "distinct_id": "d", "properties": bomb}));
    assert_eq!(kept[0].properties, bomb);
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"event":"a","distinct_id":"d","properties":{{"k":{open}{close}}}}}"#)
    };
    // The event and its properties are two levels of 64.
    assert!(read_text(nested(62).as_bytes()).is_ok());
    let error = read_text(nested(63).as_bytes()).unwrap_err();
    assert_eq!((error.status, error.code), (StatusCode::BAD_REQUEST, "parse_error"));
    // Unknown fields may be nested without limit.
    let junk =
        format!(r#"{{"event":"a","distinct_id":"d","x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(read_text(junk.as_bytes()).is_ok());
    for (sent, kept) in [(200, 200), (201, 200), (100_000, 200)] {
        let long = events(json!({"event": "ü".repeat(sent), "distinct_id": "ä".repeat(sent)}));
        assert_eq!(long[0].event, "ü".repeat(kept));
        assert_eq!(long[0].distinct_id, "ä".repeat(kept));
    }
}

#[test]
fn unusual_values_that_posthog_accepts_are_accepted() {
    let one = |event: Value| events(event).remove(0);
    let with = |key: &str, value: Value| {
        let mut event = json!({"event": "a", "distinct_id": "d"});
        event[key] = value;
        event
    };
    // posthog-js sends any value that a page passes as an id.
    for (id, text) in [(json!(7.5), "7.5"), (json!(true), "true"), (json!(["a", 1]), r#"["a",1]"#)] {
        assert_eq!(one(with("distinct_id", id)).distinct_id, text);
    }
    assert_eq!(one(json!({"event": "a", "$distinct_id": "x"})).distinct_id, "x");
    let nul = one(json!({"event": "a\u{0}", "distinct_id": "\u{0}d", "properties": {"k\u{0}": ["\u{0}"]}}));
    assert_eq!((nul.event.as_str(), nul.distinct_id.as_str()), ("a\u{FFFD}", "\u{FFFD}d"));
    assert_eq!(Value::from(nul.properties), json!({"k\u{FFFD}": ["\u{FFFD}"]}));
    // Of duplicate keys the last value wins.
    let twice = r#"{"event":"a","distinct_id":"d","properties":{"k":1,"l":2,"k":3},"properties":{"k":1,"l":2,"k":3}}"#;
    let twice = read_text(twice.as_bytes()).unwrap().captured.in_full().unwrap();
    assert_eq!(Value::from(twice[0].properties.clone()), json!({"k": 3, "l": 2}));
    assert!(one(with("properties", json!(null))).properties.is_empty());
    // The fields of a batch may come in any order; fields that only single events have are ignored.
    let late = r#"{"properties":{"x":1},"batch":[{"event":"a","distinct_id":"d"}],"event":7,"token":"t"}"#;
    let late = read_text(late.as_bytes()).unwrap();
    assert_eq!((late.token.as_deref(), late.captured.events.len()), (Some("t"), 1));
    assert!(late.captured.in_full().unwrap()[0].properties.is_empty());
}

#[test]
fn timestamps_are_parsed_corrected_and_bounded() {
    let at = |timestamp: Value, historical: bool| {
        let event = json!({"event": "a", "distinct_id": "d", "timestamp": timestamp});
        events(json!({"api_key": "t", "historical_migration": historical, "batch": [event]}))[0].timestamp
    };
    let time = |text: &str| parse_timestamp(text).unwrap();
    let same = time("2024-01-04T11:45:38Z");
    for text in [
        "2024-01-04T11:45:38Z",
        "2024-01-04 11:45:38",
        "2024-01-04T13:45:38+02:00",
        "1704368738",
        "1704368738000",
        "1704368738000000",
        "Thu, 4 Jan 2024 12:45:38 +0100",
        "2024/01/04 11:45:38",
        "01/04/2024 11:45:38",
    ] {
        assert_eq!(at(json!(text), false), same, "{text}");
    }
    for unreadable in ["yesterday", "12", "2024-13-01", "", " "] {
        assert_eq!(at(json!(unreadable), false), time(NOW), "{unreadable}");
    }
    // 23 hours ahead, and a millisecond more.
    assert_eq!(at(json!("2024-05-02T11:00:00Z"), false), time("2024-05-02T11:00:00Z"));
    assert_eq!(at(json!("2024-05-02T11:00:00.001Z"), false), time(NOW));
    assert_eq!(at(json!("9999-12-31T23:59:59Z"), false), time(NOW));
    assert_eq!(at(json!("9999-12-31T23:59:59Z"), true), time("9999-12-31T23:59:59Z"));
    assert_eq!(at(json!("0001-01-01T00:00:00Z"), false), time("0001-01-01T00:00:00Z"));
    assert_eq!(at(json!("0000-12-31T23:59:59Z"), false), 0, "the epoch, as years before the first");
    assert_eq!(at(json!("1969-07-20T20:17:40Z"), false), time("1969-07-20T20:17:40Z"));
}

#[test]
fn the_analytics_format_drops_single_events_with_a_reason() {
    let uuid = |n: u128| Uuid::from_u128(n).to_string();
    let event = |n: u128, change: Value| {
        let mut event = json!({"uuid": uuid(n), "event": "a", "distinct_id": " d ",
            "timestamp": "2024-05-01T11:00:00Z", "properties": {"k": 1}});
        event.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        event
    };
    let body = |events: Vec<Value>| json!({"created_at": NOW, "batch": events});
    let batch = analytics(
        body(vec![
            event(1, json!({})),
            event(2, json!({"event": ""})),
            event(3, json!({"event": "x".repeat(201)})),
            event(4, json!({"distinct_id": " "})),
            event(5, json!({"distinct_id": "x".repeat(201)})),
            event(6, json!({"timestamp": "yesterday"})),
            event(7, json!({"properties": []})),
            event(8, json!({"event": "x".repeat(200), "distinct_id": "x".repeat(200)})),
        ]),
        &metadata(),
    )
    .unwrap();
    let reasons = batch.outcomes.iter().map(|(_, reason)| reason.unwrap_or("ok")).collect::<Vec<_>>();
    assert_eq!(
        reasons,
        [
            "ok",
            "missing_event_name",
            "event_name_too_long",
            "missing_distinct_id",
            "distinct_id_too_large",
            "invalid_event_timestamp",
            "malformed_event_properties",
            "ok"
        ]
    );
    let kept = batch.captured.in_full().unwrap();
    assert_eq!(kept.iter().map(|event| event.uuid.as_u128()).collect::<Vec<_>>(), [1, 8]);
    assert_eq!(kept[0].distinct_id, "d");
    let invalid_field = |body: Value| analytics(body, &metadata()).unwrap_err().attr.unwrap_or_default();
    assert_eq!(invalid_field(json!({"batch": [event(1, json!({}))]})), "created_at");
    assert_eq!(invalid_field(json!({"created_at": "x", "batch": [event(1, json!({}))]})), "created_at");
    assert_eq!(invalid_field(body(vec![event(1, json!({"uuid": null}))])), "batch[0].uuid");
    assert_eq!(invalid_field(body(vec![event(1, json!({"uuid": "x"}))])), "batch[0].uuid");
    assert_eq!(invalid_field(body(vec![])), "batch");
}

#[test]
fn fields_of_the_analytics_format_become_properties() {
    let metadata = RequestMetadata {
        sent_at: parse_timestamp("2024-05-01T10:00:00Z"),
        library: Some(("posthog-rs".to_owned(), "1.2.3".to_owned())),
        ..metadata()
    };
    let event = |options: Value| {
        json!({"uuid": Uuid::from_u128(1).to_string(), "event": "a", "distinct_id": "d",
            "timestamp": "2024-05-01T09:59:00Z", "session_id": "s", "window_id": null,
            "options": options, "properties": {"$lib": "own"}})
    };
    let one = |options: Value| {
        let batch = analytics(json!({"created_at": NOW, "batch": [event(options)]}), &metadata).unwrap();
        batch.captured.in_full().unwrap().remove(0)
    };
    let got = one(json!({"process_person_profile": false}));
    assert_eq!(got.timestamp, parse_timestamp("2024-05-01T11:59:00Z").unwrap());
    let want =
        json!({"$lib": "own", "$session_id": "s", "$lib_version": "1.2.3", "$process_person_profile": false});
    assert_eq!(Value::from(got.properties), want);
    let exact = one(json!({"disable_skew_correction": true}));
    assert_eq!(exact.timestamp, parse_timestamp("2024-05-01T09:59:00Z").unwrap());
}

/// Names of the stored events, and the drop reasons of all.
fn stored_and_dropped(batch: &Batch) -> (Vec<&str>, Vec<Option<&'static str>>) {
    let names = batch.captured.events.iter().map(|event| event.event.as_str());
    (names.collect(), batch.outcomes.iter().map(|(_, reason)| *reason).collect())
}

#[test]
fn a_person_event_with_person_processing_disabled_is_dropped() {
    let names = ["$identify", "$create_alias", "$merge_dangerously", "$groupidentify", "$set", "a"];
    let with_setting = |value: Value| {
        let event = |name| json!({"event": name, "distinct_id": "d", "properties": {"$process_person_profile": value}});
        let body = json!({"api_key": "t", "batch": names.map(event)}).to_string();
        normalize(body.as_bytes(), CaptureFormat::Batch, &metadata(), &mut || Uuid::from_u128(1)).unwrap()
    };
    let reason = Some("invalid_event_when_process_person_profile_is_false");
    assert_eq!(
        stored_and_dropped(&with_setting(json!(false))),
        (vec!["$set", "a"], vec![reason, reason, reason, reason, None, None])
    );
    for other in [json!(true), json!("false"), json!(0), Value::Null] {
        assert_eq!(
            stored_and_dropped(&with_setting(other.clone())),
            (names.to_vec(), vec![None; 6]),
            "{other}"
        );
    }
    let one = |options: Value| {
        let event = json!({"uuid": Uuid::from_u128(1).to_string(), "event": "$identify", "distinct_id": "d",
            "timestamp": NOW, "options": options, "properties": {"$process_person_profile": true}});
        let batch = analytics(json!({"created_at": NOW, "batch": [event]}), &metadata()).unwrap();
        stored_and_dropped(&batch).1
    };
    assert_eq!(
        one(json!({"process_person_profile": false})),
        [reason],
        "the option has precedence over the property"
    );
    assert_eq!(one(json!({})), [None]);
}
