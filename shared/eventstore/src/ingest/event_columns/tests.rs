//! Values are encoded to columns of a segment file and decoded again.
#![allow(clippy::unwrap_used)]

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::import::check;
use super::segment_encoder::{SegmentRows, encode};
use super::*;
use crate::event::PersonEvent;
use crate::ingest::limits::EVENTS_PER_SEGMENT_MAX;
use crate::property_value::read_properties;
use crate::segments::property_columns::{COLUMNS_MAX, PropertyColumnKind};
use crate::segments::writer::ReplacedInputs;
use crate::segments::{FOOTER, Footer};

fn text(array: &ArrayRef, row: usize) -> Option<String> {
    let array = array.as_dictionary::<Int32Type>();
    let code = array.is_valid(row).then(|| array.keys().value(row) as usize)?;
    Some(array.values().as_string::<i32>().value(code).to_owned())
}

/// A value of a property column, decoded by its type.
fn value(array: &ArrayRef, kind: PropertyColumnKind, row: usize) -> Option<Value> {
    if array.is_null(row) {
        return None;
    }
    Some(match kind {
        PropertyColumnKind::Text => Value::from(text(array, row)?),
        PropertyColumnKind::Json => serde_json::from_str(&text(array, row)?).unwrap(),
        PropertyColumnKind::Integer => Value::from(array.as_primitive::<Int64Type>().value(row)),
        PropertyColumnKind::Float => Value::from(array.as_primitive::<Float64Type>().value(row)),
        PropertyColumnKind::Number => {
            PropertyColumnKind::number(array.as_primitive::<Float64Type>().value(row))
        }
        PropertyColumnKind::Boolean => Value::from(array.as_boolean().value(row)),
    })
}

/// All events of the file that these rows make, by uuid, and its footer.
fn through(rows: &[PersonEvent], range_rows: usize) -> (Vec<Event>, Footer) {
    let mut columns = EventColumns::new(0);
    rows.iter().for_each(|row| columns.take(row.seq, &row.event));
    let distinct_id_codes = 0..columns.distinct_ids.len() as u32;
    let persons = distinct_id_codes
        .map(|who| crate::person_ids::derive_person_id(1, columns.distinct_ids.text(who)))
        .collect();
    let segment_rows = SegmentRows { rows: (0..columns.len() as u32).collect(), persons };
    let written = encode(&columns, segment_rows, range_rows, &ReplacedInputs::default()).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(written.segment).unwrap();
    let entries = builder.metadata().file_metadata().key_value_metadata().unwrap();
    let entry = entries.iter().find(|entry| entry.key == FOOTER).unwrap();
    let footer: Footer = serde_json::from_str(entry.value.as_ref().unwrap()).unwrap();
    let mut events = Vec::new();
    for batch in builder.build().unwrap() {
        let batch = batch.unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap();
        for row in 0..batch.num_rows() {
            let overflow = column("properties").as_string::<i32>();
            let overflow = overflow.is_valid(row).then(|| overflow.value(row));
            let mut properties: Map<String, Value> =
                overflow.map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default();
            for own in &footer.columns {
                if let Some(value) = value(column(&format!("p.{}", own.key)), own.kind, row) {
                    assert!(
                        properties.insert(own.key.clone(), value).is_none(),
                        "in two places: {}",
                        own.key
                    );
                }
            }
            events.push(Event {
                uuid: Uuid::from_slice(column("uuid").as_fixed_size_binary().value(row)).unwrap(),
                event: text(column("event"), row).unwrap(),
                distinct_id: text(column("distinct_id"), row).unwrap(),
                timestamp: column("timestamp").as_primitive::<TimestampMicrosecondType>().value(row),
                properties,
            });
        }
    }
    events.sort_by_key(|event| event.uuid);
    (events, footer)
}

fn row(at: usize, properties: Value) -> PersonEvent {
    let event = Event {
        uuid: Uuid::from_u128(at as u128),
        event: ["a", "", "ü"][at % 3].to_owned(),
        distinct_id: format!("p{}", at % 5),
        timestamp: (at as i64 * 37) % 11 - 5,
        properties: properties.as_object().unwrap().clone(),
    };
    let person = crate::person_ids::derive_person_id(1, &event.distinct_id);
    PersonEvent { seq: at as u128, person, event }
}

/// Whether two values are equal; 50 and 50.0 differ, and so do zero and minus zero.
fn same(a: &[Event], b: &[Event]) -> bool {
    format!("{a:?}").len() == format!("{b:?}").len() && a == b
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3..4_i64).prop_map(Value::from),
        (-3..4_i64).prop_map(|n| Value::from(n as f64)),
        any::<f64>().prop_filter_map("a number", |float| Some(Value::from(float)).filter(Value::is_number)),
        prop::sample::select(vec![9_007_199_254_740_992_i64, 9_007_199_254_740_993, -9_007_199_254_740_993])
            .prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["", "null", "1", "\"", "\\", "\u{0}", "{\"a\":1}"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]{0,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Few keys with mostly one type of values each, so that columns of all types occur, with exceptions.
fn objects() -> impl Strategy<Value = Vec<Value>> {
    let number = prop_oneof![(-9..9_i64).prop_map(Value::from), Just(json!(0.5)), Just(json!(7.25))];
    let object = (
        prop::option::of(prop_oneof![9 => "[ab]{0,2}".prop_map(Value::from), 1 => values()]),
        prop::option::of(prop_oneof![9 => (-9..9_i64).prop_map(Value::from), 1 => values()]),
        prop::option::of(prop_oneof![9 => number, 1 => values()]),
        prop::option::of(prop_oneof![9 => any::<bool>().prop_map(Value::from), 1 => values()]),
        prop::option::of(prop_oneof![9 => (-9..9_i64).prop_map(|n| Value::from(n as f64)), 1 => values()]),
        prop::option::of(values()),
    );
    let object = object.prop_map(|(text, integer, number, boolean, float, any)| {
        let keys = ["text", "integer", "number", "boolean", "float", "any \"key\""];
        let values = [text, integer, number, boolean, float, any];
        keys.into_iter().zip(values).filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    });
    prop::collection::vec(object.prop_map(Value::Object), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_mix_of_values_is_decoded_unchanged(objects in objects(), range_rows in prop::sample::select(vec![5_usize, 1000])) {
        let rows = objects.into_iter().enumerate().map(|(at, object)| row(at, object)).collect::<Vec<_>>();
        let sent = rows.iter().map(|row| row.event.clone()).collect::<Vec<_>>();
        let (back, _) = through(&rows, range_rows);
        prop_assert!(same(&back, &sent), "{back:?}\n{sent:?}");
    }

    #[test]
    fn parsing_the_text_of_an_object_gives_the_same_columns(objects in objects()) {
        let mut columns = EventColumns::new(0);
        for (line, object) in (0..).zip(&objects) {
            columns.event(line, Uuid::from_u128(u128::from(line)), "a", "p", 0);
            read_properties(&object.to_string(), &mut columns).unwrap();
        }
        let mut whole = EventColumns::new(0);
        for (line, object) in (0..).zip(&objects) {
            let uuid = Uuid::from_u128(u128::from(line));
            let properties = object.as_object().unwrap().clone();
            let event = Event { uuid, event: "a".into(), distinct_id: "p".into(), timestamp: 0, properties };
            whole.push(line, &event);
        }
        prop_assert_eq!(format!("{:?}", columns.columns), format!("{:?}", whole.columns));
    }

    #[test]
    fn all_encoders_agree_whether_a_value_fits_a_column(value in values()) {
        let mut texts = Interner::default();
        let stored = StoredValue::of(&PropertyValue::of(&value), &mut texts);
        for kind in [PropertyColumnKind::Text, PropertyColumnKind::Integer, PropertyColumnKind::Float, PropertyColumnKind::Number, PropertyColumnKind::Boolean, PropertyColumnKind::Json] {
            prop_assert_eq!(stored.fits(kind), kind.fits(&value), "{:?} {}", kind, value);
        }
        let mut json = String::new();
        stored.write_json(&texts, &mut json);
        prop_assert_eq!(json, value.to_string());
        prop_assert_eq!(PropertyValue::of(&value).to_value(), value);
    }
}

#[test]
fn texts_that_are_not_objects_are_rejected_and_the_last_duplicate_key_counts() {
    for bad in ["", "[]", "1", "\"a\"", "{", "{\"a\":}", "{} {}", "{\"a\":1e999}", "{\"a\":\"\\ud800\"}"] {
        assert!(read_properties(bad, &mut ()).is_err(), "{bad}");
    }
    read_properties("null", &mut ()).unwrap();
    read_properties(" { } ", &mut ()).unwrap();
    let deep = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(read_properties(&deep(100), &mut ()).is_ok());
    assert!(read_properties(&deep(100_000), &mut ()).is_err());
    let mut columns = EventColumns::new(0);
    columns.event(0, Uuid::nil(), "a", "p", 0);
    read_properties(r#"{"k": "first", "other": 1, "k": 2.5}"#, &mut columns).unwrap();
    let column = &columns.columns[columns.keys.known("k").unwrap() as usize];
    assert_eq!(column.len(), 1);
    assert_eq!(column.at(0), StoredValue::of(&PropertyValue::Float(2.5), &mut Interner::default()));
    assert!(column.tally.all_fit(PropertyColumnKind::Float));
}

#[test]
fn events_with_more_keys_than_columns_are_complete() {
    // One key more than the maximum of columns; every second event has all keys.
    let bomb = (0..=KEYS_MAX).map(|n| (format!("key {n}"), json!(n))).collect::<Map<_, _>>();
    let mut rows = vec![row(0, bomb.clone().into()), row(1, json!({"often": 1})), row(2, bomb.into())];
    rows.push(row(3, json!({"often": 2, format!("key {KEYS_MAX}"): null})));
    let sent = rows.iter().map(|row| row.event.clone()).collect::<Vec<_>>();
    let (back, footer) = through(&rows, 1000);
    assert!(same(&back, &sent));
    assert_eq!(footer.columns.len(), COLUMNS_MAX);
    assert_eq!(footer.overflow_keys, None);
}

#[test]
fn values_of_the_maximum_depth_are_decoded_unchanged() {
    let mut deep = json!("end");
    for _ in 0..120 {
        deep = json!([deep]);
    }
    let rows = [row(0, json!({"deep": deep, "o": {"b": {"a": 1.0}, "a": null}}))];
    let (back, _) = through(&rows, 1000);
    assert!(same(&back, std::slice::from_ref(&rows[0].event)));
    assert_eq!(back[0].properties["o"].to_string(), r#"{"b":{"a":1.0},"a":null}"#);
}

#[test]
fn a_segment_takes_the_maximum_of_events_and_not_one_more() {
    let mut columns = EventColumns::new(0);
    for line in 0..EVENTS_PER_SEGMENT_MAX as u64 {
        columns.event(line, Uuid::nil(), "a", "p", 0);
    }
    check(&columns).unwrap();
    columns.event(0, Uuid::nil(), "a", "p", 0);
    assert!(check(&columns).is_err());
    let mut columns = EventColumns::new(0);
    let text = "x".repeat(1 << 24);
    for line in 0..(TEXT_BYTES_MAX >> 24) as u64 {
        columns.event(line, Uuid::nil(), "a", "p", 0);
        columns.property("k", PropertyValue::Text(text.as_str().into()));
    }
    check(&columns).unwrap();
    columns.property("other", PropertyValue::Text("y".into()));
    assert!(check(&columns).is_err());
}
