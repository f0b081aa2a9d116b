//! Pages of an activity log: `limit` and `page`, and the envelope around the entries.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::error::{ApiError, ApiResult};
use crate::http::{Call, link_in_place};
use crate::store::Item;

/// Entries of a page when the request does not say.
pub const LIMIT_DEFAULT: usize = 10;
/// Most entries of a page; larger requests act as this one, in the links too.
pub const LIMIT_MAX: usize = 1000;
/// Most bytes of an answer: what fits through a gateway.
pub(super) const ANSWER_BYTES_MAX: usize = 5_900_000;

/// Which entries of a log a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How many at most, 1 to [`LIMIT_MAX`].
    pub limit: usize,
    /// Which page, the newest being number 1.
    page: usize,
}

impl Wanted {
    /// What the query string asks for.
    pub fn of(call: &Call) -> ApiResult<Wanted> {
        Ok(Wanted {
            limit: positive(call, "limit")?.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX),
            page: positive(call, "page")?.unwrap_or(1),
        })
    }

    /// How many newer entries to pass over.
    pub fn skip(&self) -> usize {
        (self.page - 1).saturating_mul(self.limit)
    }

    /// The answer with the page's entries, of `total` in all.
    pub fn answer(&self, call: &Call, total: usize, entries: &[Item]) -> ApiResult<Response> {
        let bytes = entries.iter().map(|entry| entry.text.len() + 1);
        let fit = bytes.scan(0, |sum, bytes| {
            *sum += bytes;
            Some(*sum)
        });
        let fit = fit.take_while(|sum| *sum <= ANSWER_BYTES_MAX).count();
        if fit < entries.len() {
            return Err(too_large(fit));
        }
        let link = |page: usize| link_in_place(call, &[("page", page), ("limit", self.limit)]);
        let next = (self.skip().saturating_add(self.limit) < total).then(|| link(self.page + 1));
        let previous = (self.page > 1).then(|| link(self.page - 1));
        // The entries are stored as they are answered.
        let results = entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>().join(",");
        let body = format!(
            "{{\"results\":[{results}],\"next\":{},\"previous\":{},\"total_count\":{total}}}",
            json!(next),
            json!(previous)
        );
        let json = HeaderValue::from_static("application/json");
        Ok(([(header::CONTENT_TYPE, json)], body).into_response())
    }
}

/// The refusal of a page that is too large for one answer, of whose entries `fit` are not.
pub fn too_large(fit: usize) -> ApiError {
    let detail = format!("The answer would be too large. The largest limit that fits is {}.", fit.max(1));
    ApiError::invalid("invalid_input", detail, Some("limit"))
}

/// A query parameter as a number of at least one.
fn positive(call: &Call, name: &str) -> ApiResult<Option<usize>> {
    let Some(text) = call.query_value(name) else { return Ok(None) };
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ApiError::invalid("invalid_input", "A valid integer is required.", Some(name)));
    }
    // More digits than a number has mean a page that no log reaches.
    let number = digits.parse().unwrap_or(usize::MAX);
    if number == 0 || text.starts_with('-') {
        let detail = "Ensure this value is greater than or equal to 1.";
        return Err(ApiError::invalid("min_value", detail, Some(name)));
    }
    Ok(Some(number))
}
