//! The starts and returns of one actor, and the columns in which it counts.
//!
//! Must stay true: a start is a period and a breakdown value in which the actor counts, once; a return is a period, or a
//! window after the start, with enough returning events of the same breakdown value.

use std::ops::Range;

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::CompiledRetention;
use super::layers::LayerRun;
use crate::actor_blocks::ActorRows;
use crate::kinds::retention::RetentionType;
use crate::mask::Mask;
use crate::numbers::finite;
use crate::scan::Micros;

/// A breakdown value and a number of periods or windows, as a sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ValueKey(u64);

impl ValueKey {
    #[inline]
    fn new(value: u32, number: u32) -> Self {
        Self(u64::from(value) << 32 | u64::from(number))
    }

    #[inline]
    fn value(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower 32 bits")]
    fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The first starting event of a period and value.
#[derive(Debug, Clone, Copy)]
struct Start {
    key: ValueKey,
    time: Micros,
}

/// A returning event.
#[derive(Debug, Clone, Copy)]
struct Return {
    key: ValueKey,
    time: Micros,
    number: f64,
}

/// A period or window with enough returning events.
#[derive(Debug, Clone)]
struct ActivePeriod {
    key: ValueKey,
    /// Its returning events.
    returns: Range<usize>,
    /// The sum of their numbers.
    sum: f64,
}

/// A start of an actor with what follows.
#[derive(Debug)]
pub(super) struct CountedStart<'h> {
    /// The code of the breakdown value.
    pub(super) value: u32,
    /// The row of the result.
    pub(super) period: u32,
    /// The time of the first starting event.
    pub(super) time: Micros,
    /// The columns after the first in which the actor counts, ascending.
    pub(super) columns: &'h [u32],
    /// The sums of the first column and of `columns`; empty if nothing is added up.
    pub(super) sums: &'h [f64],
}

/// The history of one actor. Its buffers are used again for the next one.
#[derive(Debug, Default)]
pub(super) struct ActorHistory {
    starts: Vec<Start>,
    returns: Vec<Return>,
    active: Vec<ActivePeriod>,
    columns: Vec<u32>,
    sums: Vec<f64>,
}

/// Which row of a run is read next.
enum NextRow {
    /// The next one.
    Following,
    /// The first one from an instant on: those between would repeat this one, as most events do.
    From(Micros),
    /// None.
    End,
}

/// Rows per check for cancellation.
const ROWS_PER_CHECK: usize = 1 << 14;

/// Calls back with the rows of an actor that pass a mask, in the order of time for each run, between two instants, both
/// inclusive, as long as `callback` continues with the next row.
fn for_each_event<'r, 'a>(
    (runs, rows_of_actor): (&'r [LayerRun<'a>], &[ActorRows]),
    mask_of: impl Fn(&'r LayerRun<'a>) -> &'r Mask,
    (first, last): (Micros, Micros),
    work: &WorkBudget<'_>,
    mut callback: impl FnMut(&'r LayerRun<'a>, usize, Micros) -> NextRow,
) -> CalcResult<()> {
    for ActorRows { run, rows, .. } in rows_of_actor {
        let layer_run = &runs[*run];
        let mask = mask_of(layer_run);
        if matches!(mask, Mask::Nothing) {
            continue;
        }
        let times = &layer_run.run.times;
        let skipped = match times.get(rows.start) {
            Some(time) if *time < first => times[rows.clone()].partition_point(|time| *time < first),
            _ => 0,
        };
        let times = &times[..rows.end];
        let mut row = rows.start + skipped;
        let mut next_check = row;
        while let Some(time) = times.get(row).copied().filter(|time| *time <= last) {
            if row >= next_check {
                work.consume(ROWS_PER_CHECK.min(rows.end - row))?;
                next_check = row + ROWS_PER_CHECK;
            }
            row = match mask.has(row) {
                false => row + 1,
                true => match callback(layer_run, row, time) {
                    NextRow::Following => row + 1,
                    NextRow::From(instant) => find_row_from(times, row + 1, instant),
                    NextRow::End => break,
                },
            };
        }
    }
    Ok(())
}

/// The first row from `row` on that is not before an instant. Few rows are looked at, near or far.
fn find_row_from(times: &[Micros], mut row: usize, instant: Micros) -> usize {
    let mut step = 1;
    while times.get(row + step).is_some_and(|time| *time < instant) {
        row += step;
        step *= 2;
    }
    let end = times.len().min(row + step);
    row + times[row.min(end)..end].partition_point(|time| *time < instant)
}

/// All time until the end of the range.
fn all_time_until((_, last): (Micros, Micros)) -> (Micros, Micros) {
    (Micros::MIN, last)
}

impl ActorHistory {
    /// Reads the history of an actor; false if it never starts.
    pub(super) fn read(
        &mut self,
        retention: &CompiledRetention,
        actor: (&[LayerRun<'_>], &[ActorRows]),
        work: &WorkBudget<'_>,
    ) -> CalcResult<bool> {
        self.starts.clear();
        self.returns.clear();
        self.active.clear();
        let only_value = self.read_starts(retention, actor, work)?;
        if self.starts.is_empty() {
            return Ok(false);
        }
        if retention.returns_are_starts() {
            let active =
                self.starts.iter().map(|start| ActivePeriod { key: start.key, returns: 0..0, sum: 0.0 });
            self.active.extend(active);
            return Ok(true);
        }
        match retention.window_clock {
            None => self.read_returns(retention, actor, only_value, work)?,
            Some(_) => self.read_windows(retention, actor, only_value, work)?,
        }
        self.find_active_periods(retention, work)?;
        Ok(true)
    }

    /// Reads the starts. Returns the only value whose rows the actor is in, if its returns count whatever their value.
    fn read_starts(
        &mut self,
        retention: &CompiledRetention,
        actor: (&[LayerRun<'_>], &[ActorRows]),
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<u32>> {
        let bounds = retention.periods.bounds();
        match (retention.query.retention_type, &retention.window_clock) {
            (RetentionType::Recurring, None) => self.read_recurring_starts(retention, actor, work)?,
            (RetentionType::FirstTime, None) => self.read_first_times(retention, actor, work)?,
            (RetentionType::FirstEver, _) => {
                if let Some((time, value)) = first_ever(retention, actor, work)?
                    && let Some(period) = retention.periods.find(time)
                {
                    self.starts.push(Start { key: ValueKey::new(value, period), time });
                    return Ok(Some(value));
                }
            }
            (kind, Some(_)) => {
                let from = if kind == RetentionType::FirstTime { all_time_until(bounds) } else { bounds };
                let first = earliest(actor, |run| &run.starts, from, work)?;
                if let Some((time, run, row)) = first
                    && let Some(period) = retention.periods.find(time)
                {
                    self.starts.push(Start { key: ValueKey::new(run.values.code_of(row), period), time });
                }
            }
        }
        self.starts.sort_unstable_by_key(|start| (start.key, start.time));
        self.starts.dedup_by_key(|start| start.key);
        Ok(None)
    }

    /// Keeps the first starting event of each value and period.
    fn read_recurring_starts(
        &mut self,
        retention: &CompiledRetention,
        actor: (&[LayerRun<'_>], &[ActorRows]),
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        for_each_event(
            actor,
            |run| &run.starts,
            retention.periods.bounds(),
            work,
            |run, row, time| {
                let Some(period) = retention.periods.find(time) else { return NextRow::Following };
                self.push_start(Start { key: ValueKey::new(run.values.code_of(row), period), time });
                if run.values.differ() {
                    NextRow::Following
                } else {
                    NextRow::From(retention.periods.end_of(period))
                }
            },
        )
    }

    /// Keeps the first starting event of each value over all time, if it is in a period.
    fn read_first_times(
        &mut self,
        retention: &CompiledRetention,
        actor: (&[LayerRun<'_>], &[ActorRows]),
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let times = all_time_until(retention.periods.bounds());
        for_each_event(
            actor,
            |run| &run.starts,
            times,
            work,
            |run, row, time| {
                self.push_start(Start { key: ValueKey::new(run.values.code_of(row), 0), time });
                if run.values.differ() { NextRow::Following } else { NextRow::End }
            },
        )?;
        self.starts.sort_unstable_by_key(|start| (start.key, start.time));
        self.starts.dedup_by_key(|start| start.key);
        self.starts.retain_mut(|start| match retention.periods.find(start.time) {
            Some(period) => {
                start.key = ValueKey::new(start.key.value(), period);
                true
            }
            None => false,
        });
        Ok(())
    }

    /// Adds a start, unless it repeats the last one at a later time.
    #[inline]
    fn push_start(&mut self, start: Start) {
        match self.starts.last() {
            Some(last) if last.key == start.key && last.time <= start.time => {}
            _ => self.starts.push(start),
        }
    }

    /// Reads the returning events by period.
    fn read_returns(
        &mut self,
        retention: &CompiledRetention,
        actor: (&[LayerRun<'_>], &[ActorRows]),
        only_value: Option<u32>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let counts_events = retention.counts_events();
        for_each_event(
            actor,
            |run| &run.returns,
            retention.periods.bounds(),
            work,
            |run, row, time| {
                let Some(period) = retention.periods.find(time) else { return NextRow::Following };
                let value = only_value.unwrap_or_else(|| run.values.code_of(row));
                let key = ValueKey::new(value, period);
                if counts_events || self.returns.last().is_none_or(|last| last.key != key) {
                    let number = run.numbers.get(row).copied().unwrap_or(0.0);
                    self.returns.push(Return { key, time, number });
                }
                if counts_events || run.values.differ() {
                    NextRow::Following
                } else {
                    NextRow::From(retention.periods.end_of(period))
                }
            },
        )
    }

    /// Reads the returning events by window after the start. Unless the actor has one value, it starts in every value that
    /// one of its events from the start on has.
    fn read_windows(
        &mut self,
        retention: &CompiledRetention,
        actor: (&[LayerRun<'_>], &[ActorRows]),
        only_value: Option<u32>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let (Some(clock), Some(start)) = (&retention.window_clock, self.starts.first().copied()) else {
            return Ok(());
        };
        let times = (start.time, retention.periods.bounds().1);
        let in_value = |value| Start { key: ValueKey::new(value, start.key.number()), time: start.time };
        if only_value.is_none() {
            for_each_event(
                actor,
                |run| &run.starts,
                times,
                work,
                |run, row, _| {
                    self.push_start(in_value(run.values.code_of(row)));
                    if run.values.differ() { NextRow::Following } else { NextRow::End }
                },
            )?;
        }
        for_each_event(
            actor,
            |run| &run.returns,
            times,
            work,
            |run, row, time| {
                let value = only_value.unwrap_or_else(|| {
                    let value = run.values.code_of(row);
                    self.push_start(in_value(value));
                    value
                });
                let key = ValueKey::new(value, clock.windows_between(start.time, time));
                self.returns.push(Return { key, time, number: 0.0 });
                NextRow::Following
            },
        )?;
        self.starts.sort_unstable_by_key(|start| start.key);
        self.starts.dedup_by_key(|start| start.key);
        Ok(())
    }

    /// Groups the returning events.
    fn find_active_periods(
        &mut self,
        retention: &CompiledRetention,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        work.consume(self.returns.len())?;
        // Stable: the numbers of a period are always added in the same order.
        self.returns.sort_by_key(|event| event.key);
        let minimum = retention.minimum_occurrences();
        let mut from = 0;
        for events in self.returns.chunk_by(|left, right| left.key == right.key) {
            let to = from + events.len();
            if let Some(first) = events.first()
                && events.len() >= minimum
            {
                let sum = events.iter().map(|event| event.number).sum();
                self.active.push(ActivePeriod { key: first.key, returns: from..to, sum });
            }
            from = to;
        }
        Ok(())
    }

    /// Calls back with each start and the columns in which the actor counts.
    pub(super) fn for_each_start(
        &mut self,
        retention: &CompiledRetention,
        work: &WorkBudget<'_>,
        mut callback: impl FnMut(&CountedStart<'_>) -> CalcResult<()>,
    ) -> CalcResult<()> {
        let has_windows = retention.window_clock.is_some();
        let adds_up = retention.number.is_some();
        let mut next = 0;
        for start in &self.starts {
            let (value, period) = (start.key.value(), start.key.number());
            // Windows are counted from the start, periods from the first one of the range.
            let base = if has_windows { ValueKey::new(value, 0) } else { start.key };
            while self.active.get(next).is_some_and(|active| active.key <= base) {
                next += 1;
            }
            self.columns.clear();
            self.sums.clear();
            if adds_up {
                let own = next.checked_sub(1).and_then(|index| self.active.get(index));
                let own = own.filter(|active| active.key == start.key);
                self.sums.push(own.map_or(0.0, |own| {
                    match retention.has_same_entity {
                        true => own.sum,
                        false => self.returns[own.returns.clone()]
                            .iter()
                            .filter(|event| event.time > start.time)
                            .map(|event| event.number)
                            .sum(),
                    }
                }));
            }
            for active in self.active.get(next..).unwrap_or_default() {
                if active.key.value() != value {
                    break;
                }
                let distance = active.key.number() - base.number();
                let Some(column) = retention.columns.of_distance(distance) else { break };
                if self.columns.last() != Some(&column) {
                    self.columns.push(column);
                    if adds_up {
                        self.sums.push(0.0);
                    }
                }
                if let Some(sum) = self.sums.last_mut().filter(|_| adds_up) {
                    *sum += active.sum;
                }
            }
            retention.columns.complete(&mut self.columns);
            self.sums.iter_mut().for_each(|sum| *sum = finite(*sum));
            work.consume(1 + self.columns.len())?;
            callback(&CountedStart {
                value,
                period,
                time: start.time,
                columns: &self.columns,
                sums: &self.sums,
            })?;
        }
        Ok(())
    }
}

/// The earliest event of an actor that passes a mask: its time, run and row. Of several at one time the one that arrived first.
fn earliest<'r, 'a>(
    actor: (&'r [LayerRun<'a>], &[ActorRows]),
    mask_of: impl Fn(&'r LayerRun<'a>) -> &'r Mask,
    times: (Micros, Micros),
    work: &WorkBudget<'_>,
) -> CalcResult<Option<(Micros, &'r LayerRun<'a>, usize)>> {
    let mut first: Option<(Micros, &LayerRun<'_>, usize)> = None;
    for_each_event(actor, mask_of, times, work, |run, row, time| {
        let order = |(time, run, row): (Micros, &LayerRun<'_>, usize)| (time, run.run.order.at(row));
        if first.is_none_or(|known| order((time, run, row)) < order(known)) {
            first = Some((time, run, row));
        }
        // The rows of a run are ordered by time and arrival.
        NextRow::End
    })?;
    Ok(first)
}

/// The time and value of the actor's first event of the target's name or action, if an event at that time passes the target's
/// filters.
fn first_ever(
    retention: &CompiledRetention,
    actor: (&[LayerRun<'_>], &[ActorRows]),
    work: &WorkBudget<'_>,
) -> CalcResult<Option<(Micros, u32)>> {
    let times = all_time_until(retention.periods.bounds());
    let Some((time, run, row)) = earliest(actor, |run| &run.targets, times, work)? else { return Ok(None) };
    let passing = earliest(actor, |run| &run.starts, times, work)?;
    let passes = passing.is_some_and(|(passing_time, ..)| passing_time == time);
    Ok(passes.then(|| (time, run.values.code_of(row))))
}
