//! Parses trends queries, and the fields that funnels share with them.

use pennon_filters::dates::Interval;
use pennon_filters::dates::compare::Comparison;
use pennon_filters::dates::range::DateSpec;
use pennon_filters::error::{CalcError, CalcResult};
use serde_json::Value;

use super::breakdown::{self, InsightKind};
use super::field::{Field, RawCommon, RawSeries, RawTrends, parse_integer};
use super::{
    CommonFields, Display, EventOrAction, Math, ParsedQuery, Query, Series, TrendsQuery, formulas, math,
};
use crate::filter::{Filter, Parser};
use crate::limits;

/// Parses a trends query.
pub fn parse(raw: &RawTrends<'_>) -> CalcResult<ParsedQuery> {
    let mut parser = Parser::default();
    if raw.common.series.len() > limits::SERIES {
        let attr = raw.common.series.first().map_or("events", |series| series.attr);
        return Err(limits::too_many(attr, "series", limits::SERIES));
    }
    let common = parse_common_fields(&raw.common, &mut parser, InsightKind::Trend)?;
    let (display, is_display_explicit) = parse_display(&raw.display)?;
    let smoothing = parse_smoothing(&raw.smoothing_intervals)?;
    if raw.conversion_goal.has_content() {
        return Err(CalcError::unsupported(raw.conversion_goal.attr, "conversion goals"));
    }
    let series = raw
        .common
        .series
        .iter()
        .map(|entry| {
            let mut series = parse_series(entry, &mut parser)?;
            series.math = math::parse(series.requested_math.as_deref(), &series.math_arguments, entry.attr)?;
            Ok(series)
        })
        .collect::<CalcResult<Vec<_>>>()?;
    if series.is_empty() {
        return Ok(ParsedQuery::Empty);
    }
    let (comparison, formulas) = (parse_comparison(raw)?, formulas::parse(raw, series.len())?);
    let query = TrendsQuery { series, common, display, is_display_explicit, smoothing, comparison, formulas };
    Ok(ParsedQuery::Query(Query::Trends(query)))
}

/// Parses the comparison period. `compare_to` is ignored unless `compare` is true.
fn parse_comparison(raw: &RawTrends<'_>) -> CalcResult<Option<Comparison>> {
    if !raw.compare.boolean()? {
        return Ok(None);
    }
    Ok(Some(match raw.compare_to.text()? {
        None => Comparison::Previous,
        Some(text) => Comparison::back(text.trim(), raw.compare_to.attr)?,
    }))
}

/// Parses filters, date range, interval and breakdown.
pub fn parse_common_fields(
    raw: &RawCommon<'_>,
    parser: &mut Parser,
    insight_kind: InsightKind,
) -> CalcResult<CommonFields> {
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
        breakdown: breakdown::parse(&raw.breakdown, insight_kind)?,
    })
}

/// Parses one series, except `math`: only trends validate it.
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

/// Parses the display, and whether the request named it.
fn parse_display(field: &Field<'_>) -> CalcResult<(Display, bool)> {
    let Some(name) = field.text()? else { return Ok((Display::default(), false)) };
    match Display::from_name(name) {
        Some(display) => Ok((display, true)),
        None if name == "CalendarHeatmap" => {
            Err(CalcError::unsupported(field.attr, "the display CalendarHeatmap"))
        }
        None => Err(CalcError::invalid(
            "display",
            format!("\"{name}\" is not a display. It must be one of {}.", Display::names()),
        )),
    }
}

fn parse_smoothing(field: &Field<'_>) -> CalcResult<u32> {
    let max = i64::try_from(limits::BUCKETS).unwrap_or(i64::MAX);
    match field.integer()? {
        None => Ok(1),
        Some(count) if (1..=max).contains(&count) => Ok(u32::try_from(count).unwrap_or(1)),
        Some(_) => Err(CalcError::invalid(field.attr, format!("Must be a number from 1 to {max}."))),
    }
}
