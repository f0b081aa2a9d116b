//! The demo project of a first start: a web shop's events, three flags, and two dashboards of saved insights.
//!
//! It is loaded through the interfaces of users: a workspace file, the import, the API. The next start repeats an
//! interrupted load with a new API key: each step is idempotent, and the row that marks completion is written last.

mod content;
mod events;

use std::fmt::Write;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use chrono::{DateTime, Utc};
use pennon_core::ids;
use pennon_core::store::{Item, Key, StoreError, Table, WriteCondition, keys};
use serde_json::{Value, json};
use tower::ServiceExt;
use uuid::Uuid;

use crate::api::{Services, api};
use crate::import::{ImportOptions, import_file};
use crate::workspace::{self, ApplyOptions, Declarations};

const PROJECT: u64 = 1;
/// Limit of a response's size, far above those of the demo's requests.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// The demo's organization. It identifies an interrupted load.
const ORGANIZATION: Uuid = Uuid::from_u128(0x01900000_0000_7000_8000_0000000d3e0a);

/// The loaded demo, with its API key.
pub struct Demo {
    key: String,
    token: String,
    events: u64,
}

/// Whether the installation is empty, or has an interrupted load of the demo.
pub async fn needs_load(records: &Table) -> Result<bool, StoreError> {
    let state = Declarations::load(records).await?;
    let is_started = state.organizations.contains_key(&ORGANIZATION.to_string());
    Ok(state.is_empty() || (is_started && records.get(&completion_key()).await?.is_none()))
}

fn completion_key() -> Key {
    keys::declared("DEMO", "complete")
}

/// Loads the demo into an installation for which [`needs_load`] is true.
pub async fn load(services: &Services, now: DateTime<Utc>) -> Result<Demo, String> {
    let (key, token) = (ids::new_api_key(), ids::new_project_token());
    let file = content::workspace_file(&key, &token).map_err(|e| e.to_string())?;
    workspace::apply(&services.app.store.records, &file, ApplyOptions::default(), now)
        .await
        .map_err(|e| format!("the demo workspace cannot be created: {e}"))?;
    let events = load_events(services, now).await?;
    let router = api(services);
    for flag in content::flags() {
        // A 400 means that its key exists, from an interrupted load.
        send(&router, &key, "POST", "feature_flags", &flag, &[StatusCode::CREATED, StatusCode::BAD_REQUEST])
            .await?;
    }
    create_dashboards(&router, &key).await?;
    let stored = services.app.store.records.put(Item::empty(completion_key()), WriteCondition::None).await;
    stored.map_err(|e| e.to_string())?;
    Ok(Demo { key, token, events })
}

async fn load_events(services: &Services, now: DateTime<Utc>) -> Result<u64, String> {
    let failed = |e: &dyn std::fmt::Display| format!("the demo's events cannot be loaded: {e}");
    let records = &services.app.store.records;
    let shift = events::Shift::get_or_create(records, now).await.map_err(|e| failed(&e))?;
    let file = events::write_shifted(shift)?;
    let options = ImportOptions { default_project: Some(PROJECT), ..ImportOptions::default() };
    let imported =
        import_file(&services.events, file.path(), options, now.timestamp_micros(), &mut |_| {}).await;
    let imported = imported.map_err(|e| failed(&e))?;
    Ok(imported.events + imported.copies)
}

/// Creates the dashboards and insights that do not exist yet.
async fn create_dashboards(router: &Router, key: &str) -> Result<(), String> {
    let existing = |page: Value| -> Vec<Value> { page["results"].as_array().cloned().unwrap_or_default() };
    let dashboards = existing(send(router, key, "GET", "dashboards", &Value::Null, &[StatusCode::OK]).await?);
    let insights = existing(send(router, key, "GET", "insights", &Value::Null, &[StatusCode::OK]).await?);
    for content::DemoDashboard { body, insights: new_insights } in content::dashboards() {
        let dashboard = match dashboards.iter().find(|it| it["name"] == body["name"]) {
            Some(dashboard) => dashboard["id"].clone(),
            None => {
                send(router, key, "POST", "dashboards", &body, &[StatusCode::CREATED]).await?["id"].clone()
            }
        };
        for mut insight in new_insights {
            if !insights.iter().any(|it| it["name"] == insight["name"]) {
                insight["dashboards"] = json!([dashboard]);
                send(router, key, "POST", "insights", &insight, &[StatusCode::CREATED]).await?;
            }
        }
    }
    Ok(())
}

/// Sends a request to the API. Any status that is not `expected` is an error.
async fn send(
    router: &Router,
    key: &str,
    method: &str,
    resource: &str,
    body: &Value,
    expected: &[StatusCode],
) -> Result<Value, String> {
    let request = Request::builder()
        .method(method)
        .uri(format!("/api/projects/{PROJECT}/{resource}/"))
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(if body.is_null() { Body::empty() } else { Body::from(body.to_string()) })
        .map_err(|e| e.to_string())?;
    let Ok(response) = router.clone().oneshot(request).await;
    let status = response.status();
    let bytes = to_bytes(response.into_body(), RESPONSE_BYTES_MAX).await.map_err(|e| e.to_string())?;
    if !expected.contains(&status) {
        return Err(format!("the demo's {resource} cannot be created: the status was {status}"));
    }
    serde_json::from_slice(&bytes).map_err(|e| format!("the demo's {resource}: {e}"))
}

impl Demo {
    /// The form for programs.
    pub fn to_json(&self) -> Value {
        json!({"api_key": self.key, "project": PROJECT, "token": self.token, "events": self.events})
    }

    /// Commands to try, ready to paste.
    pub fn introduction(&self, http: &str) -> String {
        let mut text = String::new();
        let key = &self.key;
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "First start: a demo project was created, with {} events of a web shop up to yesterday.",
            self.events
        );
        // A fragment is neither sent nor logged; the console removes it from the address at once.
        let _ = writeln!(text, "  console            {http}/#key={key}");
        let _ = writeln!(text, "  personal API key   {key}   (shown this once)");
        let _ = writeln!(text, "  project            {PROJECT}, token {}", self.token);
        let _ = writeln!(
            text,
            "\nList the flags, calculate a funnel, calculate a trend of the last seven days:\n"
        );
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
        let funnel = format!(r#"{{"events": {steps}, "date_from": "-180d"}}"#);
        let _ = writeln!(text, "\n{}", post("funnel", &funnel));
        let _ = writeln!(text, "\n{}", post("trend", r#"{"events": [{"id": "purchase"}]}"#));
        text
    }
}
