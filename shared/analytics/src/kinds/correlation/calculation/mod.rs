//! Correlation: which events and properties correlate with converting in a funnel.
//!
//! [`CompiledCorrelation`] holds the compiled query. Every *candidate* (an event, or a property value) is counted among
//! converted and dropped-off actors; the result ranks candidates by odds ratio.
//!
//! Must stay true: an actor is a success, a failure or outside the population, by its one outcome of the funnel. It counts
//! at most once per candidate. Partial results over disjoint actors merge in any order.

mod candidates;
mod people;
mod result;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use pennon_filters::dates::range::DateRange;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compiler::Compiler;
use crate::kinds::QueryOutput;
use crate::kinds::correlation::{CorrelationQuery, Factor};
use crate::kinds::funnels::CompiledFunnel;
use crate::kinds::insight::CompiledInsight;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::EventOrAction;
use crate::scan::{ColumnKey, ColumnRef, JoinedColumnKey, Micros, Partition};
use candidates::CandidateIndex;
pub use people::CorrelationPoint;

/// A correlation query with a compiled funnel.
#[derive(Debug, Clone)]
pub struct CompiledCorrelation {
    query: CorrelationQuery,
    funnel: CompiledFunnel,
    project_id: String,
    range: DateRange,
    /// Events that are never candidates.
    excluded_events: BTreeSet<String>,
    /// The columns of actors' properties, each with its property key; the key is empty for a column of whole objects.
    columns: Vec<(String, JoinedColumnKey)>,
}

/// A factor that may correlate with success: an event, a property value of the actor, or a property value of an event.
/// Fields that do not apply are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) event: String,
    pub(crate) property: String,
    pub(crate) value: String,
}

/// The partial result: successes and failures in total and by candidate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorrelationCounts {
    success: u64,
    failure: u64,
    candidates: BTreeMap<Candidate, (u64, u64)>,
    /// Total bytes of the candidates' texts.
    bytes: usize,
    /// The limit on candidates was exceeded and the candidates dropped.
    over_budget: bool,
}

/// An actor of the population.
#[derive(Debug, Clone, Copy)]
struct PopulationActor {
    success: bool,
    /// Only its events after `after` and before `before` count.
    after: Micros,
    before: Micros,
}

impl Candidate {
    fn bytes(&self) -> usize {
        self.event.len() + self.property.len() + self.value.len()
    }
}

impl CorrelationCounts {
    /// Merges two partial results. Memory stays within the limit on candidates.
    #[must_use]
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.success += other.success;
        self.failure += other.failure;
        self.over_budget |= other.over_budget;
        for (candidate, counts) in other.candidates {
            if self.over_budget {
                break;
            }
            self.add(candidate, counts);
        }
        if self.over_budget {
            self.candidates.clear();
            self.bytes = 0;
        }
        self
    }

    fn add(&mut self, candidate: Candidate, (success, failure): (u64, u64)) {
        let bytes = candidate.bytes();
        let sum = match self.candidates.entry(candidate) {
            Entry::Occupied(sum) => sum.into_mut(),
            Entry::Vacant(place) => {
                self.bytes += bytes;
                place.insert((0, 0))
            }
        };
        sum.0 += success;
        sum.1 += failure;
        self.over_budget |= !candidates::fits(self.candidates.len(), self.bytes);
    }
}

impl CompiledInsight for CompiledCorrelation {
    type Query = CorrelationQuery;
    type Partial = CorrelationCounts;
    type DataPoint = CorrelationPoint;

    fn compile(
        query: &CorrelationQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let funnel = CompiledFunnel::compile(&query.funnel, project, range, compiler)?;
        let mut columns = Vec::new();
        let mut excluded_events = step_events(query, project);
        match &query.factor {
            Factor::Events { excluded } => {
                compiler.include_event(None);
                excluded_events.extend(excluded.iter().cloned());
            }
            Factor::EventProperties { events, .. } => {
                events.difference(&excluded_events).for_each(|event| compiler.include_event(Some(event)));
                compiler.require_value(
                    &ColumnRef::Event(ColumnKey::AllProperties),
                    "funnel_correlation_event_names",
                )?;
            }
            Factor::Properties { names, excluded } => {
                columns = property_columns(names.as_ref(), excluded, query.funnel.group_type_index);
                for (_, key) in &columns {
                    compiler.require_value(&ColumnRef::Joined(key.clone()), "funnel_correlation_names")?;
                }
            }
        }
        let project_id = project.project_id.clone();
        Ok(Self { query: query.clone(), funnel, project_id, range, excluded_events, columns })
    }

    fn parse_data_point(
        query: &CorrelationQuery,
        request: &Map<String, Value>,
    ) -> CalcResult<CorrelationPoint> {
        people::parse_point(query, request)
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<CorrelationCounts> {
        let population = self.list_population(partition, work)?;
        let count_outcome = |success: bool| {
            let matching =
                population.iter().flatten().filter(|actor_outcome| actor_outcome.success == success);
            u64::try_from(matching.count()).unwrap_or(u64::MAX)
        };
        let mut index = CandidateIndex::default();
        let mut counts: Vec<(u64, u64)> = Vec::new();
        self.for_each_candidate(
            partition,
            &population,
            &mut index,
            work,
            &mut |candidate, _, actor_outcome| {
                if counts.len() <= candidate {
                    counts.resize(candidate + 1, (0, 0));
                }
                if actor_outcome.success {
                    counts[candidate].0 += 1;
                } else {
                    counts[candidate].1 += 1;
                }
            },
        )?;
        let mut sum = CorrelationCounts {
            success: count_outcome(true),
            failure: count_outcome(false),
            ..CorrelationCounts::default()
        };
        index
            .into_candidates()
            .into_iter()
            .zip(counts)
            .for_each(|(candidate, counts)| sum.add(candidate, counts));
        Ok(sum)
    }

    fn merge(left: CorrelationCounts, right: CorrelationCounts) -> CorrelationCounts {
        left.merge(right)
    }

    fn finish(&self, counts: CorrelationCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        work.check()?;
        if counts.over_budget {
            return Err(candidates::too_many());
        }
        Ok(result::build_result(self, counts).into())
    }

    fn people(
        &self,
        partition: &Partition,
        point: &CorrelationPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}

impl CompiledCorrelation {
    /// By actor: its outcome if it belongs to the population.
    fn list_population(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Option<PopulationActor>>> {
        let mut population = vec![None; partition.actors.len()];
        let window = self.query.funnel.window.micros();
        let last = self.query.funnel.series.len() - 1;
        let step = usize::try_from(self.query.step.unsigned_abs()).unwrap_or(1) - 1;
        let dropped = self.query.step < 0;
        self.funnel.for_each_outcome(partition, work, |outcome| {
            let is_selected = if dropped {
                self.funnel.dropped_before(step, outcome.steps)
            } else {
                outcome.steps >> step & 1 != 0
            };
            let (Some(first), Some(end), true) = (outcome.times.first(), outcome.times.last(), is_selected)
            else {
                return;
            };
            let success = outcome.steps >> last & 1 != 0;
            let before = if success { *end } else { first.saturating_add(window) };
            if let Some(actor_outcome) = population.get_mut(outcome.actor as usize) {
                *actor_outcome = Some(PopulationActor { success, after: *first, before });
            }
        })?;
        Ok(population)
    }
}

/// The names of the steps' events; for an action, those that its own steps name.
fn step_events(query: &CorrelationQuery, project: &ProjectContext) -> BTreeSet<String> {
    let mut events = BTreeSet::new();
    for series in &query.funnel.series {
        match &series.event_or_action {
            EventOrAction::Event(name) => events.extend(name.clone()),
            EventOrAction::Action(id) => {
                let steps = project.definitions.actions.get(id).map(|action| action.steps.as_slice());
                let names = steps.unwrap_or_default().iter().filter_map(|step| step.get("event"));
                events.extend(names.filter_map(Value::as_str).map(str::to_owned));
            }
        }
    }
    events
}

/// The columns of actors' properties.
fn property_columns(
    names: Option<&BTreeSet<String>>,
    excluded: &BTreeSet<String>,
    group: Option<u8>,
) -> Vec<(String, JoinedColumnKey)> {
    let Some(names) = names else {
        let whole = group.map_or(JoinedColumnKey::PersonProperties, JoinedColumnKey::GroupProperties);
        return vec![(String::new(), whole)];
    };
    let names = names.difference(excluded).cloned();
    let column = |name: String| match group {
        Some(index) => JoinedColumnKey::Group(index, name),
        None => JoinedColumnKey::Person(name),
    };
    names.map(|name| (name.clone(), column(name))).collect()
}
