//! Middleware around the routes: path normalization, CORS, response size, panics, the request log.
//!
//! A path with and without a trailing slash reaches the same route without a redirect, because a redirect loses the body of
//! a POST. The stage prefix that a gateway leaves in the path is removed here and added to links again.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use tower::Service;

use super::request_log::RequestLog;
use super::response::{accepts_gzip, fit_response_limit};
use crate::clock::Clock;
use crate::error::ApiError;

/// The path prefix of the gateway's stage, such as `/prod`. A request extension.
#[derive(Debug, Clone)]
pub struct StagePrefix(pub String);

/// The path as the client sent it. A request extension.
#[derive(Debug, Clone)]
pub(super) struct ClientPath(pub String);

/// The clock of the request. A request extension.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestClock(pub Clock);

/// Marks the response of an SDK route: web pages may send these requests with credentials, and browsers then reject the
/// origin `*`. A response extension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SdkRouteMarker;

/// Wraps `routes` in the middleware. Functions run the result, the local server mounts it.
pub fn edge(routes: Router, clock: Clock) -> Router {
    let routes = routes.fallback(|| async { ApiError::no_route() });
    Router::new().fallback_service(Edge { routes, clock })
}

#[derive(Debug, Clone)]
struct Edge {
    routes: Router,
    clock: Clock,
}

impl Service<Request> for Edge {
    type Response = Response;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        <Router as Service<Request>>::poll_ready(&mut self.routes, context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        request.extensions_mut().insert(RequestClock(self.clock));
        rewrite_path(&mut request);
        let log = RequestLog::new(&request);
        let is_read = request.method().is_safe();
        let accepts_gzip = accepts_gzip(request.headers());
        let origin = request.headers().get(header::ORIGIN).cloned();
        let response = self.routes.call(request);
        let response = async move {
            // A panic in a handler is a bug: its caller gets a 500, and other requests are not affected.
            let result = AssertUnwindSafe(response).catch_unwind().await;
            let response = match result {
                Ok(Ok(response)) => response,
                Err(_) => ApiError::internal(&"a handler panicked").into_response(),
            };
            let response = if is_read { fit_response_limit(accepts_gzip, response).await } else { response };
            add_cors_headers(response, origin)
        };
        Box::pin(async move { Ok(log.run(response).await) })
    }
}

/// Removes the stage prefix and a trailing slash from the path, and stores the path as sent in [`ClientPath`].
fn rewrite_path(request: &mut Request) {
    let sent = request.uri().path().to_owned();
    let stage = request.extensions().get::<StagePrefix>().map(|stage| stage.0.clone());
    let without_stage =
        stage.as_deref().and_then(|stage| sent.strip_prefix(stage)).filter(|rest| rest.starts_with('/'));
    let path = without_stage.unwrap_or(&sent);
    let path = match path.strip_suffix('/') {
        Some(without_slash) if !without_slash.is_empty() => without_slash,
        _ => path,
    };
    if path != sent {
        let target = match request.uri().query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        if let Ok(uri) = target.parse::<Uri>() {
            *request.uri_mut() = uri;
        }
    }
    request.extensions_mut().insert(ClientPath(sent));
}

/// Adds CORS headers. Pages of any origin may read responses, because every request needs a key or a token and cookies are
/// not used. SDKs in web pages may send credentials, for which browsers require the exact origin instead of `*`.
fn add_cors_headers(mut response: Response<Body>, origin: Option<HeaderValue>) -> Response {
    let is_sdk = response.extensions_mut().remove::<SdkRouteMarker>().is_some();
    let headers = response.headers_mut();
    let mut allowed = HeaderValue::from_static("*");
    if is_sdk {
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("ETag, Retry-After"));
        let vary = headers.get(header::VARY).and_then(|vary| vary.to_str().ok());
        let vary = vary.and_then(|vary| HeaderValue::from_str(&format!("{vary}, Origin")).ok());
        headers.insert(header::VARY, vary.unwrap_or(HeaderValue::from_static("Origin")));
        if let Some(origin) = origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            allowed = origin;
        }
    }
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
    // A 200 keeps its content type: an empty CSV table is still CSV.
    if response.status() != StatusCode::OK && response.body().size_hint_is_zero() {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    response.into_response()
}

trait SizeHint {
    fn size_hint_is_zero(&self) -> bool;
}

impl SizeHint for Body {
    fn size_hint_is_zero(&self) -> bool {
        axum::body::HttpBody::size_hint(self).exact() == Some(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use axum::routing::{get, post};
    use tower::ServiceExt;

    use crate::http::Call;

    /// Responds with the path parameter `id` and the path that the client sent.
    async fn send(method: &str, uri: &str, stage: Option<&str>) -> (StatusCode, String) {
        let echo = |call: Call| async move { format!("{} {}", call.param("id"), call.url.path) };
        let routes = Router::new().route("/api/things/{id}", get(echo)).route("/api/things", post(echo));
        let mut request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        if let Some(stage) = stage {
            request.extensions_mut().insert(StagePrefix(stage.to_owned()));
        }
        let response = edge(routes, Clock::Running).oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn trailing_slashes_are_ignored_and_kept_in_links() {
        assert_eq!(send("GET", "/api/things/7", None).await, (StatusCode::OK, "7 /api/things/7".into()));
        assert_eq!(
            send("GET", "/api/things/7/?a=1", None).await,
            (StatusCode::OK, "7 /api/things/7/".into())
        );
        assert_eq!(send("POST", "/api/things/", None).await, (StatusCode::OK, " /api/things/".into()));
        assert_eq!(send("GET", "/api/things/7//", None).await.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn a_panic_is_a_500_and_the_next_request_works() {
        let broken = || async {
            if Clock::Running.now(None).timestamp() > 0 {
                panic!("on purpose")
            }
        };
        let app = edge(Router::new().route("/broken", get(broken)), Clock::Running);
        for _ in 0..2 {
            let request = Request::get("/broken").body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    }

    #[tokio::test]
    async fn a_stage_prefix_is_stripped_and_kept_in_links() {
        let stage = Some("/prod");
        assert_eq!(send("GET", "/prod/api/things/7/", stage).await.1, "7 /prod/api/things/7/");
        assert_eq!(send("GET", "/api/things/7", stage).await.1, "7 /api/things/7", "nothing to strip");
        assert_eq!(send("GET", "/production/api/things/7", stage).await.0, StatusCode::NOT_FOUND);
        assert_eq!(send("GET", "/prod/api/things/7", None).await.0, StatusCode::NOT_FOUND);
    }
}
