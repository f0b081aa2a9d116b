//! Pagination of lists by `limit` and `offset`, and the response envelope with absolute links.

use axum::response::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::call::Call;
use super::response::{deliver, too_long};
use crate::error::{ApiError, ApiResult};

/// Default page size.
pub const LIMIT_DEFAULT: usize = 100;
/// Maximum page size; larger limits are reduced to it, in the links too.
pub const LIMIT_MAX: usize = 1000;

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The `limit` and `offset` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Page size, 1 to [`LIMIT_MAX`].
    pub limit: usize,
    /// Number of records to skip.
    pub offset: usize,
}

impl Page {
    /// Parses the query string. Invalid values count as missing.
    pub fn of(call: &Call) -> Page {
        let number = |name| call.query_value(name).and_then(|text: &str| text.trim().parse::<usize>().ok());
        Page {
            limit: number("limit").filter(|limit| *limit > 0).unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX),
            offset: number("offset").unwrap_or(0),
        }
    }

    /// The items on the page.
    pub fn slice<'a, T>(&self, items: &'a [T]) -> &'a [T] {
        let start = self.offset.min(items.len());
        &items[start..start.saturating_add(self.limit).min(items.len())]
    }

    /// The envelope around the page's `results`; `count` is the total number of records.
    pub fn envelope(&self, call: &Call, count: usize, results: Vec<Value>) -> Value {
        let after = self.offset.saturating_add(self.limit);
        let next = (after < count).then(|| self.link(call, Some(after)));
        let previous = (self.offset > 0).then(|| {
            let before = self.offset.saturating_sub(self.limit);
            self.link(call, (before > 0).then_some(before))
        });
        json!({"count": count, "next": next, "previous": previous, "results": results})
    }

    /// The response with `results`, which are JSON texts; `count` is the total number of records.
    ///
    /// Compressed if it is long and the client accepts gzip; a 400 with the largest `limit` that fits if it exceeds the
    /// gateway's limit. A page is never shortened, because clients take a short page for the last one.
    pub fn reply(&self, call: &Call, count: usize, results: &[String]) -> ApiResult<Response> {
        let text = self.text(call, count, results);
        match deliver(&call.headers, text.into_bytes()) {
            Some(response) => Ok(response),
            None => Err(self.refusal(call, count, results)),
        }
    }

    /// The page as JSON text.
    fn text(&self, call: &Call, count: usize, results: &[String]) -> String {
        let envelope = self.envelope(call, count, Vec::new()).to_string();
        // The list is the last field.
        let head = envelope.strip_suffix("]}").unwrap_or(&envelope);
        let bytes = results.iter().map(|text| text.len() + 1).sum::<usize>();
        let mut text = String::with_capacity(head.len() + bytes + 2);
        text.push_str(head);
        for (at, result) in results.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(result);
        }
        text.push_str("]}");
        text
    }

    /// 400: the page exceeds the gateway's limit. `results` are its first records; the message has the largest `limit` that
    /// fits.
    pub fn refusal(&self, call: &Call, count: usize, results: &[String]) -> ApiError {
        too_long(&call.headers, results.len(), |limit| {
            Page { limit, ..*self }.text(call, count, &results[..limit]).into_bytes()
        })
    }

    /// The request's URL with this limit and the given offset.
    fn link(&self, call: &Call, offset: Option<usize>) -> String {
        link(
            call,
            &[("limit", Some(self.limit.to_string())), ("offset", offset.map(|offset| offset.to_string()))],
        )
    }
}

/// The request's URL with the parameters in `set` replaced, or removed if `None`; all sorted by name. An API key never
/// appears in a link.
pub fn link(call: &Call, set: &[(&str, Option<String>)]) -> String {
    let mut pairs = call.query().to_vec();
    pairs.retain(|(name, _)| name != "personal_api_key" && !set.iter().any(|(changed, _)| changed == name));
    pairs.extend(set.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?))));
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    url(call, &pairs)
}

/// The request's URL with the parameters in `set` replaced in place, or appended; the others keep their order. An API key
/// never appears in a link.
pub fn link_in_place(call: &Call, set: &[(&str, usize)]) -> String {
    let mut pairs = call.query().to_vec();
    pairs.retain(|(name, _)| name != "personal_api_key");
    for (name, value) in set {
        let mut is_replaced = false;
        for pair in pairs.iter_mut().filter(|(known, _)| known == name) {
            (pair.1, is_replaced) = (value.to_string(), true);
        }
        if !is_replaced {
            pairs.push(((*name).to_owned(), value.to_string()));
        }
    }
    url(call, &pairs)
}

fn url(call: &Call, pairs: &[(String, String)]) -> String {
    let query = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect::<Vec<_>>()
        .join("&");
    format!("{}{}?{query}", call.url.origin, call.url.path)
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}
