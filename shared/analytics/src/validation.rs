//! Validates actions and cohorts before they are stored.
//!
//! Must stay true: validation runs the code that compiles queries, so no calculation rejects a definition that passed, as
//! long as the definitions that it references still exist.

use chrono::{DateTime, Utc};
use pennon_filters::error::CalcResult;

use crate::compiler::{Compiler, action, cohort};
use crate::definitions::Action;
use crate::project::ProjectContext;

impl Action {
    /// An error naming the first step that no calculation accepts. `project.definitions` must have the referenced
    /// definitions.
    pub fn check(&self, project: &ProjectContext, now: DateTime<Utc>) -> CalcResult<()> {
        action::validate(self, &mut Compiler::new(project, now))
    }
}

impl ProjectContext {
    /// An error if no calculation accepts the rules of cohort `id`, or if the cohort references itself.
    pub fn check_cohort(&self, id: u64, now: DateTime<Utc>) -> CalcResult<()> {
        cohort::validate(id, &mut Compiler::new(self, now))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use pennon_filters::dates::WeekStart;
    use serde_json::{Value, json};

    use super::*;
    use crate::definitions::{Cohort, Definitions};

    fn project(definitions: Definitions) -> ProjectContext {
        ProjectContext {
            project_id: "1".to_owned(),
            timezone: chrono_tz::UTC,
            week_start: WeekStart::from_day(0),
            test_account_filters: Vec::new(),
            path_cleaning_filters: Vec::new(),
            earliest_event: None,
            aggregate_by_distinct_id: false,
            definitions,
        }
    }

    fn now() -> DateTime<Utc> {
        "2024-01-01T00:00:00Z".parse().unwrap()
    }

    fn invalid_attr(steps: Value) -> Option<String> {
        let steps = steps.as_array().unwrap().clone();
        let action = Action { name: "a".to_owned(), steps };
        action.check(&project(Definitions::default()), now()).err().map(|error| error.attr.unwrap())
    }

    #[test]
    fn an_invalid_step_is_named() {
        assert_eq!(invalid_attr(json!([])), None);
        assert_eq!(
            invalid_attr(json!([{"event": "a", "url": "/x", "url_matching": "regex"}, {"event": null}])),
            None
        );
        for (step, attr) in [
            (json!("x"), "steps__1"),
            (json!({"event": 5}), "steps__1"),
            (json!({"url": "x", "url_matching": "like"}), "steps__1"),
            (json!({"event": "$autocapture", "selector": "a >"}), "steps__1"),
            (json!({"properties": [{"key": "id", "type": "cohort", "value": 7}]}), "steps__1"),
        ] {
            assert_eq!(invalid_attr(json!([{"event": "a"}, step])).as_deref(), Some(attr), "{step}");
        }
        let many = vec![json!({"event": "a"}); crate::limits::ACTION_STEPS + 1];
        assert_eq!(invalid_attr(Value::Array(many)).as_deref(), Some("steps"));
    }

    #[test]
    fn a_cyclic_cohort_is_rejected() {
        let of = |id: u64| json!({"properties": {"type": "AND", "values": [{"type": "cohort", "key": "id", "value": id}]}});
        let cohort = |filters: Value| Cohort { name: "c".to_owned(), filters, ..Cohort::default() };
        let person = json!({"properties": {"type": "AND", "values": [
            {"type": "person", "key": "a", "value": ["b"], "operator": "exact"}]}});
        let with = |third: Value| Definitions {
            cohorts: [(1, cohort(of(2))), (2, cohort(of(3))), (3, cohort(third))].into_iter().collect(),
            ..Definitions::default()
        };
        assert_eq!(project(with(person)).check_cohort(1, now()), Ok(()));
        let circle = project(with(of(1)));
        for id in 1..=3 {
            let error = circle.check_cohort(id, now()).unwrap_err();
            assert!(error.detail.contains("leads back to itself"), "{error}");
            assert_eq!(error.attr.as_deref(), Some("filters"));
        }
        let gone = project(with(of(9))).check_cohort(1, now()).unwrap_err();
        assert!(gone.detail.starts_with("There is no cohort 9"), "{gone}");
    }
}
