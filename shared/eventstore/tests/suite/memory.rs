//! The memory of a scan, and what is cached for the next one.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::support::{NOW, PROJECT, Place, event, expected, rows, simple, without_arrivals};
use pennon_analytics::scan::{ColumnKey, ScanRequest};
use pennon_eventstore::cohort_lists::{CohortList, MEMBERS_MAX};
use pennon_eventstore::{Event, EventStoreError, GroupType, Settings, derive_person_id};
use serde_json::json;

#[tokio::test]
async fn a_scan_takes_at_most_the_memory_of_its_query() {
    // Of each row its person (4 bytes), its time (8) and, without ties, nothing else.
    let requested = ScanRequest { columns: BTreeSet::new(), ..without_arrivals(&["a"], &[]) };
    let sent = (0..100_u64).map(|n| (n, simple(u128::from(n), "a", "ada", n as i64))).collect::<Vec<_>>();
    for (scan_bytes, fits) in [(1200, true), (1199, false)] {
        let place = Place::with(Settings { scan_bytes, ..Settings::default() }).await;
        let waiting = Place::with(Settings { scan_bytes, ..Settings::default() }).await;
        place.events.ingest(PROJECT, sent.clone(), NOW).await.unwrap();
        let events = sent.iter().map(|(_, event)| event.clone()).collect::<Vec<_>>();
        waiting.events.append(PROJECT, &events, NOW).await.unwrap();
        for place in [place, waiting] {
            match place.events.scan(PROJECT, &[], &requested).await {
                Ok(scan) => assert_eq!((fits, scan.stats.rows, scan.stats.bytes_held), (true, 100, 1200)),
                Err(EventStoreError::TooLarge(why)) => assert!(!fits && why.contains("100 events"), "{why}"),
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[tokio::test]
async fn the_scans_of_one_query_share_its_memory() {
    let requested = ScanRequest { columns: BTreeSet::new(), ..without_arrivals(&["a"], &[]) };
    let place = Place::with(Settings { scan_bytes: 2399, ..Settings::default() }).await;
    let sent = (0..100_u64).map(|n| (n, simple(u128::from(n), "a", "ada", n as i64))).collect::<Vec<_>>();
    place.events.ingest(PROJECT, sent, NOW).await.unwrap();
    let room = place.events.query_memory();
    let scan = async || place.events.scan_within(PROJECT, &[], &requested, &room).await;
    assert_eq!(scan().await.unwrap().stats.bytes_held, 1200);
    assert!(matches!(scan().await, Err(EventStoreError::TooLarge(_))));
    // A different query has its own memory.
    assert!(place.events.scan(PROJECT, &[], &requested).await.is_ok());
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
async fn decoded_columns_are_cached_and_shared_between_queries() {
    let place = Place::with(Settings { range_rows: 1000, ..Settings::default() }).await;
    let of = |n: u64| {
        let name = ["a", "b"][n as usize % 2];
        (n, event(u128::from(n), name, &format!("p{}", n % 700), n as i64, json!({"k": n % 3})))
    };
    place.events.ingest(PROJECT, (0..4000).map(of).collect(), NOW).await.unwrap();
    let requested = ScanRequest { columns: BTreeSet::new(), ..without_arrivals(&["a"], &[]) };
    let stats =
        async |requested: &ScanRequest| place.events.scan(PROJECT, &[], requested).await.unwrap().stats;
    let first = stats(&requested).await;
    assert_eq!((first.rows, first.rows_decoded, first.cache_hits), (2000, 2000, 0));
    assert!(first.bytes_read > 0 && first.cache_misses > 0);
    let second = stats(&requested).await;
    assert_eq!((second.rows_decoded, second.bytes_read, second.cache_misses), (0, 0, 0));
    assert_eq!((second.rows, second.cache_hits), (2000, first.cache_misses));
    // Another event is decoded alone, another column of a known event too.
    let third = stats(&ScanRequest { ..without_arrivals(&["b"], &[]) }).await;
    assert_eq!((third.rows, third.rows_decoded, third.cache_hits), (2000, 2000, 0));
    let column =
        ScanRequest { columns: BTreeSet::from([ColumnKey::Property("k".to_owned())]), ..requested.clone() };
    let fourth = stats(&column).await;
    assert_eq!(
        (fourth.rows_decoded, fourth.cache_hits, fourth.cache_misses),
        (0, first.cache_misses, first.cache_misses)
    );
    // Other times of a known event need nothing from the file.
    let narrow = ScanRequest { from: 500, to: 3500, ..requested };
    let fifth = stats(&narrow).await;
    assert_eq!((fifth.rows, fifth.rows_decoded, fifth.bytes_read), (1501, 0, 0));
}

/// Events of three names, each with so many properties that their objects are by far the most of what a query takes.
fn rich(from: u128, to: u128) -> Vec<Event> {
    let properties = |n: u128| {
        let fields = (0..n % 40).map(|field| (format!("key {field}"), json!(format!("{n} of {field}"))));
        serde_json::Value::Object(fields.collect())
    };
    let of = |n: u128| {
        event(n + 1, ["a", "b", "c"][n as usize % 3], &format!("p{}", n % 50), n as i64 * 1000, properties(n))
    };
    (from..to).map(of).collect()
}

fn all_properties(names: &[&str], to: i64) -> ScanRequest {
    ScanRequest { to, ..without_arrivals(names, &[]) }
}

#[tokio::test]
async fn all_properties_take_at_most_the_memory_of_a_query() {
    let place = Place::new().await;
    let sent = rich(0, 3000);
    let lines = sent[..2500].iter().cloned().enumerate().map(|(line, event)| (line as u64, event));
    place.events.ingest(PROJECT, lines.collect(), NOW).await.unwrap();
    place.events.append(PROJECT, &sent[2500..], NOW + 1).await.unwrap();
    let with = |scan_bytes| place.again_with(Settings { scan_bytes, ..Settings::default() });
    let all = all_properties(&["a", "b"], i64::MAX);
    let takes = with(1 << 30).scan(PROJECT, &[], &all).await.unwrap().stats.bytes_held;
    // Of 2000 events with 19.5 properties each at the mean, of at least 100 bytes.
    assert!(takes > 2000 * 19 * 100, "{takes}");
    let enough = with(takes);
    let want = expected(&sent, &all, |who| derive_person_id(PROJECT, who));
    for _ in 0..2 {
        let scan = enough.scan(PROJECT, &[], &all).await.unwrap();
        assert_eq!(scan.stats.bytes_held, takes);
        assert!(rows(&scan) == want);
    }
    for less in [1, takes / 2, takes - 2000 * 16] {
        let refused = with(takes - less).scan(PROJECT, &[], &all).await;
        assert!(matches!(refused, Err(EventStoreError::TooLarge(_))), "{less} less");
    }
    // Narrower dates take less, also of a process that has decoded nothing, and need no objects of other days.
    let tenth = all_properties(&["a", "b"], 300_000);
    let scan = with(takes / 8).scan(PROJECT, &[], &tenth).await.unwrap();
    assert!(rows(&scan) == expected(&sent, &tenth, |who| derive_person_id(PROJECT, who)));
    assert!(scan.stats.bytes_held < takes / 8);
}

#[tokio::test]
async fn waiting_events_count_towards_the_memory_of_a_query() {
    let place = Place::new().await;
    let sent = rich(0, 1000);
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let all = all_properties(&["a", "b", "c"], i64::MAX);
    let refused = place.again_with(Settings { scan_bytes: 1_000_000, ..Settings::default() });
    assert!(matches!(refused.scan(PROJECT, &[], &all).await, Err(EventStoreError::TooLarge(_))));
    let scan = place.events.scan(PROJECT, &[], &all).await.unwrap();
    assert!(rows(&scan) == expected(&sent, &all, |who| derive_person_id(PROJECT, who)));
    // With one requested property per event it is much less.
    let one = ScanRequest {
        columns: BTreeSet::from([ColumnKey::Property("key 7".to_owned())]),
        ..without_arrivals(&["a", "b", "c"], &[])
    };
    assert!(refused.scan(PROJECT, &[], &one).await.is_ok());
}

#[tokio::test]
async fn an_abandoned_query_does_not_block_others() {
    let settings = Settings { range_rows: 500, ..Settings::default() };
    let place = Place::with(settings).await;
    let sent = rich(0, 3000);
    let lines = sent.iter().cloned().enumerate().map(|(line, event)| (line as u64, event));
    place.events.ingest(PROJECT, lines.collect(), NOW).await.unwrap();
    let all = all_properties(&["a", "b", "c"], i64::MAX);
    let want = expected(&sent, &all, |who| derive_person_id(PROJECT, who));
    for polls in [1, 2, 3, 5, 8, 13] {
        // Room for one query, and for one range to be decoded at a time.
        let takes = place.events.scan(PROJECT, &[], &all).await.unwrap().stats.bytes_held;
        let events = place.again_with(Settings { scan_bytes: takes, ..settings });
        {
            let mut requested = std::pin::pin!(events.scan(PROJECT, &[], &all));
            for _ in 0..polls {
                if futures::poll!(requested.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        assert!(rows(&events.scan(PROJECT, &[], &all).await.unwrap()) == want, "given up after {polls}");
    }
}

/// Imported groups and captured ones, each with properties of a kilobyte.
async fn with_groups(place: &Place, count: u128) {
    let identify = |n: u128| {
        let properties = json!({"$group_type": "company", "$group_key": format!("c{n}"),
            "$group_set": {"name": format!("{n:01000}"), "plan": "pro"}});
        event(n + 1, "$groupidentify", "ada", n as i64, properties)
    };
    let events: Vec<Event> = (0..count).map(identify).collect();
    let (compacted, waiting) = events.split_at(events.len() / 2);
    place.events.append(PROJECT, compacted, NOW).await.unwrap();
    place.events.compact_blocks(PROJECT, NOW).await.unwrap();
    place.events.append(PROJECT, waiting, NOW).await.unwrap();
}

#[tokio::test]
async fn groups_count_towards_the_memory_of_a_query() {
    let company = GroupType { index: 0, name: "company".to_owned() };
    let place = Place::new().await;
    with_groups(&place, 2000).await;
    let with =
        |memory_bytes| place.again_with(Settings { memory_bytes, cache_bytes: 0, ..Settings::default() });
    let name = BTreeSet::from(["name".to_owned()]);
    // Two megabytes of names, and what a group takes itself.
    let (small, large) = (with(2_000_000), with(4_000_000));
    for keys in [Some(&name), None] {
        let refused = small.load_groups(PROJECT, &company, keys, &small.query_memory()).await;
        assert!(
            matches!(&refused, Err(EventStoreError::TooLarge(why)) if why.contains("PENNON_EVENTS_MEMORY_MB")),
            "{refused:?}"
        );
        let memory = large.query_memory();
        let groups = large.load_groups(PROJECT, &company, keys, &memory).await.unwrap();
        assert_eq!(groups.len(), 2000);
        // They stay reserved until the query ends.
        let other = large.query_memory();
        let busy = async || large.load_groups(PROJECT, &company, keys, &other).await;
        assert!(matches!(busy().await, Err(EventStoreError::MemoryInUse)));
        drop(memory);
        assert!(busy().await.is_ok());
    }
    let none = BTreeSet::from(["none".to_owned()]);
    let memory = small.query_memory();
    assert!(small.load_groups(PROJECT, &company, Some(&none), &memory).await.is_ok());
}

#[tokio::test]
async fn persons_stay_reserved_until_their_query_ends() {
    let place = Place::new().await;
    let set = |n: u128| {
        event(n + 1, "seen", &format!("p{n}"), n as i64, json!({"$set": {"name": format!("{n:01000}")}}))
    };
    place.events.append(PROJECT, &(0..1000).map(set).collect::<Vec<_>>(), NOW).await.unwrap();
    let events =
        place.again_with(Settings { memory_bytes: 2_300_000, cache_bytes: 0, ..Settings::default() });
    let name = BTreeSet::from(["name".to_owned()]);
    for keeps in [false, true] {
        let memory = events.query_memory();
        let mut people = events.load_people(PROJECT, &name, &memory).await.unwrap();
        if keeps {
            people.keep_reserved();
        }
        people.each(|_, _, _| ControlFlow::Continue(()));
        let again = events.load_people(PROJECT, &name, &memory).await;
        assert_eq!(matches!(again, Err(EventStoreError::TooLarge(_))), keeps, "{again:?}");
        drop(memory);
    }
    assert!(events.people(PROJECT, &name).await.is_ok());
}

#[tokio::test]
async fn cohort_lists_count_towards_the_memory_of_a_query() {
    let place = Place::new().await;
    let records = &place.store.records;
    let many = (0..20_000).map(|n| format!("u{n}")).collect::<Vec<_>>();
    let few = many[..900].to_vec();
    for (cohort, ids, memory_bytes) in [(1, many, 1_000_000), (2, few, 50_000)] {
        let record = CohortList::store(records, PROJECT, cohort, &ids).await.unwrap();
        let list = CohortList::of_record(PROJECT, &record.into());
        let events = place.again_with(Settings { memory_bytes, cache_bytes: 0, ..Settings::default() });
        let memory = events.query_memory();
        let members = list.members_within(records, PROJECT, cohort, &memory).await.unwrap();
        assert_eq!(members.len(), ids.len());
        // They stay reserved until the query ends: there is no room for as many again.
        let refused = list.members_within(records, PROJECT, cohort, &memory).await;
        assert!(matches!(refused, Err(EventStoreError::TooLarge(_))), "{refused:?}");
        drop(memory);
        assert!(list.members_within(records, PROJECT, cohort, &events.query_memory()).await.is_ok());
    }
}

#[tokio::test]
async fn a_list_takes_the_maximum_of_members_and_not_one_more() {
    let place = Place::new().await;
    let records = &place.store.records;
    let mut ids = (0..MEMBERS_MAX).map(|n| format!("u{n}")).collect::<Vec<_>>();
    let record = CohortList::store(records, PROJECT, 1, &ids).await.unwrap();
    let list = CohortList::of_record(PROJECT, &record.into());
    assert_eq!(list.members(records, PROJECT, 1).await.unwrap().len(), MEMBERS_MAX);
    ids.push("one more".to_owned());
    let refused = CohortList::store(records, PROJECT, 2, &ids).await;
    assert!(matches!(refused, Err(EventStoreError::TooLarge(_))), "{refused:?}");
}
