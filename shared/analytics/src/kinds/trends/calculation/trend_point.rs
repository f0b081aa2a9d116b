//! Parses which number of a trend a people link selects.

use std::borrow::Cow;

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::text_of;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::kinds::trends::TrendsQuery;
use crate::people::decode_list;
use crate::query::{BreakdownBy, BreakdownForm, parse_integer};

/// A number of a trend: one series and breakdown value, over the query's date range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrendPoint {
    /// Index of the series.
    pub series: usize,
    /// The breakdown value: one text per dimension, or a cohort's id or `all`; `None` selects every value.
    pub value: Option<Vec<String>>,
    /// For the row of other values: the values that are not in it.
    pub kept_values: Option<Vec<Vec<String>>>,
}

/// Parses the parameters of a people link.
pub(super) fn parse_point(query: &TrendsQuery, request: &Map<String, Value>) -> CalcResult<TrendPoint> {
    let get_parameter = |key: &str| request.get(key).filter(|value| !value.is_null());
    let series = match (get_parameter("entity_order"), get_parameter("entity_id")) {
        (Some(order), _) => parse_integer(order).and_then(|order| usize::try_from(order).ok()),
        (None, Some(id)) => {
            query.series.iter().position(|series| text_of(&series.event_or_action.id()) == text_of(id))
        }
        (None, None) => Some(0),
    };
    let series = series.filter(|series| *series < query.series.len());
    let series = series.ok_or_else(|| CalcError::invalid("entity_order", "There is no such series."))?;
    let value = get_parameter("breakdown_value").map(|value| parse_texts(query, value)).transpose()?;
    let kept_values = match get_parameter("breakdown_kept") {
        None => None,
        Some(kept_values) => {
            let list = decode_list(kept_values);
            let list = list.as_array().ok_or_else(|| invalid_value("breakdown_kept"))?;
            Some(list.iter().map(|value| parse_texts(query, value)).collect::<CalcResult<Vec<_>>>()?)
        }
    };
    if kept_values.is_some() && value.is_none() {
        return Err(invalid_value("breakdown_value"));
    }
    Ok(TrendPoint { series, value, kept_values })
}

/// Parses a breakdown value to its texts.
fn parse_texts(query: &TrendsQuery, value: &Value) -> CalcResult<Vec<String>> {
    let attr = "breakdown_value";
    let text = |value: &Value| text_of(value).map(Cow::into_owned).ok_or_else(|| invalid_value(attr));
    match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        None => Err(CalcError::invalid(attr, "The query has no breakdown.")),
        Some(BreakdownBy::Dimensions { form: BreakdownForm::Several, dimensions: parts }) => {
            let list = decode_list(value);
            let list = list
                .as_array()
                .filter(|list| list.len() == parts.len())
                .ok_or_else(|| invalid_value(attr))?;
            list.iter().map(text).collect()
        }
        Some(_) => Ok(vec![text(value)?]),
    }
}

fn invalid_value(attr: &str) -> CalcError {
    CalcError::invalid(attr, "Not a value of the breakdown.")
}
