//! Running a router as a Lambda function.

use axum::Router;
use axum::body::HttpBody;
use http_body_util::BodyExt;
use lambda_http::request::RequestContext;
use lambda_http::{Body, Request, Response, service_fn};
use tower::ServiceExt;

use crate::http::StagePrefix;

/// Why a function could not start or go on.
pub use lambda_http::Error;

/// Answers invocations with `router` until the environment ends. Panics become reported errors, not dead processes.
pub async fn run(router: Router) -> Result<(), Error> {
    lambda_http::run_concurrent(service_fn(move |request| answer(router.clone(), request))).await
}

/// Writes structured logs to where the platform collects them.
pub fn start_logging() {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(tracing_subscriber::EnvFilter::new(crate::config::log_filter()))
        .with_current_span(false)
        .without_time()
        .init();
}

async fn answer(router: Router, mut request: Request) -> Result<Response<Body>, Error> {
    if let Some(prefix) = stage_prefix(&request) {
        request.extensions_mut().insert(StagePrefix(prefix));
    }
    let (parts, body) = request.into_parts();
    let request = axum::extract::Request::from_parts(parts, axum::body::Body::from(body.to_vec()));
    let response = router.oneshot(request).await?;
    let (parts, body) = response.into_parts();
    let is_empty = body.size_hint().exact() == Some(0);
    let bytes = body.collect().await?.to_bytes();
    let is_text = !parts.headers.contains_key("content-encoding");
    let body = match String::from_utf8(bytes.to_vec()) {
        _ if is_empty => Body::Empty,
        Ok(text) if is_text => Body::Text(text),
        Ok(text) => Body::Binary(text.into_bytes()),
        Err(error) => Body::Binary(error.into_bytes()),
    };
    Ok(Response::from_parts(parts, body))
}

/// The path prefix that a named stage of a gateway stands for.
fn stage_prefix(request: &Request) -> Option<String> {
    let stage = match request.extensions().get::<RequestContext>()? {
        RequestContext::ApiGatewayV2(context) => context.stage.clone(),
        RequestContext::ApiGatewayV1(context) => context.stage.clone(),
        _ => None,
    };
    stage.filter(|stage| !stage.is_empty() && stage != "$default").map(|stage| format!("/{stage}"))
}
