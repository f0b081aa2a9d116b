//! What each actor did from its exposure on: whether it converted, or a number.

use pennon_filters::error::CalcResult;
use pennon_filters::text::{number_of, text_length};
use pennon_filters::work_budget::WorkBudget;

use super::exposures::Exposures;
use super::{CompiledFlagImpact, CompiledMetric, counted_events};
use crate::compiler::matcher::Matcher;
use crate::kinds::flag_impact::metric::TrendValue;
use crate::mask::Mask;
use crate::scan::{Column, ColumnRef, Partition};

/// What an actor did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ActorValue {
    /// Whether it completed the funnel, or has an event of the series.
    pub(super) converted: bool,
    /// Its number, for a mean.
    pub(super) number: f64,
}

/// The value of each actor of a partition. Those of actors that did not see exactly one variant are zero.
pub(super) fn calculate(
    impact: &CompiledFlagImpact,
    partition: &Partition,
    exposures: &Exposures,
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<ActorValue>> {
    let mut values = vec![ActorValue::default(); exposures.actors()];
    if exposures.names.is_empty() {
        return Ok(values);
    }
    match &impact.metric {
        CompiledMetric::Funnel { funnel, window, last } => {
            let counted = counted_events::keep(partition, exposures, *window, work)?;
            funnel.for_each_outcome(&counted, work, |outcome| {
                if let Some(value) = values.get_mut(outcome.actor as usize) {
                    value.converted |= outcome.steps >> last & 1 != 0;
                }
            })?;
        }
        CompiledMetric::Trend { matcher: Some(matcher), value, number } => {
            add_numbers(impact, (matcher, value, number.as_ref()), partition, exposures, &mut values, work)?;
        }
        CompiledMetric::Trend { matcher: None, .. } => {}
    }
    Ok(values)
}

/// Adds the numbers of all matching rows to their actors.
fn add_numbers(
    impact: &CompiledFlagImpact,
    (matcher, value, number): (&Matcher, &TrendValue, Option<&ColumnRef>),
    partition: &Partition,
    exposures: &Exposures,
    values: &mut [ActorValue],
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    let to = impact.bounds.1;
    for run in &partition.runs {
        let mask = matcher.mask(run, work)?;
        if mask == Mask::Nothing {
            continue;
        }
        let mask = mask.and(impact.shared.mask(run, work)?);
        let numbers = match (value, number) {
            (TrendValue::Sum(_, factor), Some(key)) => {
                Some(run.column(key).map(|column| numbers_of(column, *factor, work)).transpose()?)
            }
            _ => None,
        };
        for (row, (actor, time)) in run.actors.iter().zip(&run.times).enumerate() {
            work.consume(1)?;
            let is_counted = *time <= to && exposures.start(*actor).is_some_and(|start| *time >= start);
            if !is_counted || !mask.has(row) {
                continue;
            }
            let Some(value) = values.get_mut(*actor as usize) else { continue };
            value.converted = true;
            value.number += match &numbers {
                None => 1.0,
                Some(None) => 0.0,
                Some(Some((codes, numbers))) => {
                    codes.get(row).and_then(|code| numbers.get(*code as usize)).copied().unwrap_or(0.0)
                }
            };
        }
    }
    Ok(())
}

/// The codes of a column, and the number of each code; 0 for values that are no numbers.
fn numbers_of<'a>(
    column: &'a Column,
    factor: f64,
    work: &WorkBudget<'_>,
) -> CalcResult<(&'a [u32], Vec<f64>)> {
    let number = |value| {
        work.consume(1 + text_length(value))?;
        Ok(number_of(value).map_or(0.0, |number| number * factor))
    };
    Ok((&column.codes, column.values.iter().map(number).collect::<CalcResult<_>>()?))
}
