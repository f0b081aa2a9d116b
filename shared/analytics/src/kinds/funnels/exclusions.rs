//! Parses and validates the exclusions of a funnel.

use pennon_filters::error::{CalcError, CalcResult};
use serde_json::Value;

use super::limits;
use super::options::StepOrder;
use super::raw_query::RawExclusion;
use crate::filter::{Filter, Parser};
use crate::query::{Series, parse_integer, parse_series};

/// An exclusion: an event that disqualifies a path when it occurs between two steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Exclusion {
    /// The excluded event and its filters.
    pub series: Series,
    /// Index of the step after which the exclusion applies.
    pub from_step: usize,
    /// Index of the step before which the exclusion applies.
    pub to_step: usize,
}

/// Parses and validates the step ranges of all exclusions, for a funnel with `steps` steps. Called before anything else of
/// the exclusions is parsed, because the API reports range errors first.
pub fn parse_ranges(
    raw: &[RawExclusion<'_>],
    steps: usize,
    order: StepOrder,
) -> CalcResult<Vec<(usize, usize)>> {
    if raw.len() > limits::EXCLUSIONS {
        return Err(limits::too_many("exclusions", "exclusions", limits::EXCLUSIONS));
    }
    let ranges = raw.iter().map(|entry| parse_range(entry, steps)).collect::<CalcResult<Vec<_>>>()?;
    if order == StepOrder::Unordered && ranges.iter().any(|range| *range != (0, steps - 1)) {
        return Err(invalid("Partial Exclusions not allowed in unordered funnels"));
    }
    Ok(ranges)
}

/// Parses the exclusions of a funnel with these steps. `ranges` comes from [`parse_ranges`].
pub fn parse(
    raw: &[RawExclusion<'_>],
    ranges: &[(usize, usize)],
    steps: &[Series],
    parser: &mut Parser,
) -> CalcResult<Vec<Exclusion>> {
    raw.iter()
        .zip(ranges)
        .map(|(entry, (from_step, to_step))| {
            let (from_step, to_step) = (*from_step, *to_step);
            let exclusion = Exclusion { series: parse_series(&entry.series, parser)?, from_step, to_step };
            if steps[from_step..=to_step].iter().any(|step| matches_all_of(&exclusion.series, step)) {
                return Err(invalid("Exclusion steps cannot contain an event that's part of funnel steps."));
            }
            Ok(exclusion)
        })
        .collect()
}

/// Parses the range of one exclusion: start before end, start before the last step, end within the funnel.
fn parse_range(raw: &RawExclusion<'_>, steps: usize) -> CalcResult<(usize, usize)> {
    let step = |value: &Option<Value>| value.as_ref().and_then(parse_integer);
    let (Some(from), Some(to)) = (step(&raw.from_step), step(&raw.to_step)) else {
        return Err(invalid("Exclusion event needs to define funnel steps"));
    };
    let last = i64::try_from(steps).unwrap_or(i64::MAX) - 1;
    if from >= to {
        return Err(CalcError::coded(
            "funnel_exclusions_invalid",
            None,
            "Exclusion event range is invalid. End of range should be greater than start.",
        ));
    }
    if from >= last {
        return Err(invalid(
            "Exclusion event range is invalid. Start of range is greater than number of steps.",
        ));
    }
    if to > last {
        return Err(invalid(
            "Exclusion event range is invalid. End of range is greater than number of steps.",
        ));
    }
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(from), Ok(to)) => Ok((from, to)),
        _ => Err(invalid("Exclusion event range is invalid. Start of range is before the first step.")),
    }
}

/// Whether `one` matches every event that `other` matches: the same event, and only filters that `other` has as well.
pub fn matches_all_of(one: &Series, other: &Series) -> bool {
    let other_filters = leaf_filters(&other.properties);
    one.event_or_action == other.event_or_action
        && leaf_filters(&one.properties).iter().all(|filter| other_filters.contains(filter))
}

fn leaf_filters(filter: &Filter) -> Vec<&Filter> {
    match filter {
        Filter::All(members) | Filter::Any(members) => members.iter().flat_map(leaf_filters).collect(),
        leaf => vec![leaf],
    }
}

fn invalid(detail: &str) -> CalcError {
    CalcError::coded("invalid_input", None, detail)
}
