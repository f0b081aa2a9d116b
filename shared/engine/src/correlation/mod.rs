//! Correlation: which events and properties go with getting through a funnel.
//!
//! Must stay true: an actor is a success, a failure or not looked at, by its one outcome of the funnel; it counts for a
//! candidate once, however often it has it; parts over disjoint actors add up in any order.

mod candidates;
mod people;
mod result;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::dates::range::DateRange;
use crate::error::CalcResult;
use crate::funnel::Funnel;
use crate::plan::{Compiler, ProjectContext};
use crate::query::{CorrelationQuery, EventOrAction, Factor};
use crate::scan::{ColumnKey, FactKey, Micros, Partition, RowKey};
use crate::work::WorkBudget;
use candidates::Found;
pub use people::CorrelationPoint;
pub(crate) use people::point;

/// A correlation made ready.
#[derive(Debug, Clone)]
pub(crate) struct Correlation {
    query: CorrelationQuery,
    funnel: Funnel,
    project_id: String,
    range: DateRange,
    /// Events that are never candidates.
    left_out: BTreeSet<String>,
    /// The columns of actors' properties, each with its key; an empty one for a whole object.
    columns: Vec<(String, FactKey)>,
}

/// What may go with success: an event, a property of the actor, or a property of an event. What does not apply is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Candidate {
    pub(crate) event: String,
    pub(crate) property: String,
    pub(crate) value: String,
}

/// How many successes and failures there are, and how many of them have each candidate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    success: u64,
    failure: u64,
    candidates: BTreeMap<Candidate, (u64, u64)>,
    /// Of the candidates' texts.
    bytes: usize,
    /// There are more candidates than fit; they are not kept then.
    burst: bool,
}

/// An actor that is looked at.
#[derive(Debug, Clone, Copy)]
struct Entrant {
    success: bool,
    /// Its events count that are later than this and earlier than the other.
    after: Micros,
    before: Micros,
}

impl Candidate {
    fn bytes(&self) -> usize {
        self.event.len() + self.property.len() + self.value.len()
    }
}

impl Counts {
    /// The sum of two parts. Holds no more than fits, however many parts there are.
    #[must_use]
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.success += other.success;
        self.failure += other.failure;
        self.burst |= other.burst;
        for (candidate, counts) in other.candidates {
            if self.burst {
                break;
            }
            self.add(candidate, counts);
        }
        if self.burst {
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
        self.burst |= !candidates::fits(self.candidates.len(), self.bytes);
    }
}

impl Correlation {
    pub(crate) fn new(
        query: &CorrelationQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let funnel = Funnel::new(&query.funnel, project, range, compiler)?;
        let mut columns = Vec::new();
        let mut left_out = step_events(query, project);
        match &query.factor {
            Factor::Events { excluded } => {
                compiler.event(None);
                left_out.extend(excluded.iter().cloned());
            }
            Factor::EventProperties { events, .. } => {
                events.difference(&left_out).for_each(|event| compiler.event(Some(event)));
                compiler.read(&RowKey::Event(ColumnKey::AllProperties), "funnel_correlation_event_names")?;
            }
            Factor::Properties { names, excluded } => {
                columns = property_columns(names.as_ref(), excluded, query.funnel.group_type_index);
                for (_, key) in &columns {
                    compiler.read(&RowKey::Fact(key.clone()), "funnel_correlation_names")?;
                }
            }
        }
        let project_id = project.project_id.clone();
        Ok(Self { query: query.clone(), funnel, project_id, range, left_out, columns })
    }

    pub(crate) fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Counts> {
        let entrants = self.entrants(partition, work)?;
        let of = |success: bool| {
            let found = entrants.iter().flatten().filter(|entrant| entrant.success == success);
            u64::try_from(found.count()).unwrap_or(u64::MAX)
        };
        let mut found = Found::default();
        let mut counts: Vec<(u64, u64)> = Vec::new();
        self.candidates(partition, &entrants, &mut found, work, &mut |candidate, _, entrant| {
            if counts.len() <= candidate {
                counts.resize(candidate + 1, (0, 0));
            }
            if entrant.success {
                counts[candidate].0 += 1;
            } else {
                counts[candidate].1 += 1;
            }
        })?;
        let mut sum = Counts { success: of(true), failure: of(false), ..Counts::default() };
        found.into_names().into_iter().zip(counts).for_each(|(candidate, counts)| sum.add(candidate, counts));
        Ok(sum)
    }

    pub(crate) fn finish(&self, sum: Counts, work: &WorkBudget<'_>) -> CalcResult<Value> {
        work.check()?;
        if sum.burst { Err(candidates::too_many()) } else { Ok(result::result(self, sum)) }
    }

    /// By actor, who is looked at.
    fn entrants(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Vec<Option<Entrant>>> {
        let mut entrants = vec![None; partition.actors.len()];
        let window = self.query.funnel.window.micros();
        let last = self.query.funnel.series.len() - 1;
        let step = usize::try_from(self.query.step.unsigned_abs()).unwrap_or(1) - 1;
        let dropped = self.query.step < 0;
        self.funnel.each_outcome(partition, work, |outcome| {
            let chosen = if dropped {
                self.funnel.dropped_before(step, outcome.steps)
            } else {
                outcome.steps >> step & 1 != 0
            };
            let (Some(first), Some(end), true) = (outcome.times.first(), outcome.times.last(), chosen) else {
                return;
            };
            let success = outcome.steps >> last & 1 != 0;
            let before = if success { *end } else { first.saturating_add(window) };
            if let Some(entrant) = entrants.get_mut(outcome.actor as usize) {
                *entrant = Some(Entrant { success, after: *first, before });
            }
        })?;
        Ok(entrants)
    }
}

/// The events of the steps; of an action those that its own steps name.
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

/// Where the properties of actors are read.
fn property_columns(
    names: Option<&BTreeSet<String>>,
    excluded: &BTreeSet<String>,
    group: Option<u8>,
) -> Vec<(String, FactKey)> {
    let Some(names) = names else {
        let whole = group.map_or(FactKey::PersonProperties, FactKey::GroupProperties);
        return vec![(String::new(), whole)];
    };
    let names = names.difference(excluded).cloned();
    let column = |name: String| match group {
        Some(index) => FactKey::Group(index, name),
        None => FactKey::Person(name),
    };
    names.map(|name| (name.clone(), column(name))).collect()
}
