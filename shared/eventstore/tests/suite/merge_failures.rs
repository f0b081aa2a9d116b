//! Segments that cannot be merged: ranges of persons are made narrower, or other segments are merged; the obstacle is
//! reported once and blocks no other merge.

use std::path::PathBuf;

use crate::support::{NOW, PROJECT, Place, PlainRow, event, expected, request, rows, simple};
use parquet::file::reader::{FileReader, SerializedFileReader};
use pennon_core::store::{Item, PartitionQuery, WriteCondition};
use pennon_eventstore::{
    CompactionReport, Event, EventStore, EventStoreError, MergeMode, PersonRecord, Settings, derive_person_id,
};
use serde_json::{Map, Value, json};

async fn all(events: &EventStore) -> Vec<PlainRow> {
    rows(&events.scan(PROJECT, &[], &request(&[], &["text"])).await.unwrap())
}

fn want(sent: &[Event]) -> Vec<PlainRow> {
    expected(sent, &request(&[], &["text"]), |who| derive_person_id(PROJECT, who))
}

/// Imports `count` segments of fifty events of about 150 bytes each.
async fn segments(place: &Place, count: u64, who: impl Fn(u64) -> String) -> Vec<Event> {
    let mut sent = Vec::new();
    for segment in 0..count {
        let lines = (segment * 50..segment * 50 + 50).map(|n| {
            let text = format!("{n:060}");
            (n, event(u128::from(n), "a", &who(n), n as i64, json!({"text": text})))
        });
        let lines = lines.collect::<Vec<_>>();
        sent.extend(lines.iter().map(|(_, event)| event.clone()));
        place.events.ingest(PROJECT, lines, NOW).await.unwrap();
    }
    sent
}

/// Merges until there is nothing to do.
async fn settle(events: &EventStore, effort: MergeMode) -> CompactionReport {
    let mut all = CompactionReport::default();
    loop {
        let done = events.merge_segments(PROJECT, NOW, effort).await.unwrap();
        all.add(&done);
        if !done.has_more_work() {
            return all;
        }
    }
}

async fn count(place: &Place) -> usize {
    place.again().scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.segments as usize
}

/// The rows of the row groups of the segment that was written last.
fn groups(place: &Place) -> Vec<i64> {
    let mut segments = place.files().into_iter().map(PathBuf::from).collect::<Vec<_>>();
    segments.retain(|path| path.extension().is_some_and(|ending| ending == "uuids"));
    segments.sort();
    let written = |path: &PathBuf| std::fs::metadata(path).unwrap().len();
    let largest = segments.iter().max_by_key(|path| written(path)).unwrap().with_extension("parquet");
    let file = SerializedFileReader::new(std::fs::File::open(largest).unwrap()).unwrap();
    file.metadata().row_groups().iter().map(|group| group.num_rows()).collect()
}

#[tokio::test]
async fn ranges_of_a_merge_that_would_be_too_large_are_made_narrower() {
    // Four hundred rows of some 150 bytes; by their number they would be one range.
    for (merged_range_bytes, least) in [(1 << 20, 1), (30_000, 2), (8_000, 8)] {
        let place = Place::with(Settings { merged_range_bytes, ..Settings::default() }).await;
        let sent = segments(&place, 8, |n| format!("p{n}")).await;
        let done = settle(&place.events, MergeMode::Fewest).await;
        assert_eq!((done.merged_segments, done.failed_merges), (8, 0), "{merged_range_bytes}");
        let groups = groups(&place);
        assert_eq!(groups.iter().sum::<i64>(), 400);
        assert!(
            groups.len() >= least && (least > 1 || groups.len() == 1),
            "{merged_range_bytes}: {groups:?}"
        );
        assert_eq!(all(&place.again()).await, want(&sent));
        // The result is merged with more segments.
        place.events.ingest(PROJECT, vec![(0, simple(9000, "a", "p1", 1))], NOW + 1).await.unwrap();
        let done = settle(&place.events, MergeMode::Fewest).await;
        assert_eq!((done.merged_segments, done.failed_merges), (2, 0), "{merged_range_bytes}");
        let sent = [sent, vec![simple(9000, "a", "p1", 1)]].concat();
        assert_eq!(all(&place.again()).await, want(&sent));
    }
}

#[tokio::test]
async fn segments_of_a_person_that_exceeds_a_range_are_not_merged_and_others_are() {
    // Two segments of fifty rows are below it, and four are not.
    let settings = Settings { merged_range_bytes: 22_000, ..Settings::default() };
    for effort in [MergeMode::Due, MergeMode::Fewest] {
        let place = Place::with(settings).await;
        let mut sent = segments(&place, 8, |_| "ada".to_owned()).await;
        let done = settle(&place.events, effort).await;
        assert_eq!(done.failed_merges, 0, "that is no failure");
        let heavy = count(&place).await;
        assert!((2..=6).contains(&heavy), "{heavy} segments");
        assert_eq!(all(&place.again()).await, want(&sent));
        // More events are captured and compacted, and few segments are left.
        for n in 0..40_u64 {
            let more = simple(u128::from(5000 + n), "b", &format!("p{n}"), 10_000 + n as i64);
            place.events.append(PROJECT, std::slice::from_ref(&more), NOW + n as i64).await.unwrap();
            sent.push(more);
            assert_eq!(place.events.compact(PROJECT, NOW + n as i64).await.unwrap().failed_merges, 0);
        }
        settle(&place.events, effort).await;
        let left = count(&place).await;
        assert!(left <= heavy + 8, "{left} segments, {heavy} of ada");
        assert_eq!(all(&place.again()).await, want(&sent));
    }
}

/// The entry of a segment in the manifest, the third one.
async fn entry(place: &Place) -> Item {
    let manifest = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SEGMENT")).prefix("SEGMENT#");
    place.store.records.query(manifest).await.unwrap().swap_remove(2)
}

#[tokio::test]
async fn a_segment_that_differs_from_its_entry_is_quarantined_and_the_others_are_merged() {
    let place = Place::new().await;
    let sent = segments(&place, 8, |n| format!("p{n}")).await;
    let whole = entry(&place).await;
    let mut body: Value = whole.body().unwrap();
    body["rows"] = json!(51);
    let wrong = Item::new(whole.key.clone(), &body).unwrap().with_version(whole.version);
    place.store.records.put(wrong, WriteCondition::None).await.unwrap();
    let done = settle(&place.events, MergeMode::Fewest).await;
    assert!((1..=8).contains(&done.failed_merges), "{done:?}");
    assert_eq!(count(&place).await, 2, "{done:?}");
    // Reported once; the next run has nothing to do.
    assert_eq!(settle(&place.events, MergeMode::Fewest).await, CompactionReport::default());
    place.store.records.put(whole, WriteCondition::None).await.unwrap();
    assert_eq!(all(&place.again()).await, want(&sent));
    // Another process tries again.
    let done = settle(&place.again(), MergeMode::Fewest).await;
    assert_eq!((done.merged_segments, done.failed_merges), (2, 0));
    assert_eq!(all(&place.again()).await, want(&sent));
}

#[tokio::test]
async fn a_damaged_segment_stops_one_merge_and_no_other() {
    for ending in [".persons", ".ids.parquet", ".parquet"] {
        let place = Place::new().await;
        let sent = segments(&place, 8, |n| format!("p{n}")).await;
        let mut files = place.files();
        let name = |file: &String| file.rsplit('/').next().unwrap_or_default().to_owned();
        files.retain(|file| name(file).split_once('.').is_some_and(|(_, found)| found == &ending[1..]));
        files.sort();
        let bytes = std::fs::read(&files[2]).unwrap();
        std::fs::remove_file(&files[2]).unwrap();
        let events = place.again();
        let done = settle(&events, MergeMode::Fewest).await;
        // None of the seven others has to wait for its detection.
        assert_eq!((done.merged_segments, done.failed_merges), (7, 1), "{ending}");
        assert_eq!(settle(&events, MergeMode::Fewest).await, CompactionReport::default(), "{ending}");
        // After it was restored, it is merged too.
        std::fs::write(&files[2], bytes).unwrap();
        assert_eq!(place.again().check(PROJECT, true, &mut |_| {}).await.unwrap().lifted.len(), 1);
        assert_eq!(settle(&place.again(), MergeMode::Fewest).await.merged_segments, 2, "{ending}");
        assert_eq!(all(&place.again()).await, want(&sent), "{ending}");
    }
}

#[tokio::test]
async fn while_merges_cannot_be_read_no_segment_is_marked_as_damaged() {
    let place = Place::new().await;
    let sent = segments(&place, 8, |n| format!("p{n}")).await;
    let person = PersonRecord {
        distinct_ids: vec!["p1".into(), "x".into()],
        properties: Map::new(),
        created_at: None,
    };
    place.events.add_persons(PROJECT, vec![person], NOW).await.unwrap();
    let damaged = place.files().into_iter().filter(|file| file.contains("/persons/")).collect::<Vec<_>>();
    let kept = damaged.iter().map(|file| std::fs::read(file).unwrap()).collect::<Vec<_>>();
    damaged.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let events = place.again();
    for effort in [MergeMode::Due, MergeMode::Fewest] {
        let refused = events.merge_segments(PROJECT, NOW, effort).await;
        assert!(matches!(refused, Err(EventStoreError::Damaged { .. })), "{refused:?}");
    }
    damaged.iter().zip(kept).for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
    assert_eq!(place.again().check(PROJECT, true, &mut |_| {}).await.unwrap().lifted.len(), 1);
    // The same process, which has read the damaged segment, merges all of them at once.
    let done = events.merge_segments(PROJECT, NOW, MergeMode::Fewest).await.unwrap();
    assert_eq!((done.merged_segments, done.failed_merges), (8, 0));
    let in_the_end = |who: &str| derive_person_id(PROJECT, if who == "x" { "p1" } else { who });
    assert_eq!(all(&place.again()).await, expected(&sent, &request(&[], &["text"]), in_the_end));
}
