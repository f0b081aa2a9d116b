//! Compaction: what is merged scans as before, a run that stops anywhere loses and doubles nothing, and the next one
//! completes it.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::support::{MINUTE, NOW, PROJECT, Place, PlainRow, event, expected, request, rows, simple};
use pennon_core::store::{Item, PartitionQuery};
use pennon_eventstore::{EventStore, EventStoreError, GRACE_MICROS, MergeMode, Settings, derive_person_id};
use serde_json::{Value, json};

async fn all(events: &EventStore) -> Vec<PlainRow> {
    rows(&events.scan(PROJECT, &[], &request(&[], &["k", "n", "x", "only"])).await.unwrap())
}

/// Runs compaction until nothing is due.
async fn settle(events: &EventStore, effort: MergeMode) {
    loop {
        let blocks = events.compact_blocks(PROJECT, NOW).await.unwrap();
        let merged = events.merge_segments(PROJECT, NOW, effort).await.unwrap();
        if !blocks.has_more_work() && !merged.has_more_work() {
            return;
        }
    }
}

/// Work that is aborted after `left` waits, like a process that is killed between two steps.
struct CutOff<F> {
    work: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Future for CutOff<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.work.as_mut().poll(context).map(Some)
    }
}

fn cut_off<F: Future>(work: F, left: usize) -> CutOff<F> {
    CutOff { work: Box::pin(work), left }
}

/// A small history of blocks and segments, with copies, and what a scan of it must give.
async fn history(place: &Place) -> Vec<PlainRow> {
    let mut sent = Vec::new();
    for round in 0..4_i64 {
        let batch = (0..4).map(|n| {
            let uuid = (round * 4 + n) as u128;
            event(uuid, ["a", "b"][n as usize % 2], &format!("p{}", n % 3), n, json!({"k": round}))
        });
        let batch = batch.collect::<Vec<_>>();
        place.events.append(PROJECT, &batch, NOW + round).await.unwrap();
        sent.extend(batch);
        if round < 3 {
            place.events.compact_blocks(PROJECT, NOW + round).await.unwrap();
            // A waiting copy of an event of a segment.
            place.events.append(PROJECT, &sent[..1], NOW + round).await.unwrap();
        }
    }
    expected(&sent, &request(&[], &["k", "n", "x", "only"]), |who| derive_person_id(PROJECT, who))
}

/// Runs `work` on a fresh history and aborts it after each number of waits. Then all results must be unchanged, and the next
/// run must complete the work.
async fn stopped_anywhere<W, F>(work: W)
where
    W: Fn(EventStore) -> F,
    F: Future<Output = Result<(), EventStoreError>>,
{
    let mut completed = false;
    // Every wait at first, then at distances that include every kind of step: later waits are repetitions.
    for waits in (1..30).chain((30..).step_by(13)) {
        let place = Place::new().await;
        let want = history(&place).await;
        let outcome = cut_off(work(place.again()), waits).await;
        completed = outcome.is_some();
        outcome.transpose().unwrap();
        assert_eq!(all(&place.again()).await, want, "after {waits} waits");
        // Another process continues.
        let events = place.again();
        settle(&events, MergeMode::Fewest).await;
        assert_eq!(all(&events).await, want, "after {waits} waits, and another run");
        for later in [1, 2, 3] {
            events.sweep(PROJECT, NOW + later * (GRACE_MICROS + MINUTE)).await.unwrap();
        }
        assert_eq!(all(&events).await, want, "after {waits} waits, and sweeps");
        assert_eq!(events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.segments, 1);
        for shard in 0..4 {
            let shard = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SHARD#{shard}"));
            assert!(place.store.blocks.query(shard).await.unwrap().is_empty());
        }
        if completed {
            break;
        }
        assert!(waits < 2000, "it never ends");
    }
    assert!(completed);
}

#[tokio::test]
async fn a_run_that_is_aborted_anywhere_loses_and_doubles_nothing() {
    stopped_anywhere(|events| async move { events.compact_blocks(PROJECT, NOW + 10).await.map(|_| ()) })
        .await;
}

#[tokio::test]
async fn a_merge_that_stops_anywhere_loses_and_doubles_nothing() {
    stopped_anywhere(|events| async move {
        events.merge_segments(PROJECT, NOW + 10, MergeMode::Fewest).await.map(|_| ())
    })
    .await;
}

#[tokio::test]
async fn a_sweep_that_stops_anywhere_loses_and_doubles_nothing() {
    stopped_anywhere(|events| async move {
        settle(&events, MergeMode::Fewest).await;
        Ok(())
    })
    .await;
    stopped_anywhere(|events| async move {
        events.merge_segments(PROJECT, NOW, MergeMode::Fewest).await?;
        events.sweep(PROJECT, NOW + GRACE_MICROS + MINUTE).await?;
        events.sweep(PROJECT, NOW + 2 * (GRACE_MICROS + MINUTE)).await?;
        Ok(())
    })
    .await;
}

/// The segment rows of the manifest.
async fn entries(place: &Place) -> Vec<Item> {
    let query = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SEGMENT")).prefix("SEGMENT#");
    place.store.records.query(query).await.unwrap()
}

/// The number of events that a reader of these rows counts.
fn counted(rows: &[&Item]) -> u64 {
    let bodies = rows.iter().map(|row| row.body::<Value>().unwrap()).collect::<Vec<_>>();
    let replaced = bodies.iter().flat_map(|body| body["replaces_segments"].as_array().unwrap());
    let replaced = replaced.collect::<Vec<_>>();
    let live = bodies.iter().filter(|body| !replaced.contains(&&body["id"]));
    live.map(|body| body["rows"].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn a_reader_counts_nothing_twice_if_a_sweep_runs_between_its_pages() {
    let place = Place::new().await;
    for round in 0..4_i64 {
        let batch = (0..3).map(|n| simple((round * 3 + n) as u128, "a", "ada", n)).collect::<Vec<_>>();
        place.events.append(PROJECT, &batch, NOW + round * 10).await.unwrap();
        place.events.compact_blocks(PROJECT, NOW + round * 10 + 1).await.unwrap();
        // From the second one on, each replaces a segment that replaced others.
        place.events.merge_segments(PROJECT, NOW + round * 10 + 2, MergeMode::Fewest).await.unwrap();
    }
    assert_eq!(entries(&place).await.len(), 7);
    for sweep in 1..10 {
        let before = entries(&place).await;
        place.events.sweep(PROJECT, NOW + sweep * (GRACE_MICROS + MINUTE)).await.unwrap();
        let after = entries(&place).await;
        for page in 0..=before.len() {
            let (first, _) = before.split_at(page);
            let last = first.last().map(|row| row.key.sk.as_str());
            let second = after.iter().filter(|row| Some(row.key.sk.as_str()) > last);
            let read = first.iter().chain(second).collect::<Vec<_>>();
            assert_eq!(counted(&read), 12, "sweep {sweep}, page of {page} rows");
        }
    }
    let left = entries(&place).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].body::<Value>().unwrap()["replaces_segments"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merges_and_blocks_of_several_processes_at_once_count_everything_once() {
    let place = Place::new().await;
    let want = history(&place).await;
    let several = (0..6).map(|n| {
        let events = place.again();
        async move {
            for _ in 0..4 {
                let done = match n % 2 {
                    0 => events.merge_segments(PROJECT, NOW, MergeMode::Fewest).await,
                    _ => events.compact_blocks(PROJECT, NOW).await,
                };
                assert!(matches!(done, Ok(_) | Err(EventStoreError::Contended)), "{done:?}");
                events.sweep(PROJECT, NOW + MINUTE).await.unwrap();
            }
        }
    });
    futures::future::join_all(several).await;
    assert_eq!(all(&place.again()).await, want);
    settle(&place.events, MergeMode::Fewest).await;
    assert_eq!(all(&place.again()).await, want);
}

#[tokio::test]
async fn columns_of_different_kinds_become_one_and_give_every_value_back() {
    let place = Place::new().await;
    // By segment: what property x is there; "only" has a column in one of them, and a stray value in another.
    let kinds: [fn(i64) -> Value; 8] = [
        |n| json!(n),
        |n| json!(n as f64 + 0.5),
        |n| json!(n as f64),
        |n| json!(format!("text {n}")),
        |n| json!(n % 2 == 0),
        |n| json!([n, {"deep": null}]),
        |n| if n == 3 { json!("stray") } else { json!(n) },
        |_| json!(null),
    ];
    for (left, first) in kinds.iter().enumerate() {
        for (right, second) in kinds.iter().enumerate() {
            let project = PROJECT + (left * kinds.len() + right) as u64 + 1;
            let mut sent = Vec::new();
            for (segment, kind) in [first, second].into_iter().enumerate() {
                let batch = (0..10).map(|n| {
                    let mut properties = json!({"x": kind(n), "n": n});
                    if segment == 1 || n == 9 {
                        properties["only"] = if n % 5 == 4 { json!(n) } else { json!("o") };
                    }
                    event((segment * 10) as u128 + n as u128, "a", &format!("p{}", n % 4), n, properties)
                });
                let batch = batch.collect::<Vec<_>>();
                place.events.append(project, &batch, NOW).await.unwrap();
                place.events.compact_blocks(project, NOW).await.unwrap();
                sent.extend(batch);
            }
            let requested = request(&[], &["x", "n", "only"]);
            let want = expected(&sent, &requested, |who| derive_person_id(project, who));
            let merged = place.events.merge_segments(project, NOW, MergeMode::Fewest).await.unwrap();
            assert_eq!((merged.merged_segments, merged.merged_rows), (2, 20));
            let scan = place.events.scan(project, &[], &requested).await.unwrap();
            assert_eq!(scan.stats.segments, 1);
            assert_eq!(rows(&scan), want, "kinds {left} and {right}");
        }
    }
}

#[tokio::test]
async fn more_keys_than_columns_are_kept_by_a_merge() {
    let place = Place::new().await;
    let mut sent = Vec::new();
    for segment in 0..2_u64 {
        let batch = (0..400).map(|n| {
            let key = format!("key {}", (segment * 300 + n) % 600);
            let uuid = u128::from(segment * 1000 + n);
            event(uuid, "a", "ada", n as i64, json!({key: n, "k": segment, "n": n}))
        });
        let batch = batch.collect::<Vec<_>>();
        place.events.append(PROJECT, &batch, NOW).await.unwrap();
        place.events.compact_blocks(PROJECT, NOW).await.unwrap();
        sent.extend(batch);
    }
    let requested = request(&[], &["k", "key 0", "key 299", "key 350", "key 599"]);
    let want = expected(&sent, &requested, |who| derive_person_id(PROJECT, who));
    place.events.merge_segments(PROJECT, NOW, MergeMode::Fewest).await.unwrap();
    assert_eq!(rows(&place.events.scan(PROJECT, &[], &requested).await.unwrap()), want);
}

#[tokio::test]
async fn a_merge_of_segments_folds_merges_of_persons_in() {
    let place = Place::new().await;
    let mut sent = Vec::new();
    for segment in 0..3_u128 {
        let batch = (0..40).map(|n| simple(segment * 100 + n, "a", &format!("p{n}"), n as i64));
        let batch = batch.collect::<Vec<_>>();
        place.events.append(PROJECT, &batch, NOW).await.unwrap();
        place.events.compact_blocks(PROJECT, NOW).await.unwrap();
        sent.extend(batch);
    }
    let identify = event(900, "$identify", "p1", 50, json!({"$anon_distinct_id": "p2"}));
    place.events.append(PROJECT, std::slice::from_ref(&identify), NOW).await.unwrap();
    sent.push(identify);
    let who = |who: &str| derive_person_id(PROJECT, if who == "p2" { "p1" } else { who });
    let want = expected(&sent, &request(&[], &["k", "n", "x", "only"]), who);
    assert_eq!(all(&place.events).await, want);
    settle(&place.events, MergeMode::Fewest).await;
    assert_eq!(all(&place.again()).await, want);
    assert_eq!(place.again().scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.segments, 1);
    // Late events of the old distinct id belong to the final person too.
    let late = simple(901, "a", "p2", 60);
    place.events.append(PROJECT, std::slice::from_ref(&late), NOW).await.unwrap();
    sent.push(late);
    let want = expected(&sent, &request(&[], &["k", "n", "x", "only"]), who);
    assert_eq!(all(&place.again()).await, want);
}

/// A segment of forty persons, of whom `merged` were merged into others since, and the expected scan.
async fn with_merged_persons(place: &Place, merged: u64) -> Vec<PlainRow> {
    let who = |n: u64| format!("p{n}");
    let lines =
        (0..80).map(|n| (n, simple(u128::from(n), ["a", "b"][n as usize % 2], &who(n / 2), n as i64)));
    let lines = lines.collect::<Vec<_>>();
    place.events.ingest(PROJECT, lines.clone(), NOW).await.unwrap();
    let mut sent = lines.into_iter().map(|(_, event)| event).collect::<Vec<_>>();
    for n in 0..merged {
        let other = json!({"$anon_distinct_id": who(n)});
        let identify = event(u128::from(100 + n), "$identify", &who(n + 20), 200 + n as i64, other);
        place.events.append(PROJECT, std::slice::from_ref(&identify), NOW + 1).await.unwrap();
        sent.push(identify);
    }
    let merged = (0..merged).map(who).collect::<Vec<_>>();
    expected(&sent, &request(&[], &["k", "n", "x", "only"]), |who| {
        let at = merged.iter().position(|other| other == who);
        derive_person_id(PROJECT, &at.map_or(who.to_owned(), |at| format!("p{}", at + 20)))
    })
}

fn small_ranges() -> Settings {
    Settings { range_rows: 40, ..Settings::default() }
}

#[tokio::test]
async fn a_segment_with_many_merged_persons_is_rewritten() {
    for (merged, is_due) in [(0, false), (4, false), (5, true), (15, true)] {
        let place = Place::with(small_ranges()).await;
        let want = with_merged_persons(&place, merged).await;
        assert_eq!(all(&place.events).await, want);
        // Once, and not again for the same merges, in this process or in another.
        for (events, written) in
            [(place.events.clone(), is_due), (place.events.clone(), false), (place.again(), false)]
        {
            let done = events.merge_segments(PROJECT, NOW + MINUTE, MergeMode::Due).await.unwrap();
            assert_eq!(done.merged_segments, usize::from(written), "{merged} of forty");
            assert_eq!(all(&events).await, want, "{merged} of forty");
            assert_eq!(all(&place.again()).await, want, "{merged} of forty");
        }
        settle(&place.events, MergeMode::Fewest).await;
        place.events.sweep(PROJECT, NOW + 3 * GRACE_MICROS).await.unwrap();
        assert_eq!(all(&place.again()).await, want);
    }
}

#[tokio::test]
async fn rewriting_a_segment_for_merged_persons_may_stop_anywhere() {
    let mut completed = false;
    for waits in (1..20).chain((20..).step_by(7)) {
        let place = Place::with(small_ranges()).await;
        let want = with_merged_persons(&place, 10).await;
        let events = place.again();
        let outcome = cut_off(events.merge_segments(PROJECT, NOW + MINUTE, MergeMode::Due), waits).await;
        assert_eq!(all(&place.again()).await, want, "after {waits} waits");
        place.again().merge_segments(PROJECT, NOW + MINUTE, MergeMode::Due).await.unwrap();
        assert_eq!(all(&place.again()).await, want, "after {waits} waits, and another run");
        place.again().sweep(PROJECT, NOW + 2 * GRACE_MICROS).await.unwrap();
        assert_eq!(all(&place.again()).await, want, "after {waits} waits, and a sweep");
        if let Some(done) = outcome {
            assert_eq!(done.unwrap().merged_segments, 1);
            completed = true;
            break;
        }
        assert!(waits < 2000, "it never ends");
    }
    assert!(completed);
}

#[tokio::test]
async fn a_run_reports_how_long_its_oldest_block_waited() {
    let place = Place::new().await;
    for (uuid, arrived) in [(1, NOW + 30), (2, NOW + 10), (3, NOW + 20)] {
        place.events.append(PROJECT, &[simple(uuid, "a", "ada", 1)], arrived).await.unwrap();
    }
    let done = place.events.compact_blocks(PROJECT, NOW + 100).await.unwrap();
    assert_eq!((done.blocks, done.waited_micros), (3, 90));
    assert_eq!(place.events.compact_blocks(PROJECT, NOW + 200).await.unwrap().waited_micros, 0);
}

#[tokio::test]
async fn a_run_takes_thousands_of_blocks_and_the_manifest_stays_small() {
    let place = Place::new().await;
    for n in 0..1500_u64 {
        let one = [simple(u128::from(n), "a", "ada", n as i64)];
        place.events.append(PROJECT, &one, NOW + n as i64).await.unwrap();
    }
    let mut blocks = 0;
    loop {
        let done = place.events.compact_blocks(PROJECT, NOW).await.unwrap();
        blocks += done.blocks;
        let manifest = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SEGMENT"));
        let longest =
            place.store.records.query(manifest).await.unwrap().iter().map(|item| item.text.len()).max();
        assert!(longest.unwrap() < 2000, "an entry of {longest:?} bytes");
        if !done.more {
            break;
        }
    }
    assert_eq!(blocks, 1500);
    assert_eq!(place.events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap().stats.rows, 1500);
}
