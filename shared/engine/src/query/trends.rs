//! Trends from raw fields, and the parts of the model that funnels share.

use serde_json::Value;

use super::breakdown::{self, Asker};
use super::field::{Field, RawCommon, RawSeries, RawTrends, whole};
use super::{Common, Display, EventSource, Math, Parsed, Query, Series, TrendsQuery};
use super::{formulas, math};
use crate::dates::Interval;
use crate::dates::compare::Comparison;
use crate::dates::range::DateSpec;
use crate::error::{CalcError, CalcResult};
use crate::filter::{Filter, Parser};
use crate::limits;

/// The trend that the fields ask for.
pub fn build(raw: &RawTrends<'_>) -> CalcResult<Parsed> {
    let mut parser = Parser::default();
    if raw.common.series.len() > limits::SERIES {
        let attr = raw.common.series.first().map_or("events", |series| series.attr);
        return Err(limits::too_many(attr, "series", limits::SERIES));
    }
    let common = common(&raw.common, &mut parser, Asker::Trend)?;
    let (display, display_given) = display(&raw.display)?;
    let smoothing = smoothing(&raw.smoothing_intervals)?;
    if raw.conversion_goal.says_something() {
        return Err(CalcError::unsupported(raw.conversion_goal.attr, "conversion goals"));
    }
    let series = raw
        .common
        .series
        .iter()
        .map(|entry| {
            let mut series = series(entry, &mut parser)?;
            series.math = math::math(series.math_given.as_deref(), &series.math_arguments, entry.attr)?;
            Ok(series)
        })
        .collect::<CalcResult<Vec<_>>>()?;
    if series.is_empty() {
        return Ok(Parsed::Empty);
    }
    let (comparison, formulas) = (comparison(raw)?, formulas::parse(raw, series.len())?);
    let query = TrendsQuery { series, common, display, display_given, smoothing, comparison, formulas };
    Ok(Parsed::Query(Query::Trends(query)))
}

/// The earlier period; how far back it lies counts only where one is asked for.
fn comparison(raw: &RawTrends<'_>) -> CalcResult<Option<Comparison>> {
    if !raw.compare.switch()? {
        return Ok(None);
    }
    Ok(Some(match raw.compare_to.text()? {
        None => Comparison::Previous,
        Some(text) => Comparison::back(text.trim(), raw.compare_to.attr)?,
    }))
}

/// Filters, range, interval and breakdown.
pub fn common(raw: &RawCommon<'_>, parser: &mut Parser, asker: Asker) -> CalcResult<Common> {
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
        explicit: raw.explicit_date.switch()?,
    };
    dates.validate()?;
    Ok(Common {
        properties: parser.parse(raw.properties.value.as_deref(), raw.properties.attr)?,
        filter_test_accounts: raw.filter_test_accounts.switch()?,
        dates,
        interval,
        breakdown: breakdown::build(&raw.breakdown, asker)?,
    })
}

/// One series, its `math` not yet judged.
pub fn series(raw: &RawSeries<'_>, parser: &mut Parser) -> CalcResult<Series> {
    let source = source(raw)?;
    let text = |key| {
        let field = Field { attr: raw.attr, ..Field::of(&raw.fields, key, raw.attr) };
        field.text().map(|text| text.map(|text| text.trim().to_owned()))
    };
    let own = parser.parse(raw.fields.get("properties"), raw.attr)?;
    let fixed = parser.parse(raw.fields.get("fixedProperties"), raw.attr)?;
    Ok(Series {
        source,
        name: text("name")?,
        custom_name: text("custom_name")?,
        math: Math::Total,
        math_given: text("math")?,
        math_arguments: math::arguments(raw)?,
        properties: if fixed.is_none() { own } else { Filter::All(vec![own, fixed]) },
    })
}

/// Which events an entry means.
fn source(raw: &RawSeries<'_>) -> CalcResult<EventSource> {
    let event = match &raw.id {
        id if raw.action => {
            let number = id.as_ref().and_then(whole).and_then(|id| u64::try_from(id).ok());
            let wrong = || CalcError::invalid(raw.attr, "The id of an action is a number.");
            return number.map(EventSource::Action).ok_or_else(wrong);
        }
        None => None,
        Some(Value::String(name)) if name.len() > limits::NAME_BYTES => {
            return Err(limits::too_long(raw.attr, "event name", limits::NAME_BYTES));
        }
        Some(Value::String(name)) => Some(name.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(_) => return Err(CalcError::invalid(raw.attr, "The name of an event is a string or null.")),
    };
    Ok(EventSource::Event(event))
}

/// The display, and whether the request named it.
fn display(field: &Field<'_>) -> CalcResult<(Display, bool)> {
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

fn smoothing(field: &Field<'_>) -> CalcResult<u32> {
    let most = i64::try_from(limits::BUCKETS).unwrap_or(i64::MAX);
    match field.integer()? {
        None => Ok(1),
        Some(count) if (1..=most).contains(&count) => Ok(u32::try_from(count).unwrap_or(1)),
        Some(_) => Err(CalcError::invalid(field.attr, format!("Must be a number from 1 to {most}."))),
    }
}
