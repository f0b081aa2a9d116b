#![allow(clippy::unwrap_used)]

use std::io::Write;

use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flate2::Compression;
use flate2::write::GzEncoder;
use pennon_eventstore::parse_timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::decode::{INFLATED_BYTES_MAX, Payload, Sent, decode};
use crate::normalize::{Batch, EVENT_BYTES_MAX, EVENTS_MAX, Received, normalize};
use crate::refusal::Refusal;

const NOW: &str = "2024-05-01T12:00:00Z";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn escaped(text: &str) -> String {
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

fn value(sent: &Sent<'_>) -> Value {
    decode(sent).unwrap().value
}

#[test]
fn every_form_of_a_body_is_read() {
    let body = json!({"event": "a?>~ü", "distinct_id": "d", "properties": {"token": "t"}});
    let text = body.to_string();
    let plain = Sent { body: text.as_bytes(), ..Sent::default() };
    assert_eq!(value(&plain), body);
    let packed = gzip(text.as_bytes());
    for sent in [
        Sent { body: &packed, content_encoding: Some("gzip"), ..Sent::default() },
        Sent { body: &packed, content_type: Some("text/plain"), ..Sent::default() },
        Sent { body: &packed, compression: Some("gzip-js"), ..Sent::default() },
        // A gateway that has inflated already.
        Sent { body: text.as_bytes(), content_encoding: Some("gzip"), ..Sent::default() },
    ] {
        assert_eq!(
            value(&sent),
            body,
            "{:?} {:?} {:?}",
            sent.content_type,
            sent.content_encoding,
            sent.compression
        );
    }
    let form = Some("application/x-www-form-urlencoded; charset=UTF-8");
    let base64 = STANDARD.encode(&text);
    let forms = [
        format!("data={}&compression=base64", escaped(&base64)),
        format!("compression=base64&data={}", base64.replace('+', " ")),
        format!("data={}", URL_SAFE_NO_PAD.encode(&text)),
        format!("data={}", escaped(&STANDARD.encode(&packed))),
        format!("data={}", percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC)),
    ];
    for body_text in &forms {
        assert_eq!(
            value(&Sent { body: body_text.as_bytes(), content_type: form, ..Sent::default() }),
            body,
            "{body_text}"
        );
        // A form that does not say what it is can be told by its beginning alone.
        let untold =
            Sent { content_type: form.filter(|_| !body_text.starts_with("data=")), ..Sent::default() };
        assert_eq!(value(&Sent { body: body_text.as_bytes(), ..untold }), body, "{body_text}");
    }
    assert_eq!(
        value(&Sent { body: base64.as_bytes(), compression: Some("base64"), ..Sent::default() }),
        body
    );
    let with_token = format!("data={}&api_key=phc_1", escaped(&base64));
    let payload =
        decode(&Sent { body: with_token.as_bytes(), content_type: form, ..Sent::default() }).unwrap();
    assert_eq!(payload, Payload { value: body, form_token: Some("phc_1".to_owned()) });
}

#[test]
fn bodies_that_are_none_of_the_forms_are_refused() {
    let status = |sent: Sent<'_>| decode(&sent).unwrap_err().status;
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
            status(Sent { body, ..Sent::default() }),
            StatusCode::BAD_REQUEST,
            "{:?}",
            &body[..body.len().min(20)]
        );
    }
    assert_eq!(
        status(Sent { body: b"{}", content_encoding: Some("br"), ..Sent::default() }),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        status(Sent { body: b"{}", compression: Some("lz64"), ..Sent::default() }),
        StatusCode::BAD_REQUEST
    );
    let form = Some("application/x-www-form-urlencoded");
    for body in ["x=1", "data=", "data=%", "data=!!!", "data=e30&compression=lz"] {
        assert_eq!(
            status(Sent { body: body.as_bytes(), content_type: form, ..Sent::default() }),
            StatusCode::BAD_REQUEST
        );
    }
    let bomb = gzip(&vec![b' '; INFLATED_BYTES_MAX + 1]);
    assert!(bomb.len() < 100_000);
    assert_eq!(status(Sent { body: &bomb, ..Sent::default() }), StatusCode::PAYLOAD_TOO_LARGE);
}

fn received() -> Received {
    Received { now: parse_timestamp(NOW).unwrap(), sent_at: None }
}

fn read(value: Value) -> Result<Batch, Refusal> {
    normalize(value, received(), &mut || Uuid::from_u128(99))
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
    let got = &batch.events[0];
    assert_eq!((got.event.as_str(), got.distinct_id.as_str()), ("bought", "ada"));
    assert_eq!(got.uuid, Uuid::from_u128(0x0189_0000_0000_7000_8000_0000_0000_0001));
    assert_eq!(got.timestamp, parse_timestamp("2024-04-30T08:00:00.123456Z").unwrap());
    assert_eq!(Value::from(got.properties.clone()), event["properties"]);
    let mut single = event.clone();
    single["api_key"] = "phc_1".into();
    assert_eq!(read(single).unwrap(), batch);
    let mut own = event;
    own["properties"]["token"] = "phc_1".into();
    assert_eq!(read(json!([own])).unwrap().token, batch.token);
}

#[test]
fn the_client_clock_is_corrected_and_offsets_are_taken_off() {
    let at = |event: Value, envelope: Value| {
        let mut body = json!({"api_key": "t", "batch": [{"event": "a", "distinct_id": "d"}]});
        body["batch"][0].as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        body.as_object_mut().unwrap().extend(envelope.as_object().unwrap().clone());
        read(body).unwrap().events[0].timestamp
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
    let query = Received { sent_at: Some(time("2024-05-01T10:00:00Z")), ..received() };
    let event = json!({"event": "a", "distinct_id": "d", "timestamp": "2024-05-01T09:59:00Z"});
    let batch = normalize(event, query, &mut || Uuid::nil()).unwrap();
    assert_eq!(batch.events[0].timestamp, time("2024-05-01T11:59:00Z"));
}

#[test]
fn ids_and_person_changes_are_found_where_clients_put_them() {
    let event = |event: Value| read(event).unwrap().events.remove(0);
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
fn what_is_missing_or_wrong_is_named() {
    let refused = |body: Value| {
        let refusal = read(body).unwrap_err();
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
        refusal.attr.unwrap_or_default()
    };
    let with = |key: &str, value: Value| {
        let mut event = json!({"event": "a", "distinct_id": "d"});
        event[key] = value;
        json!({"api_key": "t", "batch": [{"event": "a", "distinct_id": "d"}, event]})
    };
    for (key, value) in [
        ("event", json!(null)),
        ("event", json!(5)),
        ("event", json!("a\u{0}")),
        ("event", json!("x".repeat(201))),
        ("distinct_id", json!(null)),
        ("distinct_id", json!("")),
        ("distinct_id", json!([])),
        ("distinct_id", json!("\u{0}")),
        ("uuid", json!("x")),
        ("uuid", json!(5)),
        ("timestamp", json!("yesterday")),
        ("timestamp", json!(5)),
        ("timestamp", json!("0000-01-01T00:00:00Z")),
        ("timestamp", json!("10000-01-01T00:00:00Z")),
        ("offset", json!("x")),
        ("offset", json!(1e300)),
        ("offset", json!(1e14)),
        ("properties", json!([])),
        ("properties", json!({"k": ["a\u{0}"]})),
        ("properties", json!({"a\u{0}": 1})),
    ] {
        assert_eq!(refused(with(key, value.clone())), format!("batch[1].{key}"), "{key} {value}");
    }
    assert_eq!(refused(json!({"event": "a"})), "distinct_id");
    assert_eq!(refused(json!({"distinct_id": "a"})), "event");
    assert_eq!(refused(json!([1])), "[0]".trim_matches(['[', '0', ']']));
    assert_eq!(refused(json!({"batch": {}})), "batch");
    assert_eq!(refused(json!({"batch": []})), "batch");
    assert_eq!(refused(json!([])), "batch");
    assert_eq!(refused(json!({"sent_at": "x", "batch": [{"event": "a", "distinct_id": "d"}]})), "sent_at");
    let two = json!([
        {"event": "a", "distinct_id": "d", "properties": {"token": "t1"}},
        {"event": "a", "distinct_id": "d", "properties": {"token": "t2"}},
    ]);
    assert_eq!(refused(two), "[1].properties.token");
    for body in [json!(null), json!("a"), json!(5)] {
        assert_eq!(read(body).unwrap_err().status, StatusCode::BAD_REQUEST);
    }
}

#[test]
fn more_than_the_stated_limits_is_413() {
    let status = |body: Value| read(body).unwrap_err().status;
    let large = json!({"event": "a", "distinct_id": "d", "properties": {"k": "x".repeat(EVENT_BYTES_MAX)}});
    assert_eq!(status(large), StatusCode::PAYLOAD_TOO_LARGE);
    let event = json!({"event": "a", "distinct_id": "d"});
    assert_eq!(status(Value::Array(vec![event.clone(); EVENTS_MAX + 1])), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(read(Value::Array(vec![event; EVENTS_MAX])).unwrap().events.len(), EVENTS_MAX);
    let just =
        json!({"event": "a", "distinct_id": "d", "properties": {"k": "x".repeat(EVENT_BYTES_MAX - 100)}});
    assert!(read(just).is_ok());
    let bomb = (0..10_000).map(|n| (format!("k{n}"), json!(n))).collect::<serde_json::Map<_, _>>();
    assert!(read(json!({"event": "a", "distinct_id": "d", "properties": bomb})).is_ok());
}
