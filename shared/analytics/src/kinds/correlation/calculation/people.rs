//! Lists the actors behind a number of a correlation.
//!
//! Must stay true: parsing the link parameters of a candidate gives that candidate again.

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::text_of;
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::candidates::CandidateIndex;
use super::{Candidate, CompiledCorrelation};
use crate::kinds::correlation::{CorrelationQuery, Factor};
use crate::people::MatchedActor;
use crate::query::parse_boolean;
use crate::scan::Partition;

const ENTITY: &str = "funnel_correlation_person_entity";
const CONVERTED: &str = "funnel_correlation_person_converted";
const VALUES: &str = "funnel_correlation_property_values";

/// A number of a correlation: the converted or dropped-off actors with a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorrelationPoint {
    candidate: Candidate,
    converted: bool,
}

/// The link parameters that select a candidate, and converted or dropped-off actors.
pub(super) fn link_parameters(candidate: &Candidate, converted: bool) -> Vec<(&'static str, Value)> {
    let Candidate { event, property, value } = candidate;
    let parameter = match (event.as_str(), property.as_str()) {
        (event, "") => (ENTITY, json!({"id": event, "type": "events"})),
        ("", property) => (VALUES, json!([{"key": property, "value": value}])),
        (event, property) => {
            let properties = json!([{"key": property, "value": value, "type": "event"}]);
            (ENTITY, json!({"id": event, "type": "events", "properties": properties}))
        }
    };
    vec![parameter, (CONVERTED, json!(converted))]
}

/// Parses the parameters of a people link.
pub(super) fn parse_point(
    query: &CorrelationQuery,
    request: &Map<String, Value>,
) -> CalcResult<CorrelationPoint> {
    let converted = match request.get(CONVERTED) {
        None | Some(Value::Null) => return Err(required(CONVERTED)),
        Some(value) => parse_boolean(value, CONVERTED)?,
    };
    let candidate = match &query.factor {
        Factor::Properties { .. } => {
            let values = decode_parameter(request, VALUES)?;
            let (property, value) = parse_property(&values, VALUES)?;
            Candidate { event: String::new(), property, value }
        }
        Factor::Events { .. } | Factor::EventProperties { .. } => {
            let entity = decode_parameter(request, ENTITY)?;
            let invalid = || CalcError::invalid(ENTITY, "Expected the id of an event.");
            let event = entity.get("id").and_then(Value::as_str).ok_or_else(invalid)?.to_owned();
            let (property, value) = match &query.factor {
                Factor::EventProperties { .. } => {
                    parse_property(entity.get("properties").unwrap_or(&Value::Null), ENTITY)?
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

/// Decodes a parameter that may be a JSON string.
fn decode_parameter(request: &Map<String, Value>, attr: &str) -> CalcResult<Value> {
    match request.get(attr) {
        None | Some(Value::Null) => Err(required(attr)),
        Some(Value::String(text)) => {
            serde_json::from_str(text).map_err(|_| CalcError::invalid(attr, "The text is not valid JSON."))
        }
        Some(other) => Ok(other.clone()),
    }
}

/// Parses the key and value from a list with one property filter.
fn parse_property(filters: &Value, attr: &str) -> CalcResult<(String, String)> {
    let invalid = || CalcError::invalid(attr, "Expected a list of one object with a key and a value.");
    let [filter] = filters.as_array().map(Vec::as_slice).unwrap_or_default() else { return Err(invalid()) };
    let key = filter.get("key").and_then(Value::as_str).ok_or_else(invalid)?;
    let value = filter.get("value").and_then(text_of).unwrap_or_default();
    Ok((key.to_owned(), value.into_owned()))
}

impl CompiledCorrelation {
    /// The selected actors of a partition, sorted by id.
    pub(super) fn list_people(
        &self,
        partition: &Partition,
        point: &CorrelationPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        let population = self.list_population(partition, work)?;
        let mut index = CandidateIndex::default();
        let mut reported: Vec<(usize, u32)> = Vec::new();
        self.for_each_candidate(
            partition,
            &population,
            &mut index,
            work,
            &mut |candidate, actor, actor_outcome| {
                if actor_outcome.success == point.converted {
                    reported.push((candidate, actor));
                }
            },
        )?;
        let selected = index.get(&point.candidate);
        let actors = reported.into_iter().filter(|(candidate, _)| Some(*candidate) == selected);
        let matched = actors.filter_map(|(_, actor)| {
            let actor = actor as usize;
            let key = partition.keys.get(actor).cloned();
            Some(MatchedActor {
                actor: *partition.actors.get(actor)?,
                key,
                times: Vec::new(),
                appearances: Vec::new(),
            })
        });
        Ok(matched.collect())
    }
}
