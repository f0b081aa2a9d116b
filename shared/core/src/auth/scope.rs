//! Scopes of API keys: `<object>:<read|write>`, or `*`.

use crate::write_times::logs_of;

/// The scope that a call requires, possibly with an alternative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// The scope that the error message names.
    pub name: &'static str,
    alternative: Option<&'static str>,
    /// Whether writes with this scope create entries in an activity log.
    is_logged: bool,
}

impl Scope {
    /// Either of two scopes; the error message names the first.
    pub const fn either(name: &'static str, alternative: &'static str) -> Scope {
        Scope { name, alternative: Some(alternative), is_logged: true }
    }

    /// For calls whose changes are not in an activity log.
    pub const fn unlogged(name: &'static str) -> Scope {
        Scope { name, alternative: None, is_logged: false }
    }

    /// The activity logs that a call with this scope may write to.
    pub(crate) fn logs(self) -> &'static [&'static str] {
        if self.is_logged { logs_of(self.name) } else { &[] }
    }

    /// Whether `granted` includes this scope or its alternative.
    pub fn is_granted(self, granted: &[String]) -> bool {
        grants(granted, self.name) || self.alternative.is_some_and(|scope| grants(granted, scope))
    }
}

impl From<&'static str> for Scope {
    fn from(name: &'static str) -> Scope {
        Scope { name, alternative: None, is_logged: true }
    }
}

/// Whether `granted` includes `required`. Write includes read; `*` includes everything; an empty list grants nothing.
pub fn grants(granted: &[String], required: &str) -> bool {
    granted.iter().any(|scope| {
        scope == "*"
            || scope == required
            || required
                .strip_suffix(":read")
                .is_some_and(|object| scope.strip_suffix(":write") == Some(object))
    })
}

/// Whether `text` is a valid scope.
pub fn is_scope(text: &str) -> bool {
    let word =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    text == "*" || matches!(text.split_once(':'), Some((object, "read" | "write")) if word(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(scopes: &[&str], required: &str) -> bool {
        grants(&scopes.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>(), required)
    }

    #[test]
    fn writing_includes_reading_but_not_the_reverse() {
        assert!(granted(&["feature_flag:write"], "feature_flag:read"));
        assert!(!granted(&["feature_flag:read"], "feature_flag:write"));
        assert!(!granted(&["feature_flag:write"], "activity_log:read"));
        assert!(granted(&["*"], "activity_log:read"));
        assert!(!granted(&[], "activity_log:read"));
    }

    #[test]
    fn either_of_two_scopes_lets_in() {
        let read = Scope::either("person:read", "insight:read");
        let is_granted = |scopes: &[&str]| {
            read.is_granted(&scopes.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>())
        };
        for enough in ["person:read", "insight:read", "person:write", "insight:write", "*"] {
            assert!(is_granted(&[enough]), "{enough}");
        }
        assert!(!is_granted(&["cohort:read", "query:read", "person", "insight:"]));
        assert!(!is_granted(&[]));
    }

    #[test]
    fn a_scope_has_an_object_and_an_action() {
        for good in ["*", "feature_flag:read", "sharing_configuration:write"] {
            assert!(is_scope(good), "{good}");
        }
        for bad in ["", "feature_flag", ":read", "a:delete", "A:read", "a:read "] {
            assert!(!is_scope(bad), "{bad}");
        }
    }
}
