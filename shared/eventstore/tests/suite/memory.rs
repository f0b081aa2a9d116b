//! What a scan may hold, and what is kept of it for the next one.

use std::collections::BTreeSet;

use crate::support::{NOW, PROJECT, Place, event, simple, without_arrivals};
use pennon_engine::scan::{ColumnKey, ScanRequest};
use pennon_eventstore::{EventStoreError, Settings};
use serde_json::json;

#[tokio::test]
async fn a_scan_takes_no_more_memory_than_it_may() {
    // Of each row its person (4 bytes), its time (8) and, without ties, nothing else.
    let asked = ScanRequest { columns: BTreeSet::new(), ..without_arrivals(&["a"], &[]) };
    let sent = (0..100_u64).map(|n| (n, simple(u128::from(n), "a", "ada", n as i64))).collect::<Vec<_>>();
    for (scan_bytes, fits) in [(1200, true), (1199, false)] {
        let place = Place::with(Settings { scan_bytes, ..Settings::default() }).await;
        place.events.ingest(PROJECT, sent.clone(), NOW).await.unwrap();
        match place.events.scan(PROJECT, &[], &asked).await {
            Ok(scan) => assert_eq!((fits, scan.stats.rows, scan.stats.bytes_held), (true, 100, 1200)),
            Err(EventStoreError::TooLarge(why)) => assert!(!fits && why.contains("100 events"), "{why}"),
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn long_values_count_as_memory_that_a_scan_takes() {
    let place = Place::with(Settings { scan_bytes: 105_000, ..Settings::default() }).await;
    let long = |n: u64| (n, event(u128::from(n), "a", "ada", n as i64, json!({"k": format!("{n:01000}")})));
    place.events.ingest(PROJECT, (0..85).map(long).collect(), NOW).await.unwrap();
    let of = |key: &str| ScanRequest {
        columns: BTreeSet::from([ColumnKey::Property(key.to_owned())]),
        ..without_arrivals(&["a"], &[])
    };
    // 85 values of 1000 bytes and what a value takes itself, with what is remembered of it.
    assert!(place.events.scan(PROJECT, &[], &of("k")).await.is_ok());
    place.events.ingest(PROJECT, (85..110).map(long).collect(), NOW + 1).await.unwrap();
    let refused = place.events.scan(PROJECT, &[], &of("k")).await;
    assert!(matches!(refused, Err(EventStoreError::TooLarge(why)) if why.contains("105000 bytes")));
    assert!(place.events.scan(PROJECT, &[], &of("other")).await.is_ok());
}

#[tokio::test]
async fn what_was_decoded_is_kept_and_shared_between_questions() {
    let place = Place::with(Settings { range_rows: 1000, ..Settings::default() }).await;
    let of = |n: u64| {
        let name = ["a", "b"][n as usize % 2];
        (n, event(u128::from(n), name, &format!("p{}", n % 700), n as i64, json!({"k": n % 3})))
    };
    place.events.ingest(PROJECT, (0..4000).map(of).collect(), NOW).await.unwrap();
    let asked = ScanRequest { columns: BTreeSet::new(), ..without_arrivals(&["a"], &[]) };
    let stats = async |asked: &ScanRequest| place.events.scan(PROJECT, &[], asked).await.unwrap().stats;
    let first = stats(&asked).await;
    assert_eq!((first.rows, first.rows_decoded, first.cache_hits), (2000, 2000, 0));
    assert!(first.bytes_read > 0 && first.cache_misses > 0);
    let second = stats(&asked).await;
    assert_eq!((second.rows_decoded, second.bytes_read, second.cache_misses), (0, 0, 0));
    assert_eq!((second.rows, second.cache_hits), (2000, first.cache_misses));
    // Another event is decoded alone, another column of a known event too.
    let third = stats(&ScanRequest { ..without_arrivals(&["b"], &[]) }).await;
    assert_eq!((third.rows, third.rows_decoded, third.cache_hits), (2000, 2000, 0));
    let column =
        ScanRequest { columns: BTreeSet::from([ColumnKey::Property("k".to_owned())]), ..asked.clone() };
    let fourth = stats(&column).await;
    assert_eq!(
        (fourth.rows_decoded, fourth.cache_hits, fourth.cache_misses),
        (0, first.cache_misses, first.cache_misses)
    );
    // Other times of a known event need nothing from the file.
    let narrow = ScanRequest { from: 500, to: 3500, ..asked };
    let fifth = stats(&narrow).await;
    assert_eq!((fifth.rows, fifth.rows_decoded, fifth.bytes_read), (1501, 0, 0));
}
