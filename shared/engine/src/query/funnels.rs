//! Funnels: their model, and how it is made from raw fields.
//!
//! Must stay true: what a combination of fields cannot mean is refused here with the contract's words, ranges of steps
//! before anything else; so a plan never meets a funnel that its scans are not made for.

use super::breakdown::Asker;
use super::exclusions::{self, covers};
use super::field::{Field, RawFunnels, RawSeries};
use super::trends::{common, series};
use super::{BreakdownBy, Common, Exclusion, Parsed, Query, Series, Window, WindowUnit};
use crate::dates::Interval;
use crate::error::{CalcError, CalcResult};
use crate::filter::Parser;
use crate::limits;

/// A funnel.
#[derive(Debug, Clone, PartialEq)]
pub struct FunnelsQuery {
    /// The steps in order, at least one.
    pub series: Vec<Series>,
    /// What is special about each step, one entry for each of the series.
    pub steps: Vec<StepRule>,
    /// What every question has.
    pub common: Common,
    /// Time allowed from the first step to the last, in the unit asked for.
    pub window: Window,
    /// In which order the steps must be taken.
    pub order: Order,
    /// Events that void a path.
    pub exclusions: Vec<Exclusion>,
    /// What is told of the paths.
    pub viz: Viz,
    /// First step of what is told over time or as times; none is the first of all. Below the last one.
    pub from_step: Option<usize>,
    /// Last step of that; none is the last of all. Above `from_step`.
    pub to_step: Option<usize>,
    /// How many bins conversion times are put into; none is chosen by their number.
    pub bin_count: Option<u32>,
    /// Groups of the type with this index are counted instead of persons.
    pub group: Option<u8>,
    /// Which of its values of the breakdown an actor counts under; means nothing without one.
    pub attribution: Attribution,
}

/// What is special about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepRule {
    /// It may be left out.
    pub optional: bool,
    /// It takes an actor's first event only.
    pub first: Option<FirstTime>,
}

/// The first of which events a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstTime {
    /// Of those of its name or action; it must pass the step's filters as well.
    Ever,
    /// Of those that pass the step's filters.
    Matching,
}

/// In which order steps must be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// One after the other, with anything between them.
    #[default]
    Ordered,
    /// One after the other, with nothing between them.
    Strict,
    /// Any.
    Unordered,
}

/// What a funnel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Viz {
    /// How many reached each step.
    #[default]
    Steps,
    /// What share got through, by period of entrance.
    Trends,
    /// How long it took.
    TimeToConvert,
}

/// Which of its values of the breakdown an actor counts under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Attribution {
    /// The first.
    #[default]
    FirstTouch,
    /// The last.
    LastTouch,
    /// Each of them, by the events that have it alone.
    AllEvents,
    /// Each that an event for this step has, which must be the one that takes it.
    Step(usize),
}

impl Order {
    const NAMES: [(&'static str, Self); 3] =
        [("ordered", Self::Ordered), ("strict", Self::Strict), ("unordered", Self::Unordered)];

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, order)| *order == self).map_or("ordered", |(name, _)| *name)
    }
}

impl Viz {
    const NAMES: [(&'static str, Self); 3] =
        [("steps", Self::Steps), ("trends", Self::Trends), ("time_to_convert", Self::TimeToConvert)];

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, viz)| *viz == self).map_or("steps", |(name, _)| *name)
    }
}

impl FirstTime {
    /// The name that requests use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ever => "first_time_for_user",
            Self::Matching => "first_time_for_user_with_filters",
        }
    }
}

impl Attribution {
    /// The name that requests use.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstTouch => "first_touch",
            Self::LastTouch => "last_touch",
            Self::AllEvents => "all_events",
            Self::Step(_) => "step",
        }
    }

    /// The step that is meant, if one is.
    pub fn step(self) -> Option<usize> {
        match self {
            Self::Step(step) => Some(step),
            _ => None,
        }
    }
}

impl FunnelsQuery {
    /// The first and the last step of what is told over time or as times.
    pub fn step_range(&self) -> (usize, usize) {
        (self.from_step.unwrap_or(0), self.to_step.unwrap_or(self.series.len() - 1))
    }
}

/// Units of the window when the request names no number, or one below 1.
const DEFAULT_WINDOW: i64 = 14;

/// Bounds of the number of bins.
const BINS: std::ops::RangeInclusive<i64> = 1..=90;

/// The funnel that the fields ask for.
pub fn build(raw: &RawFunnels<'_>) -> CalcResult<Parsed> {
    let mut parser = Parser::default();
    let viz = viz(raw)?;
    if raw.common.series.len() > limits::STEPS {
        // The contract's refusal is not for funnels over time.
        if viz == Viz::Trends {
            let attr = raw.common.series.first().map_or("events", |series| series.attr);
            let most = limits::STEPS;
            return Err(CalcError::unsupported(attr, format!("funnels over time of more than {most} steps")));
        }
        return Err(limits::too_many_steps());
    }
    let order = choice(&raw.order_type, &Order::NAMES)?.unwrap_or_default();
    let group = group(&raw.group_type)?;
    refuse_other_actors(&raw.aggregate_by_hogql)?;
    if raw.compare.switch()? {
        return Err(CalcError::unsupported(raw.compare.attr, "a funnel beside that of an earlier period"));
    }
    let mut common = common(&raw.common, &mut parser, Asker::Funnel)?;
    if let Some(breakdown) = &mut common.breakdown {
        breakdown.limit = breakdown.limit.or(Some(raw.default_limit));
    }
    if viz == Viz::Trends && common.interval == Interval::Minute {
        common.interval = Interval::Hour;
    }
    let window = window(raw)?;
    let count = raw.common.series.len();
    if count == 0 {
        return Ok(Parsed::Empty);
    }
    let (from_step, to_step) = step_range(raw, viz, count)?;
    let bin_count = raw.bin_count.integer()?.map(|bins| bins.clamp(*BINS.start(), *BINS.end()));
    let bin_count = bin_count.and_then(|bins| u32::try_from(bins).ok());
    let attribution = attribution(raw, &common, order, count)?;
    let ranges = exclusions::ranges(&raw.exclusions, count, order)?;
    let series =
        raw.common.series.iter().map(|entry| series(entry, &mut parser)).collect::<CalcResult<Vec<_>>>()?;
    let steps = raw.common.series.iter().zip(&series).map(|(raw, step)| rule(raw, step));
    let steps = steps.collect::<CalcResult<Vec<_>>>()?;
    check_optional(&steps, &series, order, viz)?;
    let exclusions = exclusions::build(&raw.exclusions, &ranges, &series, &mut parser)?;
    Ok(Parsed::Query(Query::Funnels(FunnelsQuery {
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
        group,
        attribution,
    })))
}

/// An explicit type wins over the display, of which a line means a funnel over time.
fn viz(raw: &RawFunnels<'_>) -> CalcResult<Viz> {
    match raw.viz_type.text()? {
        Some("flow") => Err(CalcError::unsupported(raw.viz_type.attr, "funnel flows")),
        None if raw.display.text()? == Some("ActionsLineGraph") => Ok(Viz::Trends),
        _ => Ok(choice(&raw.viz_type, &Viz::NAMES)?.unwrap_or_default()),
    }
}

/// One of several names; none when the field is absent.
fn choice<T: Copy>(field: &Field<'_>, names: &[(&str, T)]) -> CalcResult<Option<T>> {
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

fn group(field: &Field<'_>) -> CalcResult<Option<u8>> {
    let Some(index) = field.integer()? else { return Ok(None) };
    match u8::try_from(index) {
        Ok(index) if u64::from(index) < limits::GROUP_TYPES => Ok(Some(index)),
        _ => Err(limits::invalid_group_type(field.attr, &index.into())),
    }
}

fn refuse_other_actors(field: &Field<'_>) -> CalcResult<()> {
    match field.text()? {
        None | Some("person_id") => Ok(()),
        Some(_) => Err(CalcError::unsupported(field.attr, "funnels of anything but persons and groups")),
    }
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

/// Attribution says something only of a breakdown by values.
fn attribution(raw: &RawFunnels<'_>, common: &Common, order: Order, steps: usize) -> CalcResult<Attribution> {
    let names = ["first_touch", "last_touch", "all_events", "step"].map(|name| (name, name));
    let name = choice(&raw.attribution_type, &names)?;
    if !common.breakdown.as_ref().is_some_and(|breakdown| matches!(breakdown.by, BreakdownBy::Parts { .. })) {
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
                Some(_) if order == Order::Unordered => {
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

/// What is special about a step. Of `math` a funnel knows first times only.
fn rule(raw: &RawSeries<'_>, step: &Series) -> CalcResult<StepRule> {
    let optional = Field { attr: raw.attr, ..Field::of(&raw.fields, "optionalInFunnel", raw.attr) };
    let first = match step.math_given.as_deref() {
        Some("first_time_for_user") => Some(FirstTime::Ever),
        Some("first_time_for_user_with_filters") => Some(FirstTime::Matching),
        _ => None,
    };
    Ok(StepRule { optional: optional.switch()?, first })
}

/// Where steps may be optional: in a row, told as steps, not the first, and not where the next one would always win.
fn check_optional(steps: &[StepRule], series: &[Series], order: Order, viz: Viz) -> CalcResult<()> {
    let error = |text: &str| Err(CalcError::coded("funnel_optional_steps_invalid", None, text));
    if !steps.iter().any(|step| step.optional) {
        return Ok(());
    }
    if order == Order::Unordered || viz != Viz::Steps {
        return error(
            "Optional funnel steps are only supported in funnels with step order Sequential or Strict and the graph \
             type \"Conversion Steps\".",
        );
    }
    if steps.first().is_some_and(|step| step.optional) {
        return error("The first step of a funnel cannot be optional.");
    }
    for (rules, pair) in steps.windows(2).zip(series.windows(2)) {
        if rules[0].optional && !rules[1].optional && covers(&pair[1], &pair[0]) {
            return error("An optional step cannot be the same as the following required step.");
        }
    }
    Ok(())
}

/// `funnel_from_step` and `funnel_to_step`: wrong ones are refused also where nothing is selected by them.
fn step_range(raw: &RawFunnels<'_>, viz: Viz, steps: usize) -> CalcResult<(Option<usize>, Option<usize>)> {
    let last = i64::try_from(steps).unwrap_or(i64::MAX) - 1;
    let (first, second) = (raw.from_step.integer()?, raw.to_step.integer()?);
    let error = |text: String| Err(CalcError::coded("funnel_step_range_invalid", None, text));
    let reachable = second.map_or(last > 0, |step| (1..=last).contains(&step));
    if viz == Viz::TimeToConvert && !reachable {
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
