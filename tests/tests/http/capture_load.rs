//! Capture under load: single events at a rate, through eight capture processes and a worker, into a table with the limits of
//! DynamoDB's partitions: 1,000 write and 3,000 read units a second, 5 ms a call, transaction conflicts.
//!
//! `PENNON_LOAD_RATES` are requests a second (66,500,2000), `PENNON_LOAD_SECONDS` how long each is held. A test machine does not
//! reach these rates, so rates and limits, of partitions and of waiting blocks, are divided by `PENNON_LOAD_SCALE`; times are
//! not. `PENNON_LOAD_WINDOW` is the window of the stream in seconds, 60 in the template. `.ci/full` runs it for five minutes.
//! `$identify` requests are sent one after the other by each process, so for them the latency is multiplied by the factor too
//! (`PENNON_IDENTIFY_SCALE`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use pennon::api::{Services, api};
use pennon::embedded::Embedded;
use pennon::workspace::{ApplyOptions, Workspace, apply};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::http::edge;
use pennon_core::store::{Key, Store};
use pennon_eventstore::{CompactionTask, EventStore, Settings};
use pennon_tests::{Keys, LimitedTable, PartitionLimits};
use pennon_worker::run_compaction_tasks;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tower::ServiceExt;

const PROCESSES: usize = 8;
/// Requests a second for which docs/deploy.md recommends one block partition.
const RATE_PER_PARTITION: f64 = 125.0;

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn number(name: &str, default: &str) -> f64 {
    setting(name, default).parse().unwrap_or_else(|_| panic!("{name} is not a number"))
}

/// An installation whose tables have limits.
struct Place {
    table: LimitedTable,
    settings: Settings,
    events: tempfile::TempDir,
    stream: Option<UnboundedReceiver<Key>>,
}

impl Place {
    async fn new(limits: PartitionLimits, partitions: u8, scale: f64) -> Place {
        let embedded = Embedded::in_memory().await.unwrap();
        let workspace = json!({
            "organizations": [{"id": "01900000-0000-7000-8000-000000000001", "name": "Acme"}],
            "users": [{"id": 1, "email": "o@example.com",
                "memberships": [{"organization": "01900000-0000-7000-8000-000000000001", "level": "owner"}]}],
            "projects": [{"id": "1", "organization": "01900000-0000-7000-8000-000000000001", "name": "Shop",
                "token": "phc_project_1", "block_partitions": partitions}],
            "keys": [{"label": "owner", "user": "o@example.com", "scopes": ["*"], "value": Keys::OWNER}],
        });
        let file = Workspace::parse(&workspace.to_string()).unwrap();
        let now = Clock::Running.now(None);
        apply(&embedded.store(None).records, &file, ApplyOptions::default(), now).await.unwrap();
        let (sender, stream) = unbounded_channel();
        let table = LimitedTable::new(embedded.connector(), limits, sender);
        let default = Settings::default();
        let settings = Settings {
            wakes_compaction: true,
            waiting_blocks: (default.waiting_blocks as f64 / scale) as usize,
            deleted_units: default
                .for_dynamodb()
                .deleted_units
                .map(|units| (f64::from(units) / scale) as u32),
            ..default
        };
        Place { table, settings, events: tempfile::tempdir().unwrap(), stream: Some(stream) }
    }

    fn store(&self) -> Store {
        Embedded::store_through(self.table.clone(), None)
    }

    /// The event store of a new process.
    fn event_store(&self, store: Store) -> EventStore {
        let url = format!("file://{}", self.events.path().display());
        EventStore::open_with(store, &url, self.settings).unwrap()
    }

    /// A new capture process.
    fn capture(&self) -> Router {
        let app = App::new(self.store(), Clock::Running);
        let events = self.event_store(app.store.clone());
        edge(pennon_capture::router(&app, &events), app.clock)
    }

    /// A new process that handles queries.
    fn queries(&self) -> Router {
        let app = App::new(self.store(), Clock::Running);
        let events = self.event_store(app.store.clone());
        api(&Services::new(app, events))
    }

    /// Runs the worker on what the stream carries, `window` after it was written.
    fn start_worker(&mut self, window: Duration) -> tokio::task::JoinHandle<()> {
        let events = self.event_store(self.store());
        let mut stream = self.stream.take().unwrap();
        tokio::spawn(async move {
            let mut runs = JoinSet::new();
            while let Some(first) = stream.recv().await {
                tokio::time::sleep_until(Instant::now() + window).await;
                let mut keys = vec![first];
                while let Ok(key) = stream.try_recv() {
                    keys.push(key);
                }
                let tasks = keys.iter().filter_map(CompactionTask::of_wake).collect::<Vec<_>>();
                let (events, now) = (events.clone(), Clock::Running.now(None));
                runs.spawn(async move {
                    run_compaction_tasks(&events, tasks, now, Duration::from_secs(600)).await.unwrap();
                });
            }
        })
    }
}

async fn send(router: &Router, method: &str, path: &str, body: Value) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path).header("host", "api.test");
    request = request.header("authorization", format!("Bearer {}", Keys::OWNER));
    let body = match body {
        Value::Null => Body::empty(),
        body => {
            request = request.header("content-type", "application/json");
            Body::from(body.to_string())
        }
    };
    let response = router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn batch(event: &str, distinct_id: &str) -> Value {
    json!({"api_key": "phc_project_1", "batch": [{"event": event, "distinct_id": distinct_id,
        "properties": {"$current_url": "https://shop.example.com/product/17", "$browser": "Firefox", "$lib": "web"}}]})
}

/// Sends single events at `rate` a second until `end`; returns how many were acknowledged.
async fn capture_at(router: Router, process: usize, rate: f64, end: Instant) -> u64 {
    let (mut sent, acknowledged) = (0_u64, Arc::new(AtomicU64::new(0)));
    let mut requests = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while Instant::now() < end {
        ticks.tick().await;
        let (router, acknowledged) = (router.clone(), acknowledged.clone());
        let who = format!("visitor-{process}-{}", sent % 500);
        sent += 1;
        requests.spawn(async move {
            let (status, body) = send(&router, "POST", "/batch/", batch("seen", &who)).await;
            assert_eq!(status, 200, "a capture: {body}");
            acknowledged.fetch_add(1, Ordering::Relaxed);
        });
    }
    while let Some(request) = requests.join_next().await {
        request.unwrap();
    }
    acknowledged.load(Ordering::Relaxed)
}

/// Captures a marker and reads it, again and again; returns how often, and the longest time from the acknowledgement to a response
/// that has it, and of one query of all events.
async fn query_until(capture: Router, queries: Router, end: Instant) -> (u32, Duration, Duration) {
    let (mut rounds, mut visible_after, mut slowest) = (0, Duration::ZERO, Duration::ZERO);
    while Instant::now() < end {
        rounds += 1;
        let marker = format!("marker-{rounds}");
        let (status, body) = send(&capture, "POST", "/batch/", batch(&marker, "m")).await;
        assert_eq!(status, 200, "the capture of a marker: {body}");
        let begin = Instant::now();
        let (status, listed) =
            send(&queries, "GET", &format!("/api/projects/1/events/?event={marker}"), Value::Null).await;
        assert_eq!(status, 200, "a list of events: {listed}");
        assert_eq!(
            listed["results"].as_array().map(Vec::len),
            Some(1),
            "an acknowledged event is in the next response"
        );
        visible_after = visible_after.max(begin.elapsed());
        let begin = Instant::now();
        let trend = json!({"events": [{"id": "seen"}], "date_from": "-1d", "refresh": true});
        let (status, trend) = send(&queries, "POST", "/api/projects/1/insights/trend/", trend).await;
        assert_eq!(status, 200, "a trend: {trend}");
        slowest = slowest.max(begin.elapsed());
        tokio::time::sleep_until(begin + Duration::from_secs(1)).await;
    }
    (rounds, visible_after, slowest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the figures of docs/performance.md")]
async fn queries_succeed_while_events_are_captured_one_by_one() {
    if std::env::var_os("PENNON_LOAD_SECONDS").is_some() {
        // The causes of 503.
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
            .with_test_writer()
            .try_init();
    }
    let seconds = number("PENNON_LOAD_SECONDS", "6");
    let scale = number("PENNON_LOAD_SCALE", "25");
    let window = Duration::from_secs_f64(number("PENNON_LOAD_WINDOW", "1"));
    let limits =
        PartitionLimits { writes: 1000.0 / scale, reads: 3000.0 / scale, latency: Duration::from_millis(5) };
    for rate in setting("PENNON_LOAD_RATES", "500").split(',').map(|rate| rate.parse::<f64>().unwrap()) {
        let partitions =
            [4, 8, 16, 32, 64].into_iter().find(|count| f64::from(*count) * RATE_PER_PARTITION >= rate);
        let partitions = partitions.unwrap_or(64);
        let mut place = Place::new(limits, partitions, scale).await;
        let worker = place.start_worker(window);
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let queries = tokio::spawn(query_until(place.capture(), place.queries(), end));
        let mut captures = JoinSet::new();
        for process in 0..PROCESSES {
            let per_process = rate / scale / PROCESSES as f64;
            captures.spawn(capture_at(place.capture(), process, per_process, end));
        }
        let mut captured = 0;
        while let Some(sent) = captures.join_next().await {
            captured += sent.unwrap();
        }
        let (rounds, visible_after, slowest) = queries.await.unwrap();
        let reached = captured as f64 / seconds * scale;
        let counts = place.table.counts();
        println!(
            "{rate} requests/s in {partitions} partitions for {seconds} s, divided by {scale}: {captured} captured \
             ({reached:.0}/s), {rounds} query rounds without a 5xx, visible in the first response after at most {} ms, \
             slowest trend {} ms; {} calls, {} throttled, {} conflicts, {:.0} write and {:.0} read units",
            visible_after.as_millis(),
            slowest.as_millis(),
            counts.calls,
            counts.throttled,
            counts.conflicts,
            counts.writes,
            counts.reads,
        );
        assert!(
            reached >= rate * 0.9,
            "the machine drives {reached:.0} of {rate} requests/s: raise PENNON_LOAD_SCALE"
        );
        let trend = json!({"events": [{"id": "seen"}], "date_from": "-1d", "refresh": true});
        let (_, trend) = send(&place.queries(), "POST", "/api/projects/1/insights/trend/", trend).await;
        assert_eq!(trend["result"][0]["count"].as_f64(), Some(captured as f64), "every event counts once");
        worker.abort();
    }
}

async fn identify(router: &Router, id: &str) -> u16 {
    let event = json!({"event": "$identify", "distinct_id": format!("user-{id}"),
        "properties": {"$anon_distinct_id": format!("device-{id}")}});
    let body = json!({"api_key": "phc_project_1", "batch": [event]});
    let (status, body) = send(router, "POST", "/batch/", body).await;
    assert!([200, 503].contains(&status), "{status} {body}");
    status
}

/// The `$identify` requests of a process.
#[derive(Default)]
struct IdentifyCounts {
    committed: u32,
    /// Of these, in the second half of the time: in the first, processes learn that there are others.
    committed_late: u32,
    refused: u32,
}

/// Sends `$identify` requests one after the other until `end`, as a process of a function does.
async fn identify_until(router: Router, process: usize, half: Instant, end: Instant) -> IdentifyCounts {
    let mut counts = IdentifyCounts::default();
    while Instant::now() < end {
        match identify(&router, &format!("{process}-{}", counts.committed + counts.refused)).await {
            200 => {
                counts.committed += 1;
                counts.committed_late += u32::from((half..end).contains(&Instant::now()));
            }
            _ => counts.refused += 1,
        }
    }
    counts
}

/// The merges in the rows of the log.
async fn logged_merges(store: &Store) -> usize {
    let rows = pennon_core::store::PartitionQuery::partition("PROJECT#1#OVERRIDE").prefix("MERGE#");
    let rows = store.records.query(rows).await.unwrap();
    // The mark and the checksum precede the number of merges, at most 30, in one byte.
    rows.iter().map(|row| usize::from(row.bytes[8])).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the figures of docs/performance.md")]
async fn identify_requests_of_many_processes_are_all_committed() {
    let seconds = number("PENNON_LOAD_SECONDS", "6").min(180.0) / 3.0;
    let scale = number("PENNON_IDENTIFY_SCALE", "8");
    let latency = Duration::from_millis(5).mul_f64(scale);
    let limits = PartitionLimits { writes: 1000.0 / scale, reads: 3000.0 / scale, latency };
    for processes in [1, 8, 32] {
        let place = Place::new(limits, 4, 1.0).await;
        let half = Instant::now() + Duration::from_secs_f64(seconds / 2.0);
        let end = half + Duration::from_secs_f64(seconds / 2.0);
        let mut requests = JoinSet::new();
        for process in 0..processes {
            requests.spawn(identify_until(place.capture(), process, half, end));
        }
        let mut sums = IdentifyCounts::default();
        while let Some(of_process) = requests.join_next().await {
            let of_process = of_process.unwrap();
            sums.committed += of_process.committed;
            sums.committed_late += of_process.committed_late;
            sums.refused += of_process.refused;
        }
        let counts = place.table.counts();
        println!(
            "{processes} processes: {:.0} $identify commits/s, times {scale:.0} (limits and speed divided by it); {} committed, {} \
             refused, {} conflicts of transactions, {} throttled, {:.1} write and {:.1} read units a commit",
            scale * f64::from(sums.committed_late) / (seconds / 2.0),
            sums.committed,
            sums.refused,
            counts.conflicts,
            counts.throttled,
            counts.writes / f64::from(sums.committed),
            counts.reads / f64::from(sums.committed),
        );
        let merges = logged_merges(&place.store()).await;
        // The last attempt of a refused request may have been committed.
        let most = (sums.committed + sums.refused) as usize;
        assert!(
            (sums.committed as usize..=most).contains(&merges),
            "{merges} merges of {} to {most}",
            sums.committed
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_identify_requests_ends_without_a_refusal() {
    let limits = PartitionLimits { writes: 1000.0, reads: 3000.0, latency: Duration::from_millis(5) };
    let place = Place::new(limits, 4, 1.0).await;
    let mut requests = JoinSet::new();
    for process in 0..32 {
        let router = place.capture();
        requests.spawn(async move {
            for request in 0..4 {
                assert_eq!(identify(&router, &format!("{process}-{request}")).await, 200);
            }
        });
    }
    while let Some(of_process) = requests.join_next().await {
        of_process.unwrap();
    }
    assert_eq!(logged_merges(&place.store()).await, 32 * 4);
    let events = place.event_store(place.store());
    for id in ["0-0", "13-2", "31-3"] {
        let person = events.person_of(1, &format!("device-{id}")).await.unwrap();
        assert_eq!(person, pennon_eventstore::derive_person_id(1, &format!("user-{id}")));
    }
}
