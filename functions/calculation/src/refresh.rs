//! What a request says about cached results.

use pennon_engine::query::Refresh;
use serde_json::Value;

/// What `refresh` said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// The mode that follows.
    pub mode: Refresh,
    /// Whether it was sent and means a mode or true, which decides how answers show the time zone.
    pub explicit: bool,
}

impl Said {
    /// Reads `refresh` from the query string, else from a body. What means nothing is as good as absent.
    pub fn read(query: Option<&str>, body: Option<&Value>) -> Said {
        match (query, body) {
            (Some(text), _) => of_text(text),
            (None, Some(Value::Bool(true))) => said(Refresh::ForceBlocking),
            (None, Some(Value::String(text))) => of_text(text),
            (None, Some(Value::Number(number))) if number.as_i64() == Some(1) => said(Refresh::ForceBlocking),
            _ => UNSAID,
        }
    }
}

fn of_text(text: &str) -> Said {
    match text {
        "force_cache" => said(Refresh::ForceCache),
        "blocking" => said(Refresh::Blocking),
        "force_blocking" => said(Refresh::ForceBlocking),
        "async" => said(Refresh::Async),
        "lazy_async" => said(Refresh::LazyAsync),
        "force_async" => said(Refresh::ForceAsync),
        "async_except_on_cache_miss" => said(Refresh::AsyncExceptOnCacheMiss),
        other if matches!(other.to_ascii_lowercase().as_str(), "" | "true" | "1" | "yes") => {
            said(Refresh::ForceBlocking)
        }
        _ => UNSAID,
    }
}

const UNSAID: Said = Said { mode: Refresh::ForceCache, explicit: false };

fn said(mode: Refresh) -> Said {
    Said { mode, explicit: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refresh_is_read_as_the_contract_says() {
        let of = |text| Said::read(Some(text), None);
        for text in ["true", "TRUE", "1", "yes", "Yes", "", "force_blocking"] {
            assert_eq!(of(text), said(Refresh::ForceBlocking), "{text}");
        }
        for text in ["false", "0", "no", "NO", "whatever", "BLOCKING", " blocking"] {
            assert_eq!(of(text), UNSAID, "{text}");
        }
        assert_eq!(of("force_cache"), said(Refresh::ForceCache));
        assert_eq!(of("blocking"), said(Refresh::Blocking));
        assert_eq!(of("async_except_on_cache_miss"), said(Refresh::AsyncExceptOnCacheMiss));
        assert_eq!(Said::read(None, None), UNSAID);
    }

    #[test]
    fn the_query_string_wins_over_the_body() {
        assert_eq!(Said::read(Some("false"), Some(&json!(true))), UNSAID);
        assert_eq!(Said::read(None, Some(&json!(true))), said(Refresh::ForceBlocking));
        assert_eq!(Said::read(None, Some(&json!(false))), UNSAID);
        assert_eq!(Said::read(None, Some(&json!("blocking"))), said(Refresh::Blocking));
        assert_eq!(Said::read(None, Some(&json!({"a": 1}))), UNSAID);
    }
}
