//! Matches the rows of a partition with the steps and exclusions of a funnel.
//!
//! Must stay true: a first-time step matches at most one row per actor, the first one in all of history, and only if that
//! row passes the step's filters.

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::WorkBudget;

use super::breakdown::ValueCodes;
use super::k_way_merge::{MatchedRun, RowMatches};
use super::scan::MatchBits;
use crate::compiler::matcher::Matcher;
use crate::compiler::{Compiler, common_filter};
use crate::filter::{Filter, Predicate};
use crate::kinds::funnels::{FirstTime, FunnelsQuery, StepOptions, StepOrder};
use crate::mask::Mask;
use crate::project::ProjectContext;
use crate::query::Series;
use crate::scan::{EventRun, Micros, Partition, Seq};

/// The compiled steps and exclusions of a funnel.
#[derive(Debug, Clone)]
pub(super) struct StepMatcher {
    shared: Predicate,
    /// Steps, then exclusions.
    entries: Vec<MatcherEntry>,
    /// Strict order: rows that match nothing matter too.
    strict: bool,
}

/// The matcher of a step or exclusion.
#[derive(Debug, Clone)]
struct MatcherEntry {
    matcher: Matcher,
    matches: MatchBits,
    /// For first-time steps: only the actor's first event that matches this counts.
    first_of: Option<Matcher>,
}

/// The first matching row of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FirstRow {
    time: Micros,
    seq: Seq,
    run: usize,
    row: usize,
}

impl StepMatcher {
    /// Compiles steps, exclusions and filters, and registers the columns they read.
    pub(super) fn new(
        query: &FunnelsQuery,
        project: &ProjectContext,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let shared = compiler.compile_filter(&common_filter(&query.common, project)?, "properties")?;
        let mut entries = Vec::with_capacity(query.series.len() + query.exclusions.len());
        for (index, (series, rule)) in query.series.iter().zip(&query.steps).enumerate() {
            entries.push(MatcherEntry::new(series, *rule, MatchBits::step(index), compiler)?);
        }
        for exclusion in &query.exclusions {
            let matches = MatchBits::exclusion(exclusion.from_step, exclusion.to_step);
            entries.push(MatcherEntry::new(&exclusion.series, StepOptions::default(), matches, compiler)?);
        }
        let strict = query.order == StepOrder::Strict;
        if strict {
            compiler.include_event(None);
        }
        if entries.iter().any(|entry| entry.first_of.is_some()) {
            compiler.extend_time_range(Micros::MIN, Micros::MIN);
        }
        Ok(Self { shared, entries, strict })
    }

    /// The runs with rows that match something, and what these match.
    pub(super) fn matched_runs<'a>(
        &self,
        partition: &'a Partition,
        work: &WorkBudget<'_>,
        mut values: impl FnMut(&EventRun) -> CalcResult<Option<ValueCodes>>,
    ) -> CalcResult<Vec<MatchedRun<'a>>> {
        let first_rows = self.entries.iter().map(|entry| entry.first_rows(partition, work));
        let first_rows = first_rows.collect::<CalcResult<Vec<_>>>()?;
        let mut matched = Vec::new();
        for (index, run) in partition.runs.iter().enumerate() {
            work.check()?;
            if let Some(matches) = self.match_rows(index, run, &first_rows, work)? {
                matched.push(MatchedRun::new(run, matches, values(run)?));
            }
        }
        Ok(matched)
    }

    /// What the rows of a run match; `None` if no row matches anything.
    fn match_rows(
        &self,
        index: usize,
        run: &EventRun,
        first_rows: &[Option<Vec<FirstRow>>],
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<RowMatches>> {
        let mut matches = RowMatches::Same(MatchBits::default());
        let mut shared: Option<Mask> = None;
        if self.strict {
            let mask = shared.insert(self.shared.mask(run, work)?);
            matches = matches.with(MatchBits::any_event(), mask);
        }
        for (entry, first_rows) in self.entries.iter().zip(first_rows) {
            let mask = entry.mask(index, run, first_rows.as_deref(), work)?;
            work.consume(run.times.len())?;
            if mask == Mask::Nothing {
                continue;
            }
            let shared = match &shared {
                Some(shared) => shared,
                None => shared.insert(self.shared.mask(run, work)?),
            };
            if *shared == Mask::Nothing {
                return Ok(None);
            }
            matches = matches.with(entry.matches, &mask.and(shared.clone()));
        }
        Ok((matches != RowMatches::Same(MatchBits::default())).then_some(matches))
    }
}

impl MatcherEntry {
    fn new(
        series: &Series,
        rule: StepOptions,
        matches: MatchBits,
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
        Ok(Self { matcher: matcher(&series.properties)?, matches, first_of })
    }

    /// The first matching row of each actor, sorted by run and row; `None` if this is not a first-time step.
    fn first_rows(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Option<Vec<FirstRow>>> {
        let Some(matcher) = &self.first_of else { return Ok(None) };
        let mut first_rows: Vec<Option<FirstRow>> = vec![None; partition.actors.len()];
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
                if counts && let Some(first) = first_rows.get_mut(*actor as usize) {
                    let this = FirstRow { time: run.times[row], seq: run.order.at(row), run: index, row };
                    *first = Some(first.map_or(this, |first| first.min(this)));
                }
            }
        }
        let mut first_rows: Vec<FirstRow> = first_rows.into_iter().flatten().collect();
        first_rows.sort_unstable_by_key(|first| (first.run, first.row));
        Ok(Some(first_rows))
    }

    fn mask(
        &self,
        index: usize,
        run: &EventRun,
        first_rows: Option<&[FirstRow]>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Mask> {
        let mask = self.matcher.mask(run, work)?;
        let (Some(first_rows), true) = (first_rows, mask != Mask::Nothing) else { return Ok(mask) };
        let mut rows = vec![false; run.actors.len()];
        let from = first_rows.partition_point(|first| first.run < index);
        for first in first_rows[from..].iter().take_while(|first| first.run == index) {
            work.consume(1)?;
            if let Some(row) = rows.get_mut(first.row) {
                *row = true;
            }
        }
        Ok(mask.and(Mask::Rows(rows)))
    }
}
