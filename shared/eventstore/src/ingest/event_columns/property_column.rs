//! The values of one property key.
//!
//! Must stay true: all JSON values stay distinct (50 and 50.0, null and absent); rows are added in ascending
//! order, and of two values of one row the last wins.

use super::chunked_vec::ChunkedVec;
use super::interner::Interner;
use crate::property_value::PropertyValue;
use crate::segments::property_columns::{EXACT_INTEGER_MAX, PropertyColumnKind, TypeCounts};

/// Type of a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Tag {
    #[default]
    Null,
    Boolean,
    Integer,
    /// The bits of the float.
    Float,
    /// An interned text.
    Text,
    /// An interned JSON text.
    Json,
}

/// A stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StoredValue {
    pub tag: Tag,
    pub bits: u64,
}

impl StoredValue {
    pub(super) fn of(cell: &PropertyValue<'_>, texts: &mut Interner) -> StoredValue {
        let (tag, bits) = match cell {
            PropertyValue::Null => (Tag::Null, 0),
            PropertyValue::Boolean(value) => (Tag::Boolean, u64::from(*value)),
            PropertyValue::Integer(n) => (Tag::Integer, *n as u64),
            PropertyValue::Float(float) => (Tag::Float, float.to_bits()),
            PropertyValue::Text(text) => (Tag::Text, u64::from(texts.number(text))),
            PropertyValue::Json(text) => (Tag::Json, u64::from(texts.number(text))),
        };
        StoredValue { tag, bits }
    }

    /// Whether a column of this kind can hold it. The rule is that of [`PropertyColumnKind::fits`].
    pub(super) fn fits(self, kind: PropertyColumnKind) -> bool {
        match (kind, self.tag) {
            (PropertyColumnKind::Json, _)
            | (PropertyColumnKind::Text, Tag::Text)
            | (PropertyColumnKind::Integer, Tag::Integer)
            | (PropertyColumnKind::Float, Tag::Float)
            | (PropertyColumnKind::Boolean, Tag::Boolean) => true,
            (PropertyColumnKind::Number, Tag::Integer) => {
                (self.bits as i64).unsigned_abs() <= EXACT_INTEGER_MAX
            }
            (PropertyColumnKind::Number, Tag::Float) => f64::from_bits(self.bits).fract() != 0.0,
            _ => false,
        }
    }

    /// As a float, where it is a number.
    pub(super) fn as_float(self) -> f64 {
        if self.tag == Tag::Integer { self.bits as i64 as f64 } else { f64::from_bits(self.bits) }
    }

    /// Writes it as JSON.
    pub(super) fn write_json(self, texts: &Interner, out: &mut String) {
        use std::fmt::Write;
        let written = match self.tag {
            Tag::Null => write!(out, "null"),
            Tag::Boolean => write!(out, "{}", self.bits != 0),
            Tag::Integer => write!(out, "{}", self.bits as i64),
            Tag::Float => write!(out, "{}", serde_json::Value::from(f64::from_bits(self.bits))),
            Tag::Text => write!(out, "{}", serde_json::Value::from(texts.text(self.bits as u32))),
            Tag::Json => write!(out, "{}", texts.text(self.bits as u32)),
        };
        // Writing into a text cannot fail.
        debug_assert!(written.is_ok());
    }
}

/// Values, in 32 bits while they fit.
#[derive(Debug)]
enum Numbers {
    Narrow(ChunkedVec<u32>),
    Wide(ChunkedVec<u64>),
}

/// The values of one key.
#[derive(Debug)]
pub(super) struct PropertyValues {
    /// Rows that have a value, ascending; none while all have one.
    rows: Option<ChunkedVec<u32>>,
    /// The common type, while all values agree.
    tag: Tag,
    /// The type of each value, once they differ.
    tags: Option<ChunkedVec<Tag>>,
    numbers: Numbers,
    pub tally: TypeCounts,
    /// The key that followed in the previous event.
    pub next: u32,
}

impl PropertyValues {
    pub(super) fn new() -> PropertyValues {
        PropertyValues {
            rows: None,
            tag: Tag::Null,
            tags: None,
            numbers: Numbers::Narrow(ChunkedVec::default()),
            tally: TypeCounts::default(),
            next: 0,
        }
    }

    /// Number of values.
    pub(super) fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Narrow(numbers) => numbers.len(),
            Numbers::Wide(numbers) => numbers.len(),
        }
    }

    /// Approximate bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let numbers = match &self.numbers {
            Numbers::Narrow(numbers) => numbers.memory(),
            Numbers::Wide(numbers) => numbers.memory(),
        };
        let rows = self.rows.as_ref().map_or(0, ChunkedVec::memory);
        size_of::<PropertyValues>() + numbers + rows + self.tags.as_ref().map_or(0, ChunkedVec::memory)
    }

    /// The value at an index.
    pub(super) fn at(&self, place: usize) -> StoredValue {
        let bits = match &self.numbers {
            Numbers::Narrow(numbers) => u64::from(numbers[place]),
            Numbers::Wide(numbers) => numbers[place],
        };
        StoredValue { tag: self.tags.as_ref().map_or(self.tag, |tags| tags[place]), bits }
    }

    /// The row of an index.
    pub(super) fn row(&self, place: usize) -> u32 {
        self.rows.as_ref().map_or(place as u32, |rows| rows[place])
    }

    /// Adds the value of `row`, which is at or after the last one.
    pub(super) fn push(&mut self, row: u32, value: StoredValue) {
        let len = self.len();
        if len > 0 && self.row(len - 1) == row {
            self.pop();
        }
        let len = self.len();
        if self.rows.is_none() && row as usize != len {
            self.rows = Some((0..len as u32).collect());
        }
        if let Some(rows) = &mut self.rows {
            rows.push(row);
        }
        if len == 0 {
            self.tag = value.tag;
        } else if self.tags.is_none() && self.tag != value.tag {
            self.tags = Some(std::iter::repeat_n(self.tag, len).collect());
        }
        if let Some(tags) = &mut self.tags {
            tags.push(value.tag);
        }
        match (&mut self.numbers, u32::try_from(value.bits)) {
            (Numbers::Narrow(numbers), Ok(narrow)) => numbers.push(narrow),
            (Numbers::Wide(numbers), _) => numbers.push(value.bits),
            (Numbers::Narrow(numbers), Err(_)) => {
                let mut wide = numbers.iter().map(|number| u64::from(*number)).collect::<ChunkedVec<_>>();
                wide.push(value.bits);
                self.numbers = Numbers::Wide(wide);
            }
        }
        self.tally.add_fitting(|kind| value.fits(kind));
    }

    fn pop(&mut self) {
        let last = self.at(self.len() - 1);
        self.tally.remove_fitting(|kind| last.fits(kind));
        match &mut self.numbers {
            Numbers::Narrow(numbers) => numbers.pop(),
            Numbers::Wide(numbers) => numbers.pop(),
        }
        if let Some(rows) = &mut self.rows {
            rows.pop();
        }
        if let Some(tags) = &mut self.tags {
            tags.pop();
        }
    }

    /// Builds the lookup from row to index, for `rows` rows.
    pub(super) fn places(&self, rows: usize) -> ValueRows {
        match &self.rows {
            None => ValueRows::All(self.len()),
            Some(own) => {
                let mut words = vec![(0_u64, 0_u32); rows.div_ceil(64)];
                for row in own.iter() {
                    words[*row as usize / 64].0 |= 1 << (row % 64);
                }
                let mut before = 0;
                for (bits, count) in &mut words {
                    *count = before;
                    before += bits.count_ones();
                }
                ValueRows::Some(words)
            }
        }
    }
}

/// Lookup from row to index.
pub(super) enum ValueRows {
    /// The first rows, without gaps.
    All(usize),
    /// A bitmap in words of 64 rows, with the number of set bits before each.
    Some(Vec<(u64, u32)>),
}

impl ValueRows {
    /// The index of the value of `row`, if it has one.
    pub(super) fn of(&self, row: u32) -> Option<usize> {
        match self {
            ValueRows::All(count) => Some(row as usize).filter(|row| row < count),
            ValueRows::Some(words) => {
                let (bits, before) = words[row as usize / 64];
                let bit = 1_u64 << (row % 64);
                (bits & bit != 0).then(|| (before + (bits & (bit - 1)).count_ones()) as usize)
            }
        }
    }
}
