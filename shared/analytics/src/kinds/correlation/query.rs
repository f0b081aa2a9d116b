//! Parses correlation queries: a funnel, and the kind of factors to correlate with conversion.
//!
//! Must stay true: the funnel's breakdown and visualization are dropped, so each actor has exactly one outcome.

use std::collections::BTreeSet;

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::text_of;
use serde_json::{Map, Value, json};

use super::limits;
use crate::kinds::ParsedQuery;
use crate::kinds::funnels::{FunnelVizType, FunnelsQuery};
use crate::query::parse_integer;

/// Finds factors that distinguish actors who convert in a funnel from those who do not.
#[derive(Debug, Clone, PartialEq)]
pub struct CorrelationQuery {
    /// The funnel, without a breakdown and with `Steps` visualization.
    pub funnel: FunnelsQuery,
    /// The population: actors who reached this step (counted from 1); if negative, actors who dropped off before it.
    pub step: i64,
    /// The kind of factors.
    pub factor: Factor,
}

/// Kinds of factors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Factor {
    /// Names of events between entering the funnel and its end.
    Events {
        /// Excluded event names.
        excluded: BTreeSet<String>,
    },
    /// Values of the actors' properties.
    Properties {
        /// Property keys; `None` for all stored properties.
        names: Option<BTreeSet<String>>,
        /// Excluded property keys.
        excluded: BTreeSet<String>,
    },
    /// Values of the properties of events between entering the funnel and its end.
    EventProperties {
        /// Names of these events.
        events: BTreeSet<String>,
        /// Excluded property keys.
        excluded: BTreeSet<String>,
    },
}

/// The name that selects all properties.
const ALL: &str = "$all";

const KIND: &str = "funnel_correlation_type";
const NAMES: &str = "funnel_correlation_names";
const EXCLUDED_NAMES: &str = "funnel_correlation_exclude_names";
const EVENTS: &str = "funnel_correlation_event_names";
const EXCLUDED_EVENTS: &str = "funnel_correlation_exclude_event_names";
const EXCLUDED_KEYS: &str = "funnel_correlation_event_exclude_property_names";
/// Selects the population; people links of funnels use the same parameter.
const STEP: &str = "funnel_step";

/// Parses a correlation request: the fields of a funnel request plus its own.
pub fn parse(request: &Map<String, Value>) -> CalcResult<ParsedQuery> {
    // Visualization and breakdown have no meaning here.
    let dropped = ["breakdown", "breakdowns", "breakdown_type", "funnel_viz_type", "display"];
    let mut funnel_request = request.clone();
    funnel_request.retain(|key, _| !dropped.contains(&key.as_str()));
    let Some(mut funnel) = FunnelsQuery::from_insight_filters(&funnel_request)? else {
        return Ok(ParsedQuery::Empty);
    };
    funnel.viz = FunnelVizType::Steps;
    let factor = parse_factor(request)?;
    let step = parse_step(request, funnel.series.len())?;
    Ok(ParsedQuery::Query(CorrelationQuery { funnel, step, factor }.into()))
}

fn parse_factor(request: &Map<String, Value>) -> CalcResult<Factor> {
    let required = |detail: &str| Err(CalcError::coded("invalid_input", None, detail));
    match request.get(KIND).and_then(Value::as_str) {
        Some("properties") => {
            let names = parse_names(request, NAMES)?;
            if names.is_empty() {
                return required("Property Correlation expects atleast one Property to run correlation on");
            }
            let names = (!names.contains(ALL)).then_some(names);
            Ok(Factor::Properties { names, excluded: parse_names(request, EXCLUDED_NAMES)? })
        }
        Some("event_with_properties") => {
            let events = parse_names(request, EVENTS)?;
            if events.is_empty() {
                return required(
                    "Event Property Correlation expects atleast one event name to run correlation on",
                );
            }
            Ok(Factor::EventProperties { events, excluded: parse_names(request, EXCLUDED_KEYS)? })
        }
        _ => Ok(Factor::Events { excluded: parse_names(request, EXCLUDED_EVENTS)? }),
    }
}

/// Parses a list of names, which may be a JSON string. A string that is not JSON is a single name.
fn parse_names(request: &Map<String, Value>, attr: &str) -> CalcResult<BTreeSet<String>> {
    let invalid = || CalcError::invalid(attr, "Expected a list of names.");
    let list = match request.get(attr) {
        None | Some(Value::Null) => return Ok(BTreeSet::new()),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(BTreeSet::new()),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Array(list)) => list,
            Ok(Value::Null) => return Ok(BTreeSet::new()),
            _ => vec![Value::from(text.as_str())],
        },
        Some(Value::Array(list)) => list.clone(),
        Some(_) => return Err(invalid()),
    };
    if list.len() > limits::CORRELATION_NAMES {
        return Err(limits::too_many(attr, "names", limits::CORRELATION_NAMES));
    }
    let name = |value: &Value| match value {
        Value::Array(_) | Value::Object(_) | Value::Null => Err(invalid()),
        value => {
            let name = text_of(value).ok_or_else(invalid)?.into_owned();
            if name.len() > limits::NAME_BYTES {
                return Err(limits::too_long(attr, "name", limits::NAME_BYTES));
            }
            Ok(name)
        }
    };
    list.iter().map(name).collect()
}

fn parse_step(request: &Map<String, Value>, steps: usize) -> CalcResult<i64> {
    let Some(given) = request.get(STEP).filter(|step| !step.is_null() && step.as_str() != Some("")) else {
        return Ok(1);
    };
    let max = i64::try_from(steps).unwrap_or(i64::MAX);
    let step = parse_integer(given).filter(|step| (1..=max).contains(step) || (-max..=-2).contains(step));
    step.ok_or_else(|| CalcError::invalid(STEP, format!("Must be a step, 1 to {steps}, or -2 to -{steps}.")))
}

impl CorrelationQuery {
    /// The fields of insight filters beside those of the funnel.
    pub(super) fn correlation_fields(&self) -> Map<String, Value> {
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
