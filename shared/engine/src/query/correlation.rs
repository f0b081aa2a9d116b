//! Questions for what those have in common who get through a funnel: a funnel, and what to look at.
//!
//! Must stay true: the funnel's breakdown and layout say nothing here and are not kept, so that an actor has one outcome.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::field::whole;
use super::{FunnelsQuery, Parsed, Query, Viz, legacy};
use crate::error::{CalcError, CalcResult};
use crate::limits;
use crate::text::text_of;

/// What distinguishes those who get through a funnel from those who do not.
#[derive(Debug, Clone, PartialEq)]
pub struct CorrelationQuery {
    /// The funnel, as steps and without a breakdown.
    pub funnel: FunnelsQuery,
    /// Who is looked at: those who reached a step, counted from 1, or with a minus did not reach it but the one before.
    pub step: i64,
    /// What is looked at.
    pub factor: Factor,
}

/// What may distinguish people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Factor {
    /// Events on the way, but for these.
    Events {
        /// Names that are left out.
        excluded: BTreeSet<String>,
    },
    /// Properties of the actors.
    Properties {
        /// Their keys; none for all that are stored.
        names: Option<BTreeSet<String>>,
        /// Keys that are left out.
        excluded: BTreeSet<String>,
    },
    /// Properties of events on the way.
    EventProperties {
        /// The names of the events.
        events: BTreeSet<String>,
        /// Keys that are left out.
        excluded: BTreeSet<String>,
    },
}

/// What stands for all properties.
const ALL: &str = "$all";

const KIND: &str = "funnel_correlation_type";
const NAMES: &str = "funnel_correlation_names";
const EXCLUDED_NAMES: &str = "funnel_correlation_exclude_names";
const EVENTS: &str = "funnel_correlation_event_names";
const EXCLUDED_EVENTS: &str = "funnel_correlation_exclude_event_names";
const EXCLUDED_KEYS: &str = "funnel_correlation_event_exclude_property_names";
/// The parameter of a funnel's people that chooses who is looked at here.
const STEP: &str = "funnel_step";

/// The question that a request asks: that of a funnel, with more.
pub fn build(request: &Map<String, Value>) -> CalcResult<Parsed> {
    // Layout, breakdown and ranges of steps mean nothing here.
    let dropped = ["breakdown", "breakdowns", "breakdown_type", "funnel_viz_type", "display"];
    let mut plain = request.clone();
    plain.retain(|key, _| !dropped.contains(&key.as_str()));
    let mut funnel = match legacy::funnel(&plain)? {
        Parsed::Query(Query::Funnels(funnel)) => funnel,
        other => return Ok(other),
    };
    funnel.viz = Viz::Steps;
    let factor = factor(request)?;
    let step = step(request, funnel.series.len())?;
    Ok(Parsed::Query(Query::Correlation(CorrelationQuery { funnel, step, factor })))
}

fn factor(request: &Map<String, Value>) -> CalcResult<Factor> {
    let required = |detail: &str| Err(CalcError::coded("invalid_input", None, detail));
    match request.get(KIND).and_then(Value::as_str) {
        Some("properties") => {
            let names = names(request, NAMES)?;
            if names.is_empty() {
                return required("Property Correlation expects atleast one Property to run correlation on");
            }
            let names = (!names.contains(ALL)).then_some(names);
            Ok(Factor::Properties { names, excluded: self::names(request, EXCLUDED_NAMES)? })
        }
        Some("event_with_properties") => {
            let events = names(request, EVENTS)?;
            if events.is_empty() {
                return required(
                    "Event Property Correlation expects atleast one event name to run correlation on",
                );
            }
            Ok(Factor::EventProperties { events, excluded: names(request, EXCLUDED_KEYS)? })
        }
        _ => Ok(Factor::Events { excluded: names(request, EXCLUDED_EVENTS)? }),
    }
}

/// A list of names, which may be JSON text; a lone text that is no JSON is one name.
fn names(request: &Map<String, Value>, attr: &str) -> CalcResult<BTreeSet<String>> {
    let wrong = || CalcError::invalid(attr, "Expected a list of names.");
    let list = match request.get(attr) {
        None | Some(Value::Null) => return Ok(BTreeSet::new()),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(BTreeSet::new()),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Array(list)) => list,
            Ok(Value::Null) => return Ok(BTreeSet::new()),
            _ => vec![Value::from(text.as_str())],
        },
        Some(Value::Array(list)) => list.clone(),
        Some(_) => return Err(wrong()),
    };
    if list.len() > limits::CORRELATION_NAMES {
        return Err(limits::too_many(attr, "names", limits::CORRELATION_NAMES));
    }
    let name = |value: &Value| match value {
        Value::Array(_) | Value::Object(_) | Value::Null => Err(wrong()),
        value => {
            let name = text_of(value).ok_or_else(wrong)?.into_owned();
            if name.len() > limits::NAME_BYTES {
                return Err(limits::too_long(attr, "name", limits::NAME_BYTES));
            }
            Ok(name)
        }
    };
    list.iter().map(name).collect()
}

fn step(request: &Map<String, Value>, steps: usize) -> CalcResult<i64> {
    let Some(given) = request.get(STEP).filter(|step| !step.is_null() && step.as_str() != Some("")) else {
        return Ok(1);
    };
    let most = i64::try_from(steps).unwrap_or(i64::MAX);
    let step = whole(given).filter(|step| (1..=most).contains(step) || (-most..=-2).contains(step));
    step.ok_or_else(|| CalcError::invalid(STEP, format!("Must be a step, 1 to {steps}, or -2 to -{steps}.")))
}

impl CorrelationQuery {
    /// The fields of a request that say what is looked at.
    pub fn to_legacy(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut put = |key: &str, names: &BTreeSet<String>| {
            if !names.is_empty() {
                fields.insert(key.to_owned(), json!(names));
            }
        };
        let kind = match &self.factor {
            Factor::Events { excluded } => {
                put(EXCLUDED_EVENTS, excluded);
                "events"
            }
            Factor::Properties { names, excluded } => {
                put(NAMES, names.as_ref().unwrap_or(&std::iter::once(ALL.to_owned()).collect()));
                put(EXCLUDED_NAMES, excluded);
                "properties"
            }
            Factor::EventProperties { events, excluded } => {
                put(EVENTS, events);
                put(EXCLUDED_KEYS, excluded);
                "event_with_properties"
            }
        };
        fields.insert(KIND.to_owned(), json!(kind));
        if self.step != 1 {
            fields.insert(STEP.to_owned(), json!(self.step));
        }
        fields
    }
}
