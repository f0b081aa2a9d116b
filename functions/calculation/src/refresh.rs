//! The parameter `refresh`: how a request uses cached results.

use pennon_engine::query::Refresh;
use serde_json::Value;

/// The value of `refresh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefreshParam {
    /// The mode that follows from it.
    pub mode: Refresh,
    /// Whether it was sent with a valid value, which decides how responses show the time zone.
    pub is_explicit: bool,
}

impl RefreshParam {
    /// Parses `refresh` from the query string, else from a body. An invalid value counts as absent.
    pub fn parse(query: Option<&str>, body: Option<&Value>) -> RefreshParam {
        match (query, body) {
            (Some(text), _) => parse_text(text),
            (None, Some(Value::Bool(true))) => explicit(Refresh::ForceBlocking),
            (None, Some(Value::String(text))) => parse_text(text),
            (None, Some(Value::Number(number))) if number.as_i64() == Some(1) => {
                explicit(Refresh::ForceBlocking)
            }
            _ => ABSENT,
        }
    }
}

fn parse_text(text: &str) -> RefreshParam {
    match text {
        "force_cache" => explicit(Refresh::ForceCache),
        "blocking" => explicit(Refresh::Blocking),
        "force_blocking" => explicit(Refresh::ForceBlocking),
        "async" => explicit(Refresh::Async),
        "lazy_async" => explicit(Refresh::LazyAsync),
        "force_async" => explicit(Refresh::ForceAsync),
        "async_except_on_cache_miss" => explicit(Refresh::AsyncExceptOnCacheMiss),
        other if matches!(other.to_ascii_lowercase().as_str(), "" | "true" | "1" | "yes") => {
            explicit(Refresh::ForceBlocking)
        }
        _ => ABSENT,
    }
}

const ABSENT: RefreshParam = RefreshParam { mode: Refresh::ForceCache, is_explicit: false };

fn explicit(mode: Refresh) -> RefreshParam {
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
            assert_eq!(of(text), explicit(Refresh::ForceBlocking), "{text}");
        }
        for text in ["false", "0", "no", "NO", "whatever", "BLOCKING", " blocking"] {
            assert_eq!(of(text), ABSENT, "{text}");
        }
        assert_eq!(of("force_cache"), explicit(Refresh::ForceCache));
        assert_eq!(of("blocking"), explicit(Refresh::Blocking));
        assert_eq!(of("async_except_on_cache_miss"), explicit(Refresh::AsyncExceptOnCacheMiss));
        assert_eq!(RefreshParam::parse(None, None), ABSENT);
    }

    #[test]
    fn the_query_string_wins_over_the_body() {
        assert_eq!(RefreshParam::parse(Some("false"), Some(&json!(true))), ABSENT);
        assert_eq!(RefreshParam::parse(None, Some(&json!(true))), explicit(Refresh::ForceBlocking));
        assert_eq!(RefreshParam::parse(None, Some(&json!(false))), ABSENT);
        assert_eq!(RefreshParam::parse(None, Some(&json!("blocking"))), explicit(Refresh::Blocking));
        assert_eq!(RefreshParam::parse(None, Some(&json!({"a": 1}))), ABSENT);
    }
}
