//! The billed units of requests equal the table that `pennon cost` multiplies with prices.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use pennon::cost::{OperationUnits, Units};
use pennon_core::store::{Item, Key, WriteCondition};
use pennon_eventstore::{BufferedMessage, CapturedBatch, CompactionTask, Event, MergeMode, PersonRecord};
use pennon_insights::run_scheduled_tasks;
use pennon_tests::{Keys, NOW, Random, TestApp};
use pennon_worker::{
    CompactionRun, SCHEDULED_TASKS_TIME, compact_all, run_abandoned_jobs, run_compaction_tasks,
};
use serde_json::{Value, json};
use uuid::Uuid;

const FLAGS: &str = "/api/projects/1/feature_flags/";
const INSIGHTS: &str = "/api/projects/1/insights/";
const TREND: &str = "/api/projects/1/insights/trend/";

/// The tolerance between consumed and listed units.
const SHARE: f64 = 0.01;

fn now() -> DateTime<Utc> {
    NOW.parse().unwrap()
}

/// The tolerance for reads of a compaction: blocks are in four partitions at random, and the reads of each are rounded up
/// to a unit.
const BY_CHANCE: f64 = 4.0;

/// The differences from the table, all in one message.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    /// Compares the units since the last [`begin`] with the table. Round trips are compared if a request waits for them.
    fn compare(&mut self, app: &TestApp, what: &str, of: &OperationUnits, is_request: bool) {
        let mut spent = app.meter.take();
        let gone = if is_request { app.round_trips.sequential() as f64 } else { of.trips };
        if of.puts > 0.0 && (spent.reads - of.reads).abs() <= BY_CHANCE {
            spent.reads = of.reads;
        }
        let taken = [spent.reads, spent.writes, f64::from(spent.gets), f64::from(spent.puts), gone];
        let listed = [of.reads, of.writes, of.gets, of.puts, of.trips];
        // The compressed size of blocks depends on the random uuids of events.
        let differ = |(taken, listed): (f64, f64)| (taken - listed).abs() > (listed * SHARE).floor();
        if taken.into_iter().zip(listed).any(differ) {
            self.0.push(format!("{what}: {taken:?}, and listed {listed:?}"));
        }
    }

    #[track_caller]
    fn none(self) {
        let reported = self.0.join("\n");
        assert!(
            reported.is_empty(),
            "reads, writes, gets, puts and trips in cli/src/cost/units.json differ:\n{reported}"
        );
    }
}

async fn begin(app: &TestApp) {
    app.services.app.keys.wait_for_background_writes().await;
    app.round_trips.reset();
    app.meter.take();
}

/// A batch as an SDK sends it. Only the random part differs between runs; its compressed size is the same.
fn batch(random: &mut Random, events: u32) -> Value {
    let event = |_| {
        let mut uuid = [0; 16];
        uuid.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        json!({"event": "$pageview", "distinct_id": format!("visitor-{:06}", random.below(1_000_000)),
            "uuid": Uuid::from_bytes(uuid), "timestamp": "2026-01-05T09:59:58.123Z",
            "properties": {"$current_url": format!("https://shop.example.com/product/{}", random.below(500)),
                "$browser": "Firefox", "$os": "Linux", "$lib": "web", "$lib_version": "1.207.0",
                "price": random.below(10_000), "$session_id": format!("s-{:08}", random.below(100_000_000))}})
    };
    json!({"api_key": "phc_project_1", "batch": (0..events).map(event).collect::<Vec<_>>()})
}

/// Compacts and sweeps as the worker does, without the tasks that it runs rarely at random.
async fn compact(app: &TestApp, at: DateTime<Utc>) {
    let (events, at) = (&app.services.events, at.timestamp_micros());
    for project in events.projects().await.unwrap() {
        while events.compact_blocks(project, at).await.unwrap().has_more_work() {}
        while events.merge_segments(project, at, MergeMode::Due).await.unwrap().has_more_work() {}
        events.sweep(project, at).await.unwrap();
    }
}

/// The work of the worker when captured events wake it.
async fn wake(app: &TestApp, at: DateTime<Utc>) {
    let tasks = vec![CompactionTask::Blocks(1)];
    run_compaction_tasks(&app.services.events, tasks, at, Duration::from_secs(60)).await.unwrap();
}

/// The work of the worker at a scheduled call, without the tasks that it runs rarely at random.
async fn tick(app: &TestApp, at: DateTime<Utc>) {
    let records = &app.services.app.store.records;
    run_scheduled_tasks(records, at, SCHEDULED_TASKS_TIME).await.unwrap();
    let run = CompactionRun { orphan_sweep_one_in: u64::MAX, ..CompactionRun::HOURLY };
    compact_all(&app.services.events, at, run).await.unwrap();
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    run_abandoned_jobs(&app.services.calculator, records, end).await.unwrap();
}

#[tokio::test]
async fn batches_and_their_compaction() {
    let (units, mut differences) = (Units::measured().unwrap(), Differences::default());
    for events in [1, 10, 100] {
        let app = TestApp::new().await.metered();
        let mut random = Random::new(7);
        // The token is cached, and that the project has events.
        app.call("", "POST", "/batch/", batch(&mut random, 1)).await.expect(200);
        compact(&app, now()).await;
        compact(&app, now() + TimeDelta::minutes(11)).await;
        app.services.events.claim_installation().await.unwrap();
        for sent in 0..100 {
            begin(&app).await;
            app.call("", "POST", "/batch/", batch(&mut random, events)).await.expect(200);
            if sent == 50 {
                differences.compare(&app, &format!("a batch of {events}"), units.batch(events), true);
            }
        }
        begin(&app).await;
        // A segment; rows of deleted blocks are removed when no reader needs them.
        wake(&app, now() + TimeDelta::minutes(20)).await;
        compact(&app, now() + TimeDelta::minutes(31)).await;
        differences.compare(
            &app,
            &format!("the compaction of 100 batches of {events}"),
            units.compaction(events),
            false,
        );
        begin(&app).await;
        tick(&app, now() + TimeDelta::minutes(50)).await;
        if events == 100 {
            differences.compare(&app, "a tick of the clock", &units.tick, false);
            let row = Item::empty(Key::new("COMPACTION#1", "WAKE#000029460600"));
            app.services.app.store.records.put(row, WriteCondition::Absent).await.unwrap();
            wake(&app, now() + TimeDelta::minutes(51)).await;
            differences.compare(&app, "a minute with captured events", &units.wake, false);
        }
    }
    differences.none();
}

/// Messages of one event each, as capture sends them, become one block.
#[tokio::test]
async fn blocks_of_the_capture_buffer() {
    let (units, mut differences) = (Units::measured().unwrap(), Differences::default());
    for events in [1, 10, 100] {
        let app = TestApp::new().await.metered();
        let mut random = Random::new(7);
        app.call("", "POST", "/batch/", batch(&mut random, 1)).await.expect(200);
        begin(&app).await;
        let mut messages = Vec::new();
        for number in 0..events {
            let body = batch(&mut random, 1)["batch"][0].take();
            let event = Event {
                uuid: body["uuid"].as_str().unwrap().parse().unwrap(),
                event: body["event"].as_str().unwrap().to_owned(),
                distinct_id: body["distinct_id"].as_str().unwrap().to_owned(),
                timestamp: now().timestamp_micros(),
                properties: body["properties"].as_object().unwrap().clone(),
            };
            let encoded = CapturedBatch::of(&[event]).encode().unwrap();
            let sent = app.services.events.buffered_message(1, &encoded, now().timestamp_micros()).await;
            messages.push(BufferedMessage { id: number.to_string(), body: sent.unwrap().unwrap() });
        }
        differences.compare(&app, "a batch for the buffer", &units.buffered_batch, true);
        begin(&app).await;
        let end = tokio::time::Instant::now() + Duration::from_secs(60);
        let report = app.services.events.append_messages(messages, now().timestamp_micros(), end).await;
        assert_eq!((report.failed.len(), report.events, report.blocks), (0, events as usize, 1));
        differences.compare(&app, &format!("a buffered block of {events}"), units.consumed(events), true);
    }
    differences.none();
}

/// Twenty flags, ten of them by properties of persons, and a thousand persons.
async fn flags() -> TestApp {
    let app = TestApp::new().await;
    for number in 0..20 {
        let vip = json!([{"key": "vip", "type": "person", "value": [true], "operator": "exact"}]);
        let properties = if number < 10 { vip } else { json!([]) };
        let filters = json!({"groups": [{"properties": properties, "rollout_percentage": 50}]});
        app.post(FLAGS, json!({"key": format!("flag-{number}"), "filters": filters})).await.expect(201);
    }
    let person = |number: usize| PersonRecord {
        distinct_ids: vec![format!("p{number}")],
        properties: json!({"vip": number.is_multiple_of(2)}).as_object().unwrap().clone(),
        created_at: None,
    };
    let persons = (0..1000).map(person).collect();
    app.services.events.add_persons(1, persons, now().timestamp_micros()).await.unwrap();
    compact(&app, now()).await;
    app.metered()
}

#[tokio::test]
async fn flags_are_polled_evaluated_and_changed() {
    let (units, mut differences) = (Units::measured().unwrap(), Differences::default());
    let app = flags().await;
    let poll = "/flags/definitions?token=phc_project_1";
    let first = app.get(poll).await;
    let tag = first.headers["etag"].clone();
    first.expect(200);
    // Polls are sent every thirty seconds, and keys are cached for five.
    app.services.app.keys.clear();
    begin(&app).await;
    let mut request = TestApp::request(Keys::OWNER, "GET", poll, Value::Null);
    request.headers_mut().insert("if-none-match", tag);
    app.send(request).await.expect(304);
    differences.compare(&app, "a poll", &units.poll, true);
    let reasons = format!("{FLAGS}evaluation_reasons/?distinct_id=p7");
    app.get(&reasons).await.expect(200);
    app.services.app.keys.clear();
    begin(&app).await;
    app.get(&format!("{FLAGS}evaluation_reasons/?distinct_id=p8")).await.expect(200);
    differences.compare(&app, "an evaluation", &units.evaluation, true);
    app.services.app.keys.clear();
    begin(&app).await;
    app.patch(&format!("{FLAGS}3/"), json!({"active": false})).await.expect(200);
    differences.compare(&app, "a change", &units.change, true);
    differences.none();
}

/// Ten thousand events in a segment.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let micros = now().timestamp_micros();
    let mut random = Random::new(3);
    for _ in 0..10 {
        let event = |_| Event {
            uuid: Uuid::new_v4(),
            event: "bought".to_owned(),
            distinct_id: format!("p{}", random.below(500)),
            timestamp: micros - 1_000_000 * random.below(600_000) as i64,
            properties: json!({"price": random.below(900)}).as_object().unwrap().clone(),
        };
        let events = (0..1000).map(event).collect::<Vec<_>>();
        app.services.events.append(1, &events, micros).await.unwrap();
    }
    for minutes in [0, 11] {
        let at = now() + TimeDelta::minutes(minutes);
        compact(&app, at).await;
    }
    app.metered()
}

#[tokio::test]
async fn queries_are_calculated_and_returned_from_the_cache() {
    let (units, mut differences) = (Units::measured().unwrap(), Differences::default());
    let app = shop().await;
    begin(&app).await;
    let trend = json!({"events": [{"id": "bought", "math": "dau"}], "date_from": "-7d"});
    app.post(TREND, trend).await.expect(200);
    differences.compare(&app, "a query", &units.query, true);
    let query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "bought"}]});
    let saved = app.post(INSIGHTS, json!({"query": query})).await.expect(201)["id"].clone();
    app.get(&format!("{INSIGHTS}{saved}/?refresh=blocking")).await.expect(200);
    app.services.app.keys.clear();
    begin(&app).await;
    app.get(&format!("{INSIGHTS}{saved}/")).await.expect(200);
    differences.compare(&app, "a view", &units.view, true);
    differences.none();
}
