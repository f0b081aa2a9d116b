//! The demo workspace of a first start: a web shop's real events, a few flags and saved insights.
//!
//! Everything goes in by the ways that users have: the workspace file, the import, the API. A load that was cut off is
//! done again by the next start, with a new key: each of its parts is harmless when it is there already, and a row that
//! says it is complete comes last.

use std::fmt::Write;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use chrono::{DateTime, Utc};
use pennon_core::ids;
use pennon_core::store::{Guard, Item, Key, StoreError, Table, keys};
use serde_json::{Value, json};
use tower::ServiceExt;
use uuid::Uuid;

use super::router::{Services, api};

use crate::import::{ImportOptions, import_file};
use crate::workspace::{self, Options, State, Workspace};

/// The events, as JSON lines under gzip.
const EVENTS: &[u8] = include_bytes!("../../demo/ecom_events.jsonl.gz");
const PROJECT: u64 = 1;
/// Far above any answer to what the demo asks.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The demo's organization, by which an installation that was only half made is known.
const ORGANIZATION: Uuid = Uuid::from_u128(0x01900000_0000_7000_8000_0000000d3e0a);

/// What was loaded, and the key to it.
pub struct Demo {
    key: String,
    token: String,
    events: u64,
}

/// Whether the installation is empty, or a load of the demo into it was cut off.
pub async fn is_wanted(records: &Table) -> Result<bool, StoreError> {
    let state = State::load(records).await?;
    let began = state.organizations.contains_key(&ORGANIZATION.to_string());
    Ok(state.is_empty() || (began && records.get(&complete()).await?.is_none()))
}

fn complete() -> Key {
    keys::declared("DEMO", "complete")
}

/// Loads the demo into an installation that wants it.
pub async fn load(services: &Services, now: DateTime<Utc>) -> Result<Demo, String> {
    let (key, token) = (ids::new_api_key(), ids::new_project_token());
    let file = workspace_file(&key, &token).map_err(|e| e.to_string())?;
    workspace::apply(&services.app.store.records, &file, Options::default(), now)
        .await
        .map_err(|e| format!("the demo workspace cannot be made: {e}"))?;
    let events = load_events(services, now).await?;
    let router = api(services);
    for flag in flags() {
        // A 400 says that its key is taken: by itself, from a load that was cut off.
        ask(&router, &key, "POST", "feature_flags", &flag, &[StatusCode::CREATED, StatusCode::BAD_REQUEST])
            .await?;
    }
    let there = ask(&router, &key, "GET", "insights", &Value::Null, &[StatusCode::OK]).await?;
    let there: Vec<&Value> =
        there["results"].as_array().into_iter().flatten().map(|it| &it["name"]).collect();
    for insight in insights() {
        if !there.contains(&&insight["name"]) {
            ask(&router, &key, "POST", "insights", &insight, &[StatusCode::CREATED]).await?;
        }
    }
    let done = services.app.store.records.put(Item::empty(complete()), Guard::None).await;
    done.map_err(|e| e.to_string())?;
    Ok(Demo { key, token, events })
}

fn workspace_file(key: &str, token: &str) -> Result<Workspace, serde_json::Error> {
    let organization = ORGANIZATION;
    serde_json::from_value(json!({
        "organizations": [{"id": organization, "name": "Demo"}],
        "users": [{"id": 1, "email": "demo@example.com", "first_name": "Demo",
                   "memberships": [{"organization": organization, "level": "owner"}]}],
        "projects": [{"id": PROJECT.to_string(), "organization": organization, "name": "Web shop", "token": token}],
        "keys": [{"label": "demo", "user": "demo@example.com", "scopes": ["*"], "value": key}],
    }))
}

fn flags() -> [Value; 3] {
    [
        json!({"key": "new-checkout", "name": "The shorter checkout, for half of the people",
               "filters": {"groups": [{"properties": [], "rollout_percentage": 50}]}}),
        json!({"key": "free-shipping", "name": "Free shipping for people who come by mail", "tags": ["shipping"],
               "filters": {"groups": [{"properties": [{"key": "acquisition_channel", "value": ["email"],
                   "operator": "exact", "type": "person"}], "rollout_percentage": 100}]}}),
        json!({"key": "banner", "name": "Which banner sells best", "filters": {
            "groups": [{"properties": [], "rollout_percentage": 100}],
            "multivariate": {"variants": [{"key": "control", "rollout_percentage": 34},
                {"key": "wishlist", "rollout_percentage": 33}, {"key": "reviews", "rollout_percentage": 33}]}}}),
    ]
}

fn insights() -> [Value; 2] {
    let dates = json!({"date_from": "2024-01-01", "date_to": "2024-06-30"});
    let event = |name: &str| json!({"kind": "EventsNode", "event": name, "name": name});
    let node = |source: Value| json!({"kind": "InsightVizNode", "source": source});
    [
        json!({"name": "From product to purchase", "saved": true, "query": node(json!({
            "kind": "FunnelsQuery", "dateRange": dates,
            "series": [event("product_view"), event("add_to_cart"), event("purchase")],
            "funnelsFilter": {"funnelWindowInterval": 14, "funnelWindowIntervalUnit": "day"}}))}),
        json!({"name": "Purchases a week", "saved": true, "query": node(json!({
            "kind": "TrendsQuery", "dateRange": dates, "interval": "week", "series": [event("purchase")]}))}),
    ]
}

async fn load_events(services: &Services, now: DateTime<Utc>) -> Result<u64, String> {
    let path = std::env::temp_dir().join(format!("pennon-demo-{}.jsonl.gz", ids::new_uuid()));
    std::fs::write(&path, EVENTS).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    let options = ImportOptions { default_project: Some(PROJECT), ..ImportOptions::default() };
    let imported = import_file(&services.events, &path, options, now.timestamp_micros(), &mut |_| {}).await;
    // A file that stays behind among temporary ones does no harm.
    let _ = std::fs::remove_file(&path);
    Ok(imported.map_err(|e| format!("the demo's events cannot be loaded: {e}"))?.events)
}

/// Asks the API; any status but the `expected` is a failure.
async fn ask(
    router: &Router,
    key: &str,
    method: &str,
    what: &str,
    body: &Value,
    expected: &[StatusCode],
) -> Result<Value, String> {
    let request = Request::builder()
        .method(method)
        .uri(format!("/api/projects/{PROJECT}/{what}/"))
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(if body.is_null() { Body::empty() } else { Body::from(body.to_string()) })
        .map_err(|e| e.to_string())?;
    let Ok(answer) = router.clone().oneshot(request).await;
    let status = answer.status();
    let bytes = to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await.map_err(|e| e.to_string())?;
    if !expected.contains(&status) {
        return Err(format!("the demo's {what} cannot be made: the answer was {status}"));
    }
    serde_json::from_slice(&bytes).map_err(|e| format!("the demo's {what}: {e}"))
}

impl Demo {
    /// What to try, as commands that work when pasted.
    pub fn introduction(&self, http: &str) -> String {
        let mut text = String::new();
        let key = &self.key;
        let dates = r#""date_from": "2024-01-01", "date_to": "2024-06-30""#;
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "First start: a demo project was made, with {} events of a web shop.",
            self.events
        );
        let _ = writeln!(text, "  personal API key   {key}   (shown this once)");
        let _ = writeln!(text, "  project            {PROJECT}, token {}", self.token);
        let _ = writeln!(text, "\nList the flags, run a funnel, run a trend:\n");
        let _ = writeln!(
            text,
            "  curl -s -H 'Authorization: Bearer {key}' {http}/api/projects/{PROJECT}/feature_flags/"
        );
        let post = |path: &str, body: &str| {
            format!(
                "  curl -s -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \
                 -d '{body}' {http}/api/projects/{PROJECT}/insights/{path}/"
            )
        };
        let steps = r#"[{"id": "product_view", "order": 0}, {"id": "add_to_cart", "order": 1}, {"id": "purchase", "order": 2}]"#;
        let _ = writeln!(text, "\n{}", post("funnel", &format!(r#"{{"events": {steps}, {dates}}}"#)));
        let trend =
            format!(r#"{{"events": [{{"id": "purchase", "math": "total"}}], "interval": "month", {dates}}}"#);
        let _ = writeln!(text, "\n{}", post("trend", &trend));
        text
    }
}
