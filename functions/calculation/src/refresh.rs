//! The parameter `refresh`: how a request uses cached results.

use pennon_analytics::refresh::RefreshMode;
use serde_json::Value;

/// The value of `refresh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefreshParam {
    /// The mode that follows from it.
    pub mode: RefreshMode,
    /// Whether it was sent with a valid value, which decides how responses show the time zone.
    pub is_explicit: bool,
}

impl RefreshParam {
    /// Parses `refresh` from the query string, else from a body. An invalid value counts as absent.
    pub fn parse(query: Option<&str>, body: Option<&Value>) -> RefreshParam {
        match (query, body) {
            (Some(text), _) => parse_text(text),
            (None, Some(Value::Bool(true))) => explicit(RefreshMode::ForceBlocking),
            (None, Some(Value::String(text))) => parse_text(text),
            (None, Some(Value::Number(number))) if number.as_i64() == Some(1) => {
                explicit(RefreshMode::ForceBlocking)
            }
            _ => ABSENT,
        }
    }
}

fn parse_text(text: &str) -> RefreshParam {
    match text {
        "force_cache" => explicit(RefreshMode::ForceCache),
        "blocking" => explicit(RefreshMode::Blocking),
        "force_blocking" => explicit(RefreshMode::ForceBlocking),
        "async" => explicit(RefreshMode::Async),
        "lazy_async" => explicit(RefreshMode::LazyAsync),
        "force_async" => explicit(RefreshMode::ForceAsync),
        "async_except_on_cache_miss" => explicit(RefreshMode::AsyncExceptOnCacheMiss),
        other if matches!(other.to_ascii_lowercase().as_str(), "" | "true" | "1" | "yes") => {
            explicit(RefreshMode::ForceBlocking)
        }
        _ => ABSENT,
    }
}

const ABSENT: RefreshParam = RefreshParam { mode: RefreshMode::ForceCache, is_explicit: false };

fn explicit(mode: RefreshMode) -> RefreshParam {
    RefreshParam { mode, is_explicit: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_value_of_the_contract_is_parsed() {
        let of = |text| RefreshParam::parse(Some(text), None);
        for text in ["true", "TRUE", "1", "yes", "Yes", "", "force_blocking"] {
            assert_eq!(of(text), explicit(RefreshMode::ForceBlocking), "{text}");
        }
        for text in ["false", "0", "no", "NO", "whatever", "BLOCKING", " blocking"] {
            assert_eq!(of(text), ABSENT, "{text}");
        }
        assert_eq!(of("force_cache"), explicit(RefreshMode::ForceCache));
        assert_eq!(of("blocking"), explicit(RefreshMode::Blocking));
        assert_eq!(of("async_except_on_cache_miss"), explicit(RefreshMode::AsyncExceptOnCacheMiss));
        assert_eq!(RefreshParam::parse(None, None), ABSENT);
    }

    #[test]
    fn the_query_string_wins_over_the_body() {
        assert_eq!(RefreshParam::parse(Some("false"), Some(&json!(true))), ABSENT);
        assert_eq!(RefreshParam::parse(None, Some(&json!(true))), explicit(RefreshMode::ForceBlocking));
        assert_eq!(RefreshParam::parse(None, Some(&json!(false))), ABSENT);
        assert_eq!(RefreshParam::parse(None, Some(&json!("blocking"))), explicit(RefreshMode::Blocking));
        assert_eq!(RefreshParam::parse(None, Some(&json!({"a": 1}))), ABSENT);
    }
}
