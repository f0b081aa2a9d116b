//! How many events fall into each bucket, by the texts of one property: the breakdown that most questions have.
//!
//! Rows are counted by the codes of their column; what is added up for a code goes to the text that it stands for, which is
//! told by its id and read only for the answer. Must stay true: the counts are those that [`super::dense`] makes; a text
//! that no row in the range has is not known.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::count::Bucketing;
use super::counter::Counter;
use super::keys::{Key, Split};
use super::slot::Slots;
use super::state::Sum;
use super::{Mask, Trend};
use crate::dictionary::{Dictionary, NO_TEXT};
use crate::error::CalcResult;
use crate::limits;
use crate::query::Math;
use crate::scan::{Column, Partition, Run};
use crate::text::text_of;
use crate::work::WorkBudget;

/// Cells for each row of a run that may be made room for.
const CELLS_PER_ROW: usize = 8;
/// Cells that may be made room for, however few rows there are.
const CELLS: usize = 1 << 12;
/// Cells of one run.
const MOST_CELLS: usize = 1 << 20;

/// A count for each bucket of each text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TextCounts {
    width: usize,
    /// By text id the place of its counts.
    places: HashMap<u128, usize, BuildHasherDefault<IdHasher>>,
    /// By place.
    ids: Vec<u128>,
    /// By place: where the text stands, none for no text.
    texts: Vec<Option<(Arc<Dictionary>, usize)>>,
    counts: Vec<u64>,
}

/// Ids are hashes already.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut half = [0; 8];
        half.iter_mut().zip(bytes).for_each(|(half, byte)| *half = *byte);
        self.0 = u64::from_ne_bytes(half);
    }

    fn write_u128(&mut self, id: u128) {
        self.0 = id as u64;
    }
}

impl TextCounts {
    pub(super) fn new(width: usize) -> Self {
        Self { width, places: HashMap::default(), ids: Vec::new(), texts: Vec::new(), counts: Vec::new() }
    }

    /// How many texts there are.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The counts of a text.
    fn of(&mut self, id: u128, text: impl FnOnce() -> Option<(Arc<Dictionary>, usize)>) -> &mut [u64] {
        let place = *self.places.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.texts.push(text());
            self.counts.resize(self.texts.len() * self.width, 0);
            self.texts.len() - 1
        });
        &mut self.counts[place * self.width..][..self.width]
    }

    /// Adds the rows of a run. Those that do not count are counted too, behind the last bucket.
    fn add_run(&mut self, run: &Run, column: &Column, mask: &Mask, slots: &Slots<'_>) {
        let (stride, missing) = (self.width + 1, column.values.len());
        let mut cells = vec![0_u32; (missing + 1) * stride];
        let bucketing = Bucketing::new(slots.buckets, slots.bounds, self.width);
        let block = |code: u32| (code as usize).min(missing) * stride;
        let rows = column.codes.iter().zip(&run.times);
        match mask {
            Mask::Nothing => {}
            Mask::Every => {
                for (code, time) in rows {
                    cells[block(*code) + bucketing.of(*time)] += 1;
                }
            }
            Mask::Rows(passes) => {
                for ((code, time), passes) in rows.zip(passes) {
                    let bucket = if *passes { bucketing.of(*time) } else { self.width };
                    cells[block(*code) + bucket] += 1;
                }
            }
        }
        let ids = column.values.text_hashes();
        for (code, cells) in cells.chunks_exact(stride).enumerate() {
            let cells = &cells[..self.width];
            // All of them are looked at, several at a time.
            if cells.iter().fold(0, |any, count| any | count) == 0 {
                continue;
            }
            let id = ids.get(code).copied().unwrap_or(NO_TEXT);
            let counts = self.of(id, || (id != NO_TEXT).then(|| (column.values.clone(), code)));
            counts.iter_mut().zip(cells).for_each(|(count, more)| *count += u64::from(*more));
        }
    }

    /// Adds other counts.
    pub(super) fn merge(&mut self, mut other: Self) {
        if self.len() < other.len() {
            std::mem::swap(self, &mut other);
        }
        let Self { width, ids, mut texts, counts, .. } = other;
        for (place, id) in ids.into_iter().enumerate() {
            let sum = self.of(id, || texts.get_mut(place).and_then(Option::take));
            let more = &counts[place * width..][..width];
            sum.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
    }

    /// The counts by the texts themselves.
    pub(super) fn keyed(self) -> impl Iterator<Item = (Key, Vec<u64>)> {
        let Self { width, texts, counts, .. } = self;
        texts.into_iter().enumerate().map(move |(place, text)| {
            let text = text.as_ref().and_then(|(dictionary, code)| dictionary.get(*code)).and_then(text_of);
            let key = Key::Texts(vec![text.map(std::borrow::Cow::into_owned)]);
            (key, counts[place * width..][..width].to_vec())
        })
    }
}

impl Trend {
    /// The counts of a partition. None where something else is asked for, or where the values are too many for their rows.
    pub(super) fn text_counts(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<Sum>> {
        let Some(columns) = self.text_columns(partition) else { return Ok(None) };
        let mut sum = Sum::default();
        let shared = self.shared_masks(partition, work)?;
        for (series, counter) in self.counters.iter().enumerate() {
            let Some(counter) = counter else { continue };
            let masks = self.masks(counter, partition, &shared, work)?;
            for (index, period) in self.periods.iter().enumerate() {
                if period.width() == 0 {
                    continue;
                }
                let mut counts = TextCounts::new(period.width());
                for (run, mask) in &masks {
                    work.check()?;
                    let slots = period.slots(&counter.math);
                    work.consume(partition.runs[*run].times.len())?;
                    counts.add_run(&partition.runs[*run], columns[*run], mask, &slots);
                }
                sum.add_texts(self.channel(index, series), counts);
            }
        }
        Ok(Some(sum))
    }

    /// By run the column that everything is split by.
    fn text_columns<'a>(&self, partition: &'a Partition) -> Option<Vec<&'a Column>> {
        let Split::Texts(reader) = &self.split else { return None };
        let key = reader.plain_column()?;
        let is_total = |counter: &Counter| matches!(counter.math, Math::Total);
        if !self.counters.iter().flatten().all(is_total) {
            return None;
        }
        let mut width = 0;
        for period in &self.periods {
            let slots = period.slots(&Math::Total);
            if !slots.is_here() || slots.bounds.0 > slots.bounds.1 {
                return None;
            }
            width = width.max(period.width());
        }
        let mut values = 0;
        let columns = partition.runs.iter().map(|run| {
            let column = run.column(key)?;
            let cells = (column.values.len() + 1).checked_mul(width + 1)?;
            values += column.values.len() + 1;
            let most = run.times.len().saturating_mul(CELLS_PER_ROW).clamp(CELLS, MOST_CELLS);
            (cells <= most && column.codes.len() == run.times.len()).then_some(column)
        });
        let columns = columns.collect::<Option<Vec<_>>>()?;
        // What is refused when there are too many is found out by looking at each of them.
        (values <= limits::BREAKDOWN_VALUES).then_some(columns)
    }
}
