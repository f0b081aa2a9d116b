//! The filters of the list of cohorts.

use std::collections::BTreeSet;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;

use crate::resource::Row;

/// Which cohorts a list shows; all conditions have to hold. The search is every list's.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    /// Only lists, or only rules.
    is_static: Option<bool>,
    created_by: Option<u64>,
    /// Not those that look at events, by themselves or through others.
    hides_behavioral: bool,
}

impl Listed {
    /// Reads the query parameters.
    pub fn of(call: &Call) -> ApiResult<Listed> {
        let some = |name: &str| call.query_value(name).filter(|value| !value.is_empty());
        let user = |text: &str| {
            let wrong =
                || ApiError::invalid("invalid_input", "A valid integer is required.", Some("created_by_id"));
            text.trim().parse().map_err(|_| wrong())
        };
        Ok(Listed {
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

    /// Leaves those that the list shows.
    pub fn filter(&self, rows: &mut Vec<Row>) {
        let hidden = if self.hides_behavioral { behavioral(rows) } else { BTreeSet::new() };
        rows.retain(|row| {
            self.is_static.is_none_or(|is_static| row.is_static == is_static)
                && self.created_by.is_none_or(|user| row.created_by == Some(user))
                && !hidden.contains(&row.id)
        });
    }
}

/// The cohorts that look at events, and all that name them, at any depth.
fn behavioral(rows: &[Row]) -> BTreeSet<u64> {
    let first = rows.iter().filter(|row| row.behavioral).map(|row| row.id).collect();
    super::uses::naming(rows, first)
}
