//! The funnels query and its parser.
//!
//! Must stay true: invalid combinations of fields are rejected here with the error texts of the API contract, step ranges
//! before anything else. So the scans never see a funnel that they do not support.

use pennon_filters::dates::Interval;
use pennon_filters::{CalcError, CalcResult};

use super::exclusions::{self, Exclusion, matches_all_of};
use super::limits;
use super::options::{Attribution, FirstTime, FunnelVizType, StepOptions, StepOrder};
use super::raw_query::RawFunnels;
use super::window::{ConversionWindow, WindowUnit};
use crate::filter::Parser;
use crate::kinds::ParsedQuery;
use crate::query::{
    BreakdownBy, BreakdownRules, CommonFields, Field, KeyLists, RawSeries, Series, parse_common_fields,
    parse_series,
};

/// A funnels query.
#[derive(Debug, Clone, PartialEq)]
pub struct FunnelsQuery {
    /// The steps in order, at least one.
    pub series: Vec<Series>,
    /// The options of each step; as many as `series`.
    pub steps: Vec<StepOptions>,
    /// Filters, date range, interval and breakdown.
    pub common: CommonFields,
    /// Conversion window: the time allowed from the first step to the last.
    pub window: ConversionWindow,
    /// The order in which the steps must happen.
    pub order: StepOrder,
    /// Events that disqualify a path.
    pub exclusions: Vec<Exclusion>,
    /// The result: counts per step, conversion over time, or conversion times.
    pub viz: FunnelVizType,
    /// First step of a conversion, for results over time and conversion times; `None` is the first. Less than `to_step`.
    pub from_step: Option<usize>,
    /// Last step of a conversion; `None` is the last.
    pub to_step: Option<usize>,
    /// Number of bins of conversion times; `None` chooses it from the number of samples.
    pub bin_count: Option<u32>,
    /// Counts groups of the type with this index instead of persons.
    pub group_type_index: Option<u8>,
    /// Selects the breakdown value that an actor is attributed to. Unused without a breakdown.
    pub attribution: Attribution,
}

impl FunnelsQuery {
    /// The options of a step.
    pub fn step_options(&self, order: usize) -> StepOptions {
        self.steps.get(order).copied().unwrap_or_default()
    }

    /// The first and the last step of a conversion.
    pub fn step_range(&self) -> (usize, usize) {
        (self.from_step.unwrap_or(0), self.to_step.unwrap_or(self.series.len() - 1))
    }
}

/// Default length of the conversion window, also used for values below 1.
const DEFAULT_WINDOW_UNITS: i64 = 14;

/// Allowed number of bins.
const BINS: std::ops::RangeInclusive<i64> = 1..=90;

/// A breakdown has one or more keys of a single type.
const BREAKDOWN_RULES: BreakdownRules = BreakdownRules {
    has_bins: false,
    key_lists: KeyLists::AtMost(limits::BREAKDOWN_KEYS),
    mixed_types_error: Some("The breakdowns of a funnel must all be of one type."),
    inherits_fields: true,
};

/// Parses a funnels query.
pub fn parse(raw: &RawFunnels<'_>) -> CalcResult<ParsedQuery> {
    Ok(parse_funnel(raw)?.map_or(ParsedQuery::Empty, |funnel| ParsedQuery::Query(funnel.into())))
}

/// Parses a funnels query; `None` without steps.
pub fn parse_funnel(raw: &RawFunnels<'_>) -> CalcResult<Option<FunnelsQuery>> {
    let mut parser = Parser::default();
    let viz = parse_viz(raw)?;
    if raw.common.series.len() > limits::STEPS {
        // The contract's error for too many steps does not apply to funnels over time.
        if viz == FunnelVizType::Trends {
            let attr = raw.common.series.first().map_or("events", |series| series.attr);
            let max = limits::STEPS;
            return Err(CalcError::unsupported(attr, format!("funnels over time of more than {max} steps")));
        }
        return Err(limits::too_many_steps());
    }
    let order = parse_choice(&raw.order_type, &StepOrder::NAMES)?.unwrap_or_default();
    let group_type_index = raw.group_type.group_type_index()?;
    reject_other_actors(&raw.aggregate_by_hogql)?;
    if raw.compare.boolean()? {
        return Err(CalcError::unsupported(raw.compare.attr, "a funnel beside that of an earlier period"));
    }
    let mut common = parse_common_fields(&raw.common, &mut parser, BREAKDOWN_RULES)?;
    if let Some(breakdown) = &mut common.breakdown {
        breakdown.limit = breakdown.limit.or(Some(raw.default_limit));
    }
    if viz == FunnelVizType::Trends && common.interval == Interval::Minute {
        common.interval = Interval::Hour;
    }
    let window = parse_window(raw)?;
    let count = raw.common.series.len();
    if count == 0 {
        return Ok(None);
    }
    let (from_step, to_step) = parse_step_range(raw, viz, count)?;
    let bin_count = raw.bin_count.integer()?.map(|bins| bins.clamp(*BINS.start(), *BINS.end()));
    let bin_count = bin_count.and_then(|bins| u32::try_from(bins).ok());
    let attribution = parse_attribution(raw, &common, order, count)?;
    let ranges = exclusions::parse_ranges(&raw.exclusions, count, order)?;
    let series = raw
        .common
        .series
        .iter()
        .map(|entry| parse_series(entry, &mut parser))
        .collect::<CalcResult<Vec<_>>>()?;
    let steps = raw.common.series.iter().zip(&series).map(|(raw, step)| step_options(raw, step));
    let steps = steps.collect::<CalcResult<Vec<_>>>()?;
    validate_optional_steps(&steps, &series, order, viz)?;
    let exclusions = exclusions::parse(&raw.exclusions, &ranges, &series, &mut parser)?;
    Ok(Some(FunnelsQuery {
        series,
        steps,
        common,
        window,
        order,
        exclusions,
        viz,
        from_step,
        to_step,
        bin_count,
        group_type_index,
        attribution,
    }))
}

/// Parses the visualization. `funnel_viz_type` takes precedence; the display `ActionsLineGraph` means over time.
fn parse_viz(raw: &RawFunnels<'_>) -> CalcResult<FunnelVizType> {
    match raw.viz_type.text()? {
        Some("flow") => {
            let instead = "Use a PathsQuery with funnelPathsFilter: what people do before, between and after the steps.";
            Err(CalcError::unsupported(raw.viz_type.attr, "funnel flows").instead(instead))
        }
        None if raw.display.text()? == Some("ActionsLineGraph") => Ok(FunnelVizType::Trends),
        _ => Ok(parse_choice(&raw.viz_type, &FunnelVizType::NAMES)?.unwrap_or_default()),
    }
}

/// Parses one of several names; `None` if the field is absent.
fn parse_choice<T: Copy>(field: &Field<'_>, names: &[(&str, T)]) -> CalcResult<Option<T>> {
    let Some(text) = field.text()? else { return Ok(None) };
    match names.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(Some(*value)),
        None => {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            let detail = format!("\"{text}\" is not a valid choice. It must be one of {}.", names.join(", "));
            Err(CalcError::invalid(field.attr, detail))
        }
    }
}

fn reject_other_actors(field: &Field<'_>) -> CalcResult<()> {
    match field.text()? {
        None | Some("person_id") => Ok(()),
        Some(_) => {
            let instead = "Use aggregation_group_type_index to count groups instead of persons; for what happens within a \
                session, use a conversion window of 30 minutes.";
            Err(CalcError::unsupported(field.attr, "funnels of anything but persons and groups")
                .instead(instead))
        }
    }
}

fn parse_window(raw: &RawFunnels<'_>) -> CalcResult<ConversionWindow> {
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
    let count = field.integer()?.filter(|count| *count > 0).unwrap_or(DEFAULT_WINDOW_UNITS);
    if count > limits::WINDOW_SECONDS / unit.seconds() {
        return Err(CalcError::invalid(field.attr, "The conversion window is longer than a hundred years."));
    }
    Ok(ConversionWindow { count, unit })
}

/// Parses the attribution, which applies only to a breakdown by values.
fn parse_attribution(
    raw: &RawFunnels<'_>,
    common: &CommonFields,
    order: StepOrder,
    steps: usize,
) -> CalcResult<Attribution> {
    let names = Attribution::NAMES.map(|name| (name, name));
    let name = parse_choice(&raw.attribution_type, &names)?;
    if !common
        .breakdown
        .as_ref()
        .is_some_and(|breakdown| matches!(breakdown.by, BreakdownBy::Dimensions { .. }))
    {
        return Ok(Attribution::default());
    }
    let attr = raw.attribution_value.attr;
    Ok(match name {
        Some("last_touch") => Attribution::LastTouch,
        Some("all_events") => Attribution::AllEvents,
        Some("step") => {
            let step = raw.attribution_value.integer()?.and_then(|step| usize::try_from(step).ok());
            match step.filter(|step| *step < steps) {
                Some(0) => Attribution::Step(0),
                Some(_) if order == StepOrder::Unordered => {
                    let text =
                        "Only the first step can be used for breakdown attribution in unordered funnels";
                    return Err(CalcError::coded("invalid_input", None, text));
                }
                Some(step) => Attribution::Step(step),
                None => {
                    let last = steps - 1;
                    return Err(CalcError::invalid(
                        attr,
                        format!("Must be the index of a step: 0 to {last}."),
                    ));
                }
            }
        }
        _ => Attribution::FirstTouch,
    })
}

/// Parses the options of a step. Of all values of `math`, funnels use only the first-time ones.
fn step_options(raw: &RawSeries<'_>, step: &Series) -> CalcResult<StepOptions> {
    let optional = Field { attr: raw.attr, ..Field::of(&raw.fields, "optionalInFunnel", raw.attr) };
    let first = match step.requested_math.as_deref() {
        Some("first_time_for_user") => Some(FirstTime::Ever),
        Some("first_time_for_user_with_filters") => Some(FirstTime::Matching),
        _ => None,
    };
    Ok(StepOptions { optional: optional.boolean()?, first })
}

/// Validates optional steps: not in unordered funnels, only with `Steps` visualization, not the first step, and not where
/// the following required step matches the same events.
fn validate_optional_steps(
    steps: &[StepOptions],
    series: &[Series],
    order: StepOrder,
    viz: FunnelVizType,
) -> CalcResult<()> {
    let error = |text: &str| Err(CalcError::coded("funnel_optional_steps_invalid", None, text));
    if !steps.iter().any(|step| step.optional) {
        return Ok(());
    }
    if order == StepOrder::Unordered || viz != FunnelVizType::Steps {
        return error(
            "Optional funnel steps are only supported in funnels with step order Sequential or Strict and the graph \
             type \"Conversion Steps\".",
        );
    }
    if steps.first().is_some_and(|step| step.optional) {
        return error("The first step of a funnel cannot be optional.");
    }
    for (rules, pair) in steps.windows(2).zip(series.windows(2)) {
        if rules[0].optional && !rules[1].optional && matches_all_of(&pair[1], &pair[0]) {
            return error("An optional step cannot be the same as the following required step.");
        }
    }
    Ok(())
}

/// Parses `funnel_from_step` and `funnel_to_step`. Invalid ones are rejected even where the visualization ignores them.
fn parse_step_range(
    raw: &RawFunnels<'_>,
    viz: FunnelVizType,
    steps: usize,
) -> CalcResult<(Option<usize>, Option<usize>)> {
    let last = i64::try_from(steps).unwrap_or(i64::MAX) - 1;
    let (first, second) = (raw.from_step.integer()?, raw.to_step.integer()?);
    let error = |text: String| Err(CalcError::coded("funnel_step_range_invalid", None, text));
    let reachable = second.map_or(last > 0, |step| (1..=last).contains(&step));
    if viz == FunnelVizType::TimeToConvert && !reachable {
        let choices: Vec<String> = (1..=last).map(|step| step.to_string()).collect();
        let choices = choices.join(", ");
        return Err(CalcError::coded(
            "invalid_input",
            None,
            format!("Filter parameter funnel_to_step can only be one of {choices} for time to convert!"),
        ));
    }
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
    let index = |step: Option<i64>| step.and_then(|step| usize::try_from(step).ok());
    Ok((index(first), index(second)))
}
