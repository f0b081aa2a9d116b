//! Segments that the writer makes of sorted columns.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use arrow_array::{
    DictionaryArray, FixedSizeBinaryArray, Int64Array, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;

use super::*;

/// Event, person, time, arrival.
type Key = (String, u128, i64, u128);

fn batch(rows: &[Key], properties: &[Option<&str>]) -> RecordBatch {
    let ids = |ids: Vec<u128>| -> ArrayRef {
        let bytes = ids.into_iter().flat_map(u128::to_be_bytes).collect::<Vec<_>>();
        Arc::new(FixedSizeBinaryArray::try_new(16, bytes.into(), None).unwrap())
    };
    let events: DictionaryArray<Int32Type> = rows.iter().map(|row| row.0.as_str()).collect();
    let distinct_id_codes: DictionaryArray<Int32Type> = rows.iter().map(|_| "who").collect();
    let times = rows.iter().map(|row| row.2).collect::<Vec<_>>();
    let texts = (0..rows.len()).map(|row| properties.get(row).copied().flatten());
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("event", Arc::new(events), false),
        ("person", ids(rows.iter().map(|row| row.1).collect()), false),
        ("distinct_id", Arc::new(distinct_id_codes), false),
        ("timestamp", Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")), false),
        (
            "seq_high",
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| (row.3 >> 64) as u64))),
            false,
        ),
        ("seq_low", Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.3 as u64))), false),
        ("uuid", ids(rows.iter().map(|row| row.3).collect()), false),
        ("properties", Arc::new(StringArray::from_iter(texts)), true),
        ("p.n", Arc::new(Int64Array::from_iter(rows.iter().map(|row| Some(row.2)))), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn writer(bits: u32) -> SegmentWriter {
    SegmentWriter::new(vec![("n".to_owned(), PropertyColumnKind::Integer)], bits).unwrap()
}

fn read(written: &WrittenSegment) -> (Footer, Vec<RecordBatch>) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(written.segment.clone()).unwrap();
    let entries = builder.metadata().file_metadata().key_value_metadata().unwrap();
    let entry = entries.iter().find(|entry| entry.key == FOOTER).unwrap();
    let footer: Footer = serde_json::from_str(entry.value.as_ref().unwrap()).unwrap();
    let groups = builder.metadata().num_row_groups();
    let group = |at: usize| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(written.segment.clone()).unwrap();
        let mut batches = builder.with_row_groups(vec![at]).with_batch_size(1 << 20).build().unwrap();
        let batch = batches.next().unwrap().unwrap();
        assert!(batches.next().is_none());
        batch
    };
    (footer, (0..groups).map(group).collect())
}

/// The rows by range, each in order.
fn dealt(rows: &[Key], bits: u32) -> BTreeMap<u64, Vec<Key>> {
    let mut ranges: BTreeMap<u64, Vec<Key>> = BTreeMap::new();
    for row in rows {
        ranges.entry(range_of(Uuid::from_u128(row.1), bits)).or_default().push(row.clone());
    }
    ranges.values_mut().for_each(|rows| rows.sort());
    ranges
}

/// Compares the footer of a range with the values counted from its rows.
fn check_range(range: &Range, footer: &Footer, batch: &RecordBatch, rows: &[Key], persons: &[u128]) {
    let mut expected = rows.iter().map(|row| row.1).collect::<Vec<_>>();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(persons, expected);
    let numbers =
        |name: &str| batch.column_by_name(name).unwrap().as_primitive::<arrow_array::types::UInt32Type>();
    let (codes, ties) = (numbers("person_code"), numbers("tie"));
    let mut runs: Vec<(String, Vec<i64>)> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(persons[codes.value(at) as usize], row.1);
        let before = rows.iter().filter(|other| (other.1, other.2) == (row.1, row.2) && other.3 < row.3);
        assert_eq!(ties.value(at) as usize, before.count());
        match runs.last_mut() {
            Some((name, times)) if *name == row.0 => times.push(row.2),
            _ => runs.push((row.0.clone(), vec![row.2])),
        }
    }
    assert_eq!(range.ties, (0..rows.len()).any(|at| ties.value(at) > 0));
    let found = range
        .runs
        .iter()
        .map(|run| (footer.names[run.name as usize].clone(), run.rows as usize, run.min_time, run.max_time));
    let counted = runs
        .into_iter()
        .map(|(name, times)| (name, times.len(), *times.iter().min().unwrap(), *times.iter().max().unwrap()));
    assert_eq!(found.collect::<Vec<_>>(), counted.collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Few names, persons and times, so that there are many ties.
    #[test]
    fn footer_and_made_columns_agree_with_the_rows(
        raw in prop::collection::vec((0..4_u8, 0..9_u128, 0..5_i64), 1..200), bits in 0..4_u32
    ) {
        let rows = (0_u128..).zip(raw).map(|(seq, (name, person, time))| {
            // Persons of all ranges; the order of arrival differs from that of times.
            (format!("e{name}"), person << 124 | person, time, (seq * 7919) % 1009)
        });
        let rows = rows.collect::<Vec<Key>>();
        let ranges = dealt(&rows, bits);
        let mut writer = writer(bits);
        for rows in ranges.values() {
            writer.write(&batch(rows, &[])).unwrap();
        }
        let written = writer.finish(&ReplacedInputs::default()).unwrap();
        let (footer, batches) = read(&written);
        prop_assert_eq!(footer.ranges.len(), ranges.len());
        prop_assert!(footer.names.is_sorted());
        let persons = written.persons.chunks(16).map(|id| u128::from_be_bytes(id.try_into().unwrap()));
        let persons = persons.collect::<Vec<_>>();
        let mut at = 0;
        for ((range, batch), (number, rows)) in footer.ranges.iter().zip(&batches).zip(&ranges) {
            prop_assert_eq!(range.number, *number);
            let next = at + range.persons as usize;
            check_range(range, &footer, batch, rows, &persons[at..next]);
            at = next;
        }
        prop_assert_eq!(at, persons.len());
        prop_assert_eq!(written.rows as usize, rows.len());
        prop_assert_eq!(written.min_time, rows.iter().map(|row| row.2).min().unwrap());
        prop_assert_eq!(written.max_time, rows.iter().map(|row| row.2).max().unwrap());
    }
}

#[test]
fn rows_out_of_order_are_rejected() {
    let row = |name: &str, person: u128, time: i64, seq: u128| (name.to_owned(), person, time, seq);
    let good = [row("a", 1, 5, 1), row("a", 1, 5, 2), row("a", 2, 1, 3), row("b", 1, 0, 4)];
    writer(0).write(&batch(&good, &[])).unwrap();
    for swapped in [(0, 1), (1, 2), (2, 3)] {
        let mut bad = good.clone();
        bad.swap(swapped.0, swapped.1);
        assert!(writer(0).write(&batch(&bad, &[])).is_err(), "{swapped:?}");
    }
    // Persons of two ranges in one, a range twice, and ranges that do not ascend.
    let (low, high) = (batch(&[row("a", 1, 0, 0)], &[]), batch(&[row("a", 1 << 127, 0, 1)], &[]));
    assert!(writer(1).write(&batch(&[row("a", 1, 0, 0), row("a", 1 << 127, 0, 1)], &[])).is_err());
    let mut writing = writer(1);
    writing.write(&high).unwrap();
    assert!(writing.write(&high).is_err());
    assert!(writing.write(&low).is_err());
}

#[test]
fn the_footer_has_the_keys_stored_in_properties() {
    let rows = (0..3).map(|seq| ("a".to_owned(), 1, 0, seq)).collect::<Vec<_>>();
    let footer = |properties: &[Option<&str>]| {
        let mut writer = writer(0);
        writer.write(&batch(&rows, properties)).unwrap();
        let footer = read(&writer.finish(&ReplacedInputs::default()).unwrap()).0;
        (footer.overflow_keys, footer.columns[0].exceptions)
    };
    assert_eq!(footer(&[None, None, None]), (Some(vec![]), false));
    let some = footer(&[Some(r#"{"\u0062":{"n":1},"a":[]}"#), None, Some(r#"{"a":1}"#)]);
    assert_eq!(some, (Some(vec!["a".to_owned(), "b".to_owned()]), false));
    assert_eq!(footer(&[None, Some(r#"{"n":null}"#), None]), (Some(vec!["n".to_owned()]), true));
    let keys = |count: usize| {
        let keys = (0..count).map(|key| format!("\"k{key}\":0")).collect::<Vec<_>>();
        format!("{{{}}}", keys.join(","))
    };
    assert_eq!(footer(&[Some(&keys(2000))]).0.unwrap().len(), 2000);
    assert_eq!(footer(&[Some(&keys(2001))]), (None, false));
    assert!(writer(0).write(&batch(&rows, &[Some("[]")])).is_err());
}
