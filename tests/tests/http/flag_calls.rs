//! When flags were last called: events `$feature_flag_called` show in records, in the status and in lists as soon as they are
//! captured, before and after compaction, and capture writes nothing for it.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use pennon_core::store::{Item, Key, WriteCondition, keys};
use pennon_eventstore::Event;
use pennon_flag_rules::calls::{FLAGS_MAX, StoredCalls};
use pennon_tests::{Keys, NOW, TestApp, as_worker};
use serde_json::{Value, json};
use uuid::Uuid;

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn now() -> DateTime<Utc> {
    NOW.parse().unwrap()
}

fn one(id: u64) -> String {
    format!("{FLAGS}{id}/")
}

/// A call of the flag `key` at `at`.
fn call(key: &str, at: &str) -> Value {
    json!({"event": "$feature_flag_called", "distinct_id": "d", "timestamp": at,
        "properties": {"$feature_flag": key, "$feature_flag_response": true}})
}

/// Compacts what waits, and removes the blocks that segments replace.
async fn compact(app: &TestApp) {
    let micros = now().timestamp_micros();
    while as_worker(app.services.events.compact(1, micros)).await.unwrap().has_more_work() {}
    let later = (now() + TimeDelta::minutes(11)).timestamp_micros();
    as_worker(app.services.events.sweep(1, later)).await.unwrap();
}

/// The time and the status of a flag, which are equal in its record, its status and the list.
async fn shown(app: &TestApp, id: u64) -> (Value, String) {
    let record = app.get(&one(id)).await.expect(200);
    let status = app.get(&format!("{}status/", one(id))).await.expect(200);
    let list = app.get(&format!("{FLAGS}?limit=1000")).await.expect(200);
    let listed = list["results"].as_array().unwrap().iter().find(|flag| flag["id"] == id).cloned();
    if record["deleted"] == false {
        assert_eq!(listed, Some(record.clone()));
    }
    let word = record["status"].as_str().unwrap().to_lowercase();
    assert_eq!(status["status"], word, "{status}");
    (record["last_called_at"].clone(), status["reason"].as_str().unwrap().to_owned())
}

async fn last_called_at(app: &TestApp, id: u64) -> Value {
    shown(app, id).await.0
}

fn today(at: &str) -> (Value, String) {
    (json!(at), "Last called today".to_owned())
}

#[tokio::test]
async fn a_thousand_calls_are_visible_at_once_and_after_compaction() {
    let app = TestApp::new().await;
    let (alpha, beta, never) = (app.flag("alpha").await, app.flag("beta").await, app.flag("never").await);
    let before = app.get(&one(alpha)).await.expect(200);
    assert_eq!(shown(&app, alpha).await, (Value::Null, "No usage data yet".to_owned()));
    for batch in 0..10 {
        // Of alpha the last batch but one has the latest call, of beta the first.
        let minute = if batch == 9 { 3 } else { batch };
        let alphas =
            (0..60).map(|second| call("alpha", &format!("2026-01-05T09:0{minute}:{second:02}.250Z")));
        let betas = (0..40).map(|second| call("beta", &format!("2026-01-05T08:5{}:{second:02}Z", 9 - batch)));
        app.capture(alphas.chain(betas).collect::<Vec<_>>()).await;
        let latest = format!("2026-01-05T09:0{}:59.250000Z", batch.min(8));
        assert_eq!(last_called_at(&app, alpha).await, latest, "batch {batch}");
    }
    let expected = [
        (alpha, today("2026-01-05T09:08:59.250000Z")),
        (beta, today("2026-01-05T08:59:39Z")),
        (never, (Value::Null, "No usage data yet".to_owned())),
    ];
    let check = async |app: &TestApp, when: &str| {
        for (id, usage) in &expected {
            assert_eq!(shown(app, *id).await, *usage, "{when}");
        }
    };
    check(&app, "waiting").await;
    check(&app.another_process(), "waiting, in another process").await;
    compact(&app).await;
    let blocks = pennon_core::store::PartitionQuery::partition("PROJECT#1#SHARD#0");
    assert!(app.services.app.store.blocks.query(blocks).await.unwrap().is_empty());
    check(&app, "compacted").await;
    check(&app.another_process(), "compacted, in another process").await;
    // Nothing else of the flag has changed.
    let mut after = app.get(&one(alpha)).await.expect(200);
    after["last_called_at"] = Value::Null;
    assert_eq!(after, before);
    let log = app.get(&format!("{}activity/", one(alpha))).await.expect(200);
    assert_eq!(log["results"].as_array().unwrap().len(), 1, "only its creation");
    // A change returns it too.
    let changed = app.patch(&one(alpha), json!({"name": "x"})).await.expect(200);
    assert_eq!(changed["last_called_at"], "2026-01-05T09:08:59.250000Z");
    // An earlier call that arrives later changes nothing, waiting or compacted.
    app.capture(vec![call("alpha", "2026-01-05T07:00:00Z")]).await;
    check(&app, "an earlier call").await;
    compact(&app).await;
    check(&app, "an earlier call, compacted").await;
}

#[tokio::test]
async fn capture_writes_nothing_for_calls_and_compaction_one_row() {
    let app = TestApp::new().await;
    for number in 0..20 {
        app.flag(&format!("flag-{number}")).await;
    }
    let operations = |app: &TestApp| {
        let mut counts = BTreeMap::new();
        for call in app.round_trips.calls() {
            *counts.entry(call.operation).or_insert(0) += 1;
        }
        counts
    };
    let calls =
        || (0..500).map(|n| call(&format!("flag-{}", n % 20), "2026-01-05T09:00:00Z")).collect::<Vec<_>>();
    let views = || {
        let view = json!({"event": "view", "distinct_id": "d", "properties": {"page": "x"}});
        vec![view; 500]
    };
    // The project has had events, and its token is known.
    app.capture(views()).await;
    compact(&app).await;
    let mut captured = Vec::new();
    let mut compacted = Vec::new();
    for events in [views(), calls()] {
        app.round_trips.reset();
        app.capture(events).await;
        captured.push(operations(&app));
        app.round_trips.reset();
        as_worker(app.services.events.compact_blocks(1, now().timestamp_micros())).await.unwrap();
        compacted.push(operations(&app));
    }
    assert_eq!(captured[0], BTreeMap::from([("PutItem".to_owned(), 1)]));
    assert_eq!(captured[1], captured[0], "500 calls of 20 flags cost what 500 other events do");
    // In addition to other events: the keys of the flags, the current row, and the new row.
    let mut expected = compacted[0].clone();
    for operation in ["BatchGetItem", "GetItem", "PutItem"] {
        *expected.entry(operation.to_owned()).or_insert(0) += 1;
    }
    assert_eq!(compacted[1], expected);
}

#[tokio::test]
async fn staleness_and_the_order_of_lists_follow_the_calls() {
    let app = TestApp::new().await;
    let full = json!({"groups": [{"properties": [], "rollout_percentage": 100}]});
    let mut ids = Vec::new();
    for key in ["old", "young", "never", "set"] {
        let body = json!({"key": key, "filters": full, "created_at": "2025-01-01T00:00:00Z"});
        ids.push(app.post(FLAGS, body).await.expect(201)["id"].as_u64().unwrap());
    }
    let [old, young, never, set] = ids[..] else { unreachable!() };
    app.patch(&one(set), json!({"last_called_at": "2026-01-01T00:00:00Z"})).await.expect(200);
    let listed = async |query: &str| {
        let list = app.get(&format!("{FLAGS}?{query}")).await.expect(200);
        list["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|flag| flag["id"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed("active=STALE&order=id").await, [old, young, never], "never called, old, always true");
    // Thirty days ago and a second more, or less.
    app.capture(vec![call("old", "2025-12-06T09:59:59Z"), call("young", "2025-12-06T10:00:01Z")]).await;
    for when in ["waiting", "compacted"] {
        assert_eq!(shown(&app, old).await.1, "Not called for 30 days", "{when}");
        assert_eq!(shown(&app, young).await.1, "Last called 29 days ago", "{when}");
        assert_eq!(shown(&app, never).await.1, "Always \"true\"", "{when}");
        assert_eq!(listed("active=STALE&order=id").await, [old, never], "{when}");
        assert_eq!(listed("order=last_called_at").await, [old, young, set, never], "{when}");
        assert_eq!(listed("order=-last_called_at&limit=2").await, [never, set], "{when}");
        compact(&app).await;
    }
    // The later of the time that callers set and that of calls counts.
    app.capture(vec![call("set", "2025-12-31T00:00:00Z")]).await;
    assert_eq!(last_called_at(&app, set).await, "2026-01-01T00:00:00Z");
    app.capture(vec![call("set", "2026-01-02T00:00:00Z"), call("old", "2026-01-05T09:59:59Z")]).await;
    assert_eq!(last_called_at(&app, set).await, "2026-01-02T00:00:00Z");
    assert_eq!(listed("active=STALE&order=id").await, [never]);
}

#[tokio::test]
async fn imported_calls_count_by_their_time_and_future_ones_as_now() {
    let app = TestApp::new().await;
    let (imported, ahead) = (app.flag("imported").await, app.flag("ahead").await);
    let event = |key: &str, at: DateTime<Utc>| Event {
        uuid: Uuid::new_v4(),
        event: "$feature_flag_called".to_owned(),
        distinct_id: "d".to_owned(),
        timestamp: at.timestamp_micros(),
        properties: json!({"$feature_flag": key}).as_object().unwrap().clone(),
    };
    let import = async |events: Vec<Event>| {
        let lines = (1..).zip(events).collect();
        app.services.events.ingest(1, lines, now().timestamp_micros()).await.unwrap();
    };
    let days_ago = |days| now() - TimeDelta::days(days);
    import((40..90).map(|days| event("imported", days_ago(days))).collect()).await;
    assert_eq!(last_called_at(&app, imported).await, "2025-11-26T10:00:00Z");
    assert_eq!(shown(&app, imported).await.1, "Not called for 40 days");
    import(vec![event("imported", days_ago(400))]).await;
    assert_eq!(last_called_at(&app, imported).await, "2025-11-26T10:00:00Z", "older history");
    import(vec![event("ahead", now() + TimeDelta::days(400))]).await;
    assert_eq!(shown(&app, ahead).await, today(NOW));
    // What the wire takes of the future is bounded by capture; the rest is bounded here.
    app.services
        .events
        .append(1, &[event("imported", now() + TimeDelta::days(1))], now().timestamp_micros())
        .await
        .unwrap();
    assert_eq!(shown(&app, imported).await, today(NOW));
    compact(&app).await;
    assert_eq!(shown(&app, imported).await, today(NOW));
}

#[tokio::test]
async fn calls_belong_to_the_flag_that_has_the_key_and_stay_with_it() {
    let app = TestApp::new().await;
    let first = app.flag("a").await;
    app.capture(vec![call("a", "2026-01-05T09:00:00Z")]).await;
    let renamed = app.patch(&one(first), json!({"key": "b"})).await.expect(200);
    assert_eq!(renamed["last_called_at"], "2026-01-05T09:00:00Z", "calls that wait stay with the flag");
    assert_eq!(last_called_at(&app, first).await, "2026-01-05T09:00:00Z");
    compact(&app).await;
    assert_eq!(last_called_at(&app, first).await, "2026-01-05T09:00:00Z");
    // Calls of the old key then belong to no flag, and later to another flag.
    app.capture(vec![call("a", "2026-01-05T09:10:00Z")]).await;
    compact(&app).await;
    assert_eq!(last_called_at(&app, first).await, "2026-01-05T09:00:00Z");
    let second = app.flag("a").await;
    assert_eq!(last_called_at(&app, second).await, Value::Null);
    app.capture(vec![call("a", "2026-01-05T09:20:00Z"), call("b", "2026-01-05T09:30:00Z")]).await;
    for when in ["waiting", "compacted"] {
        assert_eq!(last_called_at(&app, first).await, "2026-01-05T09:30:00Z", "{when}");
        assert_eq!(last_called_at(&app, second).await, "2026-01-05T09:20:00Z", "{when}");
        compact(&app).await;
    }
    // A deleted flag keeps its calls and gets no more; a new one of its key has none of them.
    app.capture(vec![call("a", "2026-01-05T09:40:00Z")]).await;
    app.patch(&one(second), json!({"deleted": true})).await.expect(200);
    compact(&app).await;
    app.capture(vec![call("a", "2026-01-05T09:45:00Z")]).await;
    let deleted = app.get(&one(second)).await.expect(200);
    assert_eq!(deleted["last_called_at"], "2026-01-05T09:40:00Z");
    compact(&app).await;
    app.patch(&one(second), json!({"deleted": false})).await.expect(200);
    assert_eq!(last_called_at(&app, second).await, "2026-01-05T09:40:00Z", "restored");
    app.patch(&one(second), json!({"deleted": true})).await.expect(200);
    let third = app.flag("a").await;
    assert_eq!(last_called_at(&app, third).await, Value::Null);
    // Another project's calls are its own.
    let body = json!({"api_key": "phc_project_2", "batch": [call("a", "2026-01-05T09:50:00Z")]});
    app.call("", "POST", "/batch/", body).await.expect(200);
    assert_eq!(last_called_at(&app, third).await, Value::Null);
}

/// Blocks stay for ten minutes after their events are in a segment.
#[tokio::test]
async fn a_new_flag_has_no_calls_that_were_compacted_before_it() {
    let app = TestApp::new().await;
    app.flag("other").await;
    app.capture(vec![call("late", "2026-01-05T09:00:00Z")]).await;
    as_worker(app.services.events.compact(1, now().timestamp_micros())).await.unwrap();
    let late = app.flag("late").await;
    assert_eq!(last_called_at(&app, late).await, Value::Null);
    assert_eq!(last_called_at(&app.another_process(), late).await, Value::Null);
    app.capture(vec![call("late", "2026-01-05T08:00:00Z")]).await;
    assert_eq!(last_called_at(&app, late).await, "2026-01-05T08:00:00Z");
    compact(&app).await;
    assert_eq!(last_called_at(&app, late).await, "2026-01-05T08:00:00Z");
}

#[tokio::test]
async fn calls_of_unknown_keys_are_not_stored() {
    let app = TestApp::new().await;
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.push(app.flag(&format!("flag-{number}")).await);
    }
    let row = async || {
        let row = app.services.app.store.records.get(&keys::flag_calls(1)).await.unwrap();
        row.map(|row| row.body::<Value>().unwrap())
    };
    let odd = [json!(null), json!(7), json!(""), json!("x#LIVE"), json!(["flag-0"]), json!("k".repeat(5000))];
    let mut events = odd.map(|key| json!({"event": "$feature_flag_called", "distinct_id": "d", "properties": {"$feature_flag": key}})).to_vec();
    events.push(json!({"event": "$feature_flag_called", "distinct_id": "d"}));
    events.push(json!({"event": "view", "distinct_id": "d", "properties": {"$feature_flag": "flag-0"}}));
    app.capture(events).await;
    assert_eq!(last_called_at(&app, ids[0]).await, Value::Null);
    compact(&app).await;
    assert_eq!(row().await, None);
    // 500 keys are looked up one by one; for one more all keys of the project are read.
    for (keys, id) in [(500, ids[1]), (501, ids[2])] {
        let own = format!("flag-{}", id - ids[0]);
        let unknown = (1..keys).map(|number| call(&format!("unknown-{number}"), "2026-01-05T09:00:00Z"));
        app.capture(unknown.chain([call(&own, "2026-01-05T08:00:00Z")]).collect::<Vec<_>>()).await;
        compact(&app).await;
        assert_eq!(last_called_at(&app, id).await, "2026-01-05T08:00:00Z", "{keys} keys");
    }
    assert_eq!(row().await.unwrap()["latest"].as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn flags_are_returned_if_events_cannot_be_read() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    app.capture(vec![call("a", "2026-01-05T09:00:00Z")]).await;
    compact(&app).await;
    // A row that names no block.
    let odd = Item::binary(Key::new("PROJECT#1#SHARD#0", "odd"), vec![1, 2, 3]);
    app.services.app.store.blocks.put(odd, WriteCondition::Absent).await.unwrap();
    let app = app.another_process();
    assert_eq!(shown(&app, id).await, today("2026-01-05T09:00:00Z"));
    app.patch(&one(id), json!({"key": "b"})).await.expect(200);
}

#[tokio::test]
async fn the_calls_of_the_maximum_of_flags_fit_into_one_item() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    let mut stored = StoredCalls::default();
    let mut random = pennon_tests::Random::new(1);
    for flag in 0..FLAGS_MAX as i64 {
        let at = now().timestamp_micros() - random.below(90 * 86_400_000_000) as i64;
        stored.advance(1_000_000 + flag, at, i64::MAX);
    }
    let row = Item::new(keys::flag_calls(1), &stored).unwrap().with_version(1);
    app.services.app.store.records.put(row, WriteCondition::Absent).await.unwrap();
    // One more flag: the one that was called longest ago is dropped.
    app.capture(vec![call("a", "2026-01-05T09:00:00Z")]).await;
    compact(&app).await;
    assert_eq!(shown(&app, id).await, today("2026-01-05T09:00:00Z"));
    let item = app.services.app.store.records.get(&keys::flag_calls(1)).await.unwrap().unwrap();
    assert_eq!(item.body::<Value>().unwrap()["latest"].as_object().unwrap().len(), FLAGS_MAX);
    app.round_trips.reset();
    app.services.app.store.records.get(&keys::flag_calls(1)).await.unwrap();
    assert_eq!(app.round_trips.calls().len(), 1, "parts of a long item would be read too");
}

#[tokio::test]
async fn the_usage_dashboard_counts_the_calls() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    app.post(&format!("{}dashboard/", one(id)), json!({})).await.expect(200);
    let responses = [("d1", json!(true), 3), ("d2", json!(true), 2), ("d3", json!(false), 4)];
    let mut events = vec![call("another", "2026-01-05T09:00:00Z")];
    for (person, response, count) in &responses {
        let event = json!({"event": "$feature_flag_called", "distinct_id": person, "timestamp": "2026-01-05T09:00:00Z",
            "properties": {"$feature_flag": "a", "$feature_flag_response": response}});
        events.extend(vec![event; *count]);
    }
    app.capture(events).await;
    let dashboard = app.get(&one(id)).await.expect(200)["usage_dashboard"].clone();
    let list = app
        .get(&format!("/api/projects/1/insights/?order=id&dashboards=%5B{dashboard}%5D"))
        .await
        .expect(200);
    let ids: Vec<Value> =
        list["results"].as_array().unwrap().iter().map(|insight| insight["id"].clone()).collect();
    for when in ["waiting", "compacted"] {
        // By response: all calls, and persons who made one.
        for (insight, expected) in
            ids.iter().zip([[("true", 5.0), ("false", 4.0)], [("true", 2.0), ("false", 1.0)]])
        {
            let path = format!("/api/projects/1/insights/{insight}/?refresh=force_blocking");
            let got = app.call(Keys::OWNER, "GET", &path, Value::Null).await.expect(200);
            let series: BTreeMap<String, f64> = got["result"]
                .as_array()
                .unwrap()
                .iter()
                .map(|series| {
                    let total = series["aggregated_value"].as_f64().filter(|_| {
                        series.get("data").is_none_or(|data| data.as_array().is_none_or(Vec::is_empty))
                    });
                    let sum = || series["data"].as_array().unwrap().iter().filter_map(Value::as_f64).sum();
                    let label = series["breakdown_value"]
                        .as_str()
                        .map_or_else(|| series["breakdown_value"].to_string(), str::to_owned);
                    (label, total.unwrap_or_else(sum))
                })
                .collect();
            let expected: BTreeMap<String, f64> =
                expected.iter().map(|(label, count)| ((*label).to_owned(), *count)).collect();
            assert_eq!(series, expected, "{when}: {}", got["name"]);
        }
        compact(&app).await;
    }
}
