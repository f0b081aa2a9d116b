//! Parses the fields that all kinds share: filters, dates, interval, breakdown, series.

use pennon_filters::dates::Interval;
use pennon_filters::dates::compare::Comparison;
use pennon_filters::dates::range::DateSpec;
use pennon_filters::{CalcError, CalcResult};
use serde_json::Value;

use super::breakdown::{self, BreakdownRules};
use super::field::{Field, RawCommon, RawSeries, parse_integer};
use super::{CommonFields, EventOrAction, Math, Series, math};
use crate::filter::{Filter, Parser};
use crate::limits;

/// Parses filters, date range, interval and breakdown.
pub fn parse_common_fields(
    raw: &RawCommon<'_>,
    parser: &mut Parser,
    breakdown_rules: BreakdownRules,
) -> CalcResult<CommonFields> {
    let common = parse_fields_without_breakdown(raw, parser)?;
    Ok(CommonFields { breakdown: breakdown::parse(&raw.breakdown, breakdown_rules)?, ..common })
}

/// Parses filters, date range and interval, for kinds that ignore breakdowns.
pub fn parse_fields_without_breakdown(raw: &RawCommon<'_>, parser: &mut Parser) -> CalcResult<CommonFields> {
    let date = |field: &Field<'_>| field.text().map(|text| text.map(|text| text.trim().to_owned()));
    let interval = match raw.interval.text()? {
        None => Interval::default(),
        Some(name) => Interval::from_name(name.trim()).ok_or_else(|| {
            CalcError::invalid(
                raw.interval.attr,
                format!("\"{name}\" is not minute, hour, day, week or month."),
            )
        })?,
    };
    let dates = DateSpec {
        from: date(&raw.date_from)?,
        to: date(&raw.date_to)?,
        explicit: raw.explicit_date.boolean()?,
    };
    dates.validate()?;
    Ok(CommonFields {
        properties: parser.parse(raw.properties.value.as_deref(), raw.properties.attr)?,
        filter_test_accounts: raw.filter_test_accounts.boolean()?,
        dates,
        interval,
        breakdown: None,
    })
}

/// Parses the comparison period. `compare_to` is ignored unless `compare` is true.
pub fn parse_comparison(compare: &Field<'_>, compare_to: &Field<'_>) -> CalcResult<Option<Comparison>> {
    if !compare.boolean()? {
        return Ok(None);
    }
    Ok(Some(match compare_to.text()? {
        None => Comparison::Previous,
        Some(text) => Comparison::back(text.trim(), compare_to.attr)?,
    }))
}

/// Parses one series, except `math`: each kind validates it itself.
pub fn parse_series(raw: &RawSeries<'_>, parser: &mut Parser) -> CalcResult<Series> {
    let event_or_action = parse_event_or_action(raw)?;
    let text = |key| {
        let field = Field { attr: raw.attr, ..Field::of(&raw.fields, key, raw.attr) };
        field.text().map(|text| text.map(|text| text.trim().to_owned()))
    };
    let filters = parser.parse(raw.fields.get("properties"), raw.attr)?;
    let fixed_filters = parser.parse(raw.fields.get("fixedProperties"), raw.attr)?;
    Ok(Series {
        event_or_action,
        name: text("name")?,
        custom_name: text("custom_name")?,
        math: Math::Total,
        requested_math: text("math")?,
        math_arguments: math::parse_arguments(raw)?,
        properties: if fixed_filters.is_none() { filters } else { Filter::All(vec![filters, fixed_filters]) },
    })
}

/// Parses the event or action of an entry.
fn parse_event_or_action(raw: &RawSeries<'_>) -> CalcResult<EventOrAction> {
    let event = match &raw.id {
        id if raw.action => {
            let number = id.as_ref().and_then(parse_integer).and_then(|id| u64::try_from(id).ok());
            let invalid = || CalcError::invalid(raw.attr, "The id of an action is a number.");
            return number.map(EventOrAction::Action).ok_or_else(invalid);
        }
        None => None,
        Some(Value::String(name)) if name.len() > limits::NAME_BYTES => {
            return Err(limits::too_long(raw.attr, "event name", limits::NAME_BYTES));
        }
        Some(Value::String(name)) => Some(name.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(_) => return Err(CalcError::invalid(raw.attr, "The name of an event is a string or null.")),
    };
    Ok(EventOrAction::Event(event))
}
