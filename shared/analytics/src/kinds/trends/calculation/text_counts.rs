//! Event counts by text, of the fast path [`super::count_by_text`].
//!
//! Rows are counted by the dictionary codes of their column. The counts of a code then go to its text, identified by the
//! text's 128-bit id; the text itself is read only for the result. Must stay true: a text without a row in the range has no
//! entry.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pennon_filters::text::text_of;

use super::breakdown_values::BreakdownValue;
use super::bucket_mapping::BucketMapping;
use super::unsplit::BucketLookup;
use crate::dictionary::{Dictionary, NO_TEXT};
use crate::mask::Mask;
use crate::scan::{Column, EventRun};

/// Counts by text and bucket.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TextCounts {
    width: usize,
    /// By text id: the index of its counts.
    indexes: HashMap<u128, usize, BuildHasherDefault<IdHasher>>,
    /// By index: the text id.
    ids: Vec<u128>,
    /// By index: dictionary and code of the text; `None` for rows without a text.
    texts: Vec<Option<(Arc<Dictionary>, usize)>>,
    counts: Vec<u64>,
}

/// Uses the text id itself as the hash, because it is one.
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
        Self { width, indexes: HashMap::default(), ids: Vec::new(), texts: Vec::new(), counts: Vec::new() }
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The counts of a text by bucket.
    fn counts_of(&mut self, id: u128, text: impl FnOnce() -> Option<(Arc<Dictionary>, usize)>) -> &mut [u64] {
        let index = *self.indexes.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.texts.push(text());
            self.counts.resize(self.texts.len() * self.width, 0);
            self.texts.len() - 1
        });
        &mut self.counts[index * self.width..][..self.width]
    }

    /// Adds the rows of a run. Rows that do not count go to an extra bucket behind the last one.
    pub(super) fn add_run(
        &mut self,
        run: &EventRun,
        column: &Column,
        mask: &Mask,
        mapping: &BucketMapping<'_>,
    ) {
        let (stride, missing) = (self.width + 1, column.values.len());
        let mut cells = vec![0_u32; (missing + 1) * stride];
        let bucket_lookup = BucketLookup::new(mapping.buckets, mapping.bounds, self.width);
        let block = |code: u32| (code as usize).min(missing) * stride;
        let rows = column.codes.iter().zip(&run.times);
        match mask {
            Mask::Nothing => {}
            Mask::Every => {
                for (code, time) in rows {
                    cells[block(*code) + bucket_lookup.bucket_of(*time)] += 1;
                }
            }
            Mask::Rows(passes) => {
                for ((code, time), passes) in rows.zip(passes) {
                    let bucket = if *passes { bucket_lookup.bucket_of(*time) } else { self.width };
                    cells[block(*code) + bucket] += 1;
                }
            }
        }
        let ids = column.values.text_hashes();
        for (code, cells) in cells.chunks_exact(stride).enumerate() {
            let cells = &cells[..self.width];
            // A fold over all cells is vectorized; an early exit would not be.
            if cells.iter().fold(0, |any, count| any | count) == 0 {
                continue;
            }
            let id = ids.get(code).copied().unwrap_or(NO_TEXT);
            let counts = self.counts_of(id, || (id != NO_TEXT).then(|| (column.values.clone(), code)));
            counts.iter_mut().zip(cells).for_each(|(count, more)| *count += u64::from(*more));
        }
    }

    /// Merges other counts.
    pub(super) fn merge(&mut self, mut other: Self) {
        if self.len() < other.len() {
            std::mem::swap(self, &mut other);
        }
        let Self { width, ids, mut texts, counts, .. } = other;
        for (index, id) in ids.into_iter().enumerate() {
            let sum = self.counts_of(id, || texts.get_mut(index).and_then(Option::take));
            let more = &counts[index * width..][..width];
            sum.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
    }

    /// Converts to counts by breakdown value.
    pub(super) fn into_values(self) -> impl Iterator<Item = (BreakdownValue, Vec<u64>)> {
        let Self { width, texts, counts, .. } = self;
        texts.into_iter().enumerate().map(move |(index, text)| {
            let text = text.as_ref().and_then(|(dictionary, code)| dictionary.get(*code)).and_then(text_of);
            let key = BreakdownValue::Texts(vec![text.map(std::borrow::Cow::into_owned)]);
            (key, counts[index * width..][..width].to_vec())
        })
    }
}
