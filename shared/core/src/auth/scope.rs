//! Scopes: `<object>:<read|write>`, or `*`.

use crate::activity::logs_of;

/// What a key has to have for a call: a scope, or another one in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// The scope that a refusal names.
    pub name: &'static str,
    instead: Option<&'static str>,
    /// Whether what it allows to write has entries in an activity log.
    is_logged: bool,
}

impl Scope {
    /// Either of two scopes; a refusal names the first.
    pub const fn either(name: &'static str, instead: &'static str) -> Scope {
        Scope { name, instead: Some(instead), is_logged: true }
    }

    /// For calls whose changes have no entries in an activity log.
    pub const fn unlogged(name: &'static str) -> Scope {
        Scope { name, instead: None, is_logged: false }
    }

    /// The activity logs that a call with it may write to.
    pub(super) fn logs(self) -> &'static [&'static str] {
        if self.is_logged { logs_of(self.name) } else { &[] }
    }

    /// Whether `granted` covers it.
    pub fn is_granted(self, granted: &[String]) -> bool {
        grants(granted, self.name) || self.instead.is_some_and(|scope| grants(granted, scope))
    }
}

impl From<&'static str> for Scope {
    fn from(name: &'static str) -> Scope {
        Scope { name, instead: None, is_logged: true }
    }
}

/// Whether `granted` covers `wanted`. Writing includes reading; `*` is everything; no scopes grant nothing.
pub fn grants(granted: &[String], wanted: &str) -> bool {
    granted.iter().any(|scope| {
        scope == "*"
            || scope == wanted
            || wanted.strip_suffix(":read").is_some_and(|object| scope.strip_suffix(":write") == Some(object))
    })
}

/// Whether `text` has the form of a scope.
pub fn is_scope(text: &str) -> bool {
    let word =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    text == "*" || matches!(text.split_once(':'), Some((object, "read" | "write")) if word(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(scopes: &[&str], wanted: &str) -> bool {
        grants(&scopes.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>(), wanted)
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
