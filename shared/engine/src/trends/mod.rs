//! Trends: counts and statistics of events, per time bucket or over the whole range.
//!
//! [`CompiledTrend`] holds the compiled query. `partial` aggregates one partition into a [`PartialResult`], partial results
//! merge in any order, and `finish` builds the result's series.
//!
//! Must stay true: the result has every bucket of the range. A person counts once per bucket (once in total for a total,
//! only in the first bucket for a running sum), no matter which runs hold its events.

mod compose;
mod count;
mod counter;
mod dense;
mod formula;
mod keys;
mod numbers;
mod people;
mod point;
mod result;
mod rows;
mod slot;
mod state;
mod texts;

use chrono::DateTime;
use chrono_tz::Tz;

use crate::dates::Interval;
use crate::dates::buckets::Buckets;
use crate::dates::range::{DateRange, Rounding};
use crate::definitions::Definitions;
use crate::error::CalcResult;
use crate::filter::{Mask, Predicate};
use crate::limits;
use crate::plan::{Answer, Compiler, ProjectContext, shared_filter};
use crate::query::{BreakdownBy, Display, Math, NamedFormula, Query, TrendsQuery, UniqueBy};
use crate::regroup::ActorKind;
use crate::scan::{Micros, Partition, Run};
use crate::work::WorkBudget;
use count::{Counted, Per};
use counter::{Counter, Rows};
pub use formula::Formula;
use keys::{Key, Keys, Layer, Split};
pub use point::TrendPoint;
pub(crate) use point::point;
use slot::Period;
pub(crate) use state::Sum;
use state::Tally;

/// A trends query with resolved dates and compiled filters.
#[derive(Debug, Clone)]
pub(crate) struct Trend {
    query: TrendsQuery,
    project_id: String,
    definitions: Definitions,
    /// The current period, then the comparison period if there is one.
    periods: Vec<Period>,
    shared: Predicate,
    split: Split,
    /// By series: the kind of partitions that it is counted on.
    actors: Vec<ActorKind>,
    /// By series; `None` if its action does not exist.
    counters: Vec<Option<Counter>>,
    formulas: Vec<NamedFormula>,
}

impl Trend {
    pub(crate) fn new(
        query: &TrendsQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let periods = periods(query, project, range, compiler.now)?;
        let shared = compiler.predicate(&shared_filter(&query.common, project)?, "properties")?;
        let counters = query
            .series
            .iter()
            .map(|series| {
                let math = effective(&series.math, query);
                for period in &periods {
                    let first = period.slots(&math).bounds.0.min(period.whole().bounds.0);
                    let from = if math == Math::FirstTime { Micros::MIN } else { first };
                    compiler.cover(from, period.whole().bounds.1);
                }
                if let Some(actors) = actors_of(&math, project) {
                    compiler.count(actors);
                }
                Counter::new(series, math, compiler)
            })
            .collect::<CalcResult<Vec<_>>>()?;
        // Event counts do not depend on the kind of partitions: they use the first kind, once.
        let events_on = compiler.actors.first().copied().unwrap_or_default();
        let actors = query.series.iter();
        let actors = actors.map(|series| actors_of(&series.math, project).unwrap_or(events_on)).collect();
        let split = split(query, compiler)?;
        let (project_id, definitions) = (project.project_id.clone(), project.definitions.clone());
        let (query, formulas) = (query.clone(), query.formulas.clone());
        Ok(Self { query, project_id, definitions, periods, shared, split, actors, counters, formulas })
    }

    /// The kind of partitions that a series is counted on.
    pub(crate) fn actors(&self, series: usize) -> ActorKind {
        self.actors.get(series).copied().unwrap_or_default()
    }

    /// Index of a series in a period, as a key of [`PartialResult`].
    fn channel(&self, period: usize, series: usize) -> usize {
        period * self.counters.len() + series
    }

    /// Whether an actor counts only in its first bucket: for distinct counts shown as a running sum.
    fn counts_once(&self, math: &Math) -> bool {
        self.query.display == Display::ActionsLineGraphCumulative
            && matches!(math, Math::Unique(UniqueBy::Actor | UniqueBy::Group(_)))
    }

    pub(crate) fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Sum> {
        if let Some(sum) = self.text_counts(partition, work)? {
            return if sum.burst { Err(limits::holds_too_much()) } else { Ok(sum) };
        }
        let mut keys = Keys::default();
        let layers = partition.runs.iter().map(|run| keys.layers(&self.split, run, work));
        let layers: Vec<Vec<Layer>> = layers.collect::<CalcResult<_>>()?;
        let shared = self.shared_masks(partition, work)?;
        let mut sum = Sum::default();
        for (series, counter) in self.counters.iter().enumerate() {
            let Some(counter) = counter else { continue };
            if self.actors(series) != partition.counted {
                continue;
            }
            let rows = self.rows_of(counter, partition, (&shared, &layers), work)?;
            for (index, period) in self.periods.iter().enumerate() {
                if period.width() == 0 {
                    continue;
                }
                work.check()?;
                let channel = self.channel(index, series);
                match self.plain(counter, period, &rows) {
                    Some(counts) => sum.add(channel, Key::Whole, Tally::Counts(counts)),
                    None => {
                        let once = self.counts_once(&counter.math);
                        let slots = period.slots(&counter.math);
                        for (code, tally) in counter.tallies(&rows, &slots, (period.width(), once), work)? {
                            if let Some(key) = keys.keys.get(code as usize) {
                                sum.add(channel, key.clone(), tally);
                            }
                        }
                    }
                }
            }
        }
        if sum.burst { Err(limits::holds_too_much()) } else { Ok(sum) }
    }

    /// The rows of each run that pass the query's common filters.
    fn shared_masks(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Vec<Mask>> {
        partition.runs.iter().map(|run| self.shared.mask(run, work)).collect()
    }

    /// The rows of a series with their breakdown layers.
    fn rows_of<'a>(
        &self,
        counter: &Counter,
        partition: &'a Partition,
        (shared, layers): (&[Mask], &'a [Vec<Layer>]),
        work: &WorkBudget<'_>,
    ) -> CalcResult<Rows<'a>> {
        let masks = self.masks(counter, partition, shared, work)?;
        let row = |(run, mask): (usize, Mask)| (&partition.runs[run], mask, layers[run].as_slice());
        Ok(Rows { list: masks.into_iter().map(row).collect(), actors: partition.actors.len() })
    }

    /// The runs with rows of a series: index in the partition, and the rows that pass its filters.
    fn masks(
        &self,
        counter: &Counter,
        partition: &Partition,
        shared: &[Mask],
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<(usize, Mask)>> {
        let mut list = Vec::new();
        for (index, (run, shared)) in partition.runs.iter().zip(shared).enumerate() {
            work.check()?;
            let mask = match shared {
                Mask::Nothing => Mask::Nothing,
                shared => counter.matcher.mask(run, work)?.and(shared.clone()),
            };
            // First-time math also needs the events that pass no filter.
            if mask != Mask::Nothing || counter.math == Math::FirstTime {
                list.push((index, mask));
            }
        }
        Ok(list)
    }

    /// Fast path: counts of events or persons without a breakdown. `None` if the series needs the general path.
    fn plain(&self, counter: &Counter, period: &Period, rows: &Rows<'_>) -> Option<Vec<u64>> {
        if !matches!(
            (&self.split, &counter.math),
            (Split::Whole, Math::Total | Math::Unique(UniqueBy::Actor))
        ) {
            return None;
        }
        let slots = period.slots(&counter.math);
        let mut counts = vec![0; period.width()];
        let list: Vec<(&Run, &Mask)> = rows.list.iter().map(|(run, mask, _)| (*run, mask)).collect();
        let counted = Counted { rows: &list, buckets: slots.buckets, bounds: slots.bounds };
        match counter.math {
            Math::Total => counted.events(&mut counts),
            _ if self.counts_once(&counter.math) => counted.persons(Per::Person, rows.actors, &mut counts),
            _ => counted.persons(Per::Bucket, rows.actors, &mut counts),
        }
        Some(counts)
    }

    pub(crate) fn finish(&self, mut sum: Sum, work: &WorkBudget<'_>) -> CalcResult<Answer> {
        work.check()?;
        sum.settle();
        work.check()?;
        let width = self.periods.iter().map(Period::width).max().unwrap_or(0);
        if sum.burst || !limits::numbers_fit(sum.values(), width) {
            return Err(limits::holds_too_much());
        }
        if sum.tallies.len() > limits::BREAKDOWN_VALUES * self.counters.len() * self.periods.len() {
            return Err(limits::too_many("breakdown", "distinct values", limits::BREAKDOWN_VALUES));
        }
        let (outputs, cut) = self.outputs(sum, work)?;
        if outputs.len().saturating_mul(width) > limits::ANSWER_POINTS {
            return Err(limits::too_many("breakdown", "numbers in the answer", limits::ANSWER_POINTS));
        }
        Ok(Answer { result: result::series(self, &outputs), has_more: Some(cut) })
    }
}

/// The queried date range and the comparison range.
fn periods(
    query: &TrendsQuery,
    project: &ProjectContext,
    range: DateRange,
    now: DateTime<Tz>,
) -> CalcResult<Vec<Period>> {
    let total = query.display.is_total();
    let interval = if total { Interval::Day } else { query.common.interval };
    let mut ranges = vec![range];
    if let Some(comparison) = &query.comparison {
        // A total is rounded by days, but its comparison range by the requested interval.
        let rounding = Rounding { interval: query.common.interval, ..Query::trend_rounding(query) };
        let dates = &query.common.dates;
        let current = dates.resolve(rounding, now, project.earliest_event)?;
        ranges.push(comparison.of(&current, dates, rounding)?);
    }
    let mut points = 0;
    let period = |range: DateRange| {
        // A total has no buckets, so the length of its range is not limited.
        let span = if total { DateRange { from: range.to, ..range } } else { range };
        let buckets = Buckets::new(&span, interval, project.week_start)?;
        points += buckets.len() * query.series.len();
        if points > limits::POINTS {
            return Err(limits::too_many("interval", "intervals in all series together", limits::POINTS));
        }
        Ok(Period::new(range, buckets, interval, total))
    };
    ranges.into_iter().map(period).collect()
}

/// Compiles the breakdown.
fn split(query: &TrendsQuery, compiler: &mut Compiler<'_>) -> CalcResult<Split> {
    use crate::breakdown::Reader;
    use crate::query::CohortChoice;
    use crate::scan::{FactKey, RowKey};
    Ok(match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        None => Split::Whole,
        Some(BreakdownBy::Dimensions { dimensions: parts, .. }) => {
            Split::Texts(Reader::new(parts, compiler, "breakdown")?)
        }
        Some(BreakdownBy::Cohorts { choices, .. }) => {
            for choice in choices {
                if let CohortChoice::Cohort(id) = choice {
                    compiler.read(&RowKey::Fact(FactKey::Member(*id)), "breakdown")?;
                }
            }
            Split::Cohorts(choices.clone())
        }
    })
}

/// Simplifies the aggregation: where buckets are at least as wide as the rolling window, a rolling count is a plain
/// distinct count, also for totals.
fn effective(math: &Math, query: &TrendsQuery) -> Math {
    match (math, query.common.interval) {
        (Math::Rolling(7, who), Interval::Week | Interval::Month)
        | (Math::Rolling(30, who), Interval::Month) => Math::Unique(*who),
        _ => math.clone(),
    }
}

/// The kind of actors that the aggregation counts; `None` if the kind does not change the number.
fn actors_of(math: &Math, project: &ProjectContext) -> Option<ActorKind> {
    match math {
        Math::Unique(UniqueBy::Actor) | Math::Rolling(_, UniqueBy::Actor) | Math::PerActor(_) => {
            Some(ActorKind::of(project, None))
        }
        // First-time counts are per person, even if the project aggregates by distinct id.
        Math::FirstTime => Some(ActorKind::Persons),
        Math::Unique(_) | Math::Rolling(..) | Math::Total | Math::Property(..) | Math::Expression(_) => None,
    }
}
