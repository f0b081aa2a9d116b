//! Decodes percent-encoded texts and query strings.

use percent_encoding::percent_decode_str;

/// Decodes a percent-encoded text.
pub(super) fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Parses the pairs of a query string or an HTML form. `a` means `a=`.
pub(super) fn parse_query(text: &str) -> Vec<(String, String)> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect()
}
