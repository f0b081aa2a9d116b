//! The format of a response: JSON or CSV.

use std::future::Future;
use std::pin::Pin;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, GATEWAY_BYTES_MAX, escaped_json_length};
use serde_json::Value;

use crate::csv;

const CSV: &str = "text/csv; charset=utf-8";

/// The format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFormat {
    /// JSON.
    Json,
    /// Comma-separated values.
    Csv,
}

impl ResponseFormat {
    /// The requested format, by the extension of the path or the parameter `format`; 404 for others.
    pub fn of(call: &Call) -> ApiResult<ResponseFormat> {
        let ending = call.url.path.trim_end_matches('/').rsplit_once('.').map(|(_, ending)| ending);
        let named = ending.filter(|ending| matches!(*ending, "csv" | "json")).or(call.query_value("format"));
        match named {
            None | Some("" | "json") => Ok(ResponseFormat::Json),
            Some("csv") => Ok(ResponseFormat::Csv),
            Some(_) => Err(ApiError::not_found()),
        }
    }
}

/// A response with CSV.
pub(crate) fn csv_response(text: Vec<u8>) -> ApiResult<Response> {
    if escaped_json_length(&text) > GATEWAY_BYTES_MAX {
        let detail = "The response is too large as a table. Request fewer rows, or JSON.";
        return Err(ApiError::invalid("invalid_input", detail, Some("format")));
    }
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(CSV))], text).into_response())
}

/// The response; an error is formatted as CSV where CSV was requested.
pub(crate) fn into_response(call: &Call, result: ApiResult<Response>) -> Response {
    match result {
        Ok(response) => response,
        Err(error) if ResponseFormat::of(call) == Ok(ResponseFormat::Csv) => {
            let table = csv::flatten_json(&error.body());
            let mut response = error.into_response();
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CSV));
            response.headers_mut().remove(header::CONTENT_LENGTH);
            *response.body_mut() = Body::from(table);
            response
        }
        Err(error) => error.into_response(),
    }
}

/// Wraps `handler`: JSON bodies of its responses, errors included, become CSV where that is requested. A response without a
/// body is not changed. The handler itself rejects unsupported formats.
pub fn with_csv<S, F, A>(
    handler: F,
) -> impl Fn(State<S>, Call) -> Pin<Box<dyn Future<Output = Response> + Send>> + Clone + Send + Sync + 'static
where
    S: Send + 'static,
    F: Fn(State<S>, Call) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = ApiResult<Response>> + Send + 'static,
{
    move |state, mut call: Call| {
        let wants_csv = ResponseFormat::of(&call) == Ok(ResponseFormat::Csv);
        if wants_csv {
            // A compressed body could not be converted.
            call.headers.remove(header::ACCEPT_ENCODING);
        }
        let is_read = call.method.is_safe();
        let response = handler(state, call);
        Box::pin(async move {
            let response = response.await.into_response();
            if wants_csv { convert_to_csv(response, is_read).await } else { response }
        })
    }
}

/// The response as CSV. Where that would be too large: 400 for a read; the JSON for a write, which was done already.
async fn convert_to_csv(response: Response, is_read: bool) -> Response {
    let (mut parts, body) = response.into_parts();
    // No limit: the body is already in memory.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    let table = csv::flatten_json(&value);
    if escaped_json_length(&table) > GATEWAY_BYTES_MAX {
        if !is_read {
            return Response::from_parts(parts, Body::from(bytes));
        }
        let detail = "The response is too large as a table. Request fewer rows, or JSON.";
        return Box::pin(convert_to_csv(
            ApiError::invalid("invalid_input", detail, Some("format")).into_response(),
            is_read,
        ))
        .await;
    }
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CSV));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(table))
}
