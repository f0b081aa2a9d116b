//! A project with thousands of flags: every filter, the first page and the last, in as many round trips as a small one.

use chrono::{DateTime, Duration, Utc};
use pennon_core::store::keys::{self, Counter, RecordKind};
use pennon_core::store::{Precondition, Table, VersionBump, Write};
use pennon_flag_rules::Flag;
use pennon_flags::store::{FeedGrowth, change};
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

/// The number of flags; the environment can set more.
fn count() -> usize {
    std::env::var("PENNON_TEST_FLAGS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}

/// The individual fields of flag number `i`, from 1.
fn flag(template: &Flag, i: usize) -> Flag {
    let base: DateTime<Utc> = "2025-12-20T00:00:00Z".parse().unwrap();
    let at = base + Duration::seconds(i64::try_from(i).unwrap());
    let mut flag = template.clone();
    flag.id = i64::try_from(i).unwrap();
    flag.key = format!("flag-{i:05}");
    flag.name = format!("Flag number {i}");
    flag.active = !i.is_multiple_of(3);
    (flag.created_at, flag.updated_at) = (at, at);
    flag.tags = [(5, "team-a"), (7, "team-b")]
        .iter()
        .filter(|(n, _)| i.is_multiple_of(*n))
        .map(|(_, tag)| (*tag).to_owned())
        .collect();
    flag.evaluation_runtime = Some(if i.is_multiple_of(4) { "server" } else { "all" }.to_owned());
    flag.is_remote_configuration = Some(i.is_multiple_of(11));
    let mut filters = json!({"groups": [{"properties": [], "rollout_percentage": 50}]});
    if i.is_multiple_of(6) {
        filters["multivariate"] = json!({"variants": [{"key": "a", "rollout_percentage": 100}]});
    }
    if i.is_multiple_of(10) {
        filters["groups"][0]["properties"] = json!([{"type": "cohort", "key": "id", "value": 5}]);
    }
    flag.filters = filters.as_object().unwrap().clone();
    if let Some(creator) = flag.created_by.as_mut() {
        creator.id = if i.is_multiple_of(2) { 1 } else { 2 };
    }
    flag.last_called_at = (i.is_multiple_of(13)).then(|| "2025-10-01T00:00:00Z".parse().unwrap());
    flag
}

/// Writes flags as the product does, many in one transaction.
async fn fill(records: &Table, template: &Flag, count: usize) {
    let ids: Vec<usize> = (1..=count).collect();
    let transactions = ids.chunks(24).map(|some| {
        let (mut all, mut raise) = (Vec::new(), VersionBump::default());
        for id in some {
            for write in
                change(1, None, &flag(template, *id), Precondition::default(), FeedGrowth::default()).unwrap()
            {
                match write {
                    Write::BumpVersion(_, one) => {
                        raise.by.rows += one.by.rows;
                        raise.by.edges += one.by.edges;
                        raise.by.last = one.by.last;
                    }
                    other => all.push(other),
                }
            }
        }
        all.push(Write::BumpVersion(keys::project_version(1), raise));
        all
    });
    for writes in transactions {
        records.transact(writes).await.unwrap();
    }
    records.raise(&keys::counter(Counter::Flag), i64::try_from(count).unwrap()).await.unwrap();
}

async fn filled(count: usize) -> TestApp {
    let cohorts = json!([{"project": "1", "id": 5, "name": "Beta", "is_static": true, "distinct_ids": []}]);
    let app = TestApp::with(json!({"cohorts": cohorts})).await;
    let made = app.post("/api/projects/2/feature_flags/", json!({"key": "template"})).await.expect(201);
    let records = &app.services.app.store.records;
    let key = keys::record(2, RecordKind::Flag, made["id"].as_u64().unwrap());
    let template: Flag = records.get(&key).await.unwrap().unwrap().body().unwrap();
    fill(records, &template, count).await;
    app
}

/// A page of a new process, and its sequential round trips.
async fn cold(app: &TestApp, query: &str) -> (Value, usize) {
    app.services.app.keys.clear();
    app.services.flags.memory.clear();
    warm(app, query).await
}

async fn warm(app: &TestApp, query: &str) -> (Value, usize) {
    app.round_trips.reset();
    let response = app.call(Keys::OWNER, "GET", &format!("{FLAGS}?{query}"), Value::Null).await;
    (response.expect(200), app.round_trips.sequential())
}

fn keys_of(page: &Value) -> Vec<String> {
    let results = page["results"].as_array().unwrap();
    results.iter().map(|flag| flag["key"].as_str().unwrap().to_owned()).collect()
}

type Filter = (&'static str, fn(usize) -> bool);

const FILTERS: [Filter; 16] = [
    ("", |_| true),
    ("active=true", |i| !i.is_multiple_of(3)),
    ("active=false", |i| i.is_multiple_of(3)),
    ("active=STALE", |i| i.is_multiple_of(13) && !i.is_multiple_of(3)),
    ("created_by_id=2", |i| i % 2 == 1),
    ("search=number%2012", |i| i.to_string().starts_with("12")),
    ("search=FLAG-0000", |i| i < 10),
    ("key=FLAG-00777", |i| i == 777),
    ("type=boolean", |i| !i.is_multiple_of(6)),
    ("type=multivariant", |i| i.is_multiple_of(6)),
    ("type=experiment", |_| false),
    ("type=remote_config", |i| i.is_multiple_of(11)),
    ("evaluation_runtime=server", |i| i.is_multiple_of(4)),
    ("tags=%5B%22team-a%22,%22team-b%22%5D", |i| i.is_multiple_of(5) || i.is_multiple_of(7)),
    ("excluded_tags=%5B%22team-b%22%5D&active=true", |i| !i.is_multiple_of(7) && !i.is_multiple_of(3)),
    ("excluded_properties=%5B%22flag-00001%22%5D", |i| i != 1),
];

#[tokio::test]
async fn every_filter_on_the_first_page_and_the_last() {
    let count = count();
    let app = filled(count).await;
    let rows = app.services.app.store.records.get(&keys::flag_row(1, 7)).await.unwrap().unwrap();
    assert!(rows.text.len() < 130, "a row is short: {}", rows.text);
    for (filter, shown) in FILTERS {
        // The default order: newest first.
        let expected: Vec<String> =
            (1..=count).rev().filter(|i| shown(*i)).map(|i| format!("flag-{i:05}")).collect();
        let last = expected.len().saturating_sub(60);
        for (offset, new_process) in [(0, true), (last, matches!(filter, "" | "active=true"))] {
            let query = format!("{filter}&limit=100&offset={offset}");
            let (page, waits) = if new_process { cold(&app, &query).await } else { warm(&app, &query).await };
            assert_eq!(page["count"], expected.len(), "{query}");
            let on_page: Vec<String> = expected.iter().skip(offset).take(100).cloned().collect();
            assert_eq!(keys_of(&page), on_page, "{query}");
            assert!(waits <= 2, "{query} waited {waits} times: {:?}", app.round_trips.calls());
            let (again, waits) = warm(&app, &query).await;
            assert_eq!(again, page, "{query}");
            assert_eq!(waits, 1, "{query} when warm: {:?}", app.round_trips.calls());
        }
    }
    let (page, _) = cold(&app, "order=key&limit=100").await;
    let named = &page["results"][9]["filters"]["groups"][0]["properties"][0]["cohort_name"];
    assert_eq!((&page["results"][0]["key"], named), (&json!("flag-00001"), &json!("Beta")));
    polls_at_scale(&app, count).await;
    writes_at_scale(&app, count).await;
}

/// Definitions of thousands of flags: built in four round trips with cold caches, and then read in one.
async fn polls_at_scale(app: &TestApp, count: usize) {
    let path = format!("{FLAGS}local_evaluation/?send_cohorts");
    let poll = async || {
        app.services.app.keys.clear();
        app.round_trips.reset();
        let mut request = TestApp::request(Keys::OWNER, "GET", &path, Value::Null);
        request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        let response = app.send(request).await;
        assert_eq!((response.status.as_u16(), response.header("content-encoding")), (200, "gzip"));
        (response, app.round_trips.sequential())
    };
    app.services.flags.memory.clear();
    let (first, waits) = poll().await;
    assert!(waits <= 4, "{waits} waits: {:?}", app.round_trips.calls().len());
    let (_, waits) = poll().await;
    assert_eq!(waits, 1, "remembered");
    app.services.flags.feeds.clear();
    let (stored, waits) = poll().await;
    assert!(waits <= 2 && stored.bytes == first.bytes, "stored: {waits} waits");
    let name = format!("changed once among {count}");
    app.patch(&format!("{FLAGS}16/"), json!({"name": name})).await.expect(200);
    let (changed, waits) = poll().await;
    assert!(waits <= 4 && changed.header("etag") != first.header("etag"), "{waits} waits after a change");
    let document = app.get(&path).await.expect(200);
    assert_eq!(document["flags"].as_array().unwrap().len(), count);
    assert_eq!(document["flags"][15]["name"], name);
}

/// Changes take as many round trips as in a small project, and are in lists at once.
async fn writes_at_scale(app: &TestApp, count: usize) {
    let one = |id: usize| format!("{FLAGS}{id}/");
    for (body, expected) in [
        (json!({"name": "changed"}), count),
        (json!({"active": false}), count),
        (json!({"deleted": true}), count - 1),
        (json!({"deleted": false}), count),
    ] {
        app.services.app.keys.clear();
        app.services.flags.memory.clear();
        app.round_trips.reset();
        app.patch(&one(17), body.clone()).await.expect(200);
        assert_eq!(app.round_trips.sequential(), 2, "{body}: {:?}", app.round_trips.calls());
        let (page, waits) = cold(app, "limit=1").await;
        assert_eq!((page["count"].as_u64(), waits), (u64::try_from(expected).ok(), 2), "{body}");
    }
    app.services.app.keys.clear();
    app.services.flags.memory.clear();
    app.round_trips.reset();
    let filters = json!({"groups": [{"properties": [{"type": "flag", "key": "20", "operator": "flag_evaluates_to", "value": true}]}]});
    app.post(FLAGS, json!({"key": "newest", "filters": filters})).await.expect(201);
    assert_eq!(app.round_trips.sequential(), 3, "{:?}", app.round_trips.calls());
    let (page, waits) = cold(app, "limit=1").await;
    assert_eq!((&page["results"][0]["key"], waits), (&json!("newest"), 2));
}
