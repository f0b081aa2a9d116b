//! Finds the candidates of a partition and the actors that have them.
//!
//! Must stay true: for each candidate, actors are reported in ascending order, each once. Candidates of a partition are
//! bounded in number and bytes.

use std::collections::HashMap;

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::text_of;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};

use super::{Candidate, CompiledCorrelation, PopulationActor};
use crate::element;
use crate::kinds::correlation::Factor;
use crate::kinds::correlation::limits;
use crate::scan::{Column, ColumnKey, ColumnRef, EventRun, Partition};

/// The autocapture event; its only property candidate is its element chain.
pub(super) const AUTOCAPTURE: &str = "$autocapture";
/// The name of the element chain's property.
pub(super) const CHAIN: &str = "elements_chain";
/// Separates the event type of an autocapture event from its element chain.
pub(super) const CHAIN_SEPARATOR: &str = "__~~__";

/// Work units of looking up a candidate, in addition to the bytes of its texts.
const WORK_PER_CANDIDATE: usize = 16;

/// Callback with the index of a candidate, an actor that has it, and the actor's outcome.
type CandidateCallback<'a> = dyn FnMut(usize, u32, PopulationActor) + 'a;

/// Whether this many candidates with this many bytes are within the limits.
pub(super) fn fits(candidates: usize, bytes: usize) -> bool {
    candidates <= limits::CORRELATION_CANDIDATES && bytes <= limits::CORRELATION_BYTES
}

/// The error for too many candidates.
pub(super) fn too_many() -> CalcError {
    let detail = "There are too many different values; name fewer events or properties, or exclude some.";
    CalcError::invalid("funnel_correlation_type", detail)
}

/// The distinct candidates of a partition, numbered by index.
#[derive(Debug, Default)]
pub(super) struct CandidateIndex {
    known: HashMap<Candidate, usize>,
    /// By index: the last actor that was reported.
    last: Vec<Option<u32>>,
    bytes: usize,
}

impl CandidateIndex {
    fn index_of(&mut self, candidate: Candidate) -> CalcResult<usize> {
        if let Some(index) = self.known.get(&candidate) {
            return Ok(*index);
        }
        let index = self.last.len();
        self.bytes += candidate.bytes();
        if !fits(index + 1, self.bytes) {
            return Err(too_many());
        }
        self.known.insert(candidate, index);
        self.last.push(None);
        Ok(index)
    }

    /// Whether the actor was not reported for this candidate yet. Actors must ascend.
    fn is_new(&mut self, index: usize, actor: u32) -> bool {
        self.last.get_mut(index).is_some_and(|last| last.replace(actor) != Some(actor))
    }

    /// All candidates, sorted by index.
    pub(super) fn into_candidates(self) -> Vec<Candidate> {
        let mut names: Vec<_> = self.known.into_iter().collect();
        names.sort_by_key(|(_, index)| *index);
        names.into_iter().map(|(candidate, _)| candidate).collect()
    }

    pub(super) fn get(&self, candidate: &Candidate) -> Option<usize> {
        self.known.get(candidate).copied()
    }
}

impl CompiledCorrelation {
    /// Calls back for every candidate and every actor of the population that has it.
    pub(super) fn for_each_candidate(
        &self,
        partition: &Partition,
        population: &[Option<PopulationActor>],
        candidate_index: &mut CandidateIndex,
        work: &WorkBudget<'_>,
        callback: &mut CandidateCallback<'_>,
    ) -> CalcResult<()> {
        match &self.query.factor {
            Factor::Properties { .. } => {
                self.for_each_actor_property(partition, population, candidate_index, work, callback)
            }
            Factor::Events { .. } => {
                for run in partition.runs.iter().filter(|run| !self.excluded_events.contains(&run.event)) {
                    let candidate = Candidate { event: run.event.clone(), ..Candidate::default() };
                    // Created when the first actor has it.
                    let mut index = None;
                    self.for_each_row(run, population, work, &mut |_, actor, actor_outcome| {
                        let index = match index {
                            Some(index) => index,
                            None => *index.insert(candidate_index.index_of(candidate.clone())?),
                        };
                        if candidate_index.is_new(index, actor) {
                            callback(index, actor, actor_outcome);
                        }
                        Ok(())
                    })?;
                }
                Ok(())
            }
            Factor::EventProperties { events, .. } => {
                let is_candidate =
                    |event: &String| events.contains(event) && !self.excluded_events.contains(event);
                for run in partition.runs.iter().filter(|run| is_candidate(&run.event)) {
                    let Some(column) = run.column(&ColumnRef::Event(ColumnKey::AllProperties)) else {
                        continue;
                    };
                    let mut indexes_of_code: HashMap<u32, Vec<usize>> = HashMap::new();
                    self.for_each_row(run, population, work, &mut |row, actor, actor_outcome| {
                        let Some(code) = column.codes.get(row) else { return Ok(()) };
                        if !indexes_of_code.contains_key(code) {
                            let pairs = column.value(row).and_then(Value::as_object);
                            let pairs = pairs
                                .map(|pairs| self.event_candidates(&run.event, pairs))
                                .unwrap_or_default();
                            let indexes = pairs.into_iter().map(|pair| {
                                work.consume(WORK_PER_CANDIDATE + pair.bytes())?;
                                candidate_index.index_of(pair)
                            });
                            indexes_of_code.insert(*code, indexes.collect::<CalcResult<Vec<_>>>()?);
                        }
                        for index in indexes_of_code.get(code).into_iter().flatten() {
                            work.consume(1)?;
                            if candidate_index.is_new(*index, actor) {
                                callback(*index, actor, actor_outcome);
                            }
                        }
                        Ok(())
                    })?;
                }
                Ok(())
            }
        }
    }

    /// Calls back for the rows of a run that belong to an actor of the population and lie within its time range.
    fn for_each_row(
        &self,
        run: &EventRun,
        population: &[Option<PopulationActor>],
        work: &WorkBudget<'_>,
        callback: &mut dyn FnMut(usize, u32, PopulationActor) -> CalcResult<()>,
    ) -> CalcResult<()> {
        let (from, to) = (self.range.from.timestamp_micros(), self.range.to.timestamp_micros());
        for (row, (actor, time)) in run.actors.iter().zip(&run.times).enumerate() {
            work.consume(1)?;
            let Some(Some(actor_outcome)) = population.get(*actor as usize) else { continue };
            let is_in_range = actor_outcome.after < *time && *time < actor_outcome.before;
            if is_in_range && from <= *time && *time < to {
                callback(row, *actor, *actor_outcome)?;
            }
        }
        Ok(())
    }

    /// The candidates of an event's properties.
    fn event_candidates(&self, event: &str, properties: &Map<String, Value>) -> Vec<Candidate> {
        let Factor::EventProperties { excluded, .. } = &self.query.factor else { return Vec::new() };
        let candidate = |property: &str, value: String| Candidate {
            event: event.to_owned(),
            property: property.to_owned(),
            value,
        };
        if event == AUTOCAPTURE {
            let Some(chain) = element::chain_text(properties).filter(|_| !excluded.contains(CHAIN)) else {
                return Vec::new();
            };
            let kind = properties.get("$event_type").and_then(text_of).unwrap_or_default();
            return vec![candidate(CHAIN, format!("{kind}{CHAIN_SEPARATOR}{chain}"))];
        }
        let pairs = properties.iter().filter(|(key, _)| !excluded.contains(key.as_str()));
        pairs.filter_map(|(key, value)| Some(candidate(key, text_of(value)?.into_owned()))).collect()
    }

    /// Finds the property values of actors, which are read from each actor's first row.
    fn for_each_actor_property(
        &self,
        partition: &Partition,
        population: &[Option<PopulationActor>],
        candidate_index: &mut CandidateIndex,
        work: &WorkBudget<'_>,
        callback: &mut CandidateCallback<'_>,
    ) -> CalcResult<()> {
        let mut first_rows: Vec<Option<(usize, usize)>> = vec![None; partition.actors.len()];
        for (index, run) in partition.runs.iter().enumerate() {
            work.check()?;
            for (row, actor) in run.actors.iter().enumerate() {
                if let Some(first_row @ None) = first_rows.get_mut(*actor as usize) {
                    *first_row = Some((index, row));
                }
            }
        }
        for (name, key) in &self.columns {
            let key = ColumnRef::Joined(key.clone());
            let columns: Vec<Option<&Column>> = partition.runs.iter().map(|run| run.column(&key)).collect();
            for (actor, (actor_outcome, first_row)) in (0..).zip(population.iter().zip(&first_rows)) {
                work.consume(1)?;
                let (Some(actor_outcome), Some((run, row))) = (actor_outcome, first_row) else { continue };
                let value = columns.get(*run).copied().flatten().and_then(|column| column.value(*row));
                for candidate in self.actor_candidates(name, value) {
                    work.consume(WORK_PER_CANDIDATE + candidate.bytes())?;
                    let index = candidate_index.index_of(candidate)?;
                    if candidate_index.is_new(index, actor) {
                        callback(index, actor, *actor_outcome);
                    }
                }
            }
        }
        Ok(())
    }

    /// The candidates of one property, or of all properties of an object if the name is empty.
    fn actor_candidates(&self, name: &str, value: Option<&Value>) -> Vec<Candidate> {
        let candidate = |property: &str, value: Option<&Value>| Candidate {
            event: String::new(),
            property: property.to_owned(),
            value: value.and_then(text_of).unwrap_or_default().into_owned(),
        };
        let Factor::Properties { names, excluded } = &self.query.factor else { return Vec::new() };
        if names.is_some() {
            return vec![candidate(name, value)];
        }
        let stored = value.and_then(Value::as_object).into_iter().flatten();
        let included = stored.filter(|(key, _)| !excluded.contains(key.as_str()));
        included.map(|(key, value)| candidate(key, Some(value))).collect()
    }
}
