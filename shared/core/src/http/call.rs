//! A parsed request, the extractor of all handlers.

use std::collections::HashMap;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::http::{Extensions, HeaderMap, Method, header, request::Parts};
use chrono::{DateTime, Utc};
use serde_json::Value;

use super::body::{Accepts, BODY_BYTES_MAX, Fields, fields, file, json_object};
use super::edge::{ClientPath, RequestClock};
use super::query_string::{decode, parse_query};
use crate::clock::{Clock, NOW_HEADER};
use crate::error::{ApiError, ApiResult};
use crate::request_metrics;

/// Where the API key of a request was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialSource {
    /// The `Authorization` header.
    Header,
    /// The field `personal_api_key` of the body.
    Body,
    /// The parameter `personal_api_key` of the query string.
    Query,
}

impl CredentialSource {
    /// The name in error messages.
    pub fn name(self) -> &'static str {
        match self {
            CredentialSource::Header => "Authorization header",
            CredentialSource::Body => "body",
            CredentialSource::Query => "query string",
        }
    }
}

/// The API key of a request. Does not implement `Debug`, so that it cannot be logged by accident.
pub struct Credential {
    /// The key as sent.
    pub key: String,
    /// Where it was found.
    pub source: CredentialSource,
}

/// Properties of a record from another installation, to be kept when the record is created here. A request extension that
/// only this process itself can set; it cannot be sent over HTTP.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RestoredRecord {
    /// Its id.
    pub id: u64,
    /// Its short id, if it has one.
    pub short_id: Option<String>,
    /// Its creation time.
    pub created_at: Option<DateTime<Utc>>,
    /// Id of the dashboard that was created for it.
    pub usage_dashboard: Option<i64>,
    /// Its tiles on dashboards.
    pub tiles: Vec<RestoredTile>,
}

/// The position of a record on a dashboard.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoredTile {
    /// Id of the dashboard.
    pub dashboard: u64,
    /// The layout per screen size.
    pub layouts: Value,
    /// Its colour.
    pub color: Option<String>,
}

/// A request: path parameters, query, headers, body and instant.
#[derive(Clone)]
pub struct Call {
    /// Its method.
    pub method: Method,
    /// Its headers.
    pub headers: HeaderMap,
    /// The instant of the request.
    pub now: DateTime<Utc>,
    /// The URL as the client sent it.
    pub url: ClientUrl,
    /// The properties of a restored record.
    pub restored: Option<RestoredRecord>,
    params: HashMap<String, String>,
    query: Vec<(String, String)>,
    body: Bytes,
    extensions: Extensions,
}

/// The URL as the client sent it, for links in responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientUrl {
    /// Scheme and host, such as `https://api.example.com`.
    pub origin: String,
    /// The path as sent, with a stage prefix and a trailing slash.
    pub path: String,
}

impl Call {
    /// The path parameter `name`, percent-decoded; empty if the route has no such parameter.
    pub fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }

    /// The same request with another path parameter.
    #[must_use]
    pub fn with_param(mut self, name: &str, value: &str) -> Call {
        self.params.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The path parameter `name` as a record's id; `None` if it is not a number.
    pub fn id(&self, name: &str) -> Option<u64> {
        let text = self.param(name);
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    }

    /// All query parameters, in the order sent.
    pub fn query(&self) -> &[(String, String)] {
        &self.query
    }

    /// The last query parameter with this name.
    pub fn query_value(&self, name: &str) -> Option<&str> {
        self.query.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The request extension of this type, which only this process itself can have set.
    pub(crate) fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<&T> {
        self.extensions.get()
    }

    /// The body's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// The body's fields, from JSON or an HTML form.
    pub fn fields(&self) -> ApiResult<Fields> {
        fields(&self.headers, &self.body, Accepts::Forms)
    }

    /// The body's fields, from JSON only.
    pub fn json_fields(&self) -> ApiResult<Fields> {
        fields(&self.headers, &self.body, Accepts::Json)
    }

    /// The content of the file called `name` in a multipart form.
    pub fn file(&self, name: &str) -> ApiResult<Option<Bytes>> {
        file(&self.headers, &self.body, name)
    }

    /// The token after `Bearer` in the header `Authorization`.
    pub fn bearer(&self) -> Option<String> {
        bearer(&self.headers)
    }

    /// The API key of the request: from the header, else the body, else the query string.
    pub fn credential(&self) -> Option<Credential> {
        if let Some(key) = bearer(&self.headers) {
            return Some(Credential { key, source: CredentialSource::Header });
        }
        if let Some(key) = self.body_key() {
            return Some(Credential { key, source: CredentialSource::Body });
        }
        let key = self.query_value("personal_api_key").filter(|key| !key.is_empty())?;
        Some(Credential { key: key.to_owned(), source: CredentialSource::Query })
    }

    /// The API key in the body, which is parsed only if it contains the field's name.
    fn body_key(&self) -> Option<String> {
        let name = b"personal_api_key";
        if !self.body.windows(name.len()).any(|window| window == name) {
            return None;
        }
        let fields = self.fields().or_else(|_| json_object(&self.body)).ok()?;
        fields
            .get("personal_api_key")
            .and_then(Value::as_str)
            .filter(|key| !key.is_empty())
            .map(str::to_owned)
    }
}

/// The token after `Bearer`: the scheme is case sensitive, any white space follows it.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let rest = value.strip_prefix("Bearer")?;
    let key = rest.trim();
    (rest.starts_with(char::is_whitespace) && !key.is_empty()).then(|| key.to_owned())
}

impl<S: Send + Sync> FromRequest<S> for Call {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let (mut parts, body) = request.into_parts();
        let params = RawPathParams::from_request_parts(&mut parts, state).await.ok();
        let params = params.iter().flatten().map(|(name, value)| (name.to_owned(), decode(value))).collect();
        let body = read_body(body).await?;
        if let Some(route) = parts.extensions.get::<MatchedPath>() {
            request_metrics::record(|metrics| metrics.set_route(route.as_str()));
        }
        let clock = parts.extensions.get::<RequestClock>().map_or(Clock::Running, |clock| clock.0);
        let now = clock.now(parts.headers.get(NOW_HEADER).and_then(|value| value.to_str().ok()));
        Ok(Call {
            url: client_url(&parts),
            restored: parts.extensions.remove(),
            query: parse_query(parts.uri.query().unwrap_or("")),
            method: parts.method,
            headers: parts.headers,
            extensions: parts.extensions,
            now,
            params,
            body,
        })
    }
}

async fn read_body(body: Body) -> ApiResult<Bytes> {
    use axum::body::HttpBody;
    use http_body_util::{BodyExt, LengthLimitError, Limited};
    // A declared length above the limit is rejected before anything is read.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(ApiError::too_large());
    }
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(ApiError::too_large()),
        Err(_) => Err(ApiError::parse("The body could not be read.")),
    }
}

fn client_url(parts: &Parts) -> ClientUrl {
    let text = |name| parts.headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let first = |list: &str| list.split(',').next().unwrap_or("").trim().to_owned();
    let scheme =
        text("x-forwarded-proto").map(first).filter(|scheme| scheme == "https").unwrap_or("http".to_owned());
    // A distribution in front of a gateway passes on the host of the client's request.
    let forwarded = text("x-forwarded-host").map(first).filter(|host| is_host(host));
    let host =
        forwarded.as_deref().or_else(|| text("host")).or_else(|| parts.uri.host()).unwrap_or("localhost");
    let path = parts
        .extensions
        .get::<ClientPath>()
        .map_or_else(|| parts.uri.path().to_owned(), |path| path.0.clone());
    ClientUrl { origin: format!("{scheme}://{host}"), path }
}

/// Whether the text is a host with an optional port, so that it does not change the path of a link.
fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn header(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        bearer(&headers)
    }

    #[test]
    fn a_bearer_key_may_be_surrounded_by_white_space() {
        assert_eq!(header("Bearer  \t phx_a "), Some("phx_a".to_owned()));
        for other in ["bearer phx_a", "Basic phx_a", "Bearer ", "Bearerphx_a"] {
            assert_eq!(header(other), None, "{other}");
        }
    }

    #[test]
    fn links_have_the_host_of_the_request() {
        let origin = |headers: &[(&'static str, &str)]| {
            let mut request = Request::get("/api/things").body(()).unwrap();
            for (name, value) in headers {
                request.headers_mut().insert(*name, value.parse().unwrap());
            }
            client_url(&request.into_parts().0).origin
        };
        let (host, https) = (("host", "a.example:8080"), ("x-forwarded-proto", "https"));
        assert_eq!(origin(&[]), "http://localhost");
        assert_eq!(origin(&[host]), "http://a.example:8080");
        assert_eq!(origin(&[host, https, ("x-forwarded-host", "b.example, c")]), "https://b.example");
        for invalid in ["", "b.example/path", "b example"] {
            assert_eq!(origin(&[host, ("x-forwarded-host", invalid)]), "http://a.example:8080");
        }
    }

    #[test]
    fn a_query_string_keeps_repeated_and_empty_parameters() {
        let pairs = parse_query("a=1&a=%7B%7D&send_cohorts&b=x+y");
        let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>();
        assert_eq!(pairs, [("a", "1"), ("a", "{}"), ("send_cohorts", ""), ("b", "x y")]);
    }
}
