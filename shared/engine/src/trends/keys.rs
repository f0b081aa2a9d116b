//! The values that rows of a partition are split by.
//!
//! Must stay true: a key is the value itself, so that parts agree on it; codes are good inside one partition only.

use std::collections::HashMap;

use arrow_buffer::ScalarBuffer;

use crate::breakdown::{Reader, Texts};
use crate::filter::Mask;
use crate::query::CohortChoice;
use crate::scan::{FactKey, MISSING, RowKey, Run};

/// A value of the breakdown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    /// There is no breakdown.
    Whole,
    /// A text for each part; none for missing, null and empty.
    Texts(Vec<Option<String>>),
    /// A cohort, or everybody.
    Cohort(CohortChoice),
}

/// How keys are read.
#[derive(Debug, Clone)]
pub(super) enum Split {
    /// Not at all.
    Whole,
    /// From values.
    Texts(Reader),
    /// From membership.
    Cohorts(Vec<CohortChoice>),
}

/// The keys of a partition by their codes.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) keys: Vec<Key>,
    codes: HashMap<Key, u32>,
}

/// Rows of a run that share a way of being split.
pub(super) struct Layer {
    /// Which rows; every one of them unless cohorts split.
    pub(super) mask: Mask,
    pub(super) codes: Codes,
}

/// Codes of keys.
pub(super) enum Codes {
    /// The same in all rows.
    Same(u32),
    /// One a row.
    Rows(Vec<u32>),
    /// By the code that a row has in its column; codes outside of the table have the last one.
    Coded(ScalarBuffer<u32>, Vec<u32>, u32),
}

impl Codes {
    /// The code of a row.
    #[inline]
    pub(super) fn of(&self, row: usize) -> u32 {
        match self {
            Self::Same(code) => *code,
            Self::Rows(codes) => codes.get(row).copied().unwrap_or(MISSING),
            Self::Coded(codes, table, missing) => {
                let code = codes.get(row).and_then(|code| table.get(*code as usize));
                code.copied().unwrap_or(*missing)
            }
        }
    }
}

impl Keys {
    fn code(&mut self, key: Key) -> u32 {
        // Keys of the first run wait until another one may have the same.
        for (code, key) in (0..).zip(&self.keys).skip(self.codes.len()) {
            self.codes.insert(key.clone(), code);
        }
        if let Some(code) = self.codes.get(&key) {
            return *code;
        }
        let code = u32::try_from(self.keys.len()).unwrap_or(MISSING);
        self.keys.push(key.clone());
        self.codes.insert(key, code);
        code
    }

    /// The layers of a run. A row of a person in several cohorts is in as many of them.
    pub(super) fn layers(&mut self, split: &Split, run: &Run) -> Vec<Layer> {
        match split {
            Split::Whole => vec![Layer { mask: Mask::Every, codes: Codes::Same(self.code(Key::Whole)) }],
            Split::Texts(reader) => vec![Layer { mask: Mask::Every, codes: self.texts(reader.texts(run)) }],
            Split::Cohorts(choices) => choices
                .iter()
                .map(|choice| {
                    let codes = Codes::Same(self.code(Key::Cohort(*choice)));
                    Layer { mask: members(*choice, run), codes }
                })
                .collect(),
        }
    }

    fn texts(&mut self, mut parts: Vec<Texts>) -> Codes {
        if let [only] = parts.as_mut_slice() {
            let own = std::mem::take(&mut only.values).into_iter();
            let own = own.map(|value| Key::Texts(vec![Some(value)]));
            let (missing, own): (u32, Vec<u32>) = if self.keys.is_empty() {
                self.keys.push(Key::Texts(vec![None]));
                self.keys.extend(own);
                (0, (1..).take(self.keys.len() - 1).collect())
            } else {
                (self.code(Key::Texts(vec![None])), own.map(|key| self.code(key)).collect())
            };
            let code = |index: &u32| own.get(*index as usize).copied().unwrap_or(missing);
            let table = only.table.iter().map(code).collect();
            return Codes::Coded(only.codes.clone(), table, code(&only.missing));
        }
        let text = |part: &Texts, index: u32| {
            usize::try_from(index).ok().and_then(|index| part.values.get(index)).cloned()
        };
        let rows = parts.first().map_or(0, |part| part.codes.len());
        let mut known: HashMap<[u32; 3], u32> = HashMap::new();
        let codes = (0..rows).map(|row| {
            let mut place = [MISSING; 3];
            for (place, part) in place.iter_mut().zip(&parts) {
                *place = part.of(row);
            }
            *known.entry(place).or_insert_with(|| {
                self.code(Key::Texts(parts.iter().zip(place).map(|(part, code)| text(part, code)).collect()))
            })
        });
        Codes::Rows(codes.collect())
    }
}

/// The rows of members.
fn members(choice: CohortChoice, run: &Run) -> Mask {
    let CohortChoice::Cohort(id) = choice else { return Mask::Every };
    let Some(column) = run.column(&RowKey::Fact(FactKey::Member(id))) else { return Mask::Nothing };
    let is: Vec<bool> = column.values.iter().map(|value| *value == serde_json::Value::Bool(true)).collect();
    let of = |code: &u32| usize::try_from(*code).ok().and_then(|code| is.get(code)).copied();
    Mask::Rows(column.codes.iter().map(|code| of(code).unwrap_or(false)).collect())
}
