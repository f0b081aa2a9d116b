//! Queries in parts: byte for byte the response of an undivided calculation, for every case of the corpus.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use pennon_calculation::Calculator;
use pennon_calculation::jobs::JobOutcome;
use pennon_calculation::parts::{
    InvocationFuture, PartError, PartFailure, PartInvoker, PartLimits, PartOutcome, PartSettings, Parts,
};
use pennon_core::store::keys;
use pennon_tests::queries::{Form, World};
use pennon_tests::{PartProcesses, TestApp};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior};

const COUNTS: [u32; 3] = [2, 7, 64];
/// Pages of people that are compared for each query.
const PAGES: usize = 2;
/// The cases of one kind of insight each.
const FILES: [&str; 4] = ["retention.json", "lifecycle.json", "stickiness.json", "paths.json"];

/// One of so many queries is sent; `.ci/full` sends all.
fn step() -> usize {
    if std::env::var_os("PENNON_ALL_QUERIES").is_some() { 1 } else { 8 }
}

/// The processes and the apps that use them, by number of parts.
fn divided(app: &TestApp) -> Vec<(u32, PartProcesses, TestApp)> {
    let of = |count: &u32| {
        let processes = PartProcesses::of(app, 2);
        (*count, processes.clone(), processes.app(app, *count))
    };
    COUNTS.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_funnel_and_trend_has_the_same_bytes_in_any_number_of_parts() {
    let world = World::of_corpus();
    let whole = &world.install().await;
    let divided = &divided(whole);
    let requested = world.queries.iter().step_by(step()).map(|query| async move {
        // Without results of the cache, which the processes share.
        let mut query = query.clone();
        query.body.insert("refresh".to_owned(), json!(true));
        let form = if query.has(Form::Node) { Form::Node } else { Form::Post };
        let expected = query.send_request(whole, form).await;
        let result = &expected.json()["result"];
        let people = query.people_pages(whole, result, PAGES).await;
        let mut different = Vec::new();
        for (count, _, app) in divided {
            let listed = query.people_pages(app, result, PAGES).await;
            if listed != people {
                different.push(format!("people of {} in {count} parts: {listed:?}\n{people:?}", query.name));
            }
            let response = query.send_request(app, form).await;
            if response.text != expected.text {
                let texts = [&response.text, &expected.text];
                let [found, expected] = texts.map(|text| text.chars().take(400).collect::<String>());
                different.push(format!(
                    "{} in {count} parts: {found}
{expected}",
                    query.name
                ));
            }
        }
        different
    });
    let different: Vec<Vec<String>> = futures::stream::iter(requested).buffered(4).collect().await;
    let different = different.concat();
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    for (count, processes, _) in divided {
        let failures = processes.failures();
        assert!(failures.is_empty(), "{failures:?}");
        let invocations = processes.invocations();
        assert!(
            invocations > world.queries.len() / step() * *count as usize / 2,
            "{invocations} for {count} parts"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_other_kind_has_the_same_bytes_in_any_number_of_parts() {
    let mut kinds = BTreeSet::new();
    for file in FILES {
        let (world, cases) = World::of_file(file);
        let whole = &world.install().await;
        let divided = &divided(whole);
        for case in cases.into_iter().step_by(step()) {
            let body = &case.request["body"];
            // A node that shows another one is a query of that kind.
            if case.request["endpoint"] != "query" || body["kind"] == "InsightVizNode" {
                continue;
            }
            let query = json!({"query": body, "refresh": "force_blocking"});
            let expected = case.send(whole, "POST", "query/", query.clone()).await;
            for (count, _, app) in divided {
                let response = case.send(app, "POST", "query/", query.clone()).await;
                assert_eq!(response.text, expected.text, "{} in {count} parts", case.name);
            }
            kinds.insert(body["kind"].as_str().unwrap_or_default().to_owned());
        }
        for (_, processes, _) in divided {
            let failures = processes.failures();
            assert!(failures.is_empty() && processes.invocations() > 0, "{file}: {failures:?}");
        }
    }
    assert_eq!(kinds.len(), FILES.len(), "{kinds:?}");
}

/// The links of a response to lists of people.
fn people_links(response: &Value) -> Vec<String> {
    match response {
        Value::String(text) if text.contains("/persons/") => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(people_links).collect(),
        Value::Object(fields) => fields.values().flat_map(people_links).collect(),
        _ => Vec::new(),
    }
}

/// The pages of a list of two people each.
async fn pages_of(app: &TestApp, link: &str) -> Vec<String> {
    let mut pages = Vec::new();
    let mut next = Some(format!("{link}&limit=2"));
    while let Some(link) = next {
        let page = app.get(&link).await;
        next = page.json()["next"].as_str().map(str::to_owned);
        pages.push(page.text);
    }
    pages
}

/// Lists of people page by page, each page in parts.
async fn compare_lists(queries: &[Value], whole: &TestApp, divided: &[(u32, PartProcesses, TestApp)]) {
    let mut listed = 0;
    for query in queries {
        let body = json!({"query": query, "refresh": "force_blocking"});
        let expected = whole.post("/api/projects/1/query/", body).await.expect(200);
        for link in people_links(&expected).into_iter().take(2) {
            let pages = pages_of(whole, &link).await;
            for (count, processes, app) in divided {
                let before = processes.invocations();
                assert_eq!(pages_of(app, &link).await, pages, "{link} in {count} parts");
                let invoked = processes.invocations() - before;
                assert!(invoked >= pages.len() * *count as usize, "{invoked} for {} pages", pages.len());
            }
            listed += 1;
        }
    }
    assert!(listed >= 6, "{listed}");
}

fn event(name: &str, who: &str, at: &str, properties: Value) -> Value {
    json!({"event": name, "distinct_id": who, "timestamp": at, "properties": properties})
}

/// Person properties, cohorts, sessions and merges are joined to the parts that need them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joined_data_and_merged_persons_reach_their_parts() {
    let whole = TestApp::new().await;
    let day = |day: usize| format!("2026-01-0{}T0{}:00:00Z", 1 + day % 4, day % 9);
    let made = (0..60).map(|n: usize| {
        let (who, plan) = (format!("p{}", n % 20), ["free", "paid"][n % 2]);
        let set = json!({"$set": {"plan": plan}, "$session_id": format!("s{}", n % 7), "n": n});
        event(["seen", "bought", "left"][n % 3], &who, &day(n), set)
    });
    whole.capture(made.collect::<Vec<_>>()).await;
    whole.compact().await;
    // Merges move rows of the segment to other persons; the last one is of waiting events.
    for (from, to) in [("p1", "p2"), ("p3", "p4"), ("p4", "p5"), ("p6", "p7")] {
        whole.capture(vec![event("$merge_dangerously", to, &day(3), json!({"alias": from}))]).await;
    }
    whole
        .capture(vec![
            event("seen", "p1", &day(2), json!({"n": 1})),
            event("bought", "p9", &day(3), json!({})),
        ])
        .await;
    let cohort = json!({"name": "buyers", "groups": [], "filters": {"properties": {"type": "OR", "values": [
        {"type": "OR", "values": [{"type": "behavioral", "value": "performed_event", "key": "bought", "event_type": "events",
                                   "time_value": 30, "time_interval": "day"}]}]}}});
    let created = whole.post("/api/projects/1/cohorts/", cohort).await.expect(201);
    let series = json!([{"kind": "EventsNode", "event": "seen", "math": "dau"}, {"kind": "EventsNode", "event": "bought"}]);
    let range = json!({"date_from": "2025-12-31", "date_to": "2026-01-05"});
    let trend = |more: Value| {
        let mut query = json!({"kind": "TrendsQuery", "series": series, "dateRange": range});
        query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        query
    };
    let queries = [
        trend(json!({"breakdownFilter": {"breakdown": "plan", "breakdown_type": "person"}})),
        trend(json!({"properties": [{"key": "id", "type": "cohort", "value": created["id"]}]})),
        trend(
            json!({"properties": [{"key": "$session_duration", "type": "session", "operator": "gt", "value": 1}]}),
        ),
        json!({"kind": "FunnelsQuery", "series": series, "dateRange": range,
               "breakdownFilter": {"breakdown": "plan", "breakdown_type": "person"}}),
        json!({"kind": "RetentionQuery", "dateRange": range, "retentionFilter": {"period": "Day", "totalIntervals": 5,
               "targetEntity": {"id": "seen", "type": "events"}, "returningEntity": {"id": "seen", "type": "events"}}}),
        json!({"kind": "LifecycleQuery", "dateRange": range, "series": [series[0]]}),
    ];
    let divided = divided(&whole);
    for query in &queries {
        let body = json!({"query": query, "refresh": "force_blocking"});
        let expected = whole.post("/api/projects/1/query/", body.clone()).await;
        assert_eq!(expected.status, 200, "{}", expected.text);
        for (count, _, app) in &divided {
            let response = app.post("/api/projects/1/query/", body.clone()).await;
            assert_eq!(response.text, expected.text, "{query} in {count} parts");
        }
    }
    // Each query has one pass over the parts for the results, and one over those that the four merges lead out of.
    for (count, processes, _) in &divided {
        let (queries, count) = (queries.len(), *count as usize);
        let passes = queries * (count + 1)..=queries * (count + count.min(4));
        assert!(passes.contains(&processes.invocations()), "{count}: {}", processes.invocations());
    }
    compare_lists(&queries, &whole, &divided).await;
    // Two parts of which one does not fit: four parts, with other moved rows.
    let processes = PartProcesses::of(&whole, 2);
    let app = processes.app(&whole, 2);
    for query in &queries {
        let body = json!({"query": query, "refresh": "force_blocking"});
        let expected = whole.post("/api/projects/1/query/", body.clone()).await;
        processes.refuse_next();
        let response = app.post("/api/projects/1/query/", body).await;
        assert_eq!(response.text, expected.text, "{query}");
    }
    let passes = 6 * ((1 + 2) + (1 + 4))..=6 * ((2 + 2) + (4 + 4));
    assert!(passes.contains(&processes.invocations()), "{}", processes.invocations());
    for (_, processes, _) in &divided {
        assert!(processes.failures().is_empty(), "{:?}", processes.failures());
    }
}

fn daily_trend() -> Value {
    json!({"query": {"kind": "TrendsQuery", "dateRange": {"date_from": "2025-12-31", "date_to": "2026-01-05"},
                     "series": [{"kind": "EventsNode", "event": "seen", "math": "dau"}]}, "refresh": "force_blocking"})
}

async fn with_persons(count: usize) -> TestApp {
    let app = TestApp::new().await;
    let seen = (0..count).map(|n| event("seen", &format!("p{n}"), "2026-01-02T00:00:00Z", json!({})));
    app.capture(seen.collect::<Vec<_>>()).await;
    app.compact().await;
    app
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_whose_day_is_used_up_is_calculated_undivided() {
    let whole = with_persons(30).await;
    let expected = whole.post("/api/projects/1/query/", daily_trend()).await.expect(200);
    let processes = PartProcesses::of(&whole, 2);
    // The first query is expected to cost a tenth of a GB-second.
    let app = processes.app_with(&whole, |settings| PartSettings { gb_seconds_per_day: 0.1, ..settings });
    let mut invocations = Vec::new();
    for _ in 0..4 {
        let response = app.post("/api/projects/1/query/", daily_trend()).await.expect(200);
        assert_eq!(response["results"], expected["results"]);
        invocations.push(processes.invocations());
    }
    assert_eq!(invocations[0], 2);
    let day = keys::part_spending(1, chrono::Utc::now().date_naive());
    let spent = whole.services.app.store.records.increment(&day, 0).await.unwrap();
    assert!(spent > 0 && spent % 100 != 0, "counted as what it cost, not as what was expected: {spent}");
    whole.services.app.store.records.increment(&day, 100).await.unwrap();
    let before = processes.invocations();
    let response = app.post("/api/projects/1/query/", daily_trend()).await.expect(200);
    assert_eq!((&response["results"], processes.invocations()), (&expected["results"], before));
    // A higher bound is one for the same day.
    let other = processes.app(&whole, 2);
    other.post("/api/projects/1/query/", daily_trend()).await.expect(200);
    assert_eq!(processes.invocations(), before + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_calculation_is_in_parts_too() {
    let whole = with_persons(30).await;
    let expected = whole.post("/api/projects/1/query/", daily_trend()).await.expect(200);
    let processes = PartProcesses::of(&whole, 2);
    let app = processes.app(&whole, 2);
    let mut body = daily_trend();
    body["refresh"] = json!("force_async");
    app.post("/api/projects/1/query/", body.clone()).await;
    assert_eq!((app.work().await, processes.invocations()), (vec![JobOutcome::Done], 2));
    body["refresh"] = json!("force_cache");
    let cached = app.post("/api/projects/1/query/", body).await.expect(200);
    assert_eq!((&cached["results"], &cached["is_cached"]), (&expected["results"], &json!(true)));
}

/// Invokes parts that go on when their invocation is no longer awaited, as those of a function do.
#[derive(Debug)]
struct DetachedParts {
    calculator: Calculator,
    begun: UnboundedSender<()>,
    ended: UnboundedSender<PartOutcome>,
}

impl PartInvoker for DetachedParts {
    fn invoke<'a>(&'a self, _number: usize, task: &'a [u8], time: Duration) -> InvocationFuture<'a> {
        let (calculator, task, ended) = (self.calculator.clone(), task.to_vec(), self.ended.clone());
        let part = tokio::spawn(async move {
            let limits = PartLimits { time, outcome_bytes_max: usize::MAX };
            let outcome = calculator.run_part(&task, limits).await;
            ended.send(PartOutcome::decode(&outcome).expect("an outcome")).expect("a receiver");
            outcome
        });
        self.begun.send(()).expect("a receiver");
        Box::pin(async move { part.await.map_err(|error| PartError::Failed(error.to_string())) })
    }

    fn task_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn memory_gb(&self) -> f64 {
        1.0
    }
}

/// The time by which this machine was late in the last while: what a tick of ten milliseconds took more.
fn measure_delays() -> (tokio::task::JoinHandle<()>, std::sync::Arc<AtomicU64>) {
    let delays = std::sync::Arc::new(AtomicU64::new(0));
    let sum = delays.clone();
    let ticks = tokio::spawn(async move {
        let tick = Duration::from_millis(10);
        let mut ticks = tokio::time::interval(tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = ticks.tick().await;
        loop {
            ticks.tick().await;
            let late = last.elapsed().saturating_sub(tick);
            last = Instant::now();
            sum.fetch_add(late.as_micros() as u64, Ordering::SeqCst);
        }
    });
    (ticks, delays)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_end_within_two_seconds_after_their_query_was_cancelled() {
    let whole = with_persons(30).await;
    let calculator = whole.another_process().services.calculator.clone();
    // The parts wait for a core until their query ends.
    let mut permits = Vec::new();
    while let Ok(permit) =
        tokio::time::timeout(Duration::from_millis(50), calculator.acquire_shared_permit()).await
    {
        permits.push(permit.unwrap());
    }
    let (begun, mut has_begun) = unbounded_channel();
    let (ended, mut has_ended) = unbounded_channel();
    let invoker = std::sync::Arc::new(DetachedParts { calculator, begun, ended });
    let settings = PartSettings { rows_per_part: 0, parts_max: 4, ..PartSettings::default() };
    let app = whole.with_calculator(|calculator| calculator.in_parts(Parts { invoker, settings }));
    let query = tokio::spawn(async move { app.post("/api/projects/1/query/", daily_trend()).await });
    for _ in 0..4 {
        has_begun.recv().await.unwrap();
    }
    // Longer than a part is expected to take at least.
    let waiting = Instant::now();
    while waiting.elapsed() < Duration::from_millis(150) {
        tokio::task::yield_now().await;
    }
    let (ticks, delays) = measure_delays();
    query.abort();
    let cancelled = Instant::now();
    for _ in 0..4 {
        let outcome = has_ended.recv().await.unwrap();
        assert!(matches!(outcome, PartOutcome::Failed(PartFailure::Transient(_))), "{outcome:?}");
    }
    let delay = Duration::from_micros(delays.load(Ordering::SeqCst));
    assert!(cancelled.elapsed() < Duration::from_secs(2) + delay, "{:?}, {delay:?}", cancelled.elapsed());
    ticks.abort();
    let day = keys::part_spending(1, chrono::Utc::now().date_naive());
    let spent = whole.services.app.store.records.increment(&day, 0).await.unwrap();
    assert!(spent >= 4 * 150, "a cancelled query costs what its four parts took until then: {spent}");
}
