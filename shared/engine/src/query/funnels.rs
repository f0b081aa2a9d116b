//! Funnels from raw fields.

use super::breakdown::Asker;
use super::exclusions;
use super::field::{Field, RawFunnels, RawSeries};
use super::trends::{common, series};
use super::{FunnelsQuery, Parsed, Query, Series, Window, WindowUnit};
use crate::error::{CalcError, CalcResult};
use crate::filter::Parser;
use crate::limits;

/// Units of the window when the request names no number, or one below 1.
const DEFAULT_WINDOW: i64 = 14;

/// The funnel that the fields ask for.
pub fn build(raw: &RawFunnels<'_>) -> CalcResult<Parsed> {
    let mut parser = Parser::default();
    if raw.common.series.len() > limits::STEPS {
        return Err(limits::too_many_steps());
    }
    refuse_what_changes_numbers(raw)?;
    let common = common(&raw.common, &mut parser, Asker::Funnel)?;
    if common.breakdown.is_some() {
        return Err(CalcError::unsupported(raw.common.breakdown.blamed(), "breakdowns"));
    }
    let window = window(raw)?;
    let series =
        raw.common.series.iter().map(|entry| step(entry, &mut parser)).collect::<CalcResult<Vec<_>>>()?;
    if series.is_empty() {
        return Ok(Parsed::Empty);
    }
    check_step_range(&raw.from_step, &raw.to_step, series.len())?;
    let exclusions = exclusions::build(&raw.exclusions, &series, &mut parser)?;
    Ok(Parsed::Query(Query::Funnels(FunnelsQuery { series, common, window, exclusions })))
}

fn refuse_what_changes_numbers(raw: &RawFunnels<'_>) -> CalcResult<()> {
    match raw.viz_type.text()? {
        Some("trends") => return Err(CalcError::unsupported(raw.viz_type.attr, "funnels over time")),
        Some("time_to_convert") => return Err(CalcError::unsupported(raw.viz_type.attr, "time to convert")),
        Some("steps") => {}
        Some("flow") => return Err(CalcError::unsupported(raw.viz_type.attr, "funnel flows")),
        Some(other) => return Err(unknown(&raw.viz_type, other)),
        None if raw.display.text()? == Some("ActionsLineGraph") => {
            return Err(CalcError::unsupported(raw.display.attr, "funnels over time"));
        }
        None => {}
    }
    match raw.order_type.text()? {
        None | Some("ordered") => {}
        Some(kind @ ("strict" | "unordered")) => {
            return Err(CalcError::unsupported(raw.order_type.attr, format_args!("funnels in {kind} order")));
        }
        Some(other) => return Err(unknown(&raw.order_type, other)),
    }
    if raw.group_type.integer()?.is_some() {
        return Err(CalcError::unsupported(raw.group_type.attr, "funnels of groups"));
    }
    match raw.aggregate_by_hogql.text()? {
        None | Some("person_id") => Ok(()),
        Some(_) => {
            Err(CalcError::unsupported(raw.aggregate_by_hogql.attr, "funnels of anything but persons"))
        }
    }
}

fn unknown(field: &Field<'_>, value: &str) -> CalcError {
    CalcError::invalid(field.attr, format!("\"{value}\" is not a valid choice."))
}

fn window(raw: &RawFunnels<'_>) -> CalcResult<Window> {
    let unit = match raw.window_unit.text()? {
        None => WindowUnit::Day,
        Some(name) => WindowUnit::from_name(name.trim())
            .ok_or_else(|| CalcError::invalid(raw.window_unit.attr, format!("{name} not supported")))?,
    };
    let (field, unit) = if raw.window_interval.value.is_none() && raw.window_days.value.is_some() {
        (&raw.window_days, WindowUnit::Day)
    } else {
        (&raw.window_interval, unit)
    };
    let count = field.integer()?.filter(|count| *count > 0).unwrap_or(DEFAULT_WINDOW);
    if count > limits::WINDOW_SECONDS / unit.seconds() {
        return Err(CalcError::invalid(field.attr, "The conversion window is longer than a hundred years."));
    }
    Ok(Window { count, unit })
}

fn step(raw: &RawSeries<'_>, parser: &mut Parser) -> CalcResult<Series> {
    let series = series(raw, parser)?;
    let optional = Field { attr: raw.attr, ..Field::of(&raw.fields, "optionalInFunnel", raw.attr) };
    if optional.switch()? {
        return Err(CalcError::unsupported(raw.attr, "optional steps"));
    }
    match series.math_given.as_deref() {
        Some(math) if math.starts_with("first_") => {
            Err(CalcError::unsupported(raw.attr, format_args!("math {math}")))
        }
        _ => Ok(series),
    }
}

/// `funnel_from_step` and `funnel_to_step` select nothing here, but wrong ones are refused all the same.
fn check_step_range(from: &Field<'_>, to: &Field<'_>, steps: usize) -> CalcResult<()> {
    let last = i64::try_from(steps).unwrap_or(i64::MAX) - 1;
    let (first, second) = (from.integer()?, to.integer()?);
    let error = |text: String| Err(CalcError::coded("funnel_step_range_invalid", None, text));
    if first.is_some_and(|step| !(0..last).contains(&step)) {
        return error(format!("funnelFromStep is out of bounds. It must be between 0 and {}.", last - 1));
    }
    if second.is_some_and(|step| !(1..=last).contains(&step)) {
        return error(format!("funnelToStep is out of bounds. It must be between 1 and {last}."));
    }
    if first.unwrap_or(0) >= second.unwrap_or(last.max(1)) {
        return error(
            "Funnel step range is invalid. funnelToStep should be greater than funnelFromStep.".to_owned(),
        );
    }
    Ok(())
}
