//! The compiled form of one series: which events match, and how they are aggregated.
//!
//! Must stay true: persons are counted within their partition, because no other partition has events of them.

use std::collections::HashMap;

use pennon_filters::error::CalcResult;
use pennon_filters::text::number_of;
use pennon_filters::work_budget::WorkBudget;

use super::accumulator::{Accumulator, Accumulators, DistinctEntry, DistinctSet};
use super::bucket_mapping::BucketMapping;
use super::counted_rows::{CountedRow, SeriesRows, for_each_passing, for_each_row};
use super::decoded_column::{DecodedColumn, hash_column};
use super::dense;
use super::statistics::StatisticState;
use crate::compiler::Compiler;
use crate::compiler::matcher::Matcher;
use crate::filter::Filter;
use crate::join::session_column;
use crate::query::{Math, NumberSource, Series, Statistic, UniqueBy};
use crate::scan::group_column;
use crate::scan::{ColumnKey, ColumnRef, JoinedColumnKey, Micros, Seq};
use crate::sql::{AggregateState, CompiledAggregate};

/// A compiled series.
#[derive(Debug, Clone)]
pub(super) struct SeriesCounter {
    /// Matches the events of the series.
    pub(super) matcher: Matcher,
    /// The same without the series' filters; only for first-time math.
    unfiltered: Option<Matcher>,
    /// The compiled aggregate expression, if `math` is one.
    pub(super) aggregation: Option<CompiledAggregate>,
    /// How events are aggregated.
    pub(super) math: Math,
    /// Factor for the final numbers.
    pub(super) multiplier: f64,
}

impl SeriesCounter {
    /// Compiles a series; `None` if its action does not exist.
    pub(super) fn new(series: &Series, math: Math, compiler: &mut Compiler<'_>) -> CalcResult<Option<Self>> {
        let attr = "properties";
        let Some(matcher) = Matcher::new(&series.event_or_action, &series.properties, compiler, attr)? else {
            return Ok(None);
        };
        let aggregation = match &math {
            Math::Expression(aggregate) => {
                Some(compiler.compile_aggregate(aggregate, series.event_or_action.list_name())?)
            }
            _ => None,
        };
        let unfiltered = match math {
            Math::FirstTime => Matcher::new(&series.event_or_action, &Filter::none(), compiler, attr)?,
            _ => None,
        };
        for key in required_columns(&math) {
            compiler.require_value(&key, series.event_or_action.list_name())?;
        }
        let multiplier = series.math_arguments.multiplier.unwrap_or(1.0);
        Ok(Some(Self { matcher, unfiltered, aggregation, math, multiplier }))
    }

    /// The statistic, if the series aggregates numbers rather than counting.
    pub(super) fn statistic(&self) -> Option<Statistic> {
        match self.math {
            Math::PerActor(statistic) | Math::Property(statistic, _) => Some(statistic),
            _ => None,
        }
    }

    /// Aggregates the rows. With `first`, a person counts only in its first bucket.
    pub(super) fn aggregate(
        &self,
        rows: &SeriesRows<'_>,
        mapping: &BucketMapping<'_>,
        (width, first_bucket_only): (usize, bool),
        work: &WorkBudget<'_>,
    ) -> CalcResult<Accumulators> {
        Ok(match &self.math {
            Math::Unique(UniqueBy::Actor) | Math::Rolling(_, UniqueBy::Actor) => {
                dense::count_actors(rows, mapping, (width, first_bucket_only), work)?
            }
            Math::Unique(unique_by) | Math::Rolling(_, unique_by) => {
                distinct_entities(rows, mapping, *unique_by, work)?
            }
            Math::PerActor(statistic) => per_actor(rows, mapping, *statistic, work)?,
            Math::Property(_, NumberSource::SessionDuration) => session_durations(rows, mapping, work)?,
            Math::Property(statistic, source) => {
                dense::aggregate_numbers(rows, mapping, width, (*statistic, &row_key(source)), work)?
            }
            Math::FirstTime => self.count_first_times(rows, mapping, width, work)?,
            Math::Expression(_) => self.aggregate_expression(rows, mapping, work)?,
            Math::Total => dense::count_all_events(rows, mapping, width, work)?,
        })
    }

    fn aggregate_expression(
        &self,
        rows: &SeriesRows<'_>,
        mapping: &BucketMapping<'_>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Accumulators> {
        let mut values: HashMap<u32, HashMap<u32, AggregateState>> = HashMap::new();
        let Some(aggregation) = &self.aggregation else { return Ok(Accumulators::new()) };
        let inputs = rows.list.iter().map(|(run, ..)| aggregation.inputs(run, work));
        let inputs: Vec<_> = inputs.collect::<CalcResult<_>>()?;
        for_each_row(rows, mapping, work, |row| {
            let (run_index, row_index) = row.position;
            let buckets = values.entry(row.value_code).or_default();
            if let Some(inputs) = inputs.get(run_index) {
                aggregation.add(buckets.entry(row.span.from).or_default(), inputs, row_index);
            }
        })?;
        Ok(values.into_iter().map(|(key, buckets)| (key, Accumulator::Aggregates(buckets))).collect())
    }

    /// Counts the first event of each person if it passes the filters.
    fn count_first_times(
        &self,
        rows: &SeriesRows<'_>,
        mapping: &BucketMapping<'_>,
        width: usize,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Accumulators> {
        let first_rows = self.first_time_rows(rows, mapping, work)?;
        dense::count_events(rows, mapping, width, work, |row| {
            first_rows.get(row.actor as usize) == Some(&Some(row.position))
        })
    }

    /// By actor: the row that counts, as run index and row index. Among the rows that pass the filters at the time of the
    /// actor's first event, it is the one that arrived first.
    fn first_time_rows(
        &self,
        rows: &SeriesRows<'_>,
        mapping: &BucketMapping<'_>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Option<(usize, usize)>>> {
        let mut earliest = vec![Micros::MAX; rows.actors];
        if let Some(unfiltered) = &self.unfiltered {
            for (run, ..) in &rows.list {
                let mask = unfiltered.mask(run, work)?;
                for_each_passing(run, &mask, work, |row| {
                    if run.times[row] <= mapping.bounds.1
                        && let Some(known) = earliest.get_mut(run.actors[row] as usize)
                    {
                        *known = run.times[row].min(*known);
                    }
                })?;
            }
        }
        let mut first_rows: Vec<Option<(Seq, (usize, usize))>> = vec![None; rows.actors];
        for_each_row(rows, mapping, work, |row| {
            let actor = row.actor as usize;
            if earliest.get(actor) != Some(&row.time) {
                return;
            }
            let (run_index, row_index) = row.position;
            let seq = rows.list.get(run_index).map_or(Seq::MAX, |(run, ..)| run.order.at(row_index));
            if let Some(first) = first_rows.get_mut(actor)
                && first.is_none_or(|(known, _)| seq < known)
            {
                *first = Some((seq, row.position));
            }
        })?;
        Ok(first_rows.into_iter().map(|first| first.map(|(_, at)| at)).collect())
    }

    /// Calls back with every counted row: run index and row index, and the code of its breakdown value.
    pub(super) fn for_each_counted(
        &self,
        rows: &SeriesRows<'_>,
        mapping: &BucketMapping<'_>,
        work: &WorkBudget<'_>,
        mut callback: impl FnMut((usize, usize), u32),
    ) -> CalcResult<()> {
        let first_rows = match self.math {
            Math::FirstTime => Some(self.first_time_rows(rows, mapping, work)?),
            _ => None,
        };
        let group = match self.math {
            Math::Unique(UniqueBy::Group(index)) | Math::Rolling(_, UniqueBy::Group(index)) => {
                Some(hash_column(rows, &group_column(index), None, work)?)
            }
            _ => None,
        };
        for_each_row(rows, mapping, work, |row| {
            let is_counted = first_rows
                .as_ref()
                .is_none_or(|first_rows| first_rows.get(row.actor as usize) == Some(&Some(row.position)));
            if is_counted
                && group.as_ref().is_none_or(|ids| ids[row.position.0].get(row.position.1).is_some())
            {
                callback(row.position, row.value_code);
            }
        })
    }
}

fn required_columns(math: &Math) -> Vec<ColumnRef> {
    match math {
        Math::Unique(UniqueBy::Group(index)) | Math::Rolling(_, UniqueBy::Group(index)) => {
            vec![ColumnRef::Event(group_column(*index))]
        }
        Math::Unique(UniqueBy::Session) => vec![ColumnRef::Event(session_column())],
        Math::Property(_, NumberSource::SessionDuration) => {
            vec![ColumnRef::Event(session_column()), row_key(&NumberSource::SessionDuration)]
        }
        Math::Property(_, source) => vec![row_key(source)],
        _ => Vec::new(),
    }
}

fn row_key(source: &NumberSource) -> ColumnRef {
    match source {
        NumberSource::Event(key) => ColumnRef::Event(ColumnKey::Property(key.clone())),
        NumberSource::Person(key) => ColumnRef::Joined(JoinedColumnKey::Person(key.clone())),
        NumberSource::SessionDuration => {
            ColumnRef::Joined(JoinedColumnKey::Session("$session_duration".to_owned()))
        }
    }
}

fn per_actor(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    statistic: Statistic,
    work: &WorkBudget<'_>,
) -> CalcResult<Accumulators> {
    let mut keys: Vec<(u32, u32, u32)> = Vec::new();
    for_each_row(rows, mapping, work, |row| keys.push((row.value_code, row.span.from, row.actor)))?;
    keys.sort_unstable();
    let mut values: HashMap<u32, HashMap<u32, StatisticState>> = HashMap::new();
    for actor_rows in keys.chunk_by(|left, right| left == right) {
        work.consume(actor_rows.len())?;
        let Some((key, bucket, _)) = actor_rows.first() else { continue };
        let buckets = values.entry(*key).or_default();
        let state = buckets.entry(*bucket).or_insert_with(|| StatisticState::new(statistic));
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        state.push(actor_rows.len() as f64);
    }
    Ok(values.into_iter().map(|(key, buckets)| (key, Accumulator::Statistics(buckets))).collect())
}

fn distinct_entities(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    unique_by: UniqueBy,
    work: &WorkBudget<'_>,
) -> CalcResult<Accumulators> {
    let ids = match unique_by {
        UniqueBy::Group(index) => hash_column(rows, &group_column(index), None, work)?,
        _ => hash_column(rows, &session_column(), Some(0), work)?,
    };
    collect_distinct(rows, mapping, work, |row| Some((ids[row.position.0].get(row.position.1)?, None)))
}

/// The duration of each session, once per bucket.
fn session_durations(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    work: &WorkBudget<'_>,
) -> CalcResult<Accumulators> {
    let ids = hash_column(rows, &session_column(), None, work)?;
    let key = row_key(&NumberSource::SessionDuration);
    let lengths = rows.list.iter().map(|(run, ..)| DecodedColumn::new(run.column(&key), number_of, work));
    let lengths: Vec<_> = lengths.collect::<CalcResult<_>>()?;
    collect_distinct(rows, mapping, work, |row| {
        let (run_index, row_index) = row.position;
        Some(match (ids[run_index].get(row_index), lengths[run_index].get(row_index)) {
            (Some(id), Some(length)) => (id, Some(length)),
            _ => (0, None),
        })
    })
}

fn collect_distinct(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    work: &WorkBudget<'_>,
    identify: impl Fn(&CountedRow) -> Option<(u128, Option<f64>)>,
) -> CalcResult<Accumulators> {
    let mut by_key: HashMap<u32, Vec<DistinctEntry>> = HashMap::new();
    for_each_row(rows, mapping, work, |row| {
        let Some((id, number)) = identify(&row) else { return };
        let entries = by_key.entry(row.value_code).or_default();
        let entry = DistinctEntry { id, span: row.span, number };
        if entries.last() != Some(&entry) {
            entries.push(entry);
        }
    })?;
    let accumulator = |(key, entries): (u32, Vec<DistinctEntry>)| {
        work.consume(entries.len())?;
        Ok((key, Accumulator::Distinct(DistinctSet::new(entries))))
    };
    by_key.into_iter().map(accumulator).collect()
}
