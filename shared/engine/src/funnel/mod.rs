//! Funnels: who gets how far through steps, and how long it takes.
//!
//! Must stay true: the pass over the events yields one outcome an actor ([`Outcome`]); counts and times are folds over
//! these, as lists of people and correlation will be.

mod merge;
mod result;
pub mod scan;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::dates::range::DateRange;
use crate::definitions::Definitions;
use crate::error::{CalcError, CalcResult};
use crate::filter::{Mask, Predicate};
use crate::matcher::Matcher;
use crate::plan::{Compiler, Partial, ProjectContext, shared_filter};
use crate::query::{FunnelsQuery, Series};
use crate::regroup::ActorKind;
use crate::scan::{Micros, Partition, Run};
use merge::{MarkedRun, RowMarks, Ticks};
use scan::{Marks, Scanner};

/// Actors between two looks at the clock.
const ACTORS_PER_LOOK: usize = 4_096;

/// A funnel made ready.
#[derive(Debug, Clone)]
pub(crate) struct Funnel {
    query: FunnelsQuery,
    project_id: String,
    range: DateRange,
    bounds: (Micros, Micros),
    shared: Predicate,
    definitions: Definitions,
    /// Steps, then exclusions: which events take or hit them, and what that is.
    matchers: Vec<(Matcher, Marks)>,
}

/// How far an actor got.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome<'a> {
    /// When each step of its path was taken; at least one.
    pub(crate) times: &'a [Micros],
}

impl Funnel {
    pub(crate) fn new(
        query: &FunnelsQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        compiler.count(ActorKind::of(project, None));
        let bounds = (range.from.timestamp_micros(), range.to.timestamp_micros());
        compiler.cover(bounds.0, bounds.1);
        let shared = compiler.predicate(&shared_filter(&query.common, project)?, "properties")?;
        let mut matchers = Vec::with_capacity(query.series.len() + query.exclusions.len());
        let mut add = |series: &Series, marks, compiler: &mut Compiler<'_>| {
            let matcher = Matcher::new(&series.source, &series.properties, compiler, "properties")?;
            let no_action =
                || CalcError::invalid("actions", format!("Action ID {} does not exist!", series.source.id()));
            matchers.push((matcher.ok_or_else(no_action)?, marks));
            CalcResult::Ok(())
        };
        for (index, step) in query.series.iter().enumerate() {
            add(step, Marks::step(index), compiler)?;
        }
        for entry in &query.exclusions {
            add(&entry.series, Marks::exclusion(entry.from_step, entry.to_step), compiler)?;
        }
        let (project_id, definitions) = (project.project_id.clone(), project.definitions.clone());
        Ok(Self { query: query.clone(), project_id, range, bounds, shared, definitions, matchers })
    }

    pub(crate) fn partial(&self, partition: &Partition, stop: &dyn Fn() -> bool) -> CalcResult<Partial> {
        let steps = self.query.series.len();
        let mut counts = vec![0; steps];
        let mut hops = vec![Vec::new(); steps];
        self.outcomes(partition, stop, |outcome| {
            for (step, time) in outcome.times.iter().enumerate() {
                counts[step] += 1;
                if step > 0 {
                    let hop = time - outcome.times[step - 1];
                    // Steps of one instant took no time that could be averaged.
                    if hop > 0 {
                        hops[step].push(hop);
                    }
                }
            }
        })?;
        Ok(Partial { counts, hops })
    }

    /// Calls back for every actor that takes the first step, unless an exclusion voids what it did.
    fn outcomes(
        &self,
        partition: &Partition,
        stop: &dyn Fn() -> bool,
        mut back: impl FnMut(Outcome<'_>),
    ) -> CalcResult<()> {
        let mut runs = Vec::new();
        for run in &partition.runs {
            if stop() {
                return Err(CalcError::timeout());
            }
            runs.extend(self.marks(run).map(|marks| MarkedRun::new(run, marks)));
        }
        let entrants = merge::entrants(&runs);
        let mut scanner = Scanner::new(self.query.series.len(), self.query.window.micros());
        let mut ticks = Ticks::new(&runs, self.bounds);
        for (looked, actor) in entrants.into_iter().enumerate() {
            if looked % ACTORS_PER_LOOK == 0 && stop() {
                return Err(CalcError::timeout());
            }
            ticks.seek(actor);
            scanner.begin();
            while !scanner.is_complete()
                && let Some(tick) = ticks.next()
            {
                scanner.tick(tick);
            }
            if let Some(reached) = scanner.reached() {
                back(Outcome { times: reached.times });
            }
        }
        Ok(())
    }

    /// What the rows of a run match; none when no row can match anything.
    fn marks(&self, run: &Run) -> Option<RowMarks> {
        let mut marks = RowMarks::Same(Marks::default());
        let mut shared: Option<Mask> = None;
        for (matcher, own) in &self.matchers {
            let own_mask = matcher.mask(run);
            if own_mask == Mask::Nothing {
                continue;
            }
            let shared = shared.get_or_insert_with(|| self.shared.mask(run));
            if *shared == Mask::Nothing {
                return None;
            }
            marks = marks.with(*own, &own_mask.and(shared.clone()));
        }
        (marks != RowMarks::Same(Marks::default())).then_some(marks)
    }
}

impl Funnel {
    pub(crate) fn finish(&self, sum: Partial) -> Value {
        result::steps(self, sum)
    }
}
