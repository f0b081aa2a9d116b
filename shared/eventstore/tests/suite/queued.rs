//! Batches that wait as messages of a queue: what arrives is what was captured, however often and in whatever order messages are
//! delivered, and a message that cannot be read stops no other.

use std::time::Duration;

use pennon_core::store::PartitionQuery;
use pennon_eventstore::{
    BufferedMessage, BufferedReport, CapturedBatch, Event, EventStore, MESSAGE_BYTES_MAX,
};
use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;

use crate::support::{NOW, PROJECT, Place, event, expected, request, rows, simple};

/// The message of a batch.
async fn message(events: &EventStore, project: u64, batch: &[Event], now: i64) -> String {
    let batch = CapturedBatch::of(batch).encode().unwrap();
    events.buffered_message(project, &batch, now).await.unwrap().unwrap()
}

/// Delivers messages, named by their position.
async fn deliver(events: &EventStore, bodies: Vec<String>, now: i64) -> BufferedReport {
    let message = |(number, body): (usize, String)| BufferedMessage { id: number.to_string(), body };
    let messages = bodies.into_iter().enumerate().map(message).collect();
    events.append_messages(messages, now, Instant::now() + Duration::from_secs(600)).await
}

/// Sizes of the items with blocks of a project.
async fn block_sizes(place: &Place, project: u64) -> Vec<usize> {
    let mut sizes = Vec::new();
    for partition in 0..4 {
        let query = PartitionQuery::partition(format!("PROJECT#{project}#SHARD#{partition}"));
        let items = place.store.blocks.query(query).await.unwrap();
        sizes.extend(items.into_iter().map(|item| item.bytes.len()));
    }
    sizes
}

/// A text of 32 bytes of information.
fn text(n: u128) -> String {
    let first = n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    format!("{first:x}{:x}", n.wrapping_mul(0xbf58_476d_1ce4_e5b9_94d0_49bb_1331_11eb))
}

async fn counted(events: &EventStore, project: u64) -> usize {
    rows(&events.scan(project, &[], &request(&[], &[])).await.unwrap()).len()
}

#[tokio::test]
async fn messages_of_a_project_become_one_block_and_nothing_before_they_are_delivered() {
    let place = Place::new().await;
    let capture = place.appending();
    let mut bodies = Vec::new();
    for n in 1..=300 {
        let project = if n % 3 == 0 { PROJECT + 1 } else { PROJECT };
        let batch = [simple(n, "a", &format!("p{n}"), n as i64)];
        bodies.push(message(&capture, project, &batch, NOW + n as i64).await);
    }
    assert_eq!((counted(&place.events, PROJECT).await, counted(&place.events, PROJECT + 1).await), (0, 0));
    let report = deliver(&place.again(), bodies, NOW + 1000).await;
    assert_eq!(report, BufferedReport { failed: Vec::new(), messages: 300, events: 300, blocks: 2 });
    assert_eq!(block_sizes(&place, PROJECT).await.len(), 1);
    assert_eq!(
        (counted(&place.events, PROJECT).await, counted(&place.events, PROJECT + 1).await),
        (200, 100)
    );
    assert_eq!(place.events.projects().await.unwrap(), [PROJECT, PROJECT + 1]);
}

/// A put of DynamoDB is charged per started KB: 1,000 single events take at most a twentieth of what 1,000 puts take.
#[tokio::test]
async fn a_thousand_single_events_take_a_twentieth_of_the_write_units() {
    let place = Place::new().await;
    let mut bodies = Vec::new();
    for n in 0..1000_u128 {
        let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let properties = json!({"$current_url": format!("https://shop.example.com/product/{}", random % 500), "$browser": "Firefox",
            "$os": "Linux", "$lib": "web", "$lib_version": "1.207.0", "price": (random % 10_000) as u64, "$session_id": format!("s-{}", random % 99_999_999)});
        let batch = [event(
            random,
            "$pageview",
            &format!("visitor-{}", random % 999_983),
            NOW - n as i64,
            properties,
        )];
        bodies.push(message(&place.events, PROJECT, &batch, NOW).await);
    }
    assert!(bodies.iter().all(|body| body.len() < 1000));
    assert_eq!(deliver(&place.events, bodies, NOW).await.events, 1000);
    let units =
        block_sizes(&place, PROJECT).await.into_iter().map(|bytes| bytes.div_ceil(1024)).sum::<usize>();
    assert!(units <= 50, "{units} units");
}

#[tokio::test]
async fn a_message_that_cannot_be_read_stops_no_other() {
    let place = Place::new().await;
    let good = |n: u128| simple(n, "a", "ada", n as i64);
    let first = message(&place.events, PROJECT, &[good(1)], NOW).await;
    let second = message(&place.events, PROJECT, &[good(2), good(3)], NOW).await;
    let foreign = first.replace(&format!("\"project\":{PROJECT}"), "\"project\":8");
    assert_ne!(foreign, first);
    let bodies = vec![String::new(), first.clone(), "{}".to_owned(), foreign, second];
    let report = deliver(&place.events, bodies, NOW).await;
    let mut failed = report.failed.clone();
    failed.sort();
    assert_eq!(failed, ["0", "2", "3"]);
    assert_eq!((report.messages, report.events, report.blocks), (2, 3, 1));
    assert_eq!(counted(&place.events, PROJECT).await, 3);
    assert_eq!(counted(&place.events, 8).await, 0);
    // Only such messages: nothing is written.
    let report = deliver(&place.events, vec!["x".to_owned()], NOW).await;
    assert_eq!((report.failed.len(), report.blocks), (1, 0));
}

#[tokio::test]
async fn after_its_end_a_delivery_stores_nothing_and_reports_every_message() {
    let place = Place::new().await;
    let body = message(&place.events, PROJECT, &[simple(1, "a", "ada", 1)], NOW).await;
    let messages = vec![BufferedMessage { id: "m".to_owned(), body }];
    let report = place.events.append_messages(messages, NOW, Instant::now()).await;
    assert_eq!((report.failed, report.messages, report.blocks), (vec!["m".to_owned()], 0, 0));
    assert_eq!(counted(&place.events, PROJECT).await, 0);
}

#[tokio::test]
async fn merges_are_applied_before_the_message_is_sent() {
    let place = Place::new().await;
    let identify = event(1, "$identify", "ada", 1, json!({"$anon_distinct_id": "anon"}));
    let body =
        message(&place.appending(), PROJECT, &[identify.clone(), simple(2, "a", "anon", 2)], NOW).await;
    let reader = place.again();
    let ada = reader.person_of(PROJECT, "ada").await.unwrap();
    assert_eq!(reader.person_of(PROJECT, "anon").await.unwrap(), ada);
    assert_eq!(counted(&reader, PROJECT).await, 0);
    deliver(&place.events, vec![body.clone(), body], NOW).await;
    let scan = place.events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap();
    let arrived = [identify, simple(2, "a", "anon", 2)];
    assert_eq!(rows(&scan), expected(&arrived, &request(&[], &[]), |_| ada));
}

#[tokio::test]
async fn a_batch_that_is_too_large_for_a_message_has_none_and_applies_nothing() {
    let place = Place::new().await;
    let mut batch = (1..=2000).map(|n| event(n, "a", "ada", 1, json!({"text": text(n)}))).collect::<Vec<_>>();
    batch.push(event(9999, "$identify", "ada", 1, json!({"$anon_distinct_id": "anon"})));
    let encoded = CapturedBatch::of(&batch).encode().unwrap();
    assert_eq!(place.events.buffered_message(PROJECT, &encoded, NOW).await.unwrap(), None);
    assert_ne!(
        place.again().person_of(PROJECT, "anon").await.unwrap(),
        place.again().person_of(PROJECT, "ada").await.unwrap()
    );
    let half = CapturedBatch::of(&batch[..500]).encode().unwrap();
    let body = place.events.buffered_message(PROJECT, &half, NOW).await.unwrap().unwrap();
    assert!(body.len() <= MESSAGE_BYTES_MAX);
}

#[tokio::test]
async fn large_messages_become_several_blocks_of_one_item_each() {
    let place = Place::new().await;
    let mut bodies = Vec::new();
    for n in 0..40_u128 {
        let uuids = n * 1000 + 1..n * 1000 + 401;
        let batch =
            uuids.map(|uuid| event(uuid, "a", "ada", 1, json!({"text": text(uuid)}))).collect::<Vec<_>>();
        bodies.push(message(&place.events, PROJECT, &batch, NOW).await);
    }
    let report = deliver(&place.events, bodies, NOW).await;
    assert_eq!((report.messages, report.events), (40, 16_000));
    let sizes = block_sizes(&place, PROJECT).await;
    assert!(
        report.blocks > 1 && sizes.len() == report.blocks,
        "{} items of {} blocks",
        sizes.len(),
        report.blocks
    );
    assert_eq!(counted(&place.events, PROJECT).await, 16_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Messages are delivered in batches, some of them several times and before others that were sent earlier, with compactions in
    /// between. Events have times of their own, and the result is that of capturing each once.
    #[test]
    fn repeated_and_reordered_messages_count_each_event_once(
        sizes in proptest::collection::vec(1_usize..5, 1..12),
        deliveries in proptest::collection::vec((proptest::collection::vec(any::<prop::sample::Index>(), 1..8), any::<bool>()), 1..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let place = Place::new().await;
            let (mut bodies, mut sent, mut uuid) = (Vec::new(), Vec::new(), 0_u128);
            for (number, size) in sizes.iter().enumerate() {
                let mut batch = Vec::new();
                for _ in 0..*size {
                    uuid += 1;
                    let properties = json!({(format!("k{}", uuid % 5)): uuid as u64, "shared": [uuid as u64, {"deep": null}], "n": 50.0});
                    batch.push(event(uuid, &format!("e{}", uuid % 3), &format!("p{}", uuid % 4), uuid as i64, properties));
                }
                bodies.push(message(&place.events, PROJECT, &batch, NOW + number as i64).await);
                sent.extend(batch);
            }
            let mut now = NOW + 1000;
            for (chosen, compacts) in &deliveries {
                let chosen = chosen.iter().map(|index| index.get(&bodies).clone()).collect::<Vec<_>>();
                let count = chosen.len();
                let report = deliver(&place.events, chosen, now).await;
                prop_assert_eq!((report.failed.len(), report.messages), (0, count));
                if *compacts {
                    place.events.compact(PROJECT, now).await.unwrap();
                }
                now += 1;
            }
            // What was not delivered yet.
            deliver(&place.events, bodies, now).await;
            let scan = place.events.scan(PROJECT, &[], &request(&[], &["k1"])).await.unwrap();
            let person = |who: &str| pennon_eventstore::derive_person_id(PROJECT, who);
            prop_assert_eq!(rows(&scan), expected(&sent, &request(&[], &["k1"]), person));
            Ok(())
        })?;
    }
}
