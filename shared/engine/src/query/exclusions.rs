//! Exclusions from raw fields, and what makes one senseless.

use serde_json::Value;

use super::field::{RawExclusion, whole};
use super::trends::series;
use super::{Exclusion, Series};
use crate::error::{CalcError, CalcResult};
use crate::filter::{Filter, Parser};
use crate::limits;

/// The exclusions of a funnel with these steps.
pub fn build(raw: &[RawExclusion<'_>], steps: &[Series], parser: &mut Parser) -> CalcResult<Vec<Exclusion>> {
    if raw.len() > limits::EXCLUSIONS {
        return Err(limits::too_many("exclusions", "exclusions", limits::EXCLUSIONS));
    }
    let ranges = raw.iter().map(|entry| range(entry, steps.len())).collect::<CalcResult<Vec<_>>>()?;
    raw.iter()
        .zip(ranges)
        .map(|(entry, (from_step, to_step))| {
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

/// True when every event that takes the step is excluded: the same event, and no filter that the step lacks.
fn covers(exclusion: &Series, step: &Series) -> bool {
    let theirs = leaves(&step.properties);
    exclusion.source == step.source
        && leaves(&exclusion.properties).iter().all(|filter| theirs.contains(filter))
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
