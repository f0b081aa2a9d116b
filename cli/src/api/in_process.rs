//! Sends requests to the API's routes in this process, as a user of the installation, so that commands read and change records
//! as API requests do: with the same validation, conflict check and activity log.
//!
//! Must stay true: no API key is stored for such a request; its key has all scopes and is valid for this request only.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, StatusCode, header};
use chrono::{DateTime, Utc};
use pennon_core::auth::{InProcessKey, KeyRecord};
use pennon_core::http::RestoredRecord;
use pennon_core::ids;
use pennon_core::model::{Level, Membership, User};
use serde_json::Value;
use tower::ServiceExt;
use uuid::Uuid;

use super::{Services, api};

/// Limit of a response's size, far above those of the requests here.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// The routes of the API in this process, without rate limits.
#[derive(Debug, Clone)]
pub struct InProcessApi {
    router: Router,
}

impl InProcessApi {
    /// The routes over `services`.
    pub fn new(services: &Services) -> InProcessApi {
        let app = services.app.clone().with_rate_limits(None);
        InProcessApi { router: api(&Services::new(app, services.events.clone())) }
    }

    /// Sends a request with `key`. A body of `null` is no body.
    pub async fn send(
        &self,
        key: &Arc<KeyRecord>,
        (method, path, body): (&str, &str, &Value),
        restored: Option<&RestoredRecord>,
    ) -> Result<(StatusCode, Bytes), String> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            // Handlers prefetch records only for requests with a key; this one is stored nowhere.
            .header(header::AUTHORIZATION, format!("Bearer {}", ids::new_api_key()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(if body.is_null() { Body::empty() } else { Body::from(body.to_string()) })
            .map_err(|e| e.to_string())?;
        request.extensions_mut().insert(InProcessKey(key.clone()));
        if let Some(restored) = restored {
            request.extensions_mut().insert(restored.clone());
        }
        let Ok(response) = self.router.clone().oneshot(request).await;
        let status = response.status();
        let bytes = to_bytes(response.into_body(), RESPONSE_BYTES_MAX).await.map_err(|e| e.to_string())?;
        Ok((status, bytes))
    }
}

/// A key of `user` with all scopes, as an owner of these organizations.
pub fn in_process_key(
    user: User,
    organizations: impl Iterator<Item = Uuid>,
    label: &str,
    now: DateTime<Utc>,
) -> KeyRecord {
    KeyRecord {
        label: label.to_owned(),
        mask: String::new(),
        user,
        is_active: true,
        scopes: vec!["*".to_owned()],
        projects: Vec::new(),
        organizations: Vec::new(),
        memberships: organizations.map(|it| Membership { organization: it, level: Level::Owner }).collect(),
        roles: Vec::new(),
        created_at: now,
        expires_at: None,
        last_used_at: None,
    }
}
