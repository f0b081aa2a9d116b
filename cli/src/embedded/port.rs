//! The embedded DynamoDB on a loopback port, for functions under `cargo lambda watch`, other commands and AWS tools.
//!
//! Must stay true: other users of this machine and web pages have no access, see [`LocalAccess`].

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use dynoxide::{Database, DynoxideError};
use serde_json::json;

use super::connector::{dispatch, error_body};
use super::write_lock::WriteLock;
use crate::local_access::{LocalAccess, is_from_web_page};

/// Largest request: DynamoDB's own limit.
const BODY_BYTES_MAX: usize = 16 << 20;
const TOO_LARGE: &str = "A request has at most 16 MiB; send fewer or smaller items.";
const UNRECOGNIZED: &str = "These are not the credentials of this server. Set those that `pennon env --data DIR` prints; \
                            they change whenever the server starts.";

#[derive(Clone)]
struct Port {
    database: Database,
    write_lock: WriteLock,
    access: LocalAccess,
}

/// A router that serves DynamoDB requests with this access key id from `database`; write operations hold `write_lock`.
pub fn router(database: Database, write_lock: WriteLock, access_key_id: &str) -> Router {
    let port = Port { database, write_lock, access: LocalAccess::new(access_key_id) };
    Router::new().fallback(any(handle)).with_state(port)
}

async fn handle(State(port): State<Port>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    if parts.method != Method::POST || is_from_web_page(headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    if !port.access.is_authorized(headers) {
        return error_response(StatusCode::FORBIDDEN, "UnrecognizedClientException", UNRECOGNIZED);
    }
    // Reject by the declared length, before the body is read.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return error_response(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLargeException", TOO_LARGE);
    }
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return error_response(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLargeException", TOO_LARGE);
    };
    let Port { database, write_lock, .. } = port;
    let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
    let task = tokio::task::spawn_blocking(move || {
        dispatch(&database, &write_lock, &operation, &String::from_utf8_lossy(&body))
    });
    let result = task.await.unwrap_or_else(|e| Err(DynoxideError::InternalServerError(e.to_string())));
    let (status, body) = match result {
        Ok(body) => (StatusCode::OK, body),
        Err(error) => {
            let status =
                StatusCode::from_u16(error.status_code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, error_body(&error))
        }
    };
    (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], Body::from(body)).into_response()
}

/// An error response in DynamoDB's format.
fn error_response(status: StatusCode, code: &str, message: &str) -> Response {
    let body = json!({"__type": format!("com.amazon.coral.service#{code}"), "message": message});
    (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tower::ServiceExt;

    const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=the-id/20261123/us-east-1/dynamodb/aws4_request, \
                          SignedHeaders=host;x-amz-date;x-amz-target, Signature=00";

    async fn status_of(method: &str, headers: &[(&str, &str)], body: Body) -> u16 {
        let mut request =
            Request::builder().method(method).uri("/").header("x-amz-target", "DynamoDB_20120810.ListTables");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let router = router(Database::memory().unwrap(), WriteLock::default(), "the-id");
        let response = router.oneshot(request.body(body).unwrap()).await.unwrap();
        assert!(!response.headers().contains_key("access-control-allow-origin"));
        response.status().as_u16()
    }

    async fn signed(method: &str, headers: &[(&str, &str)]) -> u16 {
        let headers = [headers, &[("authorization", SIGNED)]].concat();
        status_of(method, &headers, Body::from("{}")).await
    }

    #[tokio::test]
    async fn tools_have_access_and_web_pages_do_not() {
        assert_eq!(signed("POST", &[("host", "127.0.0.1:8123")]).await, 200);
        assert_eq!(signed("POST", &[("host", "localhost:8123")]).await, 200);
        let page = [("host", "127.0.0.1:8123"), ("origin", "http://evil.example")];
        assert_eq!(signed("POST", &page).await, 403);
        assert_eq!(signed("POST", &[("host", "evil.example:8123")]).await, 403);
        assert_eq!(signed("OPTIONS", &[("host", "127.0.0.1:8123")]).await, 403);
        assert_eq!(signed("GET", &[("host", "127.0.0.1:8123")]).await, 403);
    }

    #[tokio::test]
    async fn only_the_access_key_id_of_the_server_has_access() {
        let host = ("host", "127.0.0.1:8123");
        let others = [
            "",
            "the-id",
            "Bearer the-id",
            "AWS4-HMAC-SHA256 Signature=the-id",
            "AWS4-HMAC-SHA256 Credential=",
        ];
        for authorization in others.iter().map(|text| (*text).to_owned()).chain([
            SIGNED.replace("the-id", "local"),
            SIGNED.replace("the-id", "the-i"),
            SIGNED.replace("the-id", "the-idx"),
        ]) {
            let headers = [host, ("authorization", authorization.as_str())];
            assert_eq!(status_of("POST", &headers, Body::from("{}")).await, 403, "{authorization}");
        }
        assert_eq!(status_of("POST", &[host], Body::from("{}")).await, 403);
    }

    #[tokio::test]
    async fn a_body_of_more_than_16_mebibytes_is_rejected() {
        let headers = [("host", "127.0.0.1:8123"), ("authorization", SIGNED)];
        let padded = |bytes: usize| Body::from(format!("{{}}{}", " ".repeat(bytes - 2)));
        assert_eq!(status_of("POST", &headers, padded(16 << 20)).await, 200);
        assert_eq!(status_of("POST", &headers, padded((16 << 20) + 1)).await, 413);
    }
}
