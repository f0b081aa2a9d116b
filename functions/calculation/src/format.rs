//! The form of an answer: JSON, or a table.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;

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
pub(crate) fn table(text: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(CSV))], text).into_response()
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

/// Accepts `format=json` and none; CSV is refused as not served here yet, other forms are unknown.
pub fn require_json(call: &Call) -> ApiResult<()> {
    match Format::of(call)? {
        Format::Json => Ok(()),
        Format::Csv => {
            Err(ApiError::invalid("invalid_input", "Not supported yet: answers as CSV.", Some("format")))
        }
    }
}
