//! Pagination of an activity log by `limit` and `page`, and the response envelope.

use axum::response::Response;
use serde_json::json;

use crate::error::{ApiError, ApiResult};
use crate::http::{Call, deliver, link_in_place, too_long};
use crate::store::{ByteLimitedRead, Item};

/// Default page size.
pub const LIMIT_DEFAULT: usize = 10;
/// Maximum page size; larger limits are reduced to it, in the links too.
pub const LIMIT_MAX: usize = 1000;

/// The `limit` and `page` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    /// Page size, 1 to [`LIMIT_MAX`].
    pub limit: usize,
    /// Page number; 1 has the newest entries.
    page: usize,
}

impl PageRequest {
    /// Parses the query string; 400 for invalid values.
    pub fn parse(call: &Call) -> ApiResult<PageRequest> {
        Ok(PageRequest {
            limit: parse_positive(call, "limit")?.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX),
            page: parse_positive(call, "page")?.unwrap_or(1),
        })
    }

    /// Number of newer entries to skip.
    pub fn skip(&self) -> usize {
        (self.page - 1).saturating_mul(self.limit)
    }

    /// The response with the page's entries; `total` is the length of the log. Compressed if it is long and the client accepts
    /// gzip. A 400 with the largest `limit` that fits if it exceeds the gateway's limit or `entries` is incomplete.
    pub fn response(&self, call: &Call, total: usize, entries: &ByteLimitedRead) -> ApiResult<Response> {
        let complete = entries.is_complete.then(|| self.text(call, total, &entries.items));
        let response = complete.and_then(|text| deliver(&call.headers, text.into_bytes()));
        response.ok_or_else(|| self.too_large_error(call, total, &entries.items))
    }

    fn text(&self, call: &Call, total: usize, entries: &[Item]) -> String {
        let link = |page: usize| link_in_place(call, &[("page", page), ("limit", self.limit)]);
        let next = (self.skip().saturating_add(self.limit) < total).then(|| link(self.page + 1));
        let previous = (self.page > 1).then(|| link(self.page - 1));
        // Entries are stored in the format of the response.
        let results = entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>().join(",");
        format!(
            "{{\"results\":[{results}],\"next\":{},\"previous\":{},\"total_count\":{total}}}",
            json!(next),
            json!(previous)
        )
    }

    /// 400: the page exceeds the gateway's limit. `entries` are its first ones; the message has the largest `limit` that fits.
    fn too_large_error(&self, call: &Call, total: usize, entries: &[Item]) -> ApiError {
        too_long(&call.headers, entries.len(), |limit| {
            PageRequest { limit, ..*self }.text(call, total, &entries[..limit]).into_bytes()
        })
    }
}

/// Parses a query parameter as a number of at least 1.
fn parse_positive(call: &Call, name: &str) -> ApiResult<Option<usize>> {
    let Some(text) = call.query_value(name) else { return Ok(None) };
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ApiError::invalid("invalid_input", "A valid integer is required.", Some(name)));
    }
    // A number that overflows means a page beyond the end of every log.
    let number = digits.parse().unwrap_or(usize::MAX);
    if number == 0 || text.starts_with('-') {
        let detail = "Ensure this value is greater than or equal to 1.";
        return Err(ApiError::invalid("min_value", detail, Some(name)));
    }
    Ok(Some(number))
}
