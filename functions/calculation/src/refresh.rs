//! What a request says about cached results.

use pennon_core::error::{ApiError, ApiResult};
use serde_json::Value;

/// When to calculate and when to show what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// Never calculate.
    ForceCache,
    /// Calculate what is missing or no longer fresh.
    Blocking,
    /// Always calculate.
    ForceBlocking,
    /// Show what is stored and calculate in the background.
    Async,
    /// As `Async`, but only when the result is old.
    LazyAsync,
    /// Calculate in the background, show nothing.
    ForceAsync,
    /// Calculate what is missing, and in the background what is no longer fresh.
    AsyncExceptOnCacheMiss,
}

/// What `refresh` said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// The mode that follows.
    pub mode: Refresh,
    /// Whether it was sent and means a mode or true, which decides how answers show the time zone.
    pub explicit: bool,
}

impl Refresh {
    /// Reads `refresh` from the query string, else from a body. What means nothing is as good as absent.
    pub fn read(query: Option<&str>, body: Option<&Value>) -> Said {
        match (query, body) {
            (Some(text), _) => Refresh::of_text(text),
            (None, Some(Value::Bool(true))) => said(Refresh::ForceBlocking),
            (None, Some(Value::String(text))) => Refresh::of_text(text),
            (None, Some(Value::Number(number))) if number.as_i64() == Some(1) => said(Refresh::ForceBlocking),
            _ => UNSAID,
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

    /// Whether what is stored is passed over.
    pub fn is_forced(self) -> bool {
        matches!(self, Refresh::ForceBlocking | Refresh::ForceAsync)
    }

    /// Refuses the modes that need a calculation in the background, where there is no synchronous meaning.
    pub fn require_synchronous(self) -> ApiResult<()> {
        match self {
            Refresh::ForceCache | Refresh::Blocking | Refresh::ForceBlocking => Ok(()),
            _ => {
                let detail = "Not supported yet: calculation in the background. Use force_cache, blocking or force_blocking.";
                Err(ApiError::invalid("invalid_input", detail, Some("refresh")))
            }
        }
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
        let of = |text| Refresh::read(Some(text), None);
        for text in ["true", "TRUE", "1", "yes", "Yes", "", "force_blocking"] {
            assert_eq!(of(text), said(Refresh::ForceBlocking), "{text}");
        }
        for text in ["false", "0", "no", "NO", "whatever", "BLOCKING", " blocking"] {
            assert_eq!(of(text), UNSAID, "{text}");
        }
        assert_eq!(of("force_cache"), said(Refresh::ForceCache));
        assert_eq!(of("blocking"), said(Refresh::Blocking));
        assert_eq!(of("async_except_on_cache_miss"), said(Refresh::AsyncExceptOnCacheMiss));
        assert_eq!(Refresh::read(None, None), UNSAID);
    }

    #[test]
    fn the_query_string_wins_over_the_body() {
        assert_eq!(Refresh::read(Some("false"), Some(&json!(true))), UNSAID);
        assert_eq!(Refresh::read(None, Some(&json!(true))), said(Refresh::ForceBlocking));
        assert_eq!(Refresh::read(None, Some(&json!(false))), UNSAID);
        assert_eq!(Refresh::read(None, Some(&json!("blocking"))), said(Refresh::Blocking));
        assert_eq!(Refresh::read(None, Some(&json!({"a": 1}))), UNSAID);
    }

    #[test]
    fn background_modes_are_refused_by_their_field() {
        for mode in [Refresh::Async, Refresh::LazyAsync, Refresh::ForceAsync, Refresh::AsyncExceptOnCacheMiss]
        {
            let body = mode.require_synchronous().map_err(|error| error.body());
            assert_eq!(body.map_err(|body| body["attr"].clone()), Err(json!("refresh")));
        }
        for mode in [Refresh::ForceCache, Refresh::Blocking, Refresh::ForceBlocking] {
            assert_eq!(mode.require_synchronous(), Ok(()));
        }
    }
}
