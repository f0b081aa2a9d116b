//! Cohorts as JSON of responses.

use pennon_core::clock::timestamp;
use serde_json::{Value, json};

use super::CohortRecord;

/// The JSON of a cohort. It never contains the list of members.
pub fn cohort_json(cohort: &CohortRecord) -> Value {
    let filters = match &cohort.filters {
        Value::Object(filters) if !filters.is_empty() => cohort.filters.clone(),
        _ => {
            let rules = cohort.criteria().filters;
            if rules.get("properties").is_some() { rules } else { json!({"properties": {}}) }
        }
    };
    let groups = if cohort.groups.is_null() { json!([]) } else { cohort.groups.clone() };
    json!({
        "id": cohort.id,
        "name": cohort.name,
        "description": cohort.description,
        "groups": groups,
        "deleted": cohort.deleted,
        "filters": filters,
        "query": null,
        // Members are calculated for each query, never in the background.
        "is_calculating": false,
        "created_by": cohort.created_by,
        "created_at": timestamp(cohort.created_at),
        "last_calculation": cohort.last_calculation.map(timestamp),
        "errors_calculating": cohort.errors_calculating,
        "count": cohort.count,
        "is_static": cohort.is_static,
        "cohort_type": null,
        "experiment_set": [],
    })
}
