//! Lists the persons behind a step or an edge.
//!
//! Must stay true: the steps are those that the edges count, before weights and limits of edges.

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::CompiledPaths;
use super::items::ItemDictionary;
use super::session_steps::Step;
use crate::kinds::paths::path_key::PathKey;
use crate::kinds::paths::{PathsQuery, PeopleKeys};
use crate::people::MatchedActor;
use crate::query::Field;
use crate::scan::{Micros, Partition};

/// The steps whose persons are listed: those with a session that has such a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathPoint {
    /// Any step.
    Any,
    /// This step.
    Step(PathKey),
    /// This step with a further one behind it.
    Continued(PathKey),
    /// The second step directly behind the first.
    Edge(PathKey, PathKey),
    /// This step as the last one.
    Last(PathKey),
}

/// Parses the parameters that select persons; those that are missing are taken from the query.
pub(super) fn parse_point(query: &PathsQuery, request: &Map<String, Value>) -> CalcResult<PathPoint> {
    let key = |name: &'static str, of_query: &Option<PathKey>| {
        let of_request = PathKey::parse_field(&Field::of(request, name, name))?;
        Ok(of_request.or_else(|| of_query.clone()))
    };
    let PeopleKeys { start, end, dropoff } = &query.people_keys;
    let keys = (key("path_dropoff_key", dropoff)?, key("path_start_key", start)?, key("path_end_key", end)?);
    Ok(match keys {
        (Some(last), ..) => PathPoint::Last(last),
        (None, Some(first), Some(second)) => PathPoint::Edge(first, second),
        (None, None, Some(step)) => PathPoint::Step(step),
        (None, Some(step), None) => PathPoint::Continued(step),
        (None, None, None) => PathPoint::Any,
    })
}

/// A step with the code of its item in a partition.
#[derive(Debug, Clone, Copy)]
struct EncodedKey {
    position: usize,
    item: Option<u32>,
}

impl EncodedKey {
    fn new(key: &PathKey, dictionary: &ItemDictionary<'_>) -> Self {
        // Numbers of keys are at least 1.
        Self { position: key.number as usize - 1, item: dictionary.get(&key.item) }
    }

    /// The step of a session that has this key.
    fn find(self, steps: &[Step]) -> Option<&Step> {
        steps.get(self.position).filter(|step| Some(step.item) == self.item)
    }
}

impl PathPoint {
    /// The time of the matching step of a session; `None` if the session does not match.
    fn matching_time(&self, steps: &[Step], dictionary: &ItemDictionary<'_>) -> Option<Micros> {
        let coded = |key: &PathKey| EncodedKey::new(key, dictionary);
        let (step, counts) = match self {
            Self::Any => (steps.first(), true),
            Self::Step(key) => (coded(key).find(steps), true),
            Self::Continued(key) => {
                let key = coded(key);
                (key.find(steps), steps.len() > key.position + 1)
            }
            Self::Edge(first, second) => {
                let (first, second) = (coded(first), coded(second));
                let is_edge = second.position == first.position + 1 && first.find(steps).is_some();
                (second.find(steps), is_edge)
            }
            Self::Last(key) => {
                let key = coded(key);
                (key.find(steps), steps.len() == key.position + 1)
            }
        };
        step.filter(|_| counts).map(|step| step.time)
    }
}

impl CompiledPaths {
    /// The selected persons of a partition, sorted by id, with the times of the selected steps.
    pub(super) fn list_people(
        &self,
        partition: &Partition,
        point: &PathPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        let mut matched: Vec<MatchedActor> = Vec::new();
        let mut last_actor = None;
        let mut dictionary = ItemDictionary::default();
        self.for_each_session(partition, &mut dictionary, work, |dictionary, actor, steps| {
            let Some(time) = point.matching_time(steps, dictionary) else { return Ok(()) };
            match matched.last_mut() {
                Some(same) if last_actor == Some(actor) => same.times.push(time),
                _ => {
                    if let Some(id) = partition.actors.get(actor as usize) {
                        matched.push(MatchedActor {
                            actor: *id,
                            key: None,
                            times: vec![time],
                            appearances: Vec::new(),
                        });
                    }
                }
            }
            last_actor = Some(actor);
            Ok(())
        })?;
        Ok(matched)
    }
}
