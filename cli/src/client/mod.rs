//! The API as commands use it: of a server at `--url`, or of the installation that the command opens, in this process.
//!
//! Must stay true: both ways end in the API's own handlers, so that validation, conflicts, the activity log and errors are the
//! same; a command that only reads opens its installation for reading; an error is one line and names the next step.

mod http;
mod local;

use pennon_core::store::keys::ProjectId;
use serde_json::Value;

use crate::args::ApiTarget;
use http::HttpTransport;
use local::LocalTransport;

pub use http::{API_KEY_VARIABLE, HttpClient, HttpResponse};

/// What a command does with the installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// Only reads.
    Read,
    /// Changes records, as the user with this mail address; `None` for the only user.
    Change(Option<&'a str>),
}

/// Sends requests for one project.
pub struct ApiClient {
    transport: Transport,
    /// The project.
    pub project: ProjectId,
}

enum Transport {
    Http(HttpTransport),
    Local(Box<LocalTransport>),
}

/// A response with an error status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiFailure {
    /// The status.
    pub status: u16,
    /// The field that is wrong, if the response names one.
    pub field: Option<String>,
    /// What is wrong, and what to do.
    pub detail: String,
}

impl std::fmt::Display for ApiFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.field {
            Some(field) => write!(formatter, "{field}: {}", self.detail),
            None => formatter.write_str(&self.detail),
        }
    }
}

impl From<ApiFailure> for String {
    fn from(failure: ApiFailure) -> String {
        failure.to_string()
    }
}

impl ApiFailure {
    /// A request that got no response.
    fn without_response(detail: String) -> ApiFailure {
        ApiFailure { status: 0, field: None, detail }
    }

    /// The failure that a response with an error status describes.
    fn of_response(status: u16, body: &[u8]) -> ApiFailure {
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let detail =
            body["detail"].as_str().map_or_else(|| format!("the response has status {status}"), one_line);
        ApiFailure { status, field: body["attr"].as_str().map(one_line), detail }
    }
}

/// A text of a response as one line without control characters, because it is printed.
fn one_line(text: &str) -> String {
    crate::show::text::sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

impl ApiClient {
    /// Connects to the API of `target`, and finds its project.
    pub async fn connect(target: &ApiTarget, access: Access<'_>) -> Result<ApiClient, String> {
        match &target.url {
            Some(url) => {
                let transport = HttpTransport::new(url)?;
                let project = match target.project {
                    Some(project) => project,
                    None => only_project(&transport).await?,
                };
                Ok(ApiClient { transport: Transport::Http(transport), project })
            }
            None => {
                let (transport, project) = LocalTransport::open(target, access).await?;
                Ok(ApiClient { transport: Transport::Local(Box::new(transport)), project })
            }
        }
    }

    /// Whether other processes can capture events while this one has the installation open.
    pub fn is_live(&self) -> bool {
        match &self.transport {
            Transport::Http(_) => true,
            Transport::Local(local) => local.is_live(),
        }
    }

    /// `GET` of a path below the project, with a query string.
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, ApiFailure> {
        let path = format!("{}{}", self.project_path(path), query_string(query));
        self.send("GET", &path, &Value::Null).await
    }

    /// `POST` to a path below the project.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, ApiFailure> {
        self.send("POST", &self.project_path(path), body).await
    }

    /// `PATCH` of a path below the project.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value, ApiFailure> {
        self.send("PATCH", &self.project_path(path), body).await
    }

    /// `POST` to a path outside of the projects.
    pub async fn post_to(&self, path: &str, body: &Value) -> Result<Value, ApiFailure> {
        self.send("POST", path, body).await
    }

    fn project_path(&self, path: &str) -> String {
        format!("/api/projects/{}/{path}", self.project)
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, ApiFailure> {
        match &self.transport {
            Transport::Http(http) => http.send(method, path, body).await,
            Transport::Local(local) => local.send(method, path, body).await,
        }
    }
}

/// The only project that the key of `transport` reaches.
async fn only_project(transport: &HttpTransport) -> Result<ProjectId, String> {
    let page =
        transport.send("GET", "/api/projects/?limit=20", &Value::Null).await.map_err(
            |failure| match failure.status {
                403 => format!(
                    "{failure}; name the project with --project, or use a key with the scope project:read"
                ),
                _ => failure.to_string(),
            },
        )?;
    let ids: Vec<ProjectId> =
        page["results"].as_array().into_iter().flatten().filter_map(|it| it["id"].as_u64()).collect();
    match ids.as_slice() {
        [only] => Ok(*only),
        [] => Err("the key reaches no project; use a key of a user of the project".to_owned()),
        several => Err(format!("the key reaches several projects: name one of {several:?} with --project")),
    }
}

/// A query string with its `?`; empty without parameters.
fn query_string(parameters: &[(&str, &str)]) -> String {
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let pairs: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_string_is_encoded() {
        assert_eq!(query_string(&[]), "");
        assert_eq!(query_string(&[("event", "a b&c=ü"), ("x", "")]), "?event=a%20b%26c%3D%C3%BC&x=");
    }

    #[test]
    fn a_failure_is_one_line_without_control_characters() {
        let body = r#"{"type": "validation_error", "detail": "two\nlines \u001b[31mred", "attr": "filters"}"#;
        let failure = ApiFailure::of_response(400, body.as_bytes());
        assert_eq!(failure.to_string(), "filters: two lines [31mred");
        assert_eq!(ApiFailure::of_response(502, b"<html>").to_string(), "the response has status 502");
    }
}
