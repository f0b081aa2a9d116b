//! Parses which row of a retention result a people link selects.

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::text_of;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::result::OTHER;
use crate::kinds::retention::RetentionQuery;
use crate::query::Field;

/// A row of a retention result, or one cell of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionPoint {
    /// The row; `None` for one that no result has.
    pub(super) period: Option<u32>,
    /// The breakdown value; the empty text without a breakdown.
    pub(super) value: String,
    /// The column whose actors are listed; `None` for all of the row.
    pub(super) column: Option<i64>,
}

/// Parses the parameters of a people link.
pub(super) fn parse_point(
    query: &RetentionQuery,
    request: &Map<String, Value>,
) -> CalcResult<RetentionPoint> {
    const VALUE: &str = "breakdown_value";
    let value = request.get(VALUE).filter(|value| !value.is_null());
    let value = match (&query.common.breakdown, value) {
        (None, None) => String::new(),
        (None, Some(value)) if value.as_str() == Some("") => String::new(),
        (None, Some(_)) => return Err(CalcError::invalid(VALUE, "The query has no breakdown.")),
        (Some(_), None) => {
            let detail = "The value of the breakdown is required: breakdown_value.";
            return Err(CalcError::coded("required", Some(VALUE), detail));
        }
        (Some(_), Some(value)) => match text_of(value) {
            Some(text) if text == OTHER => {
                let detail = "The combined other values have no list of people. Raise breakdown_limit to list them by value.";
                return Err(CalcError::invalid(VALUE, detail));
            }
            Some(text) => text.into_owned(),
            None => return Err(CalcError::invalid(VALUE, "Not a value of the breakdown.")),
        },
    };
    let number = |name: &'static str| Field::of(request, name, name).integer();
    let period = number("selected_interval")?.unwrap_or(0);
    Ok(RetentionPoint { period: u32::try_from(period).ok(), value, column: number("return_interval")? })
}
