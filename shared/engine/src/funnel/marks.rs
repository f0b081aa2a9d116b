//! Which rows of a partition take a step or hit an exclusion.
//!
//! Must stay true: a step that takes an actor's first event takes one row of the actor at most, chosen among all that
//! ever happened, and only if that row counts for the step.

use super::merge::{MarkedRun, RowMarks};
use super::scan::Marks;
use super::values::Codes;
use crate::error::{CalcError, CalcResult};
use crate::filter::{Filter, Mask, Predicate};
use crate::matcher::Matcher;
use crate::plan::{Compiler, ProjectContext, shared_filter};
use crate::query::{FirstTime, FunnelsQuery, Series, StepOptions, StepOrder};
use crate::scan::{Micros, Partition, Run, Seq};
use crate::work::WorkBudget;

/// The matchers of a funnel.
#[derive(Debug, Clone)]
pub(super) struct Marker {
    shared: Predicate,
    /// Steps, then exclusions.
    entries: Vec<Entry>,
    /// Rows matter that match nothing.
    strict: bool,
}

/// Which events take a step or hit an exclusion, and what that is.
#[derive(Debug, Clone)]
struct Entry {
    matcher: Matcher,
    marks: Marks,
    /// Only an actor's first of these events counts.
    first_of: Option<Matcher>,
}

/// The earliest of an actor's rows that match something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct First {
    time: Micros,
    seq: Seq,
    run: usize,
    row: usize,
}

impl Marker {
    /// Asks the scan for what steps, exclusions and filters read.
    pub(super) fn new(
        query: &FunnelsQuery,
        project: &ProjectContext,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let shared = compiler.predicate(&shared_filter(&query.common, project)?, "properties")?;
        let mut entries = Vec::with_capacity(query.series.len() + query.exclusions.len());
        for (index, (series, rule)) in query.series.iter().zip(&query.steps).enumerate() {
            entries.push(Entry::new(series, *rule, Marks::step(index), compiler)?);
        }
        for exclusion in &query.exclusions {
            let marks = Marks::exclusion(exclusion.from_step, exclusion.to_step);
            entries.push(Entry::new(&exclusion.series, StepOptions::default(), marks, compiler)?);
        }
        let strict = query.order == StepOrder::Strict;
        if strict {
            compiler.event(None);
        }
        if entries.iter().any(|entry| entry.first_of.is_some()) {
            compiler.cover(Micros::MIN, Micros::MIN);
        }
        Ok(Self { shared, entries, strict })
    }

    /// The runs that have rows that matter, and what these match.
    pub(super) fn marked<'a>(
        &self,
        partition: &'a Partition,
        work: &WorkBudget<'_>,
        mut values: impl FnMut(&Run) -> CalcResult<Option<Codes>>,
    ) -> CalcResult<Vec<MarkedRun<'a>>> {
        let firsts = self.entries.iter().map(|entry| entry.firsts(partition, work));
        let firsts = firsts.collect::<CalcResult<Vec<_>>>()?;
        let mut marked = Vec::new();
        for (index, run) in partition.runs.iter().enumerate() {
            work.check()?;
            if let Some(marks) = self.marks(index, run, &firsts, work)? {
                marked.push(MarkedRun::new(run, marks, values(run)?));
            }
        }
        Ok(marked)
    }

    /// What the rows of a run match; none when no row matters.
    fn marks(
        &self,
        index: usize,
        run: &Run,
        firsts: &[Option<Vec<First>>],
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<RowMarks>> {
        let mut marks = RowMarks::Same(Marks::default());
        let mut shared: Option<Mask> = None;
        if self.strict {
            let mask = shared.insert(self.shared.mask(run, work)?);
            marks = marks.with(Marks::seen(), mask);
        }
        for (entry, firsts) in self.entries.iter().zip(firsts) {
            let own = entry.mask(index, run, firsts.as_deref(), work)?;
            work.consume(run.times.len())?;
            if own == Mask::Nothing {
                continue;
            }
            let shared = match &shared {
                Some(shared) => shared,
                None => shared.insert(self.shared.mask(run, work)?),
            };
            if *shared == Mask::Nothing {
                return Ok(None);
            }
            marks = marks.with(entry.marks, &own.and(shared.clone()));
        }
        Ok((marks != RowMarks::Same(Marks::default())).then_some(marks))
    }
}

impl Entry {
    fn new(
        series: &Series,
        rule: StepOptions,
        marks: Marks,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let mut matcher = |filter: &Filter| {
            let no_action = || {
                CalcError::invalid(
                    "actions",
                    format!("Action ID {} does not exist!", series.event_or_action.id()),
                )
            };
            Matcher::new(&series.event_or_action, filter, compiler, "properties")?.ok_or_else(no_action)
        };
        let first_of = match rule.first {
            None => None,
            Some(FirstTime::Ever) => Some(matcher(&Filter::none())?),
            Some(FirstTime::Matching) => Some(matcher(&series.properties)?),
        };
        Ok(Self { matcher: matcher(&series.properties)?, marks, first_of })
    }

    /// The first row of each actor, by run and row; none when every row counts.
    fn firsts(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Option<Vec<First>>> {
        let Some(matcher) = &self.first_of else { return Ok(None) };
        let mut firsts: Vec<Option<First>> = vec![None; partition.actors.len()];
        for (index, run) in partition.runs.iter().enumerate() {
            work.check()?;
            let mask = matcher.mask(run, work)?;
            if mask == Mask::Nothing {
                continue;
            }
            for (row, actor) in run.actors.iter().enumerate() {
                let counts = match &mask {
                    Mask::Rows(rows) => rows.get(row).copied().unwrap_or(false),
                    _ => true,
                };
                if counts && let Some(first) = firsts.get_mut(*actor as usize) {
                    let this = First { time: run.times[row], seq: run.order.at(row), run: index, row };
                    *first = Some(first.map_or(this, |first| first.min(this)));
                }
            }
        }
        let mut firsts: Vec<First> = firsts.into_iter().flatten().collect();
        firsts.sort_unstable_by_key(|first| (first.run, first.row));
        Ok(Some(firsts))
    }

    fn mask(
        &self,
        index: usize,
        run: &Run,
        firsts: Option<&[First]>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Mask> {
        let mask = self.matcher.mask(run, work)?;
        let (Some(firsts), true) = (firsts, mask != Mask::Nothing) else { return Ok(mask) };
        let mut rows = vec![false; run.actors.len()];
        let from = firsts.partition_point(|first| first.run < index);
        for first in firsts[from..].iter().take_while(|first| first.run == index) {
            work.consume(1)?;
            if let Some(row) = rows.get_mut(first.row) {
                *row = true;
            }
        }
        Ok(mask.and(Mask::Rows(rows)))
    }
}
