//! The loops of trends that most rows go through: counts, persons and numbers by value and bucket, in arrays.
//!
//! Must stay true: the tallies are those of the rows, whatever runs these come in; what would not fit into memory is
//! refused, and where most buckets of most values stay empty no room is made for them.

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
use crate::scan::{ColumnRef, MISSING};
use crate::text::number_of;
use crate::work::WorkBudget;

/// A cell for each bucket of each key that occurs. Each block is paid for as work before it is made, so that a calculation
/// that was cancelled, or needs more memory than there is, stops before many more are.
struct Blocks<'w, T> {
    work: &'w WorkBudget<'w>,
    width: usize,
    /// Cells that there may be.
    most: usize,
    /// By key the place of its block.
    places: Vec<u32>,
    keys: Vec<u32>,
    cells: Vec<T>,
}

impl<'w, T: Copy + Default> Blocks<'w, T> {
    fn new(width: usize, most: usize, work: &'w WorkBudget<'w>) -> Self {
        Self { work, width, most, places: Vec::new(), keys: Vec::new(), cells: Vec::new() }
    }

    /// The place of a key; none when there is no room for one more, or the work is refused. Keys are small: codes of values in a partition.
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
            || !self.work.try_consume(self.width)
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

    /// The cells of a place.
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

    /// Why there was no place for a key.
    fn refused<R>(&self) -> CalcResult<R> {
        self.work.check()?;
        Err(limits::too_much_memory())
    }
}

/// Counts that may be held: [`limits::numbers_fit`].
const COUNTS: usize = limits::HELD_BYTES / size_of::<u64>();
/// Cells that are made room for where most may stay empty: 4 MiB.
const CELLS: usize = 1 << 20;

/// How many rows fall into each bucket.
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

/// How many rows fall into each bucket, of a question that counts each of them.
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

/// The same where each row has one key and one bucket. Rows that do not count are counted too, behind the last bucket.
/// None where it is not so, and where the values of those rows take too much room.
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
    // A key that no row in the range has is not known.
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

/// How many actors are seen in each bucket; with `first` an actor counts in the first of its buckets only.
pub(super) fn actors(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    (width, first): (usize, bool),
    work: &WorkBudget<'_>,
) -> CalcResult<Tallies> {
    match rows.list.as_slice() {
        // The rows of a run come by actor and time, so that nothing has to be remembered but the newest of a key.
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
    // What is added in the one bucket is taken away behind the last: counts are sums of these.
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
    // Where a clock change shows midnight twice, days do not ascend with time.
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
    // Each run is in order of its actors already: a stable sort merges what is in order.
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

/// Numbers by key and bucket.
struct Gathered<'w> {
    statistic: Statistic,
    /// By key and bucket one more than the place of its numbers, 0 for none.
    blocks: Blocks<'w, u32>,
    /// Where there is no room for all buckets of a key: those of it that have numbers.
    sparse: HashMap<(u32, u32), usize>,
    numbers: Vec<((u32, u32), Numbers)>,
    /// Keys without any number.
    bare: HashSet<u32>,
}

impl Gathered<'_> {
    /// Adds a number; a key without any number is known all the same.
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

/// The numbers that a column has in the rows of each bucket.
pub(super) fn numbers(
    rows: &Rows<'_>,
    slots: &Slots<'_>,
    width: usize,
    (statistic, key): (Statistic, &ColumnRef),
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
