//! Runs a router as a Lambda function, one of them beside the messages of a queue.
//!
//! Must stay true: no work of a request continues after its response, because Lambda freezes the process there and resumes
//! it minutes later, with closed connections, or never.

mod metrics;
mod queue_batch;

use std::future::Future;
use std::time::SystemTime;

use axum::Router;
use axum::body::HttpBody;
use http_body_util::BodyExt;
use lambda_http::request::RequestContext;
use lambda_http::{Adapter, Body, LambdaEvent, Request, Response, Service, service_fn};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::auth::KeyCache;
use crate::http::{RequestId, StagePrefix};
use crate::traces::{self, SendTiming};

/// Why a function cannot start or continue.
pub use lambda_http::Error;
pub use queue_batch::{QueueMessage, batch_item_failures};

use queue_batch::Invocation;

/// Handles invocations with `router` until the environment is shut down. A panic is reported as an error and does not end
/// the process. Responses wait for the background writes of `keys`.
pub async fn run(router: Router, keys: KeyCache) -> Result<(), Error> {
    lambda_http::run_concurrent(service_fn(move |request| handle(router.clone(), keys.clone(), request)))
        .await
}

/// As [`run`], for a function that also consumes the messages of a queue. `consume` gets a batch and the end of the invocation, and returns
/// the ids of the messages that Lambda has to deliver again.
pub async fn run_with_queue<C, F>(router: Router, keys: KeyCache, consume: C) -> Result<(), Error>
where
    C: Fn(Vec<QueueMessage>, Instant) -> F + Clone + Send + 'static,
    F: Future<Output = Vec<String>> + Send + 'static,
{
    let requests = Adapter::from(service_fn(move |request| handle(router.clone(), keys.clone(), request)));
    let service = service_fn(move |event: LambdaEvent<Invocation>| {
        let (mut requests, consume) = (requests.clone(), consume.clone());
        async move {
            let LambdaEvent { payload, context } = event;
            match payload {
                Invocation::Request(request) => {
                    requests.call(LambdaEvent::new(*request, context)).await.map(FunctionResponse::Request)
                }
                Invocation::Messages(messages) => {
                    let time_left = context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
                    let failed = consume(messages, Instant::now() + time_left).await;
                    Ok(FunctionResponse::Messages(batch_item_failures(failed)))
                }
            }
        }
    });
    lambda_runtime::run_concurrent(service).await
}

/// The response to an [`Invocation`].
#[derive(Serialize)]
#[serde(untagged)]
enum FunctionResponse<R> {
    Request(R),
    Messages(Value),
}

/// Initializes JSON logs on standard output, metrics and traces.
pub fn start_logging() {
    let metrics = crate::config::metrics_function_name().map(metrics::MetricsLayer::new);
    tracing_subscriber::registry()
        .with(crate::config::logged("info"))
        .with(
            tracing_subscriber::fmt::layer().json().flatten_event(true).with_span_list(false).without_time(),
        )
        .with(metrics)
        .init();
    if let Err(message) = traces::start(SendTiming::Before) {
        tracing::warn!(message, "requests are not traced");
    }
}

async fn handle(router: Router, keys: KeyCache, mut request: Request) -> Result<Response<Body>, Error> {
    if let Some(prefix) = stage_prefix(&request) {
        request.extensions_mut().insert(StagePrefix(prefix));
    }
    if let Some(id) = request_id(&request) {
        request.extensions_mut().insert(RequestId(id));
    }
    let (parts, body) = request.into_parts();
    let request = axum::extract::Request::from_parts(parts, axum::body::Body::from(body.to_vec()));
    let response = router.oneshot(request).await?;
    let (parts, body) = response.into_parts();
    let is_empty = body.size_hint().exact() == Some(0);
    let bytes = body.collect().await?.to_bytes();
    keys.wait_for_background_writes().await;
    let is_text = !parts.headers.contains_key("content-encoding");
    let body = match String::from_utf8(bytes.to_vec()) {
        _ if is_empty => Body::Empty,
        Ok(text) if is_text => Body::Text(text),
        Ok(text) => Body::Binary(text.into_bytes()),
        Err(error) => Body::Binary(error.into_bytes()),
    };
    Ok(Response::from_parts(parts, body))
}

/// The request id that the gateway assigned and returns to the caller.
fn request_id(request: &Request) -> Option<String> {
    match request.extensions().get::<RequestContext>()? {
        RequestContext::ApiGatewayV2(context) => context.request_id.clone(),
        RequestContext::ApiGatewayV1(context) => context.request_id.clone(),
        _ => None,
    }
}

/// The path prefix of a named gateway stage.
fn stage_prefix(request: &Request) -> Option<String> {
    let stage = match request.extensions().get::<RequestContext>()? {
        RequestContext::ApiGatewayV2(context) => context.stage.clone(),
        RequestContext::ApiGatewayV1(context) => context.stage.clone(),
        _ => None,
    };
    stage.filter(|stage| !stage.is_empty() && stage != "$default").map(|stage| format!("/{stage}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use axum::http::header;
    use axum::routing::{get, post};
    use lambda_http::request::from_str;

    use crate::clock::Clock;
    use crate::http::{Call, edge};

    fn router() -> Router {
        let echo = |call: Call| async move { format!("{} {}", call.url.path, call.bytes().len()) };
        let packed = || async { ([(header::CONTENT_ENCODING, "gzip")], vec![31_u8, 139, 0, 255]) };
        let routes = Router::new().route("/api/echo", post(echo)).route("/api/packed", get(packed));
        edge(routes.route("/api/none", get(|| async {})), Clock::Running)
    }

    fn event(method: &str, path: &str, stage: &str, body: &str) -> Request {
        let text = serde_json::json!({
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "", "headers": {},
            "requestContext": {"accountId": "1", "apiId": "a", "domainName": "d", "domainPrefix": "d", "requestId": "r",
                "routeKey": "$default", "stage": stage, "time": "t", "timeEpoch": 0,
                "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "1.2.3.4", "userAgent": "u"}},
            "body": body, "isBase64Encoded": true,
        });
        from_str(&text.to_string()).unwrap()
    }

    #[tokio::test]
    async fn an_event_of_a_named_stage_reaches_its_route_with_its_body_decoded() {
        let request = event("POST", "/prod/api/echo/", "prod", "AAECAw==");
        let response = handle(router(), KeyCache::default(), request).await.unwrap();
        assert_eq!(response.body(), &Body::Text("/prod/api/echo/ 4".to_owned()));
        let request = event("POST", "/api/echo", "$default", "");
        assert_eq!(
            handle(router(), KeyCache::default(), request).await.unwrap().body(),
            &Body::Text("/api/echo 0".to_owned())
        );
    }

    /// On one thread, a task that is not awaited does not complete.
    #[tokio::test]
    async fn a_response_waits_for_background_writes() {
        let (keys, done) = (KeyCache::default(), Arc::new(AtomicBool::new(false)));
        let (own, end) = (keys.clone(), done.clone());
        let handler = move || async move {
            own.track(tokio::spawn(async move {
                tokio::task::yield_now().await;
                end.store(true, Ordering::SeqCst);
            }));
        };
        let router = edge(Router::new().route("/api/noted", get(handler)), Clock::Running);
        handle(router, keys, event("GET", "/api/noted", "$default", "")).await.unwrap();
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn compressed_responses_are_binary_and_empty_ones_have_no_body() {
        let response =
            handle(router(), KeyCache::default(), event("GET", "/api/packed", "$default", "")).await.unwrap();
        assert_eq!(response.body(), &Body::Binary(vec![31, 139, 0, 255]));
        let response =
            handle(router(), KeyCache::default(), event("GET", "/api/none", "$default", "")).await.unwrap();
        assert_eq!(response.body(), &Body::Empty);
    }
}
