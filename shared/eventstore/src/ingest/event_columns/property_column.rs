//! The values of one property key while events come in.
//!
//! Must stay true: a value is told apart from every other one of JSON (50 from 50.0, null from absent); rows come in
//! ascending order, and of two values of one row the last counts.

use super::cell::Cell;
use super::chunked_vec::Rows;
use super::interner::Interner;
use crate::segments::property_columns::{EXACT_INTEGER_MAX, Kind, Tally};

/// What a stored number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Tag {
    #[default]
    Null,
    Boolean,
    Integer,
    /// The bits of the float.
    Float,
    /// A number of the interner.
    Text,
    /// A number of the interner: the text of a value.
    Json,
}

/// A stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stored {
    pub tag: Tag,
    pub bits: u64,
}

impl Stored {
    pub(super) fn of(cell: &Cell<'_>, texts: &mut Interner) -> Stored {
        let (tag, bits) = match cell {
            Cell::Null => (Tag::Null, 0),
            Cell::Boolean(value) => (Tag::Boolean, u64::from(*value)),
            Cell::Integer(n) => (Tag::Integer, *n as u64),
            Cell::Float(float) => (Tag::Float, float.to_bits()),
            Cell::Text(text) => (Tag::Text, u64::from(texts.number(text))),
            Cell::Json(text) => (Tag::Json, u64::from(texts.number(text))),
        };
        Stored { tag, bits }
    }

    /// Whether a column of this kind can hold it. The rule is that of [`Kind::fits`].
    pub(super) fn fits(self, kind: Kind) -> bool {
        match (kind, self.tag) {
            (Kind::Json, _)
            | (Kind::Text, Tag::Text)
            | (Kind::Integer, Tag::Integer)
            | (Kind::Float, Tag::Float)
            | (Kind::Boolean, Tag::Boolean) => true,
            (Kind::Number, Tag::Integer) => (self.bits as i64).unsigned_abs() <= EXACT_INTEGER_MAX,
            (Kind::Number, Tag::Float) => f64::from_bits(self.bits).fract() != 0.0,
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

/// Numbers of 32 bits as long as nothing needs more.
#[derive(Debug)]
enum Numbers {
    Narrow(Rows<u32>),
    Wide(Rows<u64>),
}

/// The values of one key.
#[derive(Debug)]
pub(super) struct Column {
    /// The rows that have a value, ascending; none as long as all had one.
    rows: Option<Rows<u32>>,
    /// Of all values, as long as they agree.
    tag: Tag,
    /// Of each value, once they do not.
    tags: Option<Rows<Tag>>,
    numbers: Numbers,
    pub tally: Tally,
    /// Which key came next in the event before.
    pub next: u32,
}

impl Column {
    pub(super) fn new() -> Column {
        Column {
            rows: None,
            tag: Tag::Null,
            tags: None,
            numbers: Numbers::Narrow(Rows::default()),
            tally: Tally::default(),
            next: 0,
        }
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Narrow(numbers) => numbers.len(),
            Numbers::Wide(numbers) => numbers.len(),
        }
    }

    /// About how many bytes of memory they take.
    pub(super) fn memory(&self) -> usize {
        let numbers = match &self.numbers {
            Numbers::Narrow(numbers) => numbers.memory(),
            Numbers::Wide(numbers) => numbers.memory(),
        };
        let rows = self.rows.as_ref().map_or(0, Rows::memory);
        size_of::<Column>() + numbers + rows + self.tags.as_ref().map_or(0, Rows::memory)
    }

    /// The value at a place.
    pub(super) fn at(&self, place: usize) -> Stored {
        let bits = match &self.numbers {
            Numbers::Narrow(numbers) => u64::from(numbers[place]),
            Numbers::Wide(numbers) => numbers[place],
        };
        Stored { tag: self.tags.as_ref().map_or(self.tag, |tags| tags[place]), bits }
    }

    /// The row of a place.
    pub(super) fn row(&self, place: usize) -> u32 {
        self.rows.as_ref().map_or(place as u32, |rows| rows[place])
    }

    /// Adds the value of `row`, which is not before the last one.
    pub(super) fn push(&mut self, row: u32, value: Stored) {
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
                let mut wide = numbers.iter().map(|number| u64::from(*number)).collect::<Rows<_>>();
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

    /// For finding the place of a row, when `rows` have come in all.
    pub(super) fn places(&self, rows: usize) -> Places {
        match &self.rows {
            None => Places::All(self.len()),
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
                Places::Some(words)
            }
        }
    }
}

/// Which rows have a value, and where.
pub(super) enum Places {
    /// So many from the first on.
    All(usize),
    /// Bits of 64 rows each, and how many are set before.
    Some(Vec<(u64, u32)>),
}

impl Places {
    /// The place of the value of `row`, if it has one.
    pub(super) fn of(&self, row: u32) -> Option<usize> {
        match self {
            Places::All(count) => Some(row as usize).filter(|row| row < count),
            Places::Some(words) => {
                let (bits, before) = words[row as usize / 64];
                let bit = 1_u64 << (row % 64);
                (bits & bit != 0).then(|| (before + (bits & (bit - 1)).count_ones()) as usize)
            }
        }
    }
}
