//! Rare calls of functions, which policies have to allow. When the calls of a run are recorded (`tests/src/calls`), these
//! tests make them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use pennon_calculation::jobs::JobOutcome;
use pennon_core::function_name::with_function_name;
use pennon_core::http::edge;
use pennon_core::store::PartitionQuery;
use pennon_core::throttle::Rates;
use pennon_eventstore::{CompactionTask, Event, EventStore, GroupRecord, PersonRecord};
use pennon_tests::{Keys, NOW, TestApp, as_worker};
use pennon_worker::{CompactionRun, TableMaintenance, compact_all, run_compaction_tasks};
use serde_json::{Value, json};
use tower::ServiceExt;
use uuid::Uuid;

const FLAGS: &str = "/api/projects/1/feature_flags/";
const INSIGHTS: &str = "/api/projects/1/insights/";
const TREND: &str = "/api/projects/1/insights/trend/";
const QUERY: &str = "/api/projects/1/query/";

fn now() -> DateTime<Utc> {
    NOW.parse().unwrap()
}

fn later(minutes: i64) -> DateTime<Utc> {
    now() + TimeDelta::minutes(minutes)
}

async fn compact(app: &TestApp, at: DateTime<Utc>) {
    let run = as_worker(compact_all(&app.services.events, at, CompactionRun::HOURLY)).await.unwrap();
    assert_eq!(run.failed, 0);
}

/// Three thousand persons and two groups, of whom three persons do something.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let micros = now().timestamp_micros();
    let person = |number: usize| PersonRecord {
        distinct_ids: vec![format!("p{number}"), format!("p{number}@home")],
        properties: json!({"vip": number.is_multiple_of(2)}).as_object().unwrap().clone(),
        created_at: None,
    };
    let group = |key: &str| GroupRecord {
        type_name: "organization".to_owned(),
        index: 0,
        key: key.to_owned(),
        properties: json!({"size": key.len()}).as_object().unwrap().clone(),
    };
    let event = |who: &str| Event {
        uuid: Uuid::new_v4(),
        event: "bought".to_owned(),
        distinct_id: who.to_owned(),
        timestamp: micros - 86_400_000_000,
        properties: json!({"$group_0": "acme", "plan": "x".repeat(9)}).as_object().unwrap().clone(),
    };
    app.services.events.add_persons(1, (0..3000).map(person).collect(), micros).await.unwrap();
    app.services.events.add_groups(1, ["acme", "other"].map(group).into(), micros).await.unwrap();
    app.services.events.append(1, &["p1", "p2", "p3@home"].map(event), micros).await.unwrap();
    app
}

/// A cohort of all persons, whose list is too long for its record, and an action.
async fn cohort_and_action(app: &TestApp) -> (Value, Value) {
    let all_persons = (0..3000).map(|number| format!("p{number}")).collect::<Vec<_>>();
    let cohort = json!({"name": "L", "is_static": true, "distinct_ids": all_persons});
    let cohort = app.post("/api/projects/1/cohorts/", cohort).await.expect(201);
    let action = json!({"name": "buys", "steps": [{"event": "bought"}]});
    let action = app.post("/api/projects/1/actions/", action).await.expect(201);
    (cohort["id"].clone(), action["id"].clone())
}

/// A query that needs persons, groups, a cohort and an action.
fn query(cohort: &Value, action: &Value) -> Value {
    json!({"kind": "TrendsQuery", "dateRange": {"date_from": "-7d"},
        "series": [{"kind": "ActionsNode", "id": action, "math": "dau", "properties": [
            {"key": "vip", "type": "person", "value": [true, false], "operator": "exact"},
            {"key": "size", "type": "group", "group_type_index": 0, "value": 1, "operator": "gt"},
            {"key": "id", "type": "cohort", "value": cohort}]}]})
}

/// Calculates an insight in the background; gives the sum.
async fn in_background(app: &TestApp, query: Value) -> Value {
    let path = format!("{INSIGHTS}{}/", app.post(INSIGHTS, json!({"query": query})).await.expect(201)["id"]);
    app.get(&format!("{path}?refresh=async")).await.expect(200);
    assert_eq!(app.work().await, [JobOutcome::Done]);
    app.get(&path).await.expect(200)["result"][0]["count"].clone()
}

#[tokio::test]
async fn functions_that_require_keys_record_their_use_and_count_their_calls() {
    let requested = [
        ("GET", FLAGS.to_owned()),
        ("GET", format!("{FLAGS}1/role_access/")),
        ("GET", INSIGHTS.to_owned()),
        ("POST", TREND.to_owned()),
        ("GET", "/api/projects/1/".to_owned()),
        ("GET", "/api/projects/1/cohorts/".to_owned()),
    ];
    for (method, path) in requested {
        let app = TestApp::new().await;
        app.call(Keys::MEMBER, "POST", FLAGS, json!({"key": "one"})).await.expect(201);
        let app = app.limited(Rates::default());
        let body = if method == "GET" { Value::Null } else { json!({"events": [{"id": "bought"}]}) };
        let current = path.replace("projects/1/", "projects/@current/");
        app.call(Keys::OWNER, method, &current, body.clone()).await.expect(200);
        app.call(Keys::OWNER, method, &path, body).await.expect(200);
        app.services.app.keys.wait_for_background_writes().await;
        app.services.app.keys.clear();
        let used = app.get("/api/personal_api_keys/@current/").await.expect(200)["last_used_at"].clone();
        assert_eq!(used, "2026-01-05T10:00:00Z", "{path}");
    }
}

#[tokio::test]
async fn a_worker_calculates_a_query_that_needs_all_data() {
    let app = shop().await;
    let (cohort, action) = cohort_and_action(&app).await;
    // Events that wait, then segments.
    assert_eq!(in_background(&app, query(&cohort, &action)).await, 3.0);
    compact(&app, now()).await;
    let other = app.another_process();
    let mut again = query(&cohort, &action);
    again["dateRange"] = json!({"date_from": "-8d"});
    assert_eq!(in_background(&other, again).await, 3.0);
}

#[tokio::test]
async fn a_query_starts_in_the_background() {
    let app = shop().await;
    let (cohort, action) = cohort_and_action(&app).await;
    let body = json!({"query": query(&cohort, &action), "refresh": "async", "client_query_id": "mine"});
    app.post(QUERY, body).await;
    assert_eq!(app.work().await, [JobOutcome::Done]);
    let reported = app.get(&format!("{QUERY}mine/")).await.expect(200);
    assert_eq!(reported["query_status"]["results"]["results"][0]["count"], 3.0);
}

#[tokio::test]
async fn a_worker_folds_merges_and_removes_unlisted_objects() {
    let app = shop().await;
    compact(&app, now()).await;
    // A row of the log for each request, and more rows than are left as they are. Rows go when two objects hold them.
    for round in 0..2_i64 {
        let merge = |number: i64| {
            json!({"event": "$identify", "distinct_id": format!("u{round}-{number}"),
            "properties": {"$anon_distinct_id": format!("d{round}-{number}")}})
        };
        for number in 0..270 {
            app.capture(json!([merge(number)])).await;
        }
        // The merge table of imports is rebuilt, and the previous object is deleted.
        let person = PersonRecord {
            distinct_ids: vec![format!("n{round}"), format!("m{round}")],
            properties: serde_json::Map::new(),
            created_at: None,
        };
        let at = later(20 * round);
        app.services.events.add_persons(1, vec![person], at.timestamp_micros()).await.unwrap();
        compact(&app, at).await;
    }
    compact(&app, later(120)).await;
    let first = PartitionQuery::partition("PROJECT#1#OVERRIDE").prefix("MERGE#").limit(1);
    let first = app.services.app.store.records.query(first).await.unwrap();
    assert!(first[0].key.sk > format!("MERGE#{:020}", 100), "rows that two objects hold are gone");
    let old = later(3 * 24 * 60).timestamp_micros();
    let no_person = directory(&app).join("project=1/events/0000-unlisted.parquet");
    std::fs::write(&no_person, "left by a writer that stopped").unwrap();
    // By the machine's clock, which is the time of the file.
    let by_machine = Utc::now().timestamp_micros().max(old) + 2 * 86_400_000_000;
    assert_eq!(as_worker(app.services.events.sweep_orphans(1, by_machine)).await.unwrap(), 1);
    assert!(!no_person.exists());
    let orphans = app.services.events.orphans(1).await.unwrap();
    assert_eq!(orphans.len(), 1, "it is kept for a month: {orphans:?}");
    let month = by_machine + 32 * 86_400_000_000;
    assert_eq!(as_worker(app.services.events.sweep_orphans(1, month)).await.unwrap(), 0);
    assert_eq!(app.services.events.orphans(1).await.unwrap(), []);
    // A process with cold caches reads the merges, which flags and captures need too.
    let other = app.another_process();
    app.get(&format!("{FLAGS}my_flags/?distinct_id=d0-7")).await.expect(200);
    let merge = json!({"event": "$identify", "distinct_id": "u9", "properties": {"$anon_distinct_id": "p1"}});
    other.capture(json!([merge])).await;
    let trend = json!({"events": [{"id": "bought", "math": "dau"}], "date_from": "-7d"});
    assert_eq!(other.post(TREND, trend).await.expect(200)["result"][0]["count"], 3.0);
}

#[tokio::test]
async fn functions_that_find_a_damaged_object_record_it() {
    let trend = json!({"events": [{"id": "bought"}], "date_from": "-7d"});
    let vips = json!([{"key": "vip", "type": "person", "value": [true], "operator": "exact"}]);
    let blast = json!({"condition": {"properties": vips}});
    for (path, body) in [(TREND.to_owned(), trend), (format!("{FLAGS}user_blast_radius/"), blast)] {
        let app = shop().await;
        compact(&app, now()).await;
        let mut found = Vec::new();
        files(&directory(&app).join("project=1"), &mut found);
        for file in found {
            std::fs::write(file, "flipped").unwrap();
        }
        let other = app.another_process();
        other.post(&path, body).await.expect(503);
        assert_ne!(other.services.events.damage(1).await.unwrap().len(), 0, "{path}");
    }
}

fn directory(app: &TestApp) -> PathBuf {
    PathBuf::from(app.events_url().replace("file://", ""))
}

/// The files below `folder`.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn captured_events_wake_a_worker_that_compacts_and_merges_under_leases() {
    let app = TestApp::new().await;
    // The event store of the capture function, which wakes the worker.
    let events = EventStore::open_to_append(app.services.app.store.clone(), &app.events_url()).unwrap();
    let capture = edge(pennon_capture::router(&app.services.app, &events), app.services.app.clock);
    let send = async |number: i64| {
        let event = json!({"event": "seen", "distinct_id": format!("p{number}")});
        let body = json!({"api_key": "phc_project_1", "batch": [event]});
        let request = TestApp::request("", "POST", "/batch", body);
        let response = with_function_name("capture", Box::pin(capture.clone().oneshot(request))).await;
        assert_eq!(response.unwrap().status(), 200);
    };
    let records = &app.services.app.store.records;
    let woken = async |pk: &str| {
        let rows = records.query(PartitionQuery::partition(pk).prefix("WAKE#")).await.unwrap();
        rows.iter().filter_map(|row| CompactionTask::of_wake(&row.key)).collect::<Vec<_>>()
    };
    for round in 0..4 {
        for number in 0..100 {
            send(round * 100 + number).await;
        }
        let tasks = woken("COMPACTION#1").await;
        assert_eq!(tasks.len(), 1, "a row of each minute, and the clock stands");
        let run = run_compaction_tasks(&app.services.events, tasks, later(round), Duration::from_secs(60));
        as_worker(run).await.unwrap();
    }
    // Four segments of a size are due.
    let tasks = woken("COMPACTION#1#MERGES").await;
    assert_eq!(tasks, [CompactionTask::Merges(1)]);
    let entries = async || {
        let entries = PartitionQuery::partition("PROJECT#1#SEGMENT").prefix("SEGMENT#");
        records.query(entries).await.unwrap().len()
    };
    assert_eq!(entries().await, 4);
    let run = run_compaction_tasks(&app.services.events, tasks.clone(), later(5), Duration::from_secs(60));
    as_worker(run).await.unwrap();
    assert_eq!(entries().await, 5, "the one that replaces them");
    // Without time the task is left to another invocation.
    let run = run_compaction_tasks(&app.services.events, tasks, later(6), Duration::ZERO);
    as_worker(run).await.unwrap();
    assert_eq!(woken("COMPACTION#1#MERGES").await.len(), 2);
    let trend = json!({"events": [{"id": "seen"}], "date_from": "-1d"});
    assert_eq!(app.post(TREND, trend).await.expect(200)["result"][0]["count"], 400.0);
}

#[tokio::test]
async fn tables_are_published_after_compaction_and_removed_when_switched_off() {
    const TIME: Duration = Duration::from_secs(60);
    let app = shop().await;
    let events = &app.services.events;
    let files = async || {
        let listed = events.table_files().list("project=1").await.unwrap();
        listed.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let tables = TableMaintenance::new(events.clone(), true);
    compact(&app, now()).await;
    as_worker(tables.publish_after_tasks(&[CompactionTask::Blocks(1)], now(), TIME)).await;
    assert_eq!(files().await.len(), 4, "persons are left to the schedule");
    as_worker(tables.maintain_all(now(), TIME, 1)).await.unwrap();
    let first = files().await;
    assert_eq!(first.len(), 9, "{first:?}");
    let event = Event {
        uuid: Uuid::new_v4(),
        event: "bought".to_owned(),
        // A person that no merge names.
        distinct_id: "visitor".to_owned(),
        timestamp: now().timestamp_micros(),
        properties: serde_json::Map::new(),
    };
    events.append(1, &[event], now().timestamp_micros()).await.unwrap();
    compact(&app, later(11)).await;
    as_worker(tables.maintain_all(later(11), TIME, 1)).await.unwrap();
    assert_eq!(files().await.len(), 16);
    // More than ten minutes later the files of the first version are deleted.
    as_worker(tables.maintain_all(later(22), TIME, u64::MAX)).await.unwrap();
    let second = files().await;
    assert_eq!(second.len(), 9);
    assert_eq!(second.iter().filter(|file| first.contains(file)).count(), 2, "the hints");

    let off = TableMaintenance::new(events.clone(), false);
    as_worker(off.publish_after_tasks(&[CompactionTask::Blocks(1)], later(23), TIME)).await;
    assert_eq!(files().await.len(), 9);
    as_worker(off.maintain_all(later(23), TIME, 1)).await.unwrap();
    assert_eq!(files().await.len(), 0);
}
