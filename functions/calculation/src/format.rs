//! The form of an answer: JSON, or a table.

use std::future::Future;
use std::pin::Pin;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, GATEWAY_BYTES_MAX, as_json_text};
use serde_json::Value;

use crate::csv;

const CSV: &str = "text/csv; charset=utf-8";

/// A form that answers can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// Comma-separated values.
    Csv,
}

impl Format {
    /// The form that a request asks for, by the ending of its path or by `format`; 404 for others.
    pub fn of(call: &Call) -> ApiResult<Format> {
        let ending = call.url.path.trim_end_matches('/').rsplit_once('.').map(|(_, ending)| ending);
        let named = ending.filter(|ending| matches!(*ending, "csv" | "json")).or(call.query_value("format"));
        match named {
            None | Some("" | "json") => Ok(Format::Json),
            Some("csv") => Ok(Format::Csv),
            Some(_) => Err(ApiError::not_found()),
        }
    }
}

/// A table as an answer.
pub(crate) fn table(text: Vec<u8>) -> ApiResult<Response> {
    if as_json_text(&text) > GATEWAY_BYTES_MAX {
        let detail = "The answer is too large as a table. Ask for less, or for JSON.";
        return Err(ApiError::invalid("invalid_input", detail, Some("format")));
    }
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(CSV))], text).into_response())
}

/// The answer to a request that asked for a table; of a refusal too.
pub(crate) fn shaped(call: &Call, answer: ApiResult<Response>) -> Response {
    match answer {
        Ok(response) => response,
        Err(error) if Format::of(call) == Ok(Format::Csv) => {
            let table = csv::flat(&error.body());
            let mut response = error.into_response();
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CSV));
            response.headers_mut().remove(header::CONTENT_LENGTH);
            *response.body_mut() = Body::from(table);
            response
        }
        Err(error) => error.into_response(),
    }
}

/// `handler`, whose answers with JSON bodies become tables where the request asks for one, refusals too. An answer
/// without a body stays as it is; it is the handler that judges whether the form is one that is served.
pub fn formed<S, F, A>(
    handler: F,
) -> impl Fn(State<S>, Call) -> Pin<Box<dyn Future<Output = Response> + Send>> + Clone + Send + Sync + 'static
where
    S: Send + 'static,
    F: Fn(State<S>, Call) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = ApiResult<Response>> + Send + 'static,
{
    move |state, mut call: Call| {
        let is_table = Format::of(&call) == Ok(Format::Csv);
        if is_table {
            // What is packed could not be made a table of.
            call.headers.remove(header::ACCEPT_ENCODING);
        }
        let reads = call.method.is_safe();
        let answer = handler(state, call);
        Box::pin(async move {
            let answer = answer.await.into_response();
            if is_table { as_table(answer, reads).await } else { answer }
        })
    }
}

/// What was written stays written, so its answer stays JSON where a table would be too large.
async fn as_table(answer: Response, reads: bool) -> Response {
    let (mut parts, body) = answer.into_parts();
    // The body is in memory already.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    let table = csv::flat(&value);
    if as_json_text(&table) > GATEWAY_BYTES_MAX {
        if !reads {
            return Response::from_parts(parts, Body::from(bytes));
        }
        let detail = "The answer is too large as a table. Ask for less, or for JSON.";
        return Box::pin(as_table(
            ApiError::invalid("invalid_input", detail, Some("format")).into_response(),
            reads,
        ))
        .await;
    }
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CSV));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(table))
}
