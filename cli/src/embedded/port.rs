//! The embedded DynamoDB on a loopback port, for functions under `cargo lambda watch`, other commands and AWS tools.
//!
//! Must stay true: no web page gets in. A browser sends `Origin` with every request that a page makes of another origin,
//! and asks first with OPTIONS; a page that has its own name resolved to this machine is told by its `Host`. None of
//! them is answered, and no answer carries CORS headers.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use dynoxide::{Database, DynoxideError};

use super::connector::dispatch;
use super::writes::Turn;

/// Largest request: DynamoDB's own limit.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Answers DynamoDB requests from `database`, which writes when it is its `turn`.
pub fn router(database: Database, turn: Turn) -> Router {
    let limit = DefaultBodyLimit::max(BODY_BYTES_MAX);
    Router::new().fallback(any(answer)).layer(limit).with_state((database, turn))
}

async fn answer(
    State((database, turn)): State<(Database, Turn)>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if method != Method::POST || is_from_a_page(&headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
    let done = tokio::task::spawn_blocking(move || {
        dispatch(&database, &turn, &operation, &String::from_utf8_lossy(&body))
    });
    let outcome = done.await.unwrap_or_else(|e| Err(DynoxideError::InternalServerError(e.to_string())));
    let (status, body) = match outcome {
        Ok(body) => (StatusCode::OK, body),
        Err(error) => {
            let status =
                StatusCode::from_u16(error.status_code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, error.to_json())
        }
    };
    (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], Body::from(body)).into_response()
}

/// Whether a browser made the request for a page.
fn is_from_a_page(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    headers.contains_key(header::ORIGIN)
        || headers.contains_key("sec-fetch-site")
        || !matches!(name, "127.0.0.1" | "localhost" | "[::1]")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use axum::http::Request;
    use tower::ServiceExt;

    async fn status(method: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request =
            Request::builder().method(method).uri("/").header("x-amz-target", "DynamoDB_20120810.ListTables");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let router = router(Database::memory().unwrap(), Turn::default());
        let response = router.oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap();
        assert!(!response.headers().contains_key("access-control-allow-origin"));
        response.status().as_u16()
    }

    #[tokio::test]
    async fn tools_get_in_and_pages_do_not() {
        assert_eq!(status("POST", &[("host", "127.0.0.1:8123")]).await, 200);
        assert_eq!(status("POST", &[("host", "localhost:8123")]).await, 200);
        assert_eq!(
            status("POST", &[("host", "127.0.0.1:8123"), ("origin", "http://evil.example")]).await,
            403
        );
        assert_eq!(status("POST", &[("host", "evil.example:8123")]).await, 403);
        assert_eq!(status("OPTIONS", &[("host", "127.0.0.1:8123")]).await, 403);
        assert_eq!(status("GET", &[("host", "127.0.0.1:8123")]).await, 403);
    }
}
