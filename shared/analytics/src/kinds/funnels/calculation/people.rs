//! Lists the actors behind a number of a funnel.
//!
//! Must stay true: the list contains exactly the outcomes that the number counts.

use pennon_filters::dates::buckets::Buckets;
use pennon_filters::dates::grammar::DateText;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::text_of;
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CompiledFunnel, Outcome};
use crate::kinds::funnels::{FunnelVizType, FunnelsQuery};
use crate::people::{MatchedActor, decode_list};
use crate::query::{BreakdownBy, parse_boolean, parse_integer};
use crate::scan::{Micros, Partition};

/// A number of a funnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunnelPoint {
    /// What the actors did.
    pub outcome: ActorOutcome,
    /// The breakdown value: one text per key, or a cohort's id; `None` selects every value.
    pub value: Option<Vec<String>>,
    /// For the row of other values: the values that are not in it.
    pub kept_values: Option<Vec<Vec<String>>>,
}

/// What the selected actors did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorOutcome {
    /// They reached the step with this index.
    Reached(usize),
    /// They dropped off before the step with this index: they reached the one before, but not this one.
    Dropped(usize),
    /// They entered in a period of a funnel over time.
    Entered {
        /// Start of the period, as sent.
        start: String,
        /// Selects actors that did not convert; else those that did.
        dropped: bool,
    },
}

/// Parses the parameters of a people link.
pub(super) fn parse_point(query: &FunnelsQuery, request: &Map<String, Value>) -> CalcResult<FunnelPoint> {
    let outcome = match query.viz {
        FunnelVizType::Trends => parse_entered(request)?,
        FunnelVizType::Steps | FunnelVizType::TimeToConvert => parse_step(query, request)?,
    };
    let get_parameter = |key: &str| request.get(key).filter(|value| !value.is_null());
    let value = get_parameter("funnel_step_breakdown").map(|value| parse_texts(query, value)).transpose()?;
    let kept_values = match get_parameter("funnel_breakdown_kept") {
        None => None,
        Some(kept_values) => {
            let list = decode_list(kept_values);
            let list = list.as_array().filter(|_| value.is_some()).ok_or_else(invalid_value)?;
            Some(list.iter().map(|value| parse_texts(query, value)).collect::<CalcResult<Vec<_>>>()?)
        }
    };
    Ok(FunnelPoint { outcome, value, kept_values })
}

fn parse_step(query: &FunnelsQuery, request: &Map<String, Value>) -> CalcResult<ActorOutcome> {
    let attr = "funnel_step";
    let given = request.get(attr).filter(|step| !step.is_null());
    let Some(given) = given else {
        return Err(CalcError::coded("required", Some(attr), "This field is required."));
    };
    let steps = query.series.len();
    let invalid = || {
        CalcError::invalid(
            attr,
            format!("Must be a step, 1 to {steps}, or one that was not reached, -2 to -{steps}."),
        )
    };
    let number = parse_integer(given).ok_or_else(invalid)?;
    let index = usize::try_from(number.unsigned_abs()).ok().filter(|step| (1..=steps).contains(step));
    match index {
        Some(step) if number > 0 => Ok(ActorOutcome::Reached(step - 1)),
        Some(step) if step > 1 => Ok(ActorOutcome::Dropped(step - 1)),
        _ => Err(invalid()),
    }
}

fn parse_entered(request: &Map<String, Value>) -> CalcResult<ActorOutcome> {
    let required = |attr: &str| CalcError::coded("required", Some(attr), "This field is required.");
    let start = "entrance_period_start";
    let start = request.get(start).and_then(Value::as_str).ok_or_else(|| required(start))?.to_owned();
    let drop_off = "drop_off";
    let dropped = match request.get(drop_off) {
        None | Some(Value::Null) => return Err(required(drop_off)),
        Some(value) => parse_boolean(value, drop_off)?,
    };
    Ok(ActorOutcome::Entered { start, dropped })
}

/// Parses a breakdown value to its texts.
fn parse_texts(query: &FunnelsQuery, value: &Value) -> CalcResult<Vec<String>> {
    let text = |value: &Value| text_of(value).map(std::borrow::Cow::into_owned).ok_or_else(invalid_value);
    match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        None => Err(CalcError::invalid("funnel_step_breakdown", "The funnel has no breakdown.")),
        Some(BreakdownBy::Cohorts { .. }) => match text(value)?.as_str() {
            "all" => Ok(vec!["0".to_owned()]),
            id => Ok(vec![id.to_owned()]),
        },
        Some(BreakdownBy::Dimensions { .. }) if super::breakdown::is_single_text(query) => {
            Ok(vec![text(value)?])
        }
        Some(BreakdownBy::Dimensions { .. }) => match decode_list(value) {
            Value::Array(list) => list.iter().map(text).collect(),
            _ => Ok(vec![text(value)?]),
        },
    }
}

fn invalid_value() -> CalcError {
    CalcError::invalid("funnel_step_breakdown", "Not a value of the breakdown.")
}

impl CompiledFunnel {
    /// The selected actors of a partition, sorted by id.
    pub(super) fn list_people(
        &self,
        partition: &Partition,
        point: &FunnelPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        // Actor, value code and times. Codes can be resolved after the scan.
        let mut selected: Vec<(u32, u32, Vec<Micros>)> = Vec::new();
        let values = match (&point.outcome, &self.buckets) {
            (ActorOutcome::Entered { start, dropped }, Some(buckets)) => {
                let period = self.period(buckets, start)?;
                self.entries(buckets, partition, work, |actor, value, entries| {
                    let counts =
                        entries.iter().any(|entry| entry.period == period && entry.converted != *dropped);
                    if counts {
                        selected.push((actor, value, Vec::new()));
                    }
                })?
            }
            (ActorOutcome::Entered { .. }, None) => {
                return Err(CalcError::invalid("funnel_viz_type", "The funnel is not over time."));
            }
            (ActorOutcome::Reached(_) | ActorOutcome::Dropped(_), _) => {
                self.outcomes(partition, work, |Outcome { actor, value, times, steps }| {
                    if self.has_outcome(&point.outcome, steps) {
                        selected.push((actor, value, times.to_vec()));
                    }
                })?
            }
        };
        selected.retain(|(_, value, _)| self.selects(point, || self.breakdown.key(*value, &values)));
        // Without a value, an actor that counts under several values is listed once.
        selected.dedup_by_key(|(actor, ..)| *actor);
        let matched = selected.into_iter().filter_map(|(actor, _, times)| {
            let actor = actor as usize;
            let key = partition.keys.get(actor).cloned();
            Some(MatchedActor { actor: *partition.actors.get(actor)?, key, times, appearances: Vec::new() })
        });
        Ok(matched.collect())
    }

    /// Finds the period that starts at an instant.
    fn period(&self, buckets: &Buckets, start: &str) -> CalcResult<usize> {
        let text = DateText::parse(start).filter(|text| text.is_absolute());
        let at = text.and_then(|text| text.instant(self.range.to));
        let at = at.map(|at| at.timestamp_micros());
        let starts = buckets.starts().iter().map(|start| start.timestamp_micros());
        starts.enumerate().find(|(_, start)| Some(*start) == at).map(|(period, _)| period).ok_or_else(|| {
            CalcError::invalid("entrance_period_start", "No period of the funnel starts then.")
        })
    }

    /// Whether an actor with these reached steps dropped off before `step`: it reached the required step before, but not
    /// `step`.
    pub(crate) fn dropped_before(&self, step: usize, steps: u32) -> bool {
        let reached = |step: usize| steps >> step & 1 != 0;
        let rules = self.rules();
        let before = (0..step).rev().find(|before| !rules.is_optional(*before)).unwrap_or(0);
        reached(before) && !reached(step)
    }

    /// Whether an actor with these reached steps is selected.
    fn has_outcome(&self, outcome: &ActorOutcome, steps: u32) -> bool {
        match outcome {
            ActorOutcome::Reached(step) => steps >> step & 1 != 0,
            ActorOutcome::Dropped(step) => self.dropped_before(*step, steps),
            ActorOutcome::Entered { .. } => false,
        }
    }

    fn selects(&self, point: &FunnelPoint, key: impl Fn() -> Vec<String>) -> bool {
        match (&point.value, &point.kept_values) {
            (None, _) => true,
            (Some(value), None) => *value == key(),
            (Some(_), Some(kept_values)) => !kept_values.contains(&key()),
        }
    }
}
