//! The cache of merged rows of several segments: the next query of the same process uses it until a write changes the
//! rows.

use std::sync::Arc;

use crate::support::{
    NOW, PROJECT, Place, PlainRow, event, expected, request, rows, simple, without_arrivals,
};
use pennon_analytics::scan::ScanRequest;
use pennon_eventstore::{Event, EventStore, MergeMode, Scan, Settings, derive_person_id};
use serde_json::json;

/// Events of three segments in the same partitions, many with equal times.
async fn history(place: &Place) -> Vec<Event> {
    let made = |n: u128| {
        let (name, who) = (["seen", "bought"][n as usize % 2], format!("p{}", n % 9));
        event(n, name, &who, n as i64 / 12, json!({"k": n % 5}))
    };
    let sent = (0..120).map(made).collect::<Vec<_>>();
    for (part, at) in sent.chunks(40).zip(0..) {
        let lines = part.iter().cloned().enumerate().map(|(line, event)| (line as u64, event));
        place.events.ingest(PROJECT, lines.collect(), NOW + at).await.unwrap();
    }
    sent
}

async fn scan(events: &EventStore, request: &ScanRequest) -> Scan {
    events.scan(PROJECT, &[], request).await.unwrap()
}

/// Whether the second scan uses the cached rows of the first one.
fn same(one: &Scan, other: &Scan) -> bool {
    let actors = |scan: &Scan| scan.partitions.iter().map(|part| part.actors.clone()).collect::<Vec<_>>();
    actors(one).iter().zip(&actors(other)).all(|(one, other)| Arc::ptr_eq(one, other))
}

fn want(sent: &[Event], request: &ScanRequest) -> Vec<PlainRow> {
    expected(sent, request, |who| derive_person_id(PROJECT, who))
}

#[tokio::test]
async fn merged_rows_are_used_only_by_the_next_query_of_the_same_rows() {
    let place = Place::new().await;
    let sent = history(&place).await;
    for arrivals in [true, false] {
        let requested = ScanRequest { arrivals, ..request(&["seen"], &["k"]) };
        let first = scan(&place.events, &requested).await;
        assert_eq!(first.stats.segments, 3);
        let second = scan(&place.events, &requested).await;
        assert!(same(&first, &second));
        assert_eq!((rows(&first), rows(&second)), (want(&sent, &requested), want(&sent, &requested)));
        let others = [
            ScanRequest { arrivals, ..request(&["seen", "bought"], &["k"]) },
            ScanRequest { arrivals, ..request(&["seen"], &["x"]) },
            ScanRequest { from: 3, to: 7, ..requested.clone() },
            ScanRequest { from: 3, ..requested.clone() },
            ScanRequest { arrivals: !arrivals, ..requested.clone() },
        ];
        for other in others {
            for _ in 0..2 {
                let found = scan(&place.events, &other).await;
                assert!(!same(&first, &found));
                assert_eq!(rows(&found), want(&sent, &other));
            }
        }
    }
}

#[tokio::test]
async fn later_writes_are_in_the_next_response() {
    let place = Place::new().await;
    let mut sent = history(&place).await;
    let requested = without_arrivals(&[], &["k"]);
    let first = scan(&place.events, &requested).await;
    // An event in a waiting block.
    let late = simple(1000, "seen", "p3", 4);
    place.again().append(PROJECT, std::slice::from_ref(&late), NOW + 10).await.unwrap();
    sent.push(late);
    let found = scan(&place.events, &requested).await;
    assert!(!same(&first, &found));
    assert_eq!(rows(&found), want(&sent, &requested));
    // A merge, which moves rows of all segments.
    let merge = event(1001, "$merge_dangerously", "p1", 5, json!({"alias": "p2"}));
    place.again().append(PROJECT, std::slice::from_ref(&merge), NOW + 11).await.unwrap();
    sent.push(merge);
    let merged =
        expected(&sent, &requested, |who| derive_person_id(PROJECT, if who == "p2" { "p1" } else { who }));
    for _ in 0..2 {
        assert_eq!(rows(&scan(&place.events, &requested).await), merged);
    }
    // Other segments.
    place.again().compact_blocks(PROJECT, NOW + 12).await.unwrap();
    for _ in 0..2 {
        assert_eq!(rows(&scan(&place.events, &requested).await), merged);
    }
    while place.again().merge_segments(PROJECT, NOW + 13, MergeMode::Fewest).await.unwrap().has_more_work() {}
    let found = scan(&place.events, &requested).await;
    assert_eq!((found.stats.segments, rows(&found)), (1, merged));
}

/// A range that covers all shares is read again for one of them; the others are kept.
#[tokio::test]
async fn reading_one_partition_again_keeps_the_other_cached_ones() {
    let place = Place::with(Settings { range_rows: 10, ..Settings::default() }).await;
    let made = |n: u128| simple(n, "seen", &format!("p{}", n % 20), n as i64 / 20);
    let mut sent = (0..20).map(made).collect::<Vec<_>>();
    let lines = (0..).zip(sent.iter().cloned());
    place.events.ingest(PROJECT, lines.take(5).collect(), NOW).await.unwrap();
    place
        .events
        .ingest(PROJECT, (5..).zip(sent.iter().skip(5).cloned()).take(5).collect(), NOW)
        .await
        .unwrap();
    sent.truncate(10);
    let more = (20..80).map(made).collect::<Vec<_>>();
    place.events.append(PROJECT, &more, NOW + 1).await.unwrap();
    place.events.compact_blocks(PROJECT, NOW + 2).await.unwrap();
    sent.extend(more);
    // A waiting event of a person and a time that a segment already has.
    let late = [simple(1000, "seen", "p3", 0)];
    place.events.append(PROJECT, &late, NOW + 3).await.unwrap();
    sent.extend(late);
    let requested = without_arrivals(&["seen"], &[]);
    let want = want(&sent, &requested);
    for _ in 0..3 {
        let found = scan(&place.events, &requested).await;
        assert!(found.partitions.len() > 1);
        assert_eq!(rows(&found), want);
    }
}
