//! Files into the event store, by the import of the `pennon` command.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use pennon_analytics::scan::{ColumnKey, EventSelection, MISSING, Partition, ScanRequest};
use pennon_eventstore::{EventStore, derive_person_id};
use serde_json::{Value, json};
use tempfile::TempDir;

use pennon::embedded::Embedded;
use pennon::import::{ImportError, ImportOptions, ImportPhase, LINE_BYTES_MAX, Summary, import_file};

const NOW: i64 = 1_700_000_000_000_000;

struct Place {
    events: EventStore,
    directory: TempDir,
}

impl Place {
    async fn new() -> Place {
        let store = Embedded::in_memory().await.unwrap().store(None);
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}/events", directory.path().display());
        Place { events: EventStore::open(store, &url).unwrap(), directory }
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    async fn import(&self, path: &Path, project: Option<u64>) -> Result<Summary, ImportError> {
        let options = ImportOptions { default_project: project, ..ImportOptions::default() };
        import_file(&self.events, path, options, NOW, &mut |_| {}).await
    }

    async fn lines(&self, content: &str) -> Result<Summary, ImportError> {
        self.import(&self.file("lines.jsonl", content.as_bytes()), Some(1)).await
    }

    async fn scan(&self, project: u64, columns: &[&str]) -> Vec<Partition> {
        let columns = columns.iter().map(|key| ColumnKey::Property((*key).to_owned()));
        let columns = columns.chain([ColumnKey::DistinctId]).collect();
        let request = ScanRequest {
            events: EventSelection::All,
            from: i64::MIN,
            to: i64::MAX,
            columns,
            arrivals: true,
        };
        self.events.scan(project, &[], &request).await.unwrap().partitions
    }

    /// The number of events and of persons.
    async fn counts(&self, project: u64) -> (usize, usize) {
        let partitions = self.scan(project, &[]).await;
        let events = partitions.iter().flat_map(|partition| &partition.runs).map(|run| run.times.len()).sum();
        (events, partitions.iter().map(|partition| partition.actors.len()).sum())
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cli/demo/ecom_events.jsonl.gz")
}

#[tokio::test]
async fn the_demo_is_complete_after_compaction_and_a_second_import() {
    let place = Place::new().await;
    let mut seen = Vec::new();
    let options = ImportOptions { default_project: Some(1), ..ImportOptions::default() };
    let summary =
        import_file(&place.events, &demo(), options, NOW, &mut |progress| seen.push(progress)).await.unwrap();
    assert_eq!((summary.lines, summary.events, summary.copies), (31_106, 31_106, 0));
    assert_eq!(summary.projects, BTreeSet::from([1]));
    assert!(seen.iter().any(|progress| progress.phase == ImportPhase::Checking));
    let last = seen.last().unwrap();
    assert_eq!((last.phase, last.lines, last.done), (ImportPhase::Storing, 31_106, last.total));

    // Counted from the lines themselves.
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(demo()).unwrap()).read_to_string(&mut text).unwrap();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        let line = serde_json::from_str::<Value>(line).unwrap();
        *names.entry(line["event"].as_str().unwrap().to_owned()).or_default() += 1;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        rows.push((
            text(&line["event"]),
            text(&line["distinct_id"]),
            text(&line["timestamp"]),
            text(&line["properties"]["platform"]),
        ));
    }
    rows.sort();
    let partitions = place.scan(1, &["platform"]).await;
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut found_rows = Vec::new();
    for partition in &partitions {
        for run in &partition.runs {
            *found.entry(run.event.clone()).or_default() += run.times.len();
            for row in 0..run.times.len() {
                let value = |key: &ColumnKey| {
                    let column = &run.columns[key];
                    assert_ne!(column.codes[row], MISSING);
                    column.values[column.codes[row] as usize].as_str().unwrap().to_owned()
                };
                let who = value(&ColumnKey::DistinctId);
                assert_eq!(partition.actors[run.actors[row] as usize], derive_person_id(1, &who));
                let at = chrono::DateTime::from_timestamp_micros(run.times[row]).unwrap();
                let at = at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
                found_rows.push((
                    run.event.clone(),
                    who,
                    at,
                    value(&ColumnKey::Property("platform".to_owned())),
                ));
            }
        }
    }
    found_rows.sort();
    assert_eq!(found, names);
    assert_eq!(found_rows, rows);
    assert_eq!(place.counts(1).await, (31_106, 600));

    place.events.compact(1, NOW + 1).await.unwrap();
    assert_eq!(place.scan(1, &["platform"]).await, partitions);
    // A second import, and a third one without compression, add nothing.
    let again = place.import(&demo(), Some(1)).await.unwrap();
    assert_eq!((again.events, again.copies), (0, 31_106));
    let plain = place.import(&place.file("plain", text.as_bytes()), Some(1)).await.unwrap();
    assert_eq!((plain.events, plain.copies), (0, 31_106));
    assert_eq!(place.scan(1, &["platform"]).await, partitions);
}

#[tokio::test]
async fn lines_of_all_kinds_and_projects() {
    let place = Place::new().await;
    let lines = [
        json!({"project": "1", "group": {"type": "organization", "index": 0, "key": "org:5", "properties": {"size": 5}}}),
        json!({"project": 2, "person": {"distinct_ids": ["a", "b"], "properties": {"city": "Bern"}}}),
        json!({"project": 2, "event": "seen", "distinct_id": "a", "timestamp": "2024-01-01T00:00:00Z"}),
        json!({"project": 2, "event": "seen", "distinct_id": "b", "timestamp": "2024-01-01", "properties": {"k": 50.0}}),
        json!({"event": "seen", "distinct_id": 7, "timestamp": "2024-01-01T00:00:00.123456+02:00", "properties": null,
               "uuid": "01890000-0000-7000-8000-000000000001"}),
    ];
    let text = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\r\n\n  \n");
    let summary = place.import(&place.file("lines.gz", &gzip(text.as_bytes())), Some(9)).await.unwrap();
    let want = Summary {
        lines: 5,
        events: 3,
        copies: 0,
        persons: 1,
        groups: 1,
        projects: BTreeSet::from([1, 2, 9]),
        ..Summary::default()
    };
    assert_eq!(Summary { source: want.source.clone(), ..summary }, want);
    assert_eq!(place.counts(2).await, (2, 1));
    assert_eq!(place.counts(9).await, (1, 1));
    assert_eq!(place.events.person_of(2, "b").await.unwrap(), derive_person_id(2, "a"));
    let groups = place.events.groups(1).await.unwrap();
    assert_eq!((groups[0].key.as_str(), &groups[0].properties["size"]), ("org:5", &json!(5)));
    let run = &place.scan(2, &["k"]).await[0].runs[0];
    assert_eq!(**run.columns[&ColumnKey::Property("k".to_owned())].values, [json!(50.0)]);
    // Lines of one time keep their order.
    let order = &run.columns[&ColumnKey::DistinctId];
    assert_eq!(
        order.codes.iter().map(|code| order.values[*code as usize].clone()).collect::<Vec<_>>(),
        ["a", "b"]
    );
}

#[tokio::test]
async fn a_bad_line_is_named_and_nothing_is_stored() {
    let place = Place::new().await;
    let good = json!({"event": "seen", "distinct_id": "a", "timestamp": "2024-01-01T00:00:00Z"});
    let with = |key: &str, value: Value| {
        let mut line = good.clone();
        line[key] = value;
        line.to_string()
    };
    let person = |value: Value| json!({ "person": value }).to_string();
    let group = |value: Value| json!({ "group": value }).to_string();
    for (bad, word) in [
        ("{".to_owned(), "JSON"),
        ("[]".to_owned(), "object"),
        ("{}".to_owned(), "exactly one"),
        (with("person", json!({"distinct_ids": ["a"]})), "exactly one"),
        (with("event", json!(null)), "event"),
        (with("event", json!(5)), "event"),
        (with("distinct_id", json!("")), "distinct_id"),
        (with("distinct_id", json!(null)), "distinct_id"),
        (with("timestamp", json!("soon")), "timestamp"),
        (with("timestamp", json!(17)), "timestamp"),
        (with("timestamp", json!(null)), "timestamp"),
        (with("uuid", json!("x")), "uuid"),
        (with("properties", json!([])), "properties"),
        (with("project", json!("x")), "project"),
        (with("project", json!(0)), "project"),
        (with("project", json!(-1)), "project"),
        (with("project", json!(1.5)), "project"),
        (with("project", json!("99999999999999999999")), "project"),
        (person(json!([])), "person"),
        (person(json!({})), "distinct_ids"),
        (person(json!({"distinct_ids": []})), "distinct_ids"),
        (person(json!({"distinct_ids": [""]})), "distinct_ids"),
        (person(json!({"distinct_ids": ["a"], "properties": 1})), "person.properties"),
        (person(json!({"distinct_ids": ["a"], "created_at": "x"})), "created_at"),
        (group(json!({})), "group.type"),
        (group(json!({"type": "t"})), "group.index"),
        (group(json!({"type": "t", "index": 5, "key": "k"})), "group.index"),
        (group(json!({"type": "t", "index": 0})), "group.key"),
        (group(json!({"type": "t", "index": 0, "key": "k", "properties": []})), "group.properties"),
    ] {
        let error = place.lines(&format!("{good}\n\n{good}\n{bad}\n{good}\n")).await.unwrap_err();
        assert_eq!(error.line, Some(4), "{bad}");
        assert!(error.message.contains(word) && error.file.ends_with("lines.jsonl"), "{bad}: {error}");
    }
    assert_eq!(place.counts(1).await, (0, 0));
    let error = place.import(&place.file("none", good.to_string().as_bytes()), None).await.unwrap_err();
    assert!(error.message.contains("--project"), "{error}");
    let error = place.import(&place.file("bytes", b"{\"event\": \"\xff\"}"), Some(1)).await.unwrap_err();
    assert_eq!(error.line, Some(1));
    let cut = gzip(format!("{good}\n").repeat(1000).as_bytes());
    let error = place.import(&place.file("cut.gz", &cut[..cut.len() - 20]), Some(1)).await.unwrap_err();
    assert!(error.line.is_some(), "{error}");
    let long = place.file("long", &vec![b' '; LINE_BYTES_MAX + 2]);
    assert!(place.import(&long, Some(1)).await.unwrap_err().message.contains("longer"));
    assert!(place.import(Path::new("/nowhere"), Some(1)).await.is_err());
    assert_eq!(place.counts(1).await, (0, 0));
    let options = ImportOptions {
        default_project: Some(1),
        group_types: BTreeMap::from([(1, vec!["company".to_owned()])]),
        ..ImportOptions::default()
    };
    let line = group(json!({"type": "team", "index": 0, "key": "k"}));
    let error =
        import_file(&place.events, &place.file("group", line.as_bytes()), options, NOW, &mut |_| {}).await;
    assert!(error.unwrap_err().message.contains("company"));
    assert_eq!(place.lines("").await.unwrap().lines, 0);
}

mod parquet_files {
    use super::*;
    use arrow_array::{
        ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    };
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Compression, CompressionCodec, GzipLevel, ZstdLevel};
    use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
    use parquet::file::properties::WriterProperties;

    fn file(place: &Place, name: &str, columns: Vec<(&str, ArrayRef)>) -> PathBuf {
        compressed(place, name, Compression::UNCOMPRESSED, columns)
    }

    fn compressed(
        place: &Place,
        name: &str,
        compression: Compression,
        columns: Vec<(&str, ArrayRef)>,
    ) -> PathBuf {
        let columns = columns.into_iter().map(|(name, array)| (name.to_owned(), array, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let path = place.directory.path().join(name);
        let properties = WriterProperties::builder().set_compression(compression).build();
        let out = std::fs::File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(out, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        path
    }

    fn texts(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    #[tokio::test]
    async fn columns_are_properties_and_person_ids_join() {
        let place = Place::new().await;
        let path = file(
            &place,
            "a.parquet",
            vec![
                ("event", texts(&[Some("seen"); 3])),
                ("distinct_id", texts(&[Some("a"), Some("b"), Some("c")])),
                ("timestamp", Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3]).with_timezone("UTC"))),
                ("person_id", Arc::new(Int64Array::from(vec![Some(1), Some(1), None]))),
                ("properties", texts(&[Some(r#"{"k": 50, "x": [1]}"#), None, Some("")])),
                ("price", Arc::new(Float64Array::from(vec![Some(1.5), None, Some(2.0)]))),
            ],
        );
        for again in [false, true] {
            let summary = place.import(&path, Some(1)).await.unwrap();
            assert_eq!(summary.events, if again { 0 } else { 3 });
            assert_eq!((summary.lines, summary.persons, summary.merges), (3, 1, 1));
            assert_eq!(place.counts(1).await, (3, 2));
        }
        let run = place.scan(1, &["k", "x", "price"]).await[0].runs[0].clone();
        let values = |key: &str| {
            let column = &run.columns[&ColumnKey::Property(key.to_owned())];
            let mut values = column
                .codes
                .iter()
                .map(|code| column.values.get(*code as usize).cloned())
                .collect::<Vec<_>>();
            values.sort_by_key(|value| format!("{value:?}"));
            values
        };
        assert_eq!(values("k"), [None, None, Some(json!(50))]);
        assert_eq!(values("x"), [None, None, Some(json!([1]))]);
        assert_eq!(values("price"), [None, Some(json!(1.5)), Some(json!(2.0))]);
    }

    #[tokio::test]
    async fn an_export_of_posthog_in_parquet_gives_events_persons_and_merges() {
        let place = Place::new().await;
        let times = |times: Vec<i64>| -> ArrayRef {
            Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"))
        };
        let state = Some(r#"{"plan": "pro"}"#);
        let path = file(
            &place,
            "events.parquet",
            vec![
                ("event", texts(&[Some("view"), Some("$identify"), Some("buy")])),
                ("distinct_id", texts(&[Some("device"), Some("ann"), Some("ann@shop")])),
                ("person_id", texts(&[Some("P0"), Some("P1"), Some("P1")])),
                (
                    "properties",
                    texts(&[Some("{}"), Some(r#"{"$anon_distinct_id": "device"}"#), Some(r#"{"k": 1}"#)]),
                ),
                ("person_properties", texts(&[None, Some("{}"), state])),
                ("elements_chain", texts(&[Some("a:b"), Some(""), None])),
                ("timestamp", times(vec![1, 2, 3])),
                ("created_at", times(vec![4, 5, 6])),
                ("_inserted_at", times(vec![7, 8, 9])),
            ],
        );
        let summary = place.import(&path, Some(1)).await.unwrap();
        assert_eq!((summary.lines, summary.events, summary.persons, summary.merges), (3, 3, 1, 2));
        assert_eq!((summary.source.vendor, summary.source.format), ("posthog", "Parquet"));
        assert_eq!(place.counts(1).await, (3, 1));
        let subject = place.events.subject(1, "device", &[], None).await.unwrap();
        assert_eq!(subject.person.properties, json!({"plan": "pro"}).as_object().unwrap().clone());
        // With a mapping of columns, the same columns are a plain event, and the others are properties.
        let options = ImportOptions {
            default_project: Some(2),
            map: vec!["person_id=distinct_id".parse().unwrap(), "distinct_id=properties.id".parse().unwrap()],
            ..ImportOptions::default()
        };
        let summary = import_file(&place.events, &path, options, NOW, &mut |_| {}).await.unwrap();
        assert_eq!((summary.events, summary.source.vendor), (3, "pennon"));
        assert_eq!(place.counts(2).await, (3, 2));
    }

    /// Many rows, so that a page is worth compressing.
    fn seen(place: &Place, name: &str, compression: Compression) -> PathBuf {
        let ids = (0..3000).map(|n| format!("{name}-{n}")).collect::<Vec<_>>();
        let ids = ids.iter().map(|id| Some(id.as_str())).collect::<Vec<_>>();
        let columns = vec![
            ("event", texts(&[Some("seen"); 3000])),
            ("distinct_id", texts(&ids)),
            ("timestamp", Arc::new(TimestampMicrosecondArray::from_iter_values(0..3000)) as ArrayRef),
        ];
        compressed(place, name, compression, columns)
    }

    #[tokio::test]
    async fn files_with_any_compression_are_read() {
        let place = Place::new().await;
        let compressions = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::GZIP(GzipLevel::default()),
            Compression::LZ4,
            Compression::LZ4_RAW,
            Compression::ZSTD(ZstdLevel::default()),
        ];
        for (project, compression) in (1..).zip(compressions) {
            let path = seen(&place, &format!("{compression}.parquet"), compression);
            let summary = place.import(&path, Some(project)).await.unwrap();
            assert_eq!(summary.events, 3000, "{compression}");
            assert_eq!(place.counts(project).await, (3000, 3000), "{compression}");
        }
    }

    #[tokio::test]
    async fn an_unsupported_compression_is_rejected_by_name_and_nothing_is_stored() {
        for (codec, name) in [(CompressionCodec::BROTLI, "brotli"), (CompressionCodec::LZO, "lzo")] {
            let place = Place::new().await;
            let path = seen(&place, "a.parquet", Compression::UNCOMPRESSED);
            // The same file, with an unsupported compression of its second column.
            let read = std::fs::File::open(&path).unwrap();
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&read).unwrap();
            let group = metadata.row_groups()[0].clone();
            let mut chunks = group.columns().to_vec();
            chunks[1] = chunks[1].clone().into_builder().set_compression_codec(codec).build().unwrap();
            let group = group.into_builder().set_column_metadata(chunks).build().unwrap();
            let metadata = metadata.into_builder().set_row_groups(vec![group]).build();
            let mut bytes = std::fs::read(&path).unwrap();
            let mut footer = Vec::new();
            ParquetMetaDataWriter::new(&mut footer, &metadata).finish().unwrap();
            bytes.extend(footer);
            let error = place.import(&place.file("other.parquet", &bytes), Some(1)).await.unwrap_err();
            assert!(error.message.starts_with("column distinct_id is compressed with "), "{error}");
            assert!(
                error.message.contains(name) && error.message.contains("write the file with zstd"),
                "{error}"
            );
            assert_eq!(place.counts(1).await, (0, 0));
        }
    }

    #[tokio::test]
    async fn events_do_not_change_the_properties_of_imported_persons() {
        let place = Place::new().await;
        let record = json!({"person": {"distinct_ids": ["a"], "properties": {"city": "Bern"},
            "created_at": "2024-01-01T00:00:00Z"}});
        place.lines(&record.to_string()).await.unwrap();
        let path = file(
            &place,
            "a.parquet",
            vec![
                ("event", texts(&[Some("seen"); 2])),
                ("distinct_id", texts(&[Some("a"), Some("b")])),
                ("timestamp", Arc::new(TimestampMicrosecondArray::from(vec![1, 2]).with_timezone("UTC"))),
                ("person_id", Arc::new(Int64Array::from(vec![1, 1]))),
            ],
        );
        let city = BTreeSet::from(["city".to_owned()]);
        for city_now in ["Bern", "Bern", "Thun"] {
            place.import(&path, Some(1)).await.unwrap();
            // A later line about the person with both ids replaces the properties.
            if city_now == "Thun" {
                let record = json!({"person": {"distinct_ids": ["b", "a"], "properties": {"city": "Thun"}}});
                place.lines(&record.to_string()).await.unwrap();
                place.import(&path, Some(1)).await.unwrap();
            }
            let want = json!({"city": city_now}).as_object().unwrap().clone();
            let subject = place.events.subject(1, "b", &[], None).await.unwrap();
            assert_eq!(subject.person.properties, want);
            let person = place.events.persons(1, &[derive_person_id(1, "a")]).await.unwrap().remove(0);
            assert_eq!((person.properties, person.created_at), (want.clone(), Some(1_704_067_200_000_000)));
            let mut listed = Vec::new();
            for people in [
                place.events.people(1, &city).await.unwrap(),
                place.events.load_people_with_all_properties(1, &place.events.query_memory()).await.unwrap(),
            ] {
                people.each(|_, _, properties| {
                    listed.push(properties.clone());
                    ControlFlow::Continue(())
                });
            }
            assert_eq!(listed, [want.clone(), want]);
        }
    }

    #[tokio::test]
    async fn bad_files_and_rows_are_named() {
        let place = Place::new().await;
        let two = [Some("a"), Some("b")];
        let lacking =
            file(&place, "lacking.parquet", vec![("event", texts(&two)), ("timestamp", texts(&two))]);
        let error = place.import(&lacking, Some(1)).await.unwrap_err();
        assert!(error.message.starts_with("has no column distinct_id; "), "{error}");
        let without_form: ArrayRef = Arc::new(arrow_array::BinaryArray::from(vec![b"x".as_slice()]));
        let error = place.import(&file(&place, "blob.parquet", vec![("blob", without_form)]), Some(1)).await;
        let error = error.unwrap_err();
        assert!(error.message.starts_with("column blob has type"), "{error}");
        let times = texts(&[Some("2024-01-01"), Some("never")]);
        let bad = file(
            &place,
            "bad.parquet",
            vec![("event", texts(&two)), ("distinct_id", texts(&two)), ("timestamp", times)],
        );
        let error = place.import(&bad, Some(1)).await.unwrap_err();
        assert_eq!(error.line, Some(2));
        let mut bytes = std::fs::read(&bad).unwrap();
        bytes.truncate(bytes.len() - 10);
        assert!(place.import(&place.file("cut.parquet", &bytes), Some(1)).await.is_err());
        assert_eq!(place.counts(1).await, (0, 0));
    }
}
