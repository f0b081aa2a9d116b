//! Text in HTML.
//!
//! Must stay true: no text of a record or an event becomes markup, neither in an element or a quoted attribute nor in the JSON
//! of a `<script>`.

/// Text for an element or a quoted attribute.
pub fn escape_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // HTML has no way to write other control characters.
            _ if letter.is_control() && !letter.is_ascii_whitespace() => escaped.push('\u{FFFD}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// JSON text for a `<script>`: neither `</script>` nor a comment can begin in it, and it is still the same JSON.
pub fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn no_text_becomes_markup() {
        assert_eq!(
            escape_text("<script>alert('&\"')</script>"),
            "&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;"
        );
        assert_eq!(escape_text("a\0b\u{7f}\n\tü€"), "a\u{FFFD}b\u{FFFD}\n\tü€");
    }

    #[test]
    fn json_in_a_script_has_no_markup_and_the_same_value() {
        let value =
            json!({"<!--": "</script><script>&amp;", "lines": "a\u{2028}b\u{2029}", "quote": "\"\\<"});
        let escaped = escape_json(&value.to_string());
        assert!(!escaped.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{escaped}");
        assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
    }
}
