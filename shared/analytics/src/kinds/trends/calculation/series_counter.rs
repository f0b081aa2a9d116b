//! The compiled form of one series: which events match, and how they are aggregated.
//!
//! Must stay true: an event counts only under its breakdown value and in the buckets of its time. Persons are counted
//! within their partition, because no other partition has events of them.

use std::collections::HashMap;

use pennon_filters::error::CalcResult;
use pennon_filters::text::{number_of, text_length, text_of};
use pennon_filters::work_budget::WorkBudget;

use super::breakdown_values::BreakdownLayer;
use super::bucket_mapping::{BucketMapping, BucketSpan};
use super::dense;
use super::partial_result::{Accumulator, DistinctEntry, DistinctSet};
use super::statistics::StatisticState;
use crate::compiler::Compiler;
use crate::compiler::matcher::Matcher;
use crate::dictionary::text_hash;
use crate::filter::Filter;
use crate::join::session_column;
use crate::mask::Mask;
use crate::query::{Math, NumberSource, Series, Statistic, UniqueBy};
use crate::scan::group_column;
use crate::scan::{Column, ColumnKey, ColumnRef, EventRun, JoinedColumnKey, Micros, Seq};
use crate::sql::CompiledAggregate;

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

/// The rows of one series in one partition.
pub(super) struct SeriesRows<'a> {
    /// Runs, the rows that pass the filters, and the breakdown layers.
    pub(super) list: Vec<(&'a EventRun, Mask, &'a [BreakdownLayer])>,
    /// Number of actors in the partition.
    pub(super) actors: usize,
}

/// A counted row in one of its layers.
pub(super) struct CountedRow {
    /// Index of its run in the list, and of the row in the run.
    pub(super) position: (usize, usize),
    pub(super) actor: u32,
    time: Micros,
    pub(super) span: BucketSpan,
    pub(super) value_code: u32,
}

/// Accumulators by the code of the breakdown value.
pub(super) type Accumulators = HashMap<u32, Accumulator>;

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
        let mut accumulators = Accumulators::new();
        let Some(aggregation) = &self.aggregation else { return Ok(accumulators) };
        let inputs = rows.list.iter().map(|(run, ..)| aggregation.inputs(run, work));
        let inputs: Vec<_> = inputs.collect::<CalcResult<_>>()?;
        for_each_row(rows, mapping, work, |row| {
            let (run_index, row_index) = row.position;
            let accumulator =
                accumulators.entry(row.value_code).or_insert_with(|| Accumulator::Aggregates(HashMap::new()));
            if let (Accumulator::Aggregates(buckets), Some(inputs)) = (accumulator, inputs.get(run_index)) {
                aggregation.add(buckets.entry(row.span.from).or_default(), inputs, row_index);
            }
        })?;
        Ok(accumulators)
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

/// Calls back with the indexes of the rows that pass a mask.
#[inline]
fn for_each_passing(
    run: &EventRun,
    mask: &Mask,
    work: &WorkBudget<'_>,
    mut callback: impl FnMut(usize),
) -> CalcResult<()> {
    let rows = run.actors.len();
    for start in (0..rows).step_by(ROWS_PER_CHECK) {
        let chunk = start..rows.min(start + ROWS_PER_CHECK);
        work.consume(ROWS_PER_CHECK)?;
        match mask {
            Mask::Nothing => return Ok(()),
            Mask::Every => chunk.for_each(&mut callback),
            Mask::Rows(passes) => {
                let passes = passes.get(chunk.clone()).unwrap_or_default();
                chunk.zip(passes).filter(|(_, passes)| **passes).for_each(|(row, _)| callback(row));
            }
        }
    }
    Ok(())
}

/// Rows per work unit consumption and check for cancellation.
const ROWS_PER_CHECK: usize = 1 << 14;

/// Calls back with every row that counts in some bucket, once per layer.
#[inline]
pub(super) fn for_each_row(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    work: &WorkBudget<'_>,
    mut callback: impl FnMut(CountedRow),
) -> CalcResult<()> {
    for (run_index, (run, mask, layers)) in rows.list.iter().enumerate() {
        for layer in *layers {
            let members;
            let mask = match &layer.mask {
                Mask::Every => mask,
                layer => {
                    members = mask.clone().and(layer.clone());
                    &members
                }
            };
            for_each_passing(run, mask, work, |row| {
                let (actor, time) = (run.actors[row], run.times[row]);
                if let Some(span) = mapping.span_at(time) {
                    callback(CountedRow {
                        position: (run_index, row),
                        actor,
                        time,
                        span,
                        value_code: layer.codes.code_of(row),
                    });
                }
            })?;
        }
    }
    Ok(())
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
    let mut accumulators = Accumulators::new();
    for actor_rows in keys.chunk_by(|left, right| left == right) {
        work.consume(actor_rows.len())?;
        let Some((key, bucket, _)) = actor_rows.first() else { continue };
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        push_number(&mut accumulators, *key, *bucket, statistic, Some(actor_rows.len() as f64));
    }
    Ok(accumulators)
}

/// Adds a number. A breakdown value without numbers gets an empty accumulator.
fn push_number(
    accumulators: &mut Accumulators,
    value_code: u32,
    bucket: u32,
    statistic: Statistic,
    number: Option<f64>,
) {
    let accumulator =
        accumulators.entry(value_code).or_insert_with(|| Accumulator::Statistics(HashMap::new()));
    if let (Accumulator::Statistics(buckets), Some(number)) = (accumulator, number) {
        buckets.entry(bucket).or_insert_with(|| StatisticState::new(statistic)).push(number);
    }
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

/// Work units of decoding one value, in addition to the bytes of its text.
const WORK_PER_VALUE: usize = 16;

/// A column whose dictionary values are converted to another type.
pub(super) struct DecodedColumn<'a, T> {
    codes: &'a [u32],
    column: &'a [serde_json::Value],
    /// Converted values by code. `None` if there are fewer rows than values; then values are converted row by row.
    values: Option<Vec<Option<T>>>,
    read: fn(&serde_json::Value) -> Option<T>,
    /// The value of rows without one.
    missing: Option<T>,
}

impl<'a, T: Copy> DecodedColumn<'a, T> {
    pub(super) fn new(
        column: Option<&'a Column>,
        read: fn(&serde_json::Value) -> Option<T>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Self> {
        let (codes, column): (&[u32], &[serde_json::Value]) =
            column.map_or((&[], &[]), |column| (&column.codes, &column.values));
        let read_all = || {
            let values = column.iter().map(|value| {
                work.consume(WORK_PER_VALUE + text_length(value))?;
                Ok(read(value))
            });
            values.collect::<CalcResult<Vec<_>>>()
        };
        let values = (codes.len() >= column.len()).then(read_all).transpose()?;
        Ok(Self { codes, column, values, read, missing: None })
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<T> {
        let code = self.codes.get(row).and_then(|code| usize::try_from(*code).ok());
        let value = code.and_then(|code| match &self.values {
            Some(values) => values.get(code).copied().flatten(),
            None => self.column.get(code).and_then(self.read),
        });
        value.or(self.missing)
    }
}

/// By run: the 128-bit hashes of a column's texts. Empty texts are missing values.
fn hash_column<'a>(
    rows: &SeriesRows<'a>,
    key: &ColumnKey,
    missing: Option<u128>,
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<DecodedColumn<'a, u128>>> {
    fn id(value: &serde_json::Value) -> Option<u128> {
        text_of(value).filter(|text| !text.is_empty()).map(|text| text_hash(&text))
    }
    let of_run = |run: &'a EventRun| {
        Ok(DecodedColumn { missing, ..DecodedColumn::new(run.columns.get(key), id, work)? })
    };
    rows.list.iter().map(|(run, ..)| of_run(run)).collect()
}
