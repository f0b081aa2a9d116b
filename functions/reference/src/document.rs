//! The OpenAPI document as JSON and YAML, each under its plain media type and under OpenAPI's own.

use std::sync::OnceLock;

use axum::http::{HeaderMap, header};
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;

use crate::representation::GzippedRepresentation;

const CACHE_CONTROL: &str = "public, no-cache";

/// The supported media types, the default first. OpenAPI's own are registered with IANA.
const JSON: &str = "application/json";
const OPENAPI_JSON: &str = "application/vnd.oai.openapi+json";
const YAML: &str = "application/yaml";
const OPENAPI_YAML: &str = "application/vnd.oai.openapi";

/// The document as it is sent to most clients, compressed with gzip: a tenth of its text. The build script writes both, because
/// generating them takes longer than a cold start.
const AS_JSON: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));
const AS_YAML: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.yaml.gz"));

/// The representation with this media type, created on first use.
fn representation(media: &'static str) -> &'static GzippedRepresentation {
    static REPRESENTATIONS: [OnceLock<GzippedRepresentation>; 4] = [const { OnceLock::new() }; 4];
    let index = match media {
        OPENAPI_JSON => 1,
        YAML => 2,
        OPENAPI_YAML => 3,
        _ => 0,
    };
    REPRESENTATIONS[index]
        .get_or_init(|| GzippedRepresentation::new(media, if index < 2 { AS_JSON } else { AS_YAML }))
}

/// `GET /api/schema/`
pub async fn schema(call: Call) -> ApiResult<Response> {
    let media = match call.query_value("format") {
        Some("json") => JSON,
        Some("yaml") => YAML,
        Some(_) => return Err(ApiError::not_found()),
        None => negotiate_media_type(&call.headers),
    };
    representation(media).to_response(&call.headers, CACHE_CONTROL, "Accept, Accept-Encoding")
}

/// The supported media type with the highest weight in `Accept`, the first of equals; JSON if it has none of them.
fn negotiate_media_type(headers: &HeaderMap) -> &'static str {
    let lists = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let mut best = (0.0, JSON);
    for range in lists.flat_map(|list| list.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            OPENAPI_JSON => OPENAPI_JSON,
            YAML | "application/x-yaml" | "text/yaml" => YAML,
            OPENAPI_YAML => OPENAPI_YAML,
            JSON | "application/*" | "*/*" => JSON,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let weight = weight.map_or(1.0, |weight| weight.trim().parse::<f32>().unwrap_or(0.0));
        if weight > best.0 {
            best = (weight, media);
        }
    }
    best.1
}
