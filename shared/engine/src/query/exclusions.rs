//! Exclusions from raw fields, and what makes one senseless.

use serde_json::Value;

use super::field::{RawExclusion, whole};
use super::trends::series;
use super::{Exclusion, Order, Series};
use crate::error::{CalcError, CalcResult};
use crate::filter::{Filter, Parser};
use crate::limits;

/// The ranges of the exclusions of a funnel with so many steps, checked before anything else of them is read.
pub fn ranges(raw: &[RawExclusion<'_>], steps: usize, order: Order) -> CalcResult<Vec<(usize, usize)>> {
    if raw.len() > limits::EXCLUSIONS {
        return Err(limits::too_many("exclusions", "exclusions", limits::EXCLUSIONS));
    }
    let ranges = raw.iter().map(|entry| range(entry, steps)).collect::<CalcResult<Vec<_>>>()?;
    if order == Order::Unordered && ranges.iter().any(|range| *range != (0, steps - 1)) {
        return Err(invalid("Partial Exclusions not allowed in unordered funnels"));
    }
    Ok(ranges)
}

/// The exclusions of a funnel with these steps.
pub fn build(
    raw: &[RawExclusion<'_>],
    ranges: &[(usize, usize)],
    steps: &[Series],
    parser: &mut Parser,
) -> CalcResult<Vec<Exclusion>> {
    raw.iter()
        .zip(ranges)
        .map(|(entry, (from_step, to_step))| {
            let (from_step, to_step) = (*from_step, *to_step);
            let exclusion = Exclusion { series: series(&entry.series, parser)?, from_step, to_step };
            if steps[from_step..=to_step].iter().any(|step| covers(&exclusion.series, step)) {
                return Err(invalid("Exclusion steps cannot contain an event that's part of funnel steps."));
            }
            Ok(exclusion)
        })
        .collect()
}

/// Both ends, checked: the end behind the start, the start before the last step, the end within the funnel.
fn range(raw: &RawExclusion<'_>, steps: usize) -> CalcResult<(usize, usize)> {
    let step = |value: &Option<Value>| value.as_ref().and_then(whole);
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

/// True when the one means every event that the other means: the same event, and no filter that the other lacks.
pub fn covers(one: &Series, other: &Series) -> bool {
    let theirs = leaves(&other.properties);
    one.source == other.source && leaves(&one.properties).iter().all(|filter| theirs.contains(filter))
}

fn leaves(filter: &Filter) -> Vec<&Filter> {
    match filter {
        Filter::All(members) | Filter::Any(members) => members.iter().flat_map(leaves).collect(),
        leaf => vec![leaf],
    }
}

fn invalid(detail: &str) -> CalcError {
    CalcError::coded("invalid_input", None, detail)
}
