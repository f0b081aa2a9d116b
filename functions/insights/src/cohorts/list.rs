//! The filters of the list of cohorts.

use std::collections::BTreeSet;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;

use crate::resource::SummaryRow;

/// The filter of a list of cohorts, beside the search.
#[derive(Debug, Clone, Default)]
pub struct CohortListFilter {
    /// Only static (`true`) or only dynamic (`false`) cohorts.
    is_static: Option<bool>,
    created_by: Option<u64>,
    /// Without cohorts that have criteria on events, directly or transitively.
    hides_behavioral: bool,
}

impl CohortListFilter {
    /// Parses the query parameters.
    pub fn parse(call: &Call) -> ApiResult<CohortListFilter> {
        let some = |name: &str| call.query_value(name).filter(|value| !value.is_empty());
        let user = |text: &str| {
            let wrong =
                || ApiError::invalid("invalid_input", "A valid integer is required.", Some("created_by_id"));
            text.trim().parse().map_err(|_| wrong())
        };
        Ok(CohortListFilter {
            is_static: match some("type") {
                Some("static") => Some(true),
                Some("dynamic") => Some(false),
                _ => None,
            },
            created_by: some("created_by_id").map(user).transpose()?,
            hides_behavioral: some("hide_behavioral_cohorts")
                .is_some_and(|text| text.eq_ignore_ascii_case("true")),
        })
    }

    /// Removes the rows that do not match.
    pub fn apply(&self, rows: &mut Vec<SummaryRow>) {
        let hidden = if self.hides_behavioral { behavioral(rows) } else { BTreeSet::new() };
        rows.retain(|row| {
            self.is_static.is_none_or(|is_static| row.is_static == is_static)
                && self.created_by.is_none_or(|user| row.created_by == Some(user))
                && !hidden.contains(&row.id)
        });
    }
}

/// The cohorts with criteria on events, and all that refer to them, at any depth.
fn behavioral(rows: &[SummaryRow]) -> BTreeSet<u64> {
    let first = rows.iter().filter(|row| row.behavioral).map(|row| row.id).collect();
    super::flag_references::with_dependents(rows, first)
}
