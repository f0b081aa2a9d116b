//! Responses and pages for a sharing link contain no users, visitors, keys and other tokens, in any format.

use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

use crate::dashboard_sharing::{DASHBOARDS, share_dashboard};

const INSIGHTS: &str = "/api/projects/1/insights/";
const COHORTS: &str = "/api/projects/1/cohorts/";

/// Visitors, whose ids no public response may have.
const VISITORS: [&str; 3] = ["visitor-secret-a", "visitor-secret-b", "visitor-secret-c"];

async fn capture(app: &TestApp) {
    let event = |id: &str, event: &str, minute: u32| {
        json!({"event": event, "distinct_id": id, "timestamp": format!("2026-01-04T10:{minute:02}:00Z"),
               "properties": {"plan": "pro", "$set": {"email": format!("{id}@visitors.example"), "vip": true}}})
    };
    let events: Vec<Value> = VISITORS
        .iter()
        .flat_map(|id| [event(id, "signed up", 1), event(id, "paid", 2)])
        .chain([event(VISITORS[0], "signed up", 3)])
        .collect();
    app.capture(events).await;
}

/// Insights of several kinds with a filter by a cohort, made by the owner and changed by a member.
async fn insights(app: &TestApp) -> Vec<u64> {
    let groups = json!({"properties": {"type": "OR", "values": [
        {"type": "AND", "values": [{"key": "vip", "type": "person", "value": true, "operator": "exact"}]}]}});
    let cohort =
        app.post(COHORTS, json!({"name": "VIPs", "filters": groups})).await.expect(201)["id"].clone();
    let in_cohort = json!([{"key": "id", "type": "cohort", "value": cohort}]);
    let of = |kind: &str, more: Value| {
        let mut source = json!({"kind": kind, "dateRange": {"date_from": "-7d"}, "properties": in_cohort,
            "series": [{"kind": "EventsNode", "event": "signed up"}, {"kind": "EventsNode", "event": "paid"}]});
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"name": kind, "query": {"kind": "InsightVizNode", "source": source}})
    };
    let legacy = json!({"insight": "TRENDS", "events": [{"id": "paid"}], "properties": in_cohort});
    let bodies = [
        of("TrendsQuery", json!({})),
        of("TrendsQuery", json!({"breakdownFilter": {"breakdown": "plan", "breakdown_type": "event"}})),
        of("TrendsQuery", json!({"trendsFilter": {"display": "BoldNumber"}})),
        of("FunnelsQuery", json!({})),
        of("FunnelsQuery", json!({"breakdownFilter": {"breakdown": "plan", "breakdown_type": "event"}})),
        of("FunnelsQuery", json!({"funnelsFilter": {"funnelVizType": "trends"}})),
        of(
            "RetentionQuery",
            json!({"retentionFilter": {"targetEntity": {"id": "signed up"}, "returningEntity": {"id": "paid"}}}),
        ),
        of("StickinessQuery", json!({})),
        of("LifecycleQuery", json!({})),
        json!({"name": "legacy", "filters": legacy}),
    ];
    let mut ids = Vec::new();
    for body in bodies {
        let id = app.post(INSIGHTS, body).await.expect(201)["id"].as_u64().unwrap();
        let path = format!("{INSIGHTS}{id}/");
        app.call(Keys::MEMBER, "PATCH", &path, json!({"description": "changed"})).await.expect(200);
        ids.push(id);
    }
    ids
}

async fn token(app: &TestApp, id: u64) -> String {
    let shown = app.patch(&format!("{INSIGHTS}{id}/sharing/"), json!({"enabled": true})).await.expect(200);
    shown["access_token"].as_str().unwrap().to_owned()
}

/// The texts that no public response may contain.
async fn secrets(app: &TestApp) -> Vec<String> {
    let mut secrets: Vec<String> = VISITORS.iter().map(|id| (*id).to_owned()).collect();
    for key in [Keys::OWNER, Keys::MEMBER] {
        let user = app.call(key, "GET", "/api/users/@me/", Value::Null).await.expect(200);
        for field in ["email", "first_name", "uuid", "distinct_id"] {
            secrets.push(user[field].as_str().unwrap().to_owned());
        }
        secrets.push(key.to_owned());
    }
    let persons = app.get("/api/projects/1/persons/").await.expect(200);
    let persons = persons["results"].as_array().unwrap();
    assert_eq!(persons.len(), VISITORS.len());
    secrets.extend(persons.iter().map(|person| person["uuid"].as_str().unwrap().to_owned()));
    let words = [
        "phc_project_1",
        "@example.com",
        "@visitors.example",
        "/persons/",
        "persons/trends",
        "persons/funnel",
        "persons/retention",
        "persons/stickiness",
        "persons/lifecycle",
    ];
    secrets.extend(words.map(str::to_owned));
    assert!(secrets.iter().all(|secret| secret.len() >= 3), "{secrets:?}");
    secrets
}

#[tokio::test]
async fn a_link_returns_no_user_visitor_key_or_other_token() {
    let app = TestApp::new().await;
    capture(&app).await;
    let ids = insights(&app).await;
    let secrets = secrets(&app).await;
    let mut tokens = Vec::new();
    for id in &ids {
        tokens.push(token(&app, *id).await);
    }
    for (at, id) in ids.iter().enumerate() {
        let of_keys = app.get(&format!("{INSIGHTS}{id}/?refresh=blocking")).await.text;
        for secret in ["owner@example.com", "member@example.com"] {
            assert!(of_keys.contains(secret), "the search would find nothing: {of_keys}");
        }
        let mut numbers = 0;
        for path in [
            format!("{INSIGHTS}{id}/?refresh=blocking"),
            format!("{INSIGHTS}{id}/"),
            format!("{INSIGHTS}{id}/?refresh=force_async"),
            format!("{INSIGHTS}{id}/?basic=true"),
            format!("{INSIGHTS}{id}/?refresh=blocking&format=csv"),
            format!("{INSIGHTS}{id}.csv?refresh=blocking"),
            format!("/api/environments/1/insights/{id}/?refresh=blocking"),
            format!("{INSIGHTS}?refresh=blocking"),
            format!("{INSIGHTS}?refresh=blocking&format=csv"),
            format!("{INSIGHTS}?basic=true"),
            format!("{INSIGHTS}?created_by=1"),
            format!("{INSIGHTS}?user=true"),
        ] {
            let join = if path.contains('?') { '&' } else { '?' };
            let linked = format!("{path}{join}sharing_access_token={}", tokens[at]);
            let response = app.call("", "GET", &linked, Value::Null).await;
            assert_eq!(response.status, 200, "{path}: {}", response.text);
            let others = tokens.iter().enumerate().filter(|(of, _)| *of != at).map(|(_, token)| token);
            for secret in secrets.iter().chain(others) {
                assert!(!response.text.contains(secret.as_str()), "{path} has {secret}: {}", response.text);
                assert!(response.headers.values().all(|it| !it.to_str().unwrap().contains(secret.as_str())));
            }
            numbers += usize::from(response.text.contains("signed up") || response.text.contains("paid"));
        }
        assert!(numbers >= 9, "insight {id} shows its numbers: {numbers}");
    }
    let dashboard = app.post(DASHBOARDS, json!({"name": "All"})).await.expect(201)["id"].as_u64().unwrap();
    for id in &ids {
        app.patch(&format!("{INSIGHTS}{id}/"), json!({"dashboards": [dashboard]})).await.expect(200);
    }
    let of_dashboard = share_dashboard(&app, dashboard).await;
    for own in tokens.iter().chain([&of_dashboard]) {
        let others: Vec<&String> =
            tokens.iter().chain([&of_dashboard]).filter(|token| *token != own).collect();
        for path in
            [format!("/shared/{own}"), format!("/embedded/{own}/?theme=dark"), format!("/shared/{own}.csv")]
        {
            let page = app.call("", "GET", &path, Value::Null).await;
            let is_table_of_dashboard = own == &of_dashboard && path.ends_with(".csv");
            assert_eq!(page.status, if is_table_of_dashboard { 400 } else { 200 }, "{path}: {}", page.text);
            for secret in secrets.iter().chain(others.iter().copied()) {
                assert!(!page.text.contains(secret.as_str()), "{path} has {secret}: {}", page.text);
                assert!(page.headers.values().all(|it| !it.to_str().unwrap().contains(secret.as_str())));
            }
            if !is_table_of_dashboard {
                assert!(page.text.contains("<td") || page.text.contains("\r\n"), "{path}: {}", page.text);
            }
        }
    }
    let path = format!("{INSIGHTS}{}/?refresh=blocking&sharing_access_token={}", ids[0], tokens[0]);
    let shown = app.call("", "GET", &path, Value::Null).await.expect(200);
    assert_eq!((&shown["created_by"], &shown["last_modified_by"]), (&Value::Null, &Value::Null));
    assert_eq!(
        (&shown["result"][0]["count"], &shown["result"][0]["persons_urls"]),
        (&json!(4.0), &json!([]))
    );
}
