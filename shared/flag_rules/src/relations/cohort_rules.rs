//! Which cohorts the conditions of a flag may name.
//!
//! Must stay true: a cohort that passes has members that evaluation can determine without events.

use std::collections::BTreeSet;

use pennon_filters::body::{FieldError, python};
use serde_json::Value;

use super::References;
use crate::conditions::record_ids;

/// Checks that the cohort of a property exists and that flags can evaluate it.
pub fn check(property: &Value, found: &References) -> Result<(), FieldError> {
    if !record_ids::is_cohort(property) {
        return Ok(());
    }
    let value = python::text(property.get("value").unwrap_or(&Value::Null));
    let unknown = || {
        FieldError::new("filters", "cohort_does_not_exist", format!("Cohort with id {value} does not exist"))
    };
    let id = record_ids::cohort_id(property).filter(|id| found.cohort(*id).is_some()).ok_or_else(unknown)?;
    match find_behavioral(id, found) {
        Some(name) => {
            let detail = format!("Cohort '{name}' with filters on events cannot be used in feature flags.");
            Err(FieldError::new("filters", "behavioral_cohort_found", detail))
        }
        None => Ok(()),
    }
}

/// The name of the first cohort with a criterion on events, among this one and its transitive references.
fn find_behavioral(id: i64, found: &References) -> Option<&str> {
    let mut seen = BTreeSet::new();
    let mut pending = vec![id];
    while let Some(id) = pending.pop() {
        let Some(cohort) = found.cohort(id).filter(|_| seen.insert(id)) else { continue };
        if cohort.has_event_criterion {
            return Some(&cohort.name);
        }
        pending.extend(cohort.cohorts.iter().rev());
    }
    None
}
