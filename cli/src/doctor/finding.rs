//! The results of checks.

use serde_json::{Value, json};

use crate::show::text::sanitize;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing to do.
    Ok,
    /// It works, but not as it should.
    Warning,
    /// It does not work.
    Failure,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Failure => "failure",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was checked.
    pub check: &'static str,
    /// How the check ended.
    pub state: State,
    /// What was found.
    pub detail: String,
    /// What to do, if the detail does not name it.
    pub next: Option<String>,
}

impl Finding {
    /// A check without a problem.
    pub fn ok(check: &'static str, detail: impl Into<String>) -> Finding {
        Finding { check, state: State::Ok, detail: detail.into(), next: None }
    }

    /// A warning.
    pub fn warning(check: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Finding {
        Finding { check, state: State::Warning, detail: detail.into(), next: Some(next.into()) }
    }

    /// A failure.
    pub fn failure(check: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Finding {
        Finding { check, state: State::Failure, detail: detail.into(), next: Some(next.into()) }
    }

    /// A failure whose text names the next step.
    pub fn error(check: &'static str, text: impl Into<String>) -> Finding {
        Finding { check, state: State::Failure, detail: text.into(), next: None }
    }
}

/// The results of all checks.
#[derive(Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// Adds a result.
    pub fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// The number of failed checks.
    pub fn failures(&self) -> usize {
        self.findings.iter().filter(|finding| finding.state == State::Failure).count()
    }

    /// The report as lines of text.
    pub fn to_text(&self) -> String {
        let width = self.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        let mut text = String::new();
        for Finding { check, state, detail, next } in &self.findings {
            text.push_str(&format!("{:<8} {check:<width$}  {}\n", state.as_str(), sanitize(detail)));
            if let Some(next) = next {
                text.push_str(&format!("{:<8} {:<width$}  -> {}\n", "", "", sanitize(next)));
            }
        }
        text
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let findings = self.findings.iter().map(|finding| {
            json!({
                "check": finding.check, "state": finding.state.as_str(), "detail": finding.detail, "next": finding.next,
            })
        });
        json!({"failures": self.failures(), "checks": findings.collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_followed_by_what_to_do() {
        let mut report = Report::default();
        report.push(Finding::ok("version", "pennon 0.1.0"));
        report.push(Finding::warning("disk", "1 GB free", "free some"));
        report.push(Finding::error("database", "damaged; restore\na \u{1b}[1mbackup"));
        let expected = "\
ok       version   pennon 0.1.0
warning  disk      1 GB free
                   -> free some
failure  database  damaged; restore a  [1mbackup
";
        assert_eq!(report.to_text(), expected);
        assert_eq!(report.failures(), 1);
        assert_eq!(report.to_json()["checks"][1]["next"], "free some");
    }
}
