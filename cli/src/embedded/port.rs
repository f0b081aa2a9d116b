//! The embedded DynamoDB on a loopback port, for functions under `cargo lambda watch`, other commands and AWS tools.
//!
//! Must stay true: another user of this machine does not get in. A request names the access key id that the server chose at
//! random when it started and wrote into `server.json`, which only its owner can read. The id alone is the secret, and the
//! signature made with it is not verified: on loopback only root could read a request, an id is worthless after its
//! server has ended, and a listener that takes over the port then learns nothing of the next server. So all that a
//! signature would add is independence from what AWS tools log about ids.
//!
//! Must stay true: no web page gets in. A browser sends `Origin` with every request that a page makes of another origin,
//! and asks first with OPTIONS; a page that has its own name resolved to this machine is told by its `Host`. None of
//! them is answered, and no answer carries CORS headers.

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use dynoxide::{Database, DynoxideError};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::connector::dispatch;
use super::writes::Turn;

/// Largest request: DynamoDB's own limit.
const BODY_BYTES_MAX: usize = 16 << 20;
const TOO_LARGE: &str = "A request has at most 16 MiB; send fewer or smaller items.";
const UNRECOGNIZED: &str = "These are not the credentials of this server. Set those that `pennon env --data DIR` prints; \
                            they change whenever the server starts.";

#[derive(Clone)]
struct Port {
    database: Database,
    turn: Turn,
    /// SHA-256 of the access key id: comparing digests takes equally long for every wrong id.
    access_key_digest: [u8; 32],
}

/// Answers DynamoDB requests with this access key id from `database`, which writes when it is its `turn`.
pub fn router(database: Database, turn: Turn, access_key_id: &str) -> Router {
    let port = Port { database, turn, access_key_digest: Sha256::digest(access_key_id).into() };
    Router::new().fallback(any(answer)).with_state(port)
}

async fn answer(State(port): State<Port>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    if parts.method != Method::POST || is_from_a_page(headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    if !port.has_access(headers) {
        return refusal(StatusCode::FORBIDDEN, "UnrecognizedClientException", UNRECOGNIZED);
    }
    // A declared length is refused before the body is read.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLargeException", TOO_LARGE);
    }
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLargeException", TOO_LARGE);
    };
    let Port { database, turn, .. } = port;
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

impl Port {
    /// Whether the request is signed with the access key id of this server.
    fn has_access(&self, headers: &HeaderMap) -> bool {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let credential = authorization
            .and_then(|text| text.strip_prefix("AWS4-HMAC-SHA256 "))
            .and_then(|text| text.split(',').find_map(|part| part.trim().strip_prefix("Credential=")));
        let id = credential.and_then(|credential| credential.split('/').next()).unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(id).into();
        digest == self.access_key_digest
    }
}

/// An error as DynamoDB sends it.
fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    let body = json!({"__type": format!("com.amazon.coral.service#{code}"), "message": message});
    (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], body.to_string()).into_response()
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
    use tower::ServiceExt;

    const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=the-id/20261123/us-east-1/dynamodb/aws4_request, \
                          SignedHeaders=host;x-amz-date;x-amz-target, Signature=00";

    async fn status_of(method: &str, headers: &[(&str, &str)], body: Body) -> u16 {
        let mut request =
            Request::builder().method(method).uri("/").header("x-amz-target", "DynamoDB_20120810.ListTables");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let router = router(Database::memory().unwrap(), Turn::default(), "the-id");
        let response = router.oneshot(request.body(body).unwrap()).await.unwrap();
        assert!(!response.headers().contains_key("access-control-allow-origin"));
        response.status().as_u16()
    }

    async fn signed(method: &str, headers: &[(&str, &str)]) -> u16 {
        let headers = [headers, &[("authorization", SIGNED)]].concat();
        status_of(method, &headers, Body::from("{}")).await
    }

    #[tokio::test]
    async fn tools_get_in_and_pages_do_not() {
        assert_eq!(signed("POST", &[("host", "127.0.0.1:8123")]).await, 200);
        assert_eq!(signed("POST", &[("host", "localhost:8123")]).await, 200);
        let page = [("host", "127.0.0.1:8123"), ("origin", "http://evil.example")];
        assert_eq!(signed("POST", &page).await, 403);
        assert_eq!(signed("POST", &[("host", "evil.example:8123")]).await, 403);
        assert_eq!(signed("OPTIONS", &[("host", "127.0.0.1:8123")]).await, 403);
        assert_eq!(signed("GET", &[("host", "127.0.0.1:8123")]).await, 403);
    }

    #[tokio::test]
    async fn only_the_access_key_id_of_the_server_gets_in() {
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
    async fn a_body_has_sixteen_mebibytes_at_most() {
        let headers = [("host", "127.0.0.1:8123"), ("authorization", SIGNED)];
        let padded = |bytes: usize| Body::from(format!("{{}}{}", " ".repeat(bytes - 2)));
        assert_eq!(status_of("POST", &headers, padded(16 << 20)).await, 200);
        assert_eq!(status_of("POST", &headers, padded((16 << 20) + 1)).await, 413);
    }
}
