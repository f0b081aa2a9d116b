//! Queries in parts: byte for byte the response of an undivided calculation, for every case of the corpus.

use std::collections::BTreeSet;

use futures::StreamExt;
use pennon_tests::queries::{Form, World};
use pennon_tests::{PartProcesses, TestApp};
use serde_json::{Value, json};

const COUNTS: [u32; 3] = [2, 7, 64];
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
        let mut different = Vec::new();
        for (count, _, app) in divided {
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
    assert_eq!(processes.invocations(), 6 * (2 + 2 + 4 + 4));
    for (_, processes, _) in &divided {
        assert!(processes.failures().is_empty(), "{:?}", processes.failures());
    }
    // Each query has one pass over the parts for the rows of merged persons, and one for the results.
    let invocations = divided.iter().map(|(count, processes, _)| processes.invocations() / *count as usize);
    assert_eq!(invocations.collect::<Vec<_>>(), [12, 12, 12]);
}
