//! Which number of a trend a link means.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::error::{CalcError, CalcResult};
use crate::query::{BreakdownBy, Form, TrendsQuery, whole};
use crate::text::text_of;

/// A number of a trend: of one series, over the range of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrendPoint {
    /// Index of the series.
    pub series: usize,
    /// The value of the breakdown: a text for each part, or a cohort's id or `all`; none for every value.
    pub value: Option<Vec<String>>,
    /// For the row of the rest: the values that are not in it.
    pub kept: Option<Vec<Vec<String>>>,
}

/// The number that the parameters of a link choose.
pub(crate) fn point(query: &TrendsQuery, request: &Map<String, Value>) -> CalcResult<TrendPoint> {
    let given = |key: &str| request.get(key).filter(|value| !value.is_null());
    let series = match (given("entity_order"), given("entity_id")) {
        (Some(order), _) => whole(order).and_then(|order| usize::try_from(order).ok()),
        (None, Some(id)) => {
            query.series.iter().position(|series| text_of(&series.source.id()) == text_of(id))
        }
        (None, None) => Some(0),
    };
    let series = series.filter(|series| *series < query.series.len());
    let series = series.ok_or_else(|| CalcError::invalid("entity_order", "There is no such series."))?;
    let value = given("breakdown_value").map(|value| texts(query, value)).transpose()?;
    let kept = match given("breakdown_kept") {
        None => None,
        Some(kept) => {
            let list = decoded(kept);
            let list = list.as_array().ok_or_else(|| wrong("breakdown_kept"))?;
            Some(list.iter().map(|value| texts(query, value)).collect::<CalcResult<Vec<_>>>()?)
        }
    };
    if kept.is_some() && value.is_none() {
        return Err(wrong("breakdown_value"));
    }
    Ok(TrendPoint { series, value, kept })
}

/// A value of the breakdown as its texts.
fn texts(query: &TrendsQuery, value: &Value) -> CalcResult<Vec<String>> {
    let attr = "breakdown_value";
    let text = |value: &Value| text_of(value).map(Cow::into_owned).ok_or_else(|| wrong(attr));
    match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        None => Err(CalcError::invalid(attr, "The question has no breakdown.")),
        Some(BreakdownBy::Parts { form: Form::Several, parts }) => {
            let list = decoded(value);
            let list = list.as_array().filter(|list| list.len() == parts.len()).ok_or_else(|| wrong(attr))?;
            list.iter().map(text).collect()
        }
        Some(_) => Ok(vec![text(value)?]),
    }
}

/// Lists may come as JSON text.
fn decoded(value: &Value) -> Value {
    match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    }
}

fn wrong(attr: &str) -> CalcError {
    CalcError::invalid(attr, "Not a value of the breakdown.")
}
