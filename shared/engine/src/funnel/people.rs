//! The people behind a number of a funnel.
//!
//! Must stay true: these are the outcomes that the number counts, so there are as many of them as it says.

use serde_json::{Map, Value};

use super::{Funnel, Outcome};
use crate::dates::buckets::Buckets;
use crate::dates::grammar::DateText;
use crate::error::{CalcError, CalcResult};
use crate::people::Matched;
use crate::query::{BreakdownBy, FunnelsQuery, Viz, parse_boolean, parse_integer};
use crate::scan::{Micros, Partition};
use crate::text::text_of;
use crate::work::WorkBudget;

/// Whose people are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunnelPoint {
    /// What they did.
    pub which: Which,
    /// The value of the breakdown: a text for each key, or a cohort's id; none for every value.
    pub value: Option<Vec<String>>,
    /// For the row of the rest: the values that are not in it.
    pub kept: Option<Vec<Vec<String>>>,
}

/// What people of a funnel did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// They reached the step with this index, or got further.
    Reached(usize),
    /// They reached the step before the one with this index, but not that one.
    Dropped(usize),
    /// They entered in a period.
    Entered {
        /// Where the period starts, as it was said.
        start: String,
        /// They did not get through; else they did.
        dropped: bool,
    },
}

/// The number that the parameters of a link choose.
pub(crate) fn point(query: &FunnelsQuery, request: &Map<String, Value>) -> CalcResult<FunnelPoint> {
    let which = match query.viz {
        Viz::Trends => entered(request)?,
        Viz::Steps | Viz::TimeToConvert => step(query, request)?,
    };
    let given = |key: &str| request.get(key).filter(|value| !value.is_null());
    let value = given("funnel_step_breakdown").map(|value| texts(query, value)).transpose()?;
    let kept = match given("funnel_breakdown_kept") {
        None => None,
        Some(kept) => {
            let list = decoded(kept);
            let list = list.as_array().filter(|_| value.is_some()).ok_or_else(wrong_value)?;
            Some(list.iter().map(|value| texts(query, value)).collect::<CalcResult<Vec<_>>>()?)
        }
    };
    Ok(FunnelPoint { which, value, kept })
}

fn step(query: &FunnelsQuery, request: &Map<String, Value>) -> CalcResult<Which> {
    let attr = "funnel_step";
    let given = request.get(attr).filter(|step| !step.is_null());
    let Some(given) = given else {
        return Err(CalcError::coded("required", Some(attr), "This field is required."));
    };
    let steps = query.series.len();
    let wrong = || {
        CalcError::invalid(
            attr,
            format!("Must be a step, 1 to {steps}, or one that was not reached, -2 to -{steps}."),
        )
    };
    let number = parse_integer(given).ok_or_else(wrong)?;
    let index = usize::try_from(number.unsigned_abs()).ok().filter(|step| (1..=steps).contains(step));
    match index {
        Some(step) if number > 0 => Ok(Which::Reached(step - 1)),
        Some(step) if step > 1 => Ok(Which::Dropped(step - 1)),
        _ => Err(wrong()),
    }
}

fn entered(request: &Map<String, Value>) -> CalcResult<Which> {
    let required = |attr: &str| CalcError::coded("required", Some(attr), "This field is required.");
    let start = "entrance_period_start";
    let start = request.get(start).and_then(Value::as_str).ok_or_else(|| required(start))?.to_owned();
    let drop_off = "drop_off";
    let dropped = match request.get(drop_off) {
        None | Some(Value::Null) => return Err(required(drop_off)),
        Some(value) => parse_boolean(value, drop_off)?,
    };
    Ok(Which::Entered { start, dropped })
}

/// A value of the breakdown as its texts.
fn texts(query: &FunnelsQuery, value: &Value) -> CalcResult<Vec<String>> {
    let text = |value: &Value| text_of(value).map(std::borrow::Cow::into_owned).ok_or_else(wrong_value);
    match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        None => Err(CalcError::invalid("funnel_step_breakdown", "The funnel has no breakdown.")),
        Some(BreakdownBy::Cohorts { .. }) => match text(value)?.as_str() {
            "all" => Ok(vec!["0".to_owned()]),
            id => Ok(vec![id.to_owned()]),
        },
        Some(BreakdownBy::Dimensions { .. }) if super::values::is_plain(query) => Ok(vec![text(value)?]),
        Some(BreakdownBy::Dimensions { .. }) => match decoded(value) {
            Value::Array(list) => list.iter().map(text).collect(),
            _ => Ok(vec![text(value)?]),
        },
    }
}

/// Lists may come as JSON text.
fn decoded(value: &Value) -> Value {
    match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    }
}

fn wrong_value() -> CalcError {
    CalcError::invalid("funnel_step_breakdown", "Not a value of the breakdown.")
}

impl Funnel {
    /// Who of a partition is meant, in the order of their ids.
    pub(crate) fn people(
        &self,
        partition: &Partition,
        point: &FunnelPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Matched>> {
        // Actor, value and times; values have a meaning when the pass is over.
        let mut found: Vec<(u32, u32, Vec<Micros>)> = Vec::new();
        let values = match (&point.which, &self.buckets) {
            (Which::Entered { start, dropped }, Some(buckets)) => {
                let period = self.period(buckets, start)?;
                self.entries(buckets, partition, work, |actor, value, entries| {
                    let counts =
                        entries.iter().any(|entry| entry.period == period && entry.converted != *dropped);
                    if counts {
                        found.push((actor, value, Vec::new()));
                    }
                })?
            }
            (Which::Entered { .. }, None) => {
                return Err(CalcError::invalid("funnel_viz_type", "The funnel is not over time."));
            }
            (Which::Reached(_) | Which::Dropped(_), _) => {
                self.outcomes(partition, work, |Outcome { actor, value, times, steps }| {
                    if self.did(&point.which, steps) {
                        found.push((actor, value, times.to_vec()));
                    }
                })?
            }
        };
        found.retain(|(_, value, _)| self.is_wanted(point, || self.split.key(*value, &values)));
        // Without a value an actor is there once, though it may count under several.
        found.dedup_by_key(|(actor, ..)| *actor);
        let matched = found.into_iter().filter_map(|(actor, _, times)| {
            let actor = actor as usize;
            let key = partition.keys.get(actor).cloned();
            Some(Matched { actor: *partition.actors.get(actor)?, key, times })
        });
        Ok(matched.collect())
    }

    /// The period that starts at an instant.
    fn period(&self, buckets: &Buckets, start: &str) -> CalcResult<usize> {
        let text = DateText::parse(start).filter(|text| text.is_absolute());
        let at = text.and_then(|text| text.instant(self.range.to));
        let at = at.map(|at| at.timestamp_micros());
        let starts = buckets.starts().iter().map(|start| start.timestamp_micros());
        starts.enumerate().find(|(_, start)| Some(*start) == at).map(|(period, _)| period).ok_or_else(|| {
            CalcError::invalid("entrance_period_start", "No period of the funnel starts then.")
        })
    }

    /// Whether somebody who reached these steps did not reach this one, but the one before it that all have to take.
    pub(crate) fn dropped_before(&self, step: usize, steps: u32) -> bool {
        let reached = |step: usize| steps >> step & 1 != 0;
        let rules = self.rules();
        let before = (0..step).rev().find(|before| !rules.is_optional(*before)).unwrap_or(0);
        reached(before) && !reached(step)
    }

    /// Whether somebody did it who reached these steps.
    fn did(&self, which: &Which, steps: u32) -> bool {
        match which {
            Which::Reached(step) => steps >> step & 1 != 0,
            Which::Dropped(step) => self.dropped_before(*step, steps),
            Which::Entered { .. } => false,
        }
    }

    fn is_wanted(&self, point: &FunnelPoint, key: impl Fn() -> Vec<String>) -> bool {
        match (&point.value, &point.kept) {
            (None, _) => true,
            (Some(value), None) => *value == key(),
            (Some(_), Some(kept)) => !kept.contains(&key()),
        }
    }
}
