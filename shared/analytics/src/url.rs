//! Builds query strings for the links in results.

use std::fmt::Write as _;

use serde_json::Value;

/// Appends `key=value`, percent-encoded, preceded by `&` if needed.
pub fn push_pair(url: &mut String, key: &str, value: &str) {
    if !url.ends_with(['?', '&']) {
        url.push('&');
    }
    encode(url, key);
    url.push('=');
    encode(url, value);
}

/// Appends a JSON value: strings unchanged, everything else as JSON text.
pub fn push_value(url: &mut String, key: &str, value: &Value) {
    match value {
        Value::String(text) => push_pair(url, key, text),
        other => push_pair(url, key, &other.to_string()),
    }
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_foreign_characters_are_encoded() {
        let mut url = "/x/?".to_owned();
        push_pair(&mut url, "a", "sign up & é");
        push_pair(&mut url, "b", "[1]");
        assert_eq!(url, "/x/?a=sign%20up%20%26%20%C3%A9&b=%5B1%5D");
    }
}
