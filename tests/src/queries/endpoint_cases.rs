//! Cases whose requests the test itself sends, each in its own way: as a node, as a saved insight, at an older endpoint, or for
//! the people behind a number.

use serde_json::Value;

use super::at;
use crate::{TestApp, TestResponse};

/// One request of a case, and what has to come back.
#[derive(Debug, Clone)]
pub struct EndpointCase {
    /// The case.
    pub name: String,
    /// The project that holds its events.
    pub project: u64,
    /// The instant of the request.
    pub now: String,
    /// The endpoint and the body, as the case has them.
    pub request: Value,
    /// What the case expects.
    pub expect: Value,
}

impl EndpointCase {
    /// Sends a request to a path below the case's project.
    pub async fn send(&self, app: &TestApp, method: &str, path: &str, body: Value) -> TestResponse {
        self.send_to(app, method, &format!("/api/projects/{}/{path}", self.project), body).await
    }

    /// Sends a request to a path, such as a link.
    pub async fn send_to(&self, app: &TestApp, method: &str, path: &str, body: Value) -> TestResponse {
        at(app, &self.now, method, path, body).await
    }
}
