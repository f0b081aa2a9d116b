//! Pages of an activity log: `limit` and `page`, and the envelope around the entries.

use axum::response::Response;
use serde_json::json;

use crate::error::{ApiError, ApiResult};
use crate::http::{Call, deliver, link_in_place, too_long};
use crate::store::{ByteLimitedRead, Item};

/// Entries of a page when the request does not say.
pub const LIMIT_DEFAULT: usize = 10;
/// Most entries of a page; larger requests act as this one, in the links too.
pub const LIMIT_MAX: usize = 1000;

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

    /// The answer with the page's entries, of `total` in all: packed where it is long and the client takes that; refused
    /// by the largest limit that fits where a gateway would not let it through, or not all of the entries are here.
    pub fn answer(&self, call: &Call, total: usize, entries: &ByteLimitedRead) -> ApiResult<Response> {
        let whole = entries.is_complete.then(|| self.text(call, total, &entries.items));
        let answer = whole.and_then(|text| deliver(&call.headers, text.into_bytes()));
        answer.ok_or_else(|| self.refusal(call, total, &entries.items))
    }

    fn text(&self, call: &Call, total: usize, entries: &[Item]) -> String {
        let link = |page: usize| link_in_place(call, &[("page", page), ("limit", self.limit)]);
        let next = (self.skip().saturating_add(self.limit) < total).then(|| link(self.page + 1));
        let previous = (self.page > 1).then(|| link(self.page - 1));
        // The entries are stored as they are answered.
        let results = entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>().join(",");
        format!(
            "{{\"results\":[{results}],\"next\":{},\"previous\":{},\"total_count\":{total}}}",
            json!(next),
            json!(previous)
        )
    }

    /// 400: the page is too long, of which `entries` are the first. Names the largest limit whose page goes through.
    fn refusal(&self, call: &Call, total: usize, entries: &[Item]) -> ApiError {
        too_long(&call.headers, entries.len(), |limit| {
            Wanted { limit, ..*self }.text(call, total, &entries[..limit]).into_bytes()
        })
    }
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
