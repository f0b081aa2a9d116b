//! What happens to every request before a route is looked for, and to every answer after it.
//!
//! Both spellings of a path reach the same route without a redirect, because a redirect loses the body of a POST. A
//! stage prefix that a gateway leaves in the path is taken off here and put back into links.

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

use super::reply::{accepts_gzip, let_through};
use super::watch::Watched;
use crate::clock::Clock;
use crate::error::ApiError;

/// The first segments of the path that belong to the gateway's stage, such as `/prod`.
#[derive(Debug, Clone)]
pub struct StagePrefix(pub String);

/// The path as the client sent it.
#[derive(Debug, Clone)]
pub(super) struct ClientPath(pub String);

/// The clock of the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestClock(pub Clock);

/// That an answer is of a route for SDKs: a page may have asked with credentials, and reads no answer that allows `*`.
#[derive(Debug, Clone, Copy)]
pub(super) struct SdkAnswer;

/// `routes` behind the edge: what a function runs and the local server mounts.
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
        let watched = Watched::new(&request);
        let reads = request.method().is_safe();
        let packs = accepts_gzip(request.headers());
        let origin = request.headers().get(header::ORIGIN).cloned();
        let answer = self.routes.call(request);
        let answer = async move {
            // A handler that panics is a mistake of ours; its caller gets an answer, and the others go on.
            let answer = AssertUnwindSafe(answer).catch_unwind().await;
            let answer = match answer {
                Ok(Ok(response)) => response,
                Err(_) => ApiError::internal(&"a handler panicked").into_response(),
            };
            finish(if reads { let_through(packs, answer).await } else { answer }, origin)
        };
        Box::pin(async move { Ok(watched.answered(answer).await) })
    }
}

/// Takes the stage prefix and a trailing slash off the path, and remembers the path as it was sent.
fn rewrite_path(request: &mut Request) {
    let sent = request.uri().path().to_owned();
    let stage = request.extensions().get::<StagePrefix>().map(|stage| stage.0.clone());
    let rest =
        stage.as_deref().and_then(|stage| sent.strip_prefix(stage)).filter(|rest| rest.starts_with('/'));
    let plain = rest.unwrap_or(&sent);
    let plain = match plain.strip_suffix('/') {
        Some(shorter) if !shorter.is_empty() => shorter,
        _ => plain,
    };
    if plain != sent {
        let target = match request.uri().query() {
            Some(query) => format!("{plain}?{query}"),
            None => plain.to_owned(),
        };
        if let Ok(uri) = target.parse::<Uri>() {
            *request.uri_mut() = uri;
        }
    }
    request.extensions_mut().insert(ClientPath(sent));
}

/// Answers may be read by pages of any origin: a key or a token is needed in any case, and cookies play no part. SDKs in
/// pages ask with credentials, for which browsers want the very origin and no `*`.
fn finish(mut response: Response<Body>, origin: Option<HeaderValue>) -> Response {
    let is_sdk = response.extensions_mut().remove::<SdkAnswer>().is_some();
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
    // A table of nothing is still a table.
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

    /// Answers a request with the path that the route saw and the one that the client sent.
    async fn ask(method: &str, uri: &str, stage: Option<&str>) -> (StatusCode, String) {
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
    async fn both_spellings_are_answered_and_links_keep_the_clients() {
        assert_eq!(ask("GET", "/api/things/7", None).await, (StatusCode::OK, "7 /api/things/7".into()));
        assert_eq!(ask("GET", "/api/things/7/?a=1", None).await, (StatusCode::OK, "7 /api/things/7/".into()));
        assert_eq!(ask("POST", "/api/things/", None).await, (StatusCode::OK, " /api/things/".into()));
        assert_eq!(ask("GET", "/api/things/7//", None).await.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn a_panic_is_answered_and_the_next_request_too() {
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
        assert_eq!(ask("GET", "/prod/api/things/7/", stage).await.1, "7 /prod/api/things/7/");
        assert_eq!(ask("GET", "/api/things/7", stage).await.1, "7 /api/things/7", "nothing to strip");
        assert_eq!(ask("GET", "/production/api/things/7", stage).await.0, StatusCode::NOT_FOUND);
        assert_eq!(ask("GET", "/prod/api/things/7", None).await.0, StatusCode::NOT_FOUND);
    }
}
