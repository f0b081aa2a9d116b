//! Inner loops of trends with a breakdown: aggregates events, persons and numbers in dense arrays by value and bucket.
//!
//! Must stay true: the accumulators do not depend on how rows are divided into runs. Exceeding the memory limit is an
//! error. Statistics switch to a sparse map where most cells would stay empty.

use std::collections::{HashMap, HashSet};

use super::count::Bucketing;
use super::counter::{Coded, Row, Rows, Tallies, each};
use super::numbers::Numbers;
use super::slot::{Slot, Slots};
use super::state::{Tally, count_one};
use crate::error::CalcResult;
use crate::filter::Mask;
use crate::limits;
use crate::query::Statistic;
use crate::scan::{MISSING, RowKey};
use crate::text::number_of;
use crate::work::WorkBudget;

/// A dense table with a block of cells, one per bucket, for each value that occurs. Allocating a block consumes work, so a
/// cancelled calculation or one over its memory limit stops early.
struct Blocks<'w, T> {
    work: &'w WorkBudget<'w>,
    width: usize,
    /// Maximum number of cells.
    most: usize,
    /// By value code: the index of its block.
    places: Vec<u32>,
    keys: Vec<u32>,
    cells: Vec<T>,
}

impl<'w, T: Copy + Default> Blocks<'w, T> {
    fn new(width: usize, most: usize, work: &'w WorkBudget<'w>) -> Self {
        Self { work, width, most, places: Vec::new(), keys: Vec::new(), cells: Vec::new() }
    }

    /// The block index of a value code, allocating the block if needed. `None` over the maximum, or if the work budget is
    /// exhausted.
    #[inline]
    fn place(&mut self, key: u32) -> Option<usize> {
        match self.places.get(key as usize) {
            Some(place) if *place != MISSING => Some(*place as usize),
            _ => self.add(key),
        }
    }

    #[cold]
    fn add(&mut self, key: u32) -> Option<usize> {
        let place = self.keys.len();
        if (place + 1).saturating_mul(self.width) > self.most
            || key == MISSING
            || !self.work.allows(self.width)
        {
            return None;
        }
        if self.places.len() <= key as usize {
            self.places.resize(key as usize + 1, MISSING);
        }
        *self.places.get_mut(key as usize)? = u32::try_from(place).ok()?;
        self.keys.push(key);
        self.cells.resize(self.cells.len() + self.width, T::default());
        Some(place)
    }

    /// The cells of a block.
    #[inline]
    fn block(&mut self, place: usize) -> &mut [T] {
        &mut self.cells[place * self.width..][..self.width]
    }
}

impl Blocks<'_, u64> {
    fn tallies(self) -> CalcResult<Tallies> {
        let tally = |(key, counts): (u32, &[u64])| {
            self.work.consume(counts.len())?;
            Ok((key, Tally::Counts(counts.to_vec())))
        };
        self.keys.iter().copied().zip(self.cells.chunks(self.width.max(1))).map(tally).collect()
    }

    /// The error for a failed allocation: cancelled, or over the memory limit.
    fn refused<R>(&self) -> CalcResult<R> {
        self.work.check()?;
        Err(limits::holds_too_much())
    }
}

/// Maximum number of counts, see [`limits::numbers_fit`].
const COUNTS: usize = limits::HELD_BYTES / size_of::<u64>();
/// Maximum number of cells where most may stay empty: 4 MiB.
const CELLS: usize = 1 << 20;

/// Counts the rows that `counts` accepts, by value and bucket.
pub(super) fn events(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    width: usize,
    work: &WorkBudget<'_>,
    counts: impl Fn(&Row) -> bool,
) -> CalcResult<Tallies> {
    let mut blocks = Blocks::new(width, COUNTS, work);
    let mut fits = true;
    each(rows, slots, work, |row| {
        if counts(&row) {
            match blocks.place(row.key) {
                Some(place) => {
                    if let Some(count) = blocks.block(place).get_mut(row.slot.from as usize) {
                        *count += 1;
                    }
                }
                None => fits = false,
            }
        }
    })?;
    if fits { blocks.tallies() } else { blocks.refused() }
}

/// Counts all rows, by value and bucket.
pub(super) fn all_events(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    width: usize,
    work: &WorkBudget<'_>,
) -> CalcResult<Tallies> {
    let plain = slots.is_here() && slots.bounds.0 <= slots.bounds.1;
    match if plain { arrays(rows, slots, width, work)? } else { None } {
        Some(tallies) => Ok(tallies),
        None => events(rows, slots, width, work, |_| true),
    }
}

/// Fast path of [`all_events`] for rows with one value and one bucket each. Rows out of bounds go to an extra bucket behind
/// the last one. `None` if the rows are not of this kind, or if their values need too many cells.
fn arrays(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    width: usize,
    work: &WorkBudget<'_>,
) -> CalcResult<Option<Tallies>> {
    let mut blocks = Blocks::<u64>::new(width + 1, COUNTS, work);
    let bucketing = Bucketing::new(slots.buckets, slots.bounds, width);
    for (run, mask, layers) in &rows.list {
        let [layer] = layers else { return Ok(None) };
        if layer.mask != Mask::Every {
            return Ok(None);
        }
        work.consume(run.times.len())?;
        let passes = match mask {
            Mask::Nothing => continue,
            Mask::Every => None,
            Mask::Rows(passes) => Some(passes.as_slice()),
        };
        for (row, time) in run.times.iter().enumerate() {
            if passes.is_some_and(|passes| !passes[row]) {
                continue;
            }
            let Some(place) = blocks.place(layer.codes.of(row)) else {
                work.check()?;
                return Ok(None);
            };
            let bucket = bucketing.of(*time);
            blocks.block(place)[bucket] += 1;
        }
    }
    // A value without a row in the range has no accumulator.
    let counted = |(key, block): (u32, &[u64])| {
        let counts = &block[..width];
        if counts.iter().all(|count| *count == 0) {
            return None;
        }
        Some(work.consume(width).map(|()| (key, Tally::Counts(counts.to_vec()))))
    };
    let counted = blocks.keys.iter().copied().zip(blocks.cells.chunks(width + 1)).filter_map(counted);
    counted.collect::<CalcResult<_>>().map(Some)
}

/// Counts distinct actors by value and bucket. With `first`, an actor counts only in its first bucket.
pub(super) fn actors(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    (width, first): (usize, bool),
    work: &WorkBudget<'_>,
) -> CalcResult<Tallies> {
    match rows.list.as_slice() {
        // Rows of a run are sorted by actor and time, so only the last actor of each value must be remembered.
        [(.., [_])] => actors_of_run(rows, slots, (width, first), work),
        _ => sorted_actors(rows, slots, (width, first), work),
    }
}

fn actors_of_run(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    (width, first): (usize, bool),
    work: &WorkBudget<'_>,
) -> CalcResult<Tallies> {
    // Difference array: +1 at the first bucket of a span, -1 behind its last. Counts are the running sums.
    let mut steps = Blocks::<u64>::new(width + 1, COUNTS, work);
    let mut newest: Vec<(u32, Slot)> = Vec::new();
    let (mut fits, mut ordered) = (true, true);
    each(rows, slots, work, |Row { key, actor, slot: Slot { from, until }, .. }| {
        let Some(place) = steps.place(key) else {
            fits = false;
            return;
        };
        if newest.len() <= place {
            newest.push((MISSING, Slot { from: 0, until: 0 }));
        }
        let (before, done) = newest[place];
        let again = before == actor;
        ordered &= !again || done.from <= from;
        if again && (first || until <= done.until) {
            return;
        }
        let start = if again { from.max(done.until) } else { from };
        let end = if first { start + 1 } else { until };
        newest[place] = (actor, Slot { from, until: end });
        let block = steps.block(place);
        let (start, end) = ((start as usize).min(width), (end as usize).min(width));
        block[start] = block[start].wrapping_add(1);
        block[end] = block[end].wrapping_sub(1);
    })?;
    if !fits {
        return steps.refused();
    }
    // Days do not ascend with time where a clock change repeats midnight.
    if !ordered {
        return sorted_actors(rows, slots, (width, first), work);
    }
    let counts = |(key, block): (u32, &[u64])| {
        work.consume(width)?;
        let sum = |sum: &mut u64, step: &u64| {
            *sum = sum.wrapping_add(*step);
            Some(*sum)
        };
        Ok((key, Tally::Counts(block[..width].iter().scan(0, sum).collect())))
    };
    steps.keys.iter().copied().zip(steps.cells.chunks(width + 1)).map(counts).collect()
}

fn sorted_actors(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    (width, first): (usize, bool),
    work: &WorkBudget<'_>,
) -> CalcResult<Tallies> {
    let mut places: Vec<(u32, u32, Slot)> = Vec::new();
    each(rows, slots, work, |row| {
        let place = (row.key, row.actor, row.slot);
        if places.last() != Some(&place) {
            places.push(place);
        }
    })?;
    // Each run is sorted by actor already; the stable sort merges the runs.
    places.sort();
    let mut blocks = Blocks::<u64>::new(width, COUNTS, work);
    for of_one in places.chunk_by(|left, right| (left.0, left.1) == (right.0, right.1)) {
        work.consume(of_one.len())?;
        let Some((key, ..)) = of_one.first() else { continue };
        let Some(place) = blocks.place(*key) else { return blocks.refused() };
        count_one(of_one.iter().map(|(.., slot)| *slot), first, blocks.block(place));
    }
    blocks.tallies()
}

/// States of a statistic by value and bucket.
struct Gathered<'w> {
    statistic: Statistic,
    /// By value and bucket: the index of its state plus 1, or 0 for none.
    blocks: Blocks<'w, u32>,
    /// Indexes of states for values without a block.
    sparse: HashMap<(u32, u32), usize>,
    numbers: Vec<((u32, u32), Numbers)>,
    /// Values without numbers.
    bare: HashSet<u32>,
}

impl Gathered<'_> {
    /// Adds a number. A value without numbers gets an empty accumulator.
    #[inline]
    fn add(&mut self, key: u32, bucket: u32, number: Option<f64>) {
        let Some(number) = number else {
            self.bare.insert(key);
            return;
        };
        let next = self.numbers.len();
        let place = match self.blocks.place(key) {
            Some(place) => {
                let Some(cell) = self.blocks.block(place).get_mut(bucket as usize) else { return };
                if *cell == 0 {
                    *cell = u32::try_from(next + 1).unwrap_or(0);
                }
                (*cell as usize).saturating_sub(1)
            }
            None => *self.sparse.entry((key, bucket)).or_insert(next),
        };
        if place == next {
            self.numbers.push(((key, bucket), Numbers::new(self.statistic)));
        }
        self.numbers[place].1.push(number);
    }

    fn tallies(self) -> Tallies {
        let mut tallies: Tallies =
            self.bare.into_iter().map(|key| (key, Tally::Numbers(HashMap::new()))).collect();
        for ((key, bucket), numbers) in self.numbers {
            let tally = tallies.entry(key).or_insert_with(|| Tally::Numbers(HashMap::new()));
            if let Tally::Numbers(buckets) = tally {
                buckets.insert(bucket, numbers);
            }
        }
        tallies
    }
}

/// Aggregates the numbers of a column by value and bucket.
pub(super) fn numbers(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    width: usize,
    (statistic, key): (Statistic, &RowKey),
    work: &WorkBudget<'_>,
) -> CalcResult<Tallies> {
    let columns = rows.list.iter().map(|(run, ..)| Coded::new(run.column(key), number_of, work));
    let columns: Vec<_> = columns.collect::<CalcResult<_>>()?;
    let (sparse, numbers, bare) = (HashMap::new(), Vec::new(), HashSet::new());
    let mut gathered = Gathered { statistic, blocks: Blocks::new(width, CELLS, work), sparse, numbers, bare };
    each(rows, slots, work, |row| {
        let (place, at) = row.at;
        gathered.add(row.key, row.slot.from, columns.get(place).and_then(|column| column.of(at)));
    })?;
    Ok(gathered.tallies())
}
