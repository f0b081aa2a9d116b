//! The compiled form of one series: which events match, and how they are aggregated.
//!
//! Must stay true: an event counts only under its breakdown value and in the buckets of its time. Persons are counted
//! within their partition, because no other partition has events of them.

use std::collections::HashMap;

use super::dense;
use super::keys::Layer;
use super::numbers::Numbers;
use super::slot::{Slot, Slots};
use super::state::{Crowd, Seen, Tally};
use crate::dictionary::text_id;
use crate::error::CalcResult;
use crate::facts::{group_column, session_column};
use crate::filter::{Filter, Mask};
use crate::matcher::Matcher;
use crate::plan::Compiler;
use crate::query::{Math, NumberSource, Series, Statistic, UniqueBy};
use crate::scan::{Column, ColumnKey, FactKey, Micros, RowKey, Run, Seq};
use crate::sql::Aggregation;
use crate::text::{number_of, text_length, text_of};
use crate::work::WorkBudget;

/// A compiled series.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    /// Matches the events of the series.
    pub(super) matcher: Matcher,
    /// The same without the series' filters; only for first-time math.
    unfiltered: Option<Matcher>,
    /// The compiled aggregate expression, if `math` is one.
    pub(super) aggregation: Option<Aggregation>,
    /// How events are aggregated.
    pub(super) math: Math,
    /// Factor for the final numbers.
    pub(super) multiplier: f64,
}

/// The rows of one series in one partition.
pub(super) struct Rows<'a> {
    /// Runs, the rows that pass the filters, and the breakdown layers.
    pub(super) list: Vec<(&'a Run, Mask, &'a [Layer])>,
    /// Number of actors in the partition.
    pub(super) actors: usize,
}

/// A counted row in one of its layers.
pub(super) struct Row {
    /// Index of its run in the list, and of the row in the run.
    pub(super) at: (usize, usize),
    pub(super) actor: u32,
    time: Micros,
    pub(super) slot: Slot,
    pub(super) key: u32,
}

/// Accumulators by the code of the breakdown value.
pub(super) type Tallies = HashMap<u32, Tally>;

impl Counter {
    /// Compiles a series; `None` if its action does not exist.
    pub(super) fn new(series: &Series, math: Math, compiler: &mut Compiler<'_>) -> CalcResult<Option<Self>> {
        let attr = "properties";
        let Some(matcher) = Matcher::new(&series.event_or_action, &series.properties, compiler, attr)? else {
            return Ok(None);
        };
        let aggregation = match &math {
            Math::Expression(aggregate) => {
                Some(compiler.aggregate(aggregate, series.event_or_action.list_name())?)
            }
            _ => None,
        };
        let unfiltered = match math {
            Math::FirstTime => Matcher::new(&series.event_or_action, &Filter::none(), compiler, attr)?,
            _ => None,
        };
        for key in reads(&math) {
            compiler.read(&key, series.event_or_action.list_name())?;
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
    pub(super) fn tallies(
        &self,
        rows: &Rows<'_>,
        slots: &Slots<'_>,
        (width, first): (usize, bool),
        work: &WorkBudget<'_>,
    ) -> CalcResult<Tallies> {
        Ok(match &self.math {
            Math::Unique(UniqueBy::Actor) | Math::Rolling(_, UniqueBy::Actor) => {
                dense::actors(rows, slots, (width, first), work)?
            }
            Math::Unique(who) | Math::Rolling(_, who) => seen(rows, slots, *who, work)?,
            Math::PerActor(statistic) => per_actor(rows, slots, *statistic, work)?,
            Math::Property(_, NumberSource::SessionDuration) => durations(rows, slots, work)?,
            Math::Property(statistic, source) => {
                dense::numbers(rows, slots, width, (*statistic, &row_key(source)), work)?
            }
            Math::FirstTime => self.first_times(rows, slots, width, work)?,
            Math::Expression(_) => self.aggregates(rows, slots, work)?,
            Math::Total => dense::all_events(rows, slots, width, work)?,
        })
    }

    fn aggregates(&self, rows: &Rows<'_>, slots: &Slots<'_>, work: &WorkBudget<'_>) -> CalcResult<Tallies> {
        let mut tallies = Tallies::new();
        let Some(aggregation) = &self.aggregation else { return Ok(tallies) };
        let inputs = rows.list.iter().map(|(run, ..)| aggregation.inputs(run, work));
        let inputs: Vec<_> = inputs.collect::<CalcResult<_>>()?;
        each(rows, slots, work, |row| {
            let (place, at) = row.at;
            let tally = tallies.entry(row.key).or_insert_with(|| Tally::Aggregates(HashMap::new()));
            if let (Tally::Aggregates(buckets), Some(inputs)) = (tally, inputs.get(place)) {
                aggregation.add(buckets.entry(row.slot.from).or_default(), inputs, at);
            }
        })?;
        Ok(tallies)
    }

    /// Counts the first event of each person if it passes the filters.
    fn first_times(
        &self,
        rows: &Rows<'_>,
        slots: &Slots<'_>,
        width: usize,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Tallies> {
        let firsts = self.first_time_rows(rows, slots, work)?;
        dense::events(rows, slots, width, work, |row| firsts.get(row.actor as usize) == Some(&Some(row.at)))
    }

    /// By actor: the row that counts, as run index and row index. Among the rows that pass the filters at the time of the
    /// actor's first event, it is the one that arrived first.
    fn first_time_rows(
        &self,
        rows: &Rows<'_>,
        slots: &Slots<'_>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Option<(usize, usize)>>> {
        let mut earliest = vec![Micros::MAX; rows.actors];
        if let Some(unfiltered) = &self.unfiltered {
            for (run, ..) in &rows.list {
                let mask = unfiltered.mask(run, work)?;
                each_of(run, &mask, work, |row| {
                    if run.times[row] <= slots.bounds.1
                        && let Some(known) = earliest.get_mut(run.actors[row] as usize)
                    {
                        *known = run.times[row].min(*known);
                    }
                })?;
            }
        }
        let mut firsts: Vec<Option<(Seq, (usize, usize))>> = vec![None; rows.actors];
        each(rows, slots, work, |row| {
            let actor = row.actor as usize;
            if earliest.get(actor) != Some(&row.time) {
                return;
            }
            let (place, at) = row.at;
            let seq = rows.list.get(place).map_or(Seq::MAX, |(run, ..)| run.order.at(at));
            if let Some(first) = firsts.get_mut(actor)
                && first.is_none_or(|(known, _)| seq < known)
            {
                *first = Some((seq, row.at));
            }
        })?;
        Ok(firsts.into_iter().map(|first| first.map(|(_, at)| at)).collect())
    }

    /// Calls back with every counted row: run index and row index, and the code of its breakdown value.
    pub(super) fn each_counted(
        &self,
        rows: &Rows<'_>,
        slots: &Slots<'_>,
        work: &WorkBudget<'_>,
        mut back: impl FnMut((usize, usize), u32),
    ) -> CalcResult<()> {
        let firsts = match self.math {
            Math::FirstTime => Some(self.first_time_rows(rows, slots, work)?),
            _ => None,
        };
        let group = match self.math {
            Math::Unique(UniqueBy::Group(index)) | Math::Rolling(_, UniqueBy::Group(index)) => {
                Some(ids(rows, &group_column(index), None, work)?)
            }
            _ => None,
        };
        each(rows, slots, work, |row| {
            let first =
                firsts.as_ref().is_none_or(|firsts| firsts.get(row.actor as usize) == Some(&Some(row.at)));
            if first && group.as_ref().is_none_or(|ids| ids[row.at.0].of(row.at.1).is_some()) {
                back(row.at, row.key);
            }
        })
    }
}

fn reads(math: &Math) -> Vec<RowKey> {
    match math {
        Math::Unique(UniqueBy::Group(index)) | Math::Rolling(_, UniqueBy::Group(index)) => {
            vec![RowKey::Event(group_column(*index))]
        }
        Math::Unique(UniqueBy::Session) => vec![RowKey::Event(session_column())],
        Math::Property(_, NumberSource::SessionDuration) => {
            vec![RowKey::Event(session_column()), row_key(&NumberSource::SessionDuration)]
        }
        Math::Property(_, source) => vec![row_key(source)],
        _ => Vec::new(),
    }
}

fn row_key(source: &NumberSource) -> RowKey {
    match source {
        NumberSource::Event(key) => RowKey::Event(ColumnKey::Property(key.clone())),
        NumberSource::Person(key) => RowKey::Fact(FactKey::Person(key.clone())),
        NumberSource::SessionDuration => RowKey::Fact(FactKey::Session("$session_duration".to_owned())),
    }
}

/// Calls back with the indexes of the rows that pass a mask.
#[inline]
fn each_of(run: &Run, mask: &Mask, work: &WorkBudget<'_>, mut back: impl FnMut(usize)) -> CalcResult<()> {
    let rows = run.actors.len();
    for start in (0..rows).step_by(ROWS_AT_ONCE) {
        let chunk = start..rows.min(start + ROWS_AT_ONCE);
        work.consume(ROWS_AT_ONCE)?;
        match mask {
            Mask::Nothing => return Ok(()),
            Mask::Every => chunk.for_each(&mut back),
            Mask::Rows(passes) => {
                let passes = passes.get(chunk.clone()).unwrap_or_default();
                chunk.zip(passes).filter(|(_, passes)| **passes).for_each(|(row, _)| back(row));
            }
        }
    }
    Ok(())
}

/// Rows per work unit consumption and check for cancellation.
const ROWS_AT_ONCE: usize = 1 << 14;

/// Calls back with every row that counts in some bucket, once per layer.
#[inline]
pub(super) fn each(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    work: &WorkBudget<'_>,
    mut back: impl FnMut(Row),
) -> CalcResult<()> {
    for (place, (run, mask, layers)) in rows.list.iter().enumerate() {
        for layer in *layers {
            let members;
            let mask = match &layer.mask {
                Mask::Every => mask,
                layer => {
                    members = mask.clone().and(layer.clone());
                    &members
                }
            };
            each_of(run, mask, work, |row| {
                let (actor, time) = (run.actors[row], run.times[row]);
                if let Some(slot) = slots.at(time) {
                    back(Row { at: (place, row), actor, time, slot, key: layer.codes.of(row) });
                }
            })?;
        }
    }
    Ok(())
}

fn per_actor(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    statistic: Statistic,
    work: &WorkBudget<'_>,
) -> CalcResult<Tallies> {
    let mut places: Vec<(u32, u32, u32)> = Vec::new();
    each(rows, slots, work, |row| places.push((row.key, row.slot.from, row.actor)))?;
    places.sort_unstable();
    let mut tallies = Tallies::new();
    for of_one in places.chunk_by(|left, right| left == right) {
        work.consume(of_one.len())?;
        let Some((key, bucket, _)) = of_one.first() else { continue };
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        push(&mut tallies, *key, *bucket, statistic, Some(of_one.len() as f64));
    }
    Ok(tallies)
}

/// Adds a number. A breakdown value without numbers gets an empty accumulator.
fn push(tallies: &mut Tallies, key: u32, bucket: u32, statistic: Statistic, number: Option<f64>) {
    let tally = tallies.entry(key).or_insert_with(|| Tally::Numbers(HashMap::new()));
    if let (Tally::Numbers(buckets), Some(number)) = (tally, number) {
        buckets.entry(bucket).or_insert_with(|| Numbers::new(statistic)).push(number);
    }
}

fn seen(rows: &Rows<'_>, slots: &Slots<'_>, who: UniqueBy, work: &WorkBudget<'_>) -> CalcResult<Tallies> {
    let ids = match who {
        UniqueBy::Group(index) => ids(rows, &group_column(index), None, work)?,
        _ => ids(rows, &session_column(), Some(0), work)?,
    };
    gather_seen(rows, slots, work, |row| Some((ids[row.at.0].of(row.at.1)?, None)))
}

/// The duration of each session, once per bucket.
fn durations(rows: &Rows<'_>, slots: &Slots<'_>, work: &WorkBudget<'_>) -> CalcResult<Tallies> {
    let ids = ids(rows, &session_column(), None, work)?;
    let key = row_key(&NumberSource::SessionDuration);
    let lengths = rows.list.iter().map(|(run, ..)| Coded::new(run.column(&key), number_of, work));
    let lengths: Vec<_> = lengths.collect::<CalcResult<_>>()?;
    gather_seen(rows, slots, work, |row| {
        let (place, at) = row.at;
        Some(match (ids[place].of(at), lengths[place].of(at)) {
            (Some(id), Some(length)) => (id, Some(length)),
            _ => (0, None),
        })
    })
}

fn gather_seen(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    work: &WorkBudget<'_>,
    who: impl Fn(&Row) -> Option<(u128, Option<f64>)>,
) -> CalcResult<Tallies> {
    let mut by_key: HashMap<u32, Vec<Seen>> = HashMap::new();
    each(rows, slots, work, |row| {
        let Some((id, number)) = who(&row) else { return };
        let seen = by_key.entry(row.key).or_default();
        let one = Seen { id, slot: row.slot, number };
        if seen.last() != Some(&one) {
            seen.push(one);
        }
    })?;
    let tally = |(key, seen): (u32, Vec<Seen>)| {
        work.consume(seen.len())?;
        Ok((key, Tally::Seen(Crowd::new(seen))))
    };
    by_key.into_iter().map(tally).collect()
}

/// Work units of decoding one value, in addition to the bytes of its text.
const PER_VALUE: usize = 16;

/// A column whose dictionary values are converted to another type.
pub(super) struct Coded<'a, T> {
    codes: &'a [u32],
    column: &'a [serde_json::Value],
    /// Converted values by code. `None` if there are fewer rows than values; then values are converted row by row.
    values: Option<Vec<Option<T>>>,
    read: fn(&serde_json::Value) -> Option<T>,
    /// The value of rows without one.
    missing: Option<T>,
}

impl<'a, T: Copy> Coded<'a, T> {
    pub(super) fn new(
        column: Option<&'a Column>,
        read: fn(&serde_json::Value) -> Option<T>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Self> {
        let (codes, column): (&[u32], &[serde_json::Value]) =
            column.map_or((&[], &[]), |column| (&column.codes, &column.values));
        let read_all = || {
            let values = column.iter().map(|value| {
                work.consume(PER_VALUE + text_length(value))?;
                Ok(read(value))
            });
            values.collect::<CalcResult<Vec<_>>>()
        };
        let values = (codes.len() >= column.len()).then(read_all).transpose()?;
        Ok(Self { codes, column, values, read, missing: None })
    }

    #[inline]
    pub(super) fn of(&self, row: usize) -> Option<T> {
        let code = self.codes.get(row).and_then(|code| usize::try_from(*code).ok());
        let value = code.and_then(|code| match &self.values {
            Some(values) => values.get(code).copied().flatten(),
            None => self.column.get(code).and_then(self.read),
        });
        value.or(self.missing)
    }
}

/// By run: the 128-bit hashes of a column's texts. Empty texts are missing values.
fn ids<'a>(
    rows: &Rows<'a>,
    key: &ColumnKey,
    missing: Option<u128>,
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<Coded<'a, u128>>> {
    fn id(value: &serde_json::Value) -> Option<u128> {
        text_of(value).filter(|text| !text.is_empty()).map(|text| text_id(&text))
    }
    let of_run = |run: &'a Run| Ok(Coded { missing, ..Coded::new(run.columns.get(key), id, work)? });
    rows.list.iter().map(|(run, ..)| of_run(run)).collect()
}
