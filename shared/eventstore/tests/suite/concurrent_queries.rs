//! Queries while events are captured, compacted and swept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crate::support::{NOW, PROJECT, Place, request, simple};
use pennon_eventstore::GRACE_MICROS;

const BATCHES: u64 = 60;
const EVENTS: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_response_has_what_was_acknowledged_and_nothing_twice() {
    let place = Place::new().await;
    let (begun, acknowledged, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let write = async {
        for batch in 0..BATCHES {
            let events = (0..EVENTS).map(|n| {
                let uuid = u128::from(batch * EVENTS + n);
                simple(uuid, "a", &format!("p{}", n % 4), n as i64)
            });
            let events = events.collect::<Vec<_>>();
            begun.fetch_add(EVENTS, SeqCst);
            place.events.append(PROJECT, &events, NOW + batch as i64).await.unwrap();
            acknowledged.fetch_add(EVENTS, SeqCst);
            // Sent again, as clients do after a timeout.
            place.events.append(PROJECT, &events[..3], NOW + batch as i64).await.unwrap();
        }
        over.store(true, SeqCst);
    };
    let tidy = |events: pennon_eventstore::EventStore| {
        let over = &over;
        async move {
            let mut round = 0;
            while !over.load(SeqCst) {
                round += 1;
                events.compact(PROJECT, NOW + round).await.unwrap();
                // Within the grace period: blocks go at once, objects stay for readers that have begun.
                events.sweep(PROJECT, NOW + GRACE_MICROS / 2).await.unwrap();
            }
        }
    };
    let run_query = |events: pennon_eventstore::EventStore| {
        let (begun, acknowledged, over) = (&begun, &acknowledged, &over);
        async move {
            let mut requested = 0;
            while !over.load(SeqCst) || requested == 0 {
                let least = acknowledged.load(SeqCst);
                let rows = events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.rows;
                let most = begun.load(SeqCst);
                assert!((least..=most).contains(&rows), "{rows} events, {least} acknowledged, {most} begun");
                requested += 1;
            }
        }
    };
    tokio::join!(
        write,
        tidy(place.again()),
        tidy(place.again()),
        run_query(place.events.clone()),
        run_query(place.again())
    );
    let rows = place.again().scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.rows;
    assert_eq!(rows, BATCHES * EVENTS);
}
