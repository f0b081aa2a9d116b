//! The people behind a number of a correlation.
//!
//! Must stay true: the parameters that a link carries for a candidate name that candidate again.

use serde_json::{Map, Value, json};

use super::candidates::Found;
use super::{Candidate, Correlation};
use crate::error::{CalcError, CalcResult};
use crate::people::Matched;
use crate::query::{CorrelationQuery, Factor, parse_boolean};
use crate::scan::Partition;
use crate::text::text_of;
use crate::work::WorkBudget;

const ENTITY: &str = "funnel_correlation_person_entity";
const CONVERTED: &str = "funnel_correlation_person_converted";
const VALUES: &str = "funnel_correlation_property_values";

/// Whose people are meant: those who have a candidate and got through, or did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorrelationPoint {
    candidate: Candidate,
    converted: bool,
}

/// The parameters of a link that choose a candidate and a kind of people.
pub(super) fn link_parameters(candidate: &Candidate, converted: bool) -> Vec<(&'static str, Value)> {
    let Candidate { event, property, value } = candidate;
    let own = match (event.as_str(), property.as_str()) {
        (event, "") => (ENTITY, json!({"id": event, "type": "events"})),
        ("", property) => (VALUES, json!([{"key": property, "value": value}])),
        (event, property) => {
            let properties = json!([{"key": property, "value": value, "type": "event"}]);
            (ENTITY, json!({"id": event, "type": "events", "properties": properties}))
        }
    };
    vec![own, (CONVERTED, json!(converted))]
}

/// The number that the parameters of a link choose.
pub(crate) fn point(query: &CorrelationQuery, request: &Map<String, Value>) -> CalcResult<CorrelationPoint> {
    let converted = match request.get(CONVERTED) {
        None | Some(Value::Null) => return Err(required(CONVERTED)),
        Some(value) => parse_boolean(value, CONVERTED)?,
    };
    let candidate = match &query.factor {
        Factor::Properties { .. } => {
            let values = decoded(request, VALUES)?;
            let (property, value) = pair(&values, VALUES)?;
            Candidate { event: String::new(), property, value }
        }
        Factor::Events { .. } | Factor::EventProperties { .. } => {
            let entity = decoded(request, ENTITY)?;
            let wrong = || CalcError::invalid(ENTITY, "Expected the id of an event.");
            let event = entity.get("id").and_then(Value::as_str).ok_or_else(wrong)?.to_owned();
            let (property, value) = match &query.factor {
                Factor::EventProperties { .. } => {
                    pair(entity.get("properties").unwrap_or(&Value::Null), ENTITY)?
                }
                _ => (String::new(), String::new()),
            };
            Candidate { event, property, value }
        }
    };
    Ok(CorrelationPoint { candidate, converted })
}

fn required(attr: &str) -> CalcError {
    CalcError::coded("required", Some(attr), "This field is required.")
}

/// A parameter, which may be JSON text.
fn decoded(request: &Map<String, Value>, attr: &str) -> CalcResult<Value> {
    match request.get(attr) {
        None | Some(Value::Null) => Err(required(attr)),
        Some(Value::String(text)) => {
            serde_json::from_str(text).map_err(|_| CalcError::invalid(attr, "The text is not valid JSON."))
        }
        Some(other) => Ok(other.clone()),
    }
}

/// The key and the value that a list of one filter names.
fn pair(filters: &Value, attr: &str) -> CalcResult<(String, String)> {
    let wrong = || CalcError::invalid(attr, "Expected a list of one object with a key and a value.");
    let [filter] = filters.as_array().map(Vec::as_slice).unwrap_or_default() else { return Err(wrong()) };
    let key = filter.get("key").and_then(Value::as_str).ok_or_else(wrong)?;
    let value = filter.get("value").and_then(text_of).unwrap_or_default();
    Ok((key.to_owned(), value.into_owned()))
}

impl Correlation {
    /// Who of a partition is meant, in the order of their ids.
    pub(crate) fn people(
        &self,
        partition: &Partition,
        point: &CorrelationPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Matched>> {
        let entrants = self.entrants(partition, work)?;
        let mut found = Found::default();
        let mut have: Vec<(usize, u32)> = Vec::new();
        self.candidates(partition, &entrants, &mut found, work, &mut |candidate, actor, entrant| {
            if entrant.success == point.converted {
                have.push((candidate, actor));
            }
        })?;
        let wanted = found.get(&point.candidate);
        let actors = have.into_iter().filter(|(candidate, _)| Some(*candidate) == wanted);
        let matched = actors.filter_map(|(_, actor)| {
            let index = actor as usize;
            let key = partition.keys.get(index).cloned();
            Some(Matched { actor: *partition.actors.get(index)?, key, times: Vec::new() })
        });
        Ok(matched.collect())
    }
}
