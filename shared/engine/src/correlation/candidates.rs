//! The pass over a partition that finds who has which candidate.
//!
//! Must stay true: of one candidate actors come in ascending order, each once; candidates of one partition are bounded
//! in number and in bytes.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Candidate, Correlation, Entrant};
use crate::element;
use crate::error::{CalcError, CalcResult};
use crate::limits;
use crate::query::Factor;
use crate::scan::{Column, ColumnKey, ColumnRef, Partition, Run};
use crate::text::text_of;
use crate::work::WorkBudget;

/// The event whose elements are its one property.
pub(super) const AUTOCAPTURE: &str = "$autocapture";
/// The name of that property.
pub(super) const CHAIN: &str = "elements_chain";
/// What stands between the type of such an event and its elements.
pub(super) const CHAIN_SEPARATOR: &str = "__~~__";

/// Work that finding a candidate costs beside the bytes of its texts.
const PER_CANDIDATE: usize = 16;

/// Called back with the index of a candidate, an actor that has it, and the actor's outcome.
type Back<'a> = dyn FnMut(usize, u32, Entrant) + 'a;

/// Whether so many candidates of so many bytes are looked at.
pub(super) fn fits(candidates: usize, bytes: usize) -> bool {
    candidates <= limits::CORRELATION_CANDIDATES && bytes <= limits::CORRELATION_BYTES
}

/// There are more candidates than are looked at.
pub(super) fn too_many() -> CalcError {
    let detail = "There are too many different values; name fewer events or properties, or exclude some.";
    CalcError::invalid("funnel_correlation_type", detail)
}

/// Candidates by index.
#[derive(Debug, Default)]
pub(super) struct Found {
    known: HashMap<Candidate, usize>,
    /// Who was last found to have it.
    last: Vec<Option<u32>>,
    bytes: usize,
}

impl Found {
    fn index(&mut self, candidate: Candidate) -> CalcResult<usize> {
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

    /// True once for each actor, if actors ascend.
    fn is_new(&mut self, index: usize, actor: u32) -> bool {
        self.last.get_mut(index).is_some_and(|last| last.replace(actor) != Some(actor))
    }

    /// All candidates, in the order of their indexes.
    pub(super) fn into_names(self) -> Vec<Candidate> {
        let mut names: Vec<_> = self.known.into_iter().collect();
        names.sort_by_key(|(_, index)| *index);
        names.into_iter().map(|(candidate, _)| candidate).collect()
    }

    pub(super) fn get(&self, candidate: &Candidate) -> Option<usize> {
        self.known.get(candidate).copied()
    }
}

impl Correlation {
    /// Calls back for every candidate and everybody who is looked at and has it.
    pub(super) fn candidates(
        &self,
        partition: &Partition,
        entrants: &[Option<Entrant>],
        found: &mut Found,
        work: &WorkBudget<'_>,
        back: &mut Back<'_>,
    ) -> CalcResult<()> {
        match &self.query.factor {
            Factor::Properties { .. } => self.properties(partition, entrants, found, work, back),
            Factor::Events { .. } => {
                for run in partition.runs.iter().filter(|run| !self.left_out.contains(&run.event)) {
                    let candidate = Candidate { event: run.event.clone(), ..Candidate::default() };
                    // Made when somebody has it.
                    let mut index = None;
                    self.rows(run, entrants, work, &mut |_, actor, entrant| {
                        let index = match index {
                            Some(index) => index,
                            None => *index.insert(found.index(candidate.clone())?),
                        };
                        if found.is_new(index, actor) {
                            back(index, actor, entrant);
                        }
                        Ok(())
                    })?;
                }
                Ok(())
            }
            Factor::EventProperties { events, .. } => {
                let is_candidate = |event: &String| events.contains(event) && !self.left_out.contains(event);
                for run in partition.runs.iter().filter(|run| is_candidate(&run.event)) {
                    let Some(column) = run.column(&ColumnRef::Event(ColumnKey::AllProperties)) else {
                        continue;
                    };
                    let mut of_codes: HashMap<u32, Vec<usize>> = HashMap::new();
                    self.rows(run, entrants, work, &mut |row, actor, entrant| {
                        let Some(code) = column.codes.get(row) else { return Ok(()) };
                        if !of_codes.contains_key(code) {
                            let pairs = column.value(row).and_then(Value::as_object);
                            let pairs = pairs.map(|pairs| self.pairs(&run.event, pairs)).unwrap_or_default();
                            let indexes = pairs.into_iter().map(|pair| {
                                work.consume(PER_CANDIDATE + pair.bytes())?;
                                found.index(pair)
                            });
                            of_codes.insert(*code, indexes.collect::<CalcResult<Vec<_>>>()?);
                        }
                        for index in of_codes.get(code).into_iter().flatten() {
                            work.consume(1)?;
                            if found.is_new(*index, actor) {
                                back(*index, actor, entrant);
                            }
                        }
                        Ok(())
                    })?;
                }
                Ok(())
            }
        }
    }

    /// Calls back for the rows of a run that lie on the way of somebody who is looked at.
    fn rows(
        &self,
        run: &Run,
        entrants: &[Option<Entrant>],
        work: &WorkBudget<'_>,
        back: &mut dyn FnMut(usize, u32, Entrant) -> CalcResult<()>,
    ) -> CalcResult<()> {
        let (from, to) = (self.range.from.timestamp_micros(), self.range.to.timestamp_micros());
        for (row, (actor, time)) in run.actors.iter().zip(&run.times).enumerate() {
            work.consume(1)?;
            let Some(Some(entrant)) = entrants.get(*actor as usize) else { continue };
            let on_the_way = entrant.after < *time && *time < entrant.before;
            if on_the_way && from <= *time && *time < to {
                back(row, *actor, *entrant)?;
            }
        }
        Ok(())
    }

    /// The candidates that an event's properties are.
    fn pairs(&self, event: &str, properties: &Map<String, Value>) -> Vec<Candidate> {
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

    /// What actors have whatever they do: read in the first row of each.
    fn properties(
        &self,
        partition: &Partition,
        entrants: &[Option<Entrant>],
        found: &mut Found,
        work: &WorkBudget<'_>,
        back: &mut Back<'_>,
    ) -> CalcResult<()> {
        let mut places: Vec<Option<(usize, usize)>> = vec![None; partition.actors.len()];
        for (index, run) in partition.runs.iter().enumerate() {
            work.check()?;
            for (row, actor) in run.actors.iter().enumerate() {
                if let Some(place @ None) = places.get_mut(*actor as usize) {
                    *place = Some((index, row));
                }
            }
        }
        for (name, key) in &self.columns {
            let key = ColumnRef::Joined(key.clone());
            let columns: Vec<Option<&Column>> = partition.runs.iter().map(|run| run.column(&key)).collect();
            for (actor, (entrant, place)) in (0..).zip(entrants.iter().zip(&places)) {
                work.consume(1)?;
                let (Some(entrant), Some((run, row))) = (entrant, place) else { continue };
                let value = columns.get(*run).copied().flatten().and_then(|column| column.value(*row));
                for candidate in self.of_actor(name, value) {
                    work.consume(PER_CANDIDATE + candidate.bytes())?;
                    let index = found.index(candidate)?;
                    if found.is_new(index, actor) {
                        back(index, actor, *entrant);
                    }
                }
            }
        }
        Ok(())
    }

    /// The candidates that one property is, or a whole object of properties where it has no name.
    fn of_actor(&self, name: &str, value: Option<&Value>) -> Vec<Candidate> {
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
        let wanted = stored.filter(|(key, _)| !excluded.contains(key.as_str()));
        wanted.map(|(key, value)| candidate(key, Some(value))).collect()
    }
}
