//! Inner loops of trends with a breakdown: aggregates events, persons and numbers in dense arrays by value and bucket.
//!
//! Must stay true: the accumulators do not depend on how rows are divided into runs. Exceeding the memory limit is an
//! error. Statistics switch to a sparse map where most cells would stay empty.

use std::collections::{HashMap, HashSet};

use pennon_filters::error::CalcResult;
use pennon_filters::text::number_of;
use pennon_filters::work_budget::WorkBudget;

use super::accumulator::{Accumulator, Accumulators, count_spans};
use super::breakdown_values::{BreakdownLayer, ValueCodes};
use super::bucket_mapping::{BucketMapping, BucketSpan};
use super::counted_rows::{CountedRow, SeriesRows, for_each_bucket, for_each_row};
use super::decoded_column::DecodedColumn;
use super::statistics::StatisticState;
use crate::kinds::trends::limits;
use crate::mask::Mask;
use crate::query::Statistic;
use crate::scan::{ColumnRef, MISSING};

/// A dense table with a block of cells, one per bucket, for each value that occurs. Allocating a block consumes work, so a
/// cancelled calculation or one over its memory limit stops early.
struct DenseTable<'w, T> {
    work: &'w WorkBudget<'w>,
    width: usize,
    /// Maximum number of cells.
    max_cells: usize,
    /// By value code: the index of its block.
    index_of_value: Vec<u32>,
    keys: Vec<u32>,
    cells: Vec<T>,
}

impl<'w, T: Copy + Default> DenseTable<'w, T> {
    fn new(width: usize, max_cells: usize, work: &'w WorkBudget<'w>) -> Self {
        Self { work, width, max_cells, index_of_value: Vec::new(), keys: Vec::new(), cells: Vec::new() }
    }

    /// The block index of a value code, allocating the block if needed. `None` over the maximum, or if the work budget is
    /// exhausted.
    #[inline]
    fn block_index(&mut self, value_code: u32) -> Option<usize> {
        match self.index_of_value.get(value_code as usize) {
            Some(index) if *index != MISSING => Some(*index as usize),
            _ => self.add(value_code),
        }
    }

    #[cold]
    fn add(&mut self, value_code: u32) -> Option<usize> {
        let index = self.keys.len();
        if (index + 1).saturating_mul(self.width) > self.max_cells
            || value_code == MISSING
            || !self.work.try_consume(self.width)
        {
            return None;
        }
        if self.index_of_value.len() <= value_code as usize {
            self.index_of_value.resize(value_code as usize + 1, MISSING);
        }
        *self.index_of_value.get_mut(value_code as usize)? = u32::try_from(index).ok()?;
        self.keys.push(value_code);
        self.cells.resize(self.cells.len() + self.width, T::default());
        Some(index)
    }

    /// The cells of a block.
    #[inline]
    fn block(&mut self, index: usize) -> &mut [T] {
        &mut self.cells[index * self.width..][..self.width]
    }
}

impl DenseTable<'_, u64> {
    fn into_accumulators(self) -> CalcResult<Accumulators> {
        let accumulator = |(key, counts): (u32, &[u64])| {
            self.work.consume(counts.len())?;
            Ok((key, Accumulator::Counts(counts.to_vec())))
        };
        self.keys.iter().copied().zip(self.cells.chunks(self.width.max(1))).map(accumulator).collect()
    }

    /// The error for a failed allocation: cancelled, or over the memory limit.
    fn allocation_error<R>(&self) -> CalcResult<R> {
        self.work.check()?;
        Err(limits::too_much_memory())
    }
}

/// Maximum number of counts, see [`limits::numbers_fit`].
const MAX_COUNTS: usize = limits::TREND_MEMORY_BYTES / size_of::<u64>();
/// Maximum number of bits of [`count_actors_with_bits`]: 32 MiB.
const MAX_ACTOR_BITS: usize = 1 << 28;
/// Maximum number of cells where most may stay empty: 4 MiB.
const MAX_SPARSE_CELLS: usize = 1 << 20;
/// A run is counted by the codes of its column first if these need at most this many cells per row; ...
const MAX_CELLS_PER_ROW: usize = 8;
/// ... or at most this many, however few rows there are ...
const MIN_RUN_CELLS: usize = 1 << 12;
/// ... and not more than this many.
const MAX_RUN_CELLS: usize = 1 << 20;

/// Counts the rows that `counts` accepts, by value and bucket.
pub(super) fn count_events(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    width: usize,
    work: &WorkBudget<'_>,
    counts: impl Fn(&CountedRow) -> bool,
) -> CalcResult<Accumulators> {
    let mut blocks = DenseTable::new(width, MAX_COUNTS, work);
    let mut is_within_limit = true;
    for_each_row(rows, mapping, work, |row| {
        if counts(&row) {
            match blocks.block_index(row.value_code) {
                Some(index) => {
                    if let Some(count) = blocks.block(index).get_mut(row.span.from as usize) {
                        *count += 1;
                    }
                }
                None => is_within_limit = false,
            }
        }
    })?;
    if is_within_limit { blocks.into_accumulators() } else { blocks.allocation_error() }
}

/// Counts all rows, by value and bucket.
pub(super) fn count_all_events(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    width: usize,
    work: &WorkBudget<'_>,
) -> CalcResult<Accumulators> {
    let is_one_to_one = mapping.is_one_to_one() && mapping.bounds.0 <= mapping.bounds.1;
    match if is_one_to_one { count_single_values(rows, mapping, width, work)? } else { None } {
        Some(accumulators) => Ok(accumulators),
        None => count_events(rows, mapping, width, work, |_| true),
    }
}

/// [`count_all_events`] for rows with one value and one bucket each. Rows out of bounds go to an extra bucket behind the last
/// one. `None` if the rows are not of this kind, or if their values need too many cells.
fn count_single_values(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    width: usize,
    work: &WorkBudget<'_>,
) -> CalcResult<Option<Accumulators>> {
    let mut blocks = DenseTable::<u64>::new(width + 1, MAX_COUNTS, work);
    for (run, mask, layers) in &rows.list {
        let [BreakdownLayer { mask: Mask::Every, codes }] = layers else { return Ok(None) };
        let (keys, table, missing): (&[u32], &[u32], u32) = match codes {
            ValueCodes::ByColumnCode(codes, table, missing) => (codes, table, *missing),
            ValueCodes::Same(code) => (&run.actors, &[], *code),
            ValueCodes::PerRow(_) => return Ok(None),
        };
        if keys.len() != run.times.len() {
            return Ok(None);
        }
        work.consume(run.times.len())?;
        let mut is_within_limit = true;
        let value_code = |key: usize| table.get(key).copied().unwrap_or(missing);
        let (stride, last_key) = (width + 1, table.len());
        let cells = (last_key + 1).saturating_mul(stride);
        if cells <= run.times.len().saturating_mul(MAX_CELLS_PER_ROW).clamp(MIN_RUN_CELLS, MAX_RUN_CELLS) {
            let mut cells = vec![0_u32; cells];
            for_each_bucket(keys, (run, mask), mapping, width, |key, bucket| {
                cells[(key as usize).min(last_key) * stride + bucket] += 1;
            });
            for (key, counts) in cells.chunks_exact(stride).enumerate() {
                // A fold over all buckets is vectorized; an early exit would not be.
                if counts[..width].iter().fold(0, |any, count| any | count) == 0 {
                    continue;
                }
                match blocks.block_index(value_code(key)) {
                    Some(index) => {
                        let sums = blocks.block(index).iter_mut().zip(counts);
                        sums.for_each(|(sum, count)| *sum += u64::from(*count));
                    }
                    None => is_within_limit = false,
                }
            }
        } else {
            for_each_bucket(keys, (run, mask), mapping, width, |key, bucket| {
                match blocks.block_index(value_code(key as usize)) {
                    Some(index) => blocks.block(index)[bucket] += 1,
                    None => is_within_limit = false,
                }
            });
        }
        if !is_within_limit {
            work.check()?;
            return Ok(None);
        }
    }
    // A value without a row in the range has no accumulator.
    let counted = |(key, block): (u32, &[u64])| {
        let counts = &block[..width];
        if counts.iter().all(|count| *count == 0) {
            return None;
        }
        Some(work.consume(width).map(|()| (key, Accumulator::Counts(counts.to_vec()))))
    };
    let counted = blocks.keys.iter().copied().zip(blocks.cells.chunks(width + 1)).filter_map(counted);
    counted.collect::<CalcResult<_>>().map(Some)
}

/// Counts distinct actors by value and bucket. With `first`, an actor counts only in its first bucket.
pub(super) fn count_actors(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    (width, first_bucket_only): (usize, bool),
    work: &WorkBudget<'_>,
) -> CalcResult<Accumulators> {
    match rows.list.as_slice() {
        // Rows of a run are sorted by actor and time, so only the last actor of each value must be remembered.
        [(.., [_])] => count_actors_of_run(rows, mapping, (width, first_bucket_only), work),
        _ => match rows.only_value() {
            Some(value) if mapping.is_one_to_one() && rows.actors.saturating_mul(width) <= MAX_ACTOR_BITS => {
                let counts = count_actors_with_bits(rows, mapping, (width, first_bucket_only), work)?;
                Ok(vec![(value, Accumulator::Counts(counts))])
            }
            _ => count_actors_by_sorting(rows, mapping, (width, first_bucket_only), work),
        },
    }
}

/// Counts actors in several runs with one value and one bucket for each row. A bit for each actor and bucket takes at most
/// 32 MiB, while sorting takes 16 bytes for each row.
fn count_actors_with_bits(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    (width, first_bucket_only): (usize, bool),
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<u64>> {
    let mut counts = vec![0; width];
    let mut add_one = |bucket: u32| {
        if let Some(count) = counts.get_mut(bucket as usize) {
            *count += 1;
        }
    };
    if first_bucket_only {
        let mut first = vec![u32::MAX; rows.actors];
        for_each_row(rows, mapping, work, |row| {
            if let Some(first) = first.get_mut(row.actor as usize) {
                *first = row.span.from.min(*first);
            }
        })?;
        first.into_iter().for_each(add_one);
    } else {
        let mut bits = vec![0_u64; (rows.actors * width).div_ceil(64)];
        for_each_row(rows, mapping, work, |row| {
            let index = row.actor as usize * width + row.span.from as usize;
            let bit = 1 << (index % 64);
            if let Some(word) = bits.get_mut(index / 64)
                && *word & bit == 0
            {
                *word |= bit;
                add_one(row.span.from);
            }
        })?;
    }
    Ok(counts)
}

fn count_actors_of_run(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    (width, first_bucket_only): (usize, bool),
    work: &WorkBudget<'_>,
) -> CalcResult<Accumulators> {
    // Difference array: +1 at the first bucket of a span, -1 behind its last. Counts are the running sums.
    let mut differences = DenseTable::<u64>::new(width + 1, MAX_COUNTS, work);
    let mut last_of_value: Vec<(u32, BucketSpan)> = Vec::new();
    let (mut is_within_limit, mut ordered) = (true, true);
    for_each_row(
        rows,
        mapping,
        work,
        |CountedRow { value_code, actor, span: BucketSpan { from, until }, .. }| {
            let Some(index) = differences.block_index(value_code) else {
                is_within_limit = false;
                return;
            };
            if last_of_value.len() <= index {
                last_of_value.push((MISSING, BucketSpan { from: 0, until: 0 }));
            }
            let last = &mut last_of_value[index];
            let (is_same_actor, done) = (last.0 == actor, last.1);
            ordered &= !is_same_actor | (done.from <= from);
            // Without branches: whether an actor returns on the same day cannot be predicted.
            let is_new = !is_same_actor | (!first_bucket_only & (until > done.until));
            let start = if is_same_actor { from.max(done.until) } else { from };
            let end = if first_bucket_only { start + 1 } else { until };
            *last = (actor, BucketSpan { from, until: if is_new { end } else { done.until } });
            let block = differences.block(index);
            let (start, end) = ((start as usize).min(width), (end as usize).min(width));
            block[start] = block[start].wrapping_add(u64::from(is_new));
            block[end] = block[end].wrapping_sub(u64::from(is_new));
        },
    )?;
    if !is_within_limit {
        return differences.allocation_error();
    }
    // Days do not ascend with time where a clock change repeats midnight.
    if !ordered {
        return count_actors_by_sorting(rows, mapping, (width, first_bucket_only), work);
    }
    let counts = |(key, block): (u32, &[u64])| {
        work.consume(width)?;
        let sum = |sum: &mut u64, step: &u64| {
            *sum = sum.wrapping_add(*step);
            Some(*sum)
        };
        Ok((key, Accumulator::Counts(block[..width].iter().scan(0, sum).collect())))
    };
    differences.keys.iter().copied().zip(differences.cells.chunks(width + 1)).map(counts).collect()
}

fn count_actors_by_sorting(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    (width, first_bucket_only): (usize, bool),
    work: &WorkBudget<'_>,
) -> CalcResult<Accumulators> {
    let mut places: Vec<(u32, u32, BucketSpan)> = Vec::new();
    for_each_row(rows, mapping, work, |row| {
        let index = (row.value_code, row.actor, row.span);
        if places.last() != Some(&index) {
            places.push(index);
        }
    })?;
    // Each run is sorted by actor already; the stable sort merges the runs.
    places.sort();
    let mut blocks = DenseTable::<u64>::new(width, MAX_COUNTS, work);
    for actor_rows in places.chunk_by(|left, right| (left.0, left.1) == (right.0, right.1)) {
        work.consume(actor_rows.len())?;
        let Some((key, ..)) = actor_rows.first() else { continue };
        let Some(index) = blocks.block_index(*key) else { return blocks.allocation_error() };
        count_spans(actor_rows.iter().map(|(.., span)| *span), first_bucket_only, blocks.block(index));
    }
    blocks.into_accumulators()
}

/// States of a statistic by value and bucket.
struct StatisticTable<'w> {
    statistic: Statistic,
    /// By value and bucket: the index of its state plus 1, or 0 for none.
    blocks: DenseTable<'w, u32>,
    /// Indexes of states for values without a block.
    sparse: HashMap<(u32, u32), usize>,
    numbers: Vec<((u32, u32), StatisticState)>,
    /// Values without numbers.
    without_numbers: HashSet<u32>,
}

impl StatisticTable<'_> {
    /// Adds a number. A value without numbers gets an empty accumulator.
    #[inline]
    fn add(&mut self, value_code: u32, bucket: u32, number: Option<f64>) {
        let Some(number) = number else {
            self.without_numbers.insert(value_code);
            return;
        };
        let next = self.numbers.len();
        let index = match self.blocks.block_index(value_code) {
            Some(index) => {
                let Some(cell) = self.blocks.block(index).get_mut(bucket as usize) else { return };
                if *cell == 0 {
                    *cell = u32::try_from(next + 1).unwrap_or(0);
                }
                (*cell as usize).saturating_sub(1)
            }
            None => *self.sparse.entry((value_code, bucket)).or_insert(next),
        };
        if index == next {
            self.numbers.push(((value_code, bucket), StatisticState::new(self.statistic)));
        }
        self.numbers[index].1.push(number);
    }

    fn into_accumulators(self) -> Accumulators {
        let mut values: HashMap<u32, HashMap<u32, StatisticState>> =
            self.without_numbers.into_iter().map(|key| (key, HashMap::new())).collect();
        for ((value_code, bucket), numbers) in self.numbers {
            values.entry(value_code).or_default().insert(bucket, numbers);
        }
        values.into_iter().map(|(key, buckets)| (key, Accumulator::Statistics(buckets))).collect()
    }
}

/// Aggregates the numbers of a column by value and bucket.
pub(super) fn aggregate_numbers(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    width: usize,
    (statistic, key): (Statistic, &ColumnRef),
    work: &WorkBudget<'_>,
) -> CalcResult<Accumulators> {
    let columns = rows.list.iter().map(|(run, ..)| DecodedColumn::new(run.column(key), number_of, work));
    let columns: Vec<_> = columns.collect::<CalcResult<_>>()?;
    let (sparse, numbers, without_numbers) = (HashMap::new(), Vec::new(), HashSet::new());
    let mut gathered = StatisticTable {
        statistic,
        blocks: DenseTable::new(width, MAX_SPARSE_CELLS, work),
        sparse,
        numbers,
        without_numbers,
    };
    for_each_row(rows, mapping, work, |row| {
        let (run_index, row_index) = row.position;
        gathered.add(
            row.value_code,
            row.span.from,
            columns.get(run_index).and_then(|column| column.get(row_index)),
        );
    })?;
    Ok(gathered.into_accumulators())
}
