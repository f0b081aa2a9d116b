//! Workers of background calculations that crash, run concurrently, are superseded or time out.

use std::time::Duration;

use pennon::api::{Services, api};
use pennon_calculation::jobs::{JobKey, JobLimits, JobOutcome};
use pennon_calculation::{CalculationLimits, Calculator};
use pennon_tests::{Keys, TestApp, TestResponse, as_worker};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::background::{INSIGHTS, QUERY, saved, status, view, viewed, views};

/// Heartbeats are frequent, and a worker without them is soon considered crashed.
const HASTY: JobLimits = JobLimits {
    time: Duration::from_secs(300),
    beat: Duration::from_millis(5),
    lease: Duration::from_millis(100),
};

/// Settings for a worker whose state others also write. It may miss heartbeats on a busy machine.
const CALM: JobLimits =
    JobLimits { beat: Duration::from_millis(30), lease: Duration::from_secs(300), ..HASTY };

/// A calculator with a single permit: a test that holds it stops all calculations.
fn narrow(app: &TestApp) -> Calculator {
    let limits = CalculationLimits { at_once: 1, ..CalculationLimits::default() };
    Calculator::with_limits(&app.services.app, app.services.events.clone(), limits)
}

/// Waits until the status of `id` is as it should be.
async fn until(app: &TestApp, id: &str, what: impl Fn(&Value) -> bool) -> Value {
    loop {
        let (_, reported) = status(app, id).await;
        if what(&reported) {
            return reported;
        }
        tokio::task::yield_now().await;
    }
}

/// Starts the calculation of an insight; gives its name.
async fn started(app: &TestApp, path: &str, refresh: &str) -> String {
    let requested = app.get(&format!("{path}?refresh={refresh}")).await.expect(200);
    requested["query_status"]["id"].as_str().unwrap().to_owned()
}

/// The job that waits, called `id`, begun by a worker that cannot continue before its permit is released.
async fn under_way(
    app: &TestApp,
    id: &str,
    limits: JobLimits,
) -> (JobKey, impl Sized, JoinHandle<JobOutcome>) {
    let (job, worker) = (app.jobs().await[0], narrow(app));
    let permit = worker.acquire_shared_permit().await.unwrap();
    let running = tokio::spawn(async move { as_worker(worker.run_job(job, limits)).await });
    until(app, id, |reported| reported["pickup_time"] != Value::Null).await;
    (job, permit, running)
}

#[tokio::test]
async fn progress_is_shown_and_a_cancel_stops_the_worker() {
    let app = viewed().await;
    let id = started(&app, &saved(&app, views("-7d")).await, "async").await;
    let (job, worker) = (app.jobs().await[0], narrow(&app));
    let permit = worker.acquire_shared_permit().await.unwrap();
    let running = tokio::spawn({
        let worker = worker.clone();
        async move { as_worker(worker.run_job(job, HASTY)).await }
    });
    let reported = until(&app, &id, |reported| reported["query_progress"] != Value::Null).await;
    assert_eq!((&reported["complete"], &reported["end_time"]), (&json!(false), &Value::Null));
    assert_ne!(reported["pickup_time"], Value::Null);
    let keys: Vec<&String> = reported["query_progress"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["bytes_read", "rows_read", "estimated_rows_total", "time_elapsed", "active_cpu_time"]);
    app.call(Keys::OWNER, "DELETE", &format!("{QUERY}{id}/"), Value::Null).await;
    assert_eq!(running.await.unwrap(), JobOutcome::Dropped);
    drop(permit);
    assert_eq!((status(&app, &id).await.0, app.jobs().await.len()), (404, 0));
    assert_eq!(app.get(INSIGHTS).await.expect(200)["results"][0]["result"], Value::Null);
}

#[tokio::test]
async fn the_job_of_a_crashed_worker_is_taken_over() {
    let app = viewed().await;
    let path = saved(&app, views("-7d")).await;
    let id = started(&app, &path, "async").await;
    let (job, _turn, dying) = under_way(&app, &id, HASTY).await;
    dying.abort();
    assert!(dying.await.is_err());
    assert_eq!(app.jobs().await, [job], "it is left over");
    assert_eq!(as_worker(app.services.calculator.run_job(job, HASTY)).await, JobOutcome::Done);
    assert_eq!(app.get(&path).await.expect(200)["result"][0]["count"], 2.0);
    assert_eq!(status(&app, &id).await.0, 200);
}

#[tokio::test]
async fn a_job_that_kills_its_workers_is_given_up() {
    let app = viewed().await;
    let id = started(&app, &saved(&app, views("-7d")).await, "async").await;
    let job = app.jobs().await[0];
    let at_once = JobLimits { lease: Duration::ZERO, ..HASTY };
    for attempt in 1..=3 {
        let worker = narrow(&app);
        let _permit = worker.acquire_shared_permit().await.unwrap();
        let before = app.services.app.store.records.get(&state_of(&id)).await.unwrap().unwrap().version;
        let dying = tokio::spawn(async move { as_worker(worker.run_job(job, at_once)).await });
        loop {
            let item = app.services.app.store.records.get(&state_of(&id)).await.unwrap().unwrap();
            let state: Value = item.body().unwrap();
            if item.version > before && state["attempts"] == attempt {
                break;
            }
            tokio::task::yield_now().await;
        }
        dying.abort();
        assert!(dying.await.is_err());
    }
    assert_eq!(as_worker(app.services.calculator.run_job(job, at_once)).await, JobOutcome::Done);
    let (code, reported) = status(&app, &id).await;
    assert_eq!((code, &reported["error"], app.jobs().await.len()), (400, &json!(true), 0));
}

fn state_of(cache_key: &str) -> pennon_core::store::Key {
    pennon_core::store::keys::query_state(1, cache_key)
}

#[tokio::test]
async fn a_job_that_is_delivered_twice_has_one_effect() {
    let app = viewed().await;
    let path = saved(&app, views("-7d")).await;
    let id = started(&app, &path, "async").await;
    let job = app.jobs().await[0];
    let one = app.services.calculator.clone();
    let (first, second, third) = tokio::join!(
        one.run_job(job, JobLimits::default()),
        one.run_job(job, JobLimits { beat: Duration::from_millis(2), ..JobLimits::default() }),
        app.services
            .calculator
            .run_job(job, JobLimits { beat: Duration::from_millis(2), ..JobLimits::default() }),
    );
    let mut outcomes = [first, second, third].map(|outcome| format!("{outcome:?}"));
    outcomes.sort();
    let done = outcomes.iter().filter(|outcome| *outcome == "Done").count();
    assert_eq!(done, 1, "{outcomes:?}");
    assert_eq!(one.run_job(job, JobLimits::default()).await, JobOutcome::Dropped);
    assert_eq!((status(&app, &id).await.0, app.jobs().await.len()), (200, 0));
}

#[tokio::test]
async fn forcing_a_running_calculation_lets_it_end_and_queues_one_more() {
    let app = viewed().await;
    let path = saved(&app, views("-7d")).await;
    let id = started(&app, &path, "async").await;
    let (job, permit, running) = under_way(&app, &id, CALM).await;
    view(&app, "cid").await;
    let next = started(&app, &path, "force_async").await;
    assert_ne!(next, id, "each gets its own id");
    for _ in 0..3 {
        assert_eq!(started(&app, &path, "force_async").await, next);
    }
    let named = json!({"query": views("-7d"), "refresh": "force_async", "client_query_id": "mine"});
    let named = app.post(QUERY, named).await.expect(200);
    assert_eq!((&named["query_status"]["id"], app.jobs().await), (&json!("mine"), vec![job]));
    for waiting in [next.as_str(), "mine"] {
        let (code, reported) = status(&app, waiting).await;
        assert_eq!((code, &reported["pickup_time"], &reported["id"]), (202, &Value::Null, &json!(waiting)));
    }
    drop(permit);
    assert_eq!(running.await.unwrap(), JobOutcome::Done);
    let left = app.jobs().await;
    assert!(left.len() == 1 && left[0] != job, "{left:?}");
    assert_eq!(status(&app, &next).await.0, 202);
    assert!(app.get(&path).await.expect(200)["last_refresh"].is_string(), "the first one's result is there");
    assert_eq!(as_worker(app.services.calculator.run_job(job, CALM)).await, JobOutcome::Dropped);
    assert_eq!(app.work().await, [JobOutcome::Done]);
    for waiting in [next.as_str(), "mine"] {
        let (code, reported) = status(&app, waiting).await;
        assert_eq!((code, &reported["complete"]), (200, &json!(true)), "{reported}");
    }
    assert_eq!(app.get(&path).await.expect(200)["result"][0]["count"], 3.0);
    assert_eq!(app.jobs().await, []);
}

#[tokio::test]
async fn a_queued_calculation_starts_when_the_running_one_has_no_waiters() {
    let app = viewed().await;
    let path = saved(&app, views("-7d")).await;
    let id = started(&app, &path, "async").await;
    let (job, permit, running) = under_way(&app, &id, CALM).await;
    let next = started(&app, &path, "force_async").await;
    app.call(Keys::OWNER, "DELETE", &format!("{QUERY}{id}/"), Value::Null).await;
    assert_eq!(running.await.unwrap(), JobOutcome::Dropped);
    drop(permit);
    let left = app.jobs().await;
    assert!(left.len() == 1 && left[0] != job, "{left:?}");
    assert_eq!(app.work().await, [JobOutcome::Done]);
    assert_eq!(status(&app, &next).await.0, 200);
    assert_eq!(app.get(&path).await.expect(200)["result"][0]["count"], 2.0);
    // Cancelling the queued run does not end the running one.
    let id = started(&app, &path, "force_async").await;
    let (_, permit, running) = under_way(&app, &id, CALM).await;
    let next = started(&app, &path, "force_async").await;
    app.call(Keys::OWNER, "DELETE", &format!("{QUERY}{next}/"), Value::Null).await;
    drop(permit);
    assert_eq!((running.await.unwrap(), app.jobs().await), (JobOutcome::Done, vec![]));
    assert_eq!((status(&app, &id).await.0, status(&app, &next).await.0), (200, 404));
}

#[tokio::test]
async fn a_job_that_times_out_is_tried_three_times() {
    let app = viewed().await;
    let id = started(&app, &saved(&app, views("-7d")).await, "async").await;
    let job = app.jobs().await[0];
    let no_time = JobLimits { time: Duration::ZERO, ..HASTY };
    let run = async |limits| as_worker(app.services.calculator.run_job(job, limits)).await;
    assert_eq!((run(no_time).await, run(no_time).await), (JobOutcome::Retry, JobOutcome::Retry));
    assert_eq!(status(&app, &id).await.0, 202);
    assert_eq!((run(no_time).await, run(no_time).await), (JobOutcome::Done, JobOutcome::Dropped));
    let (code, reported) = status(&app, &id).await;
    assert_eq!(code, 400);
    assert!(reported["error_message"].as_str().unwrap().contains("takes too long"), "{reported}");
    // After two failures it may still succeed.
    let other = saved(&app, views("-3d")).await;
    started(&app, &other, "async").await;
    let job = app.jobs().await[0];
    let run = async |limits| as_worker(app.services.calculator.run_job(job, limits)).await;
    assert_eq!(
        (run(no_time).await, run(no_time).await, run(HASTY).await),
        (JobOutcome::Retry, JobOutcome::Retry, JobOutcome::Done)
    );
    assert_eq!(app.get(&other).await.expect(200)["result"][0]["count"], 2.0);
}

/// The same installation, whose requests have no time to calculate.
fn hasty(app: &TestApp) -> axum::Router {
    let limits = CalculationLimits { time: Duration::ZERO, at_once: 2 };
    let calculator = Calculator::with_limits(&app.services.app, app.services.events.clone(), limits);
    api(&Services { calculator, ..app.services.clone() })
}

async fn send(router: &axum::Router, method: &str, path: &str, body: Value) -> TestResponse {
    let response = router.clone().oneshot(TestApp::request(Keys::OWNER, method, path, body)).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec();
    let text = String::from_utf8(bytes.clone()).unwrap();
    TestResponse { status: parts.status, headers: parts.headers, text, bytes }
}

#[tokio::test]
async fn a_calculation_beyond_the_deadline_continues_in_the_background() {
    let app = viewed().await;
    let hasty = hasty(&app);
    let path = saved(&app, views("-7d")).await;
    for (refresh, rest) in [("blocking", ""), ("async_except_on_cache_miss", ""), ("true", "")] {
        let response =
            send(&hasty, "GET", &format!("{path}?refresh={refresh}{rest}"), Value::Null).await.expect(200);
        assert_eq!((&response["result"], &response["is_cached"]), (&Value::Null, &json!(false)), "{refresh}");
        assert_eq!(response["query_status"]["complete"], false, "{refresh}");
        assert_eq!(app.jobs().await.len(), 1, "{refresh}");
    }
    assert_eq!(app.work().await, [JobOutcome::Done]);
    let shown = send(&hasty, "GET", &format!("{path}?refresh=blocking"), Value::Null).await.expect(200);
    assert_eq!((&shown["result"][0]["count"], &shown["is_cached"]), (&json!(2.0), &json!(true)));
    let node = send(&hasty, "POST", QUERY, json!({"query": views("-2d")})).await.expect(200);
    assert_eq!((&node["results"], &node["query_status"]["complete"]), (&Value::Null, &json!(false)));
    let made = json!({"query": views("-4d")});
    let made = send(&hasty, "POST", &format!("{INSIGHTS}?refresh=blocking"), made).await.expect(201);
    assert_eq!(made["query_status"]["complete"], false);
    let page =
        send(&hasty, "GET", &format!("{INSIGHTS}?refresh=force_blocking"), Value::Null).await.expect(200);
    let rows = page["results"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["query_status"]["complete"] == false && row["result"].is_null()));
    assert_eq!(app.jobs().await.len(), 3);
}

#[tokio::test]
async fn a_request_that_must_come_again_finds_its_result() {
    let app = viewed().await;
    let hasty = hasty(&app);
    let steps = json!([{"id": "viewed", "order": 0}, {"id": "bought", "order": 1}]);
    let body = |refresh: bool| json!({"events": steps, "refresh": refresh, "date_from": "2026-01-01"});
    let paths = [
        ("funnel", "funnel/"),
        ("correlation", "funnel/correlation/"),
        ("retention", "retention/"),
        ("trend", "trend/"),
        ("stickiness", "stickiness/"),
        ("lifecycle", "lifecycle/"),
    ];
    for (name, path) in paths {
        let path = format!("{INSIGHTS}{path}");
        for _ in 0..2 {
            let busy = send(&hasty, "POST", &path, body(true)).await;
            assert_eq!((busy.status.as_u16(), busy.header("retry-after")), (503, "5"), "{name}");
            assert_eq!(app.jobs().await.len(), 1, "{name}");
        }
        // Another process does not start a running job.
        let other = app.post(&path, body(true)).await;
        assert_eq!(other.status, 503, "{name}");
        assert_eq!(app.work().await, [JobOutcome::Done], "{name}");
        let found = send(&hasty, "POST", &path, body(true)).await.expect(200);
        assert_eq!(found["is_cached"], true, "{name}");
        // The pending result was returned; a forced request calculates again.
        assert_eq!(send(&hasty, "POST", &path, body(true)).await.status, 503, "{name}");
        // A fresh result is shown all the while to those who do not.
        assert_eq!(send(&hasty, "POST", &path, body(false)).await.expect(200)["is_cached"], true, "{name}");
        assert_eq!(app.work().await, [JobOutcome::Done], "{name}");
        assert_eq!(send(&hasty, "POST", &path, body(false)).await.expect(200)["is_cached"], true);
    }
}

#[tokio::test]
async fn a_repeated_request_gets_the_reason_of_a_failure() {
    let app = viewed().await;
    let hasty = hasty(&app);
    let path = format!("{INSIGHTS}trend/");
    let body = json!({"events": [{"id": "viewed"}], "date_from": "2026-01-01"});
    assert_eq!(send(&hasty, "POST", &path, body.clone()).await.status, 503);
    let (job, no_time) = (app.jobs().await[0], JobLimits { time: Duration::ZERO, ..HASTY });
    for _ in 0..3 {
        as_worker(app.services.calculator.run_job(job, no_time)).await;
    }
    for _ in 0..2 {
        let reported = send(&hasty, "POST", &path, body.clone()).await.expect(400);
        assert!(reported["detail"].as_str().unwrap().contains("takes too long"), "{reported}");
    }
    // A forced request retries it.
    let mut forced = body.clone();
    forced["refresh"] = json!(true);
    assert_eq!(send(&hasty, "POST", &path, forced).await.status, 503);
    assert_eq!(app.work().await, [JobOutcome::Done]);
    assert_eq!(send(&hasty, "POST", &path, body).await.expect(200)["is_cached"], true);
}

#[tokio::test]
async fn equal_queries_at_once_are_calculated_once() {
    let app = viewed().await;
    let (calculator, measured) = narrow(&app).measured();
    let permit = calculator.acquire_shared_permit().await.unwrap();
    let router = api(&Services { calculator, ..app.services.clone() });
    let path = saved(&app, views("-7d")).await;
    app.round_trips.reset();
    let requests: Vec<_> = (0..6)
        .map(|_| {
            let (router, path) = (router.clone(), format!("{path}?refresh=blocking"));
            tokio::spawn(async move { send(&router, "GET", &path, Value::Null).await.expect(200) })
        })
        .collect();
    // Each has read twice and waits for the cores.
    while app.round_trips.calls().len() < 12 {
        tokio::task::yield_now().await;
    }
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    drop(permit);
    for request in requests {
        let response = request.await.unwrap();
        assert_eq!(response["result"][0]["count"], 2.0);
    }
    assert_eq!(measured.scans().len(), 1);
}
