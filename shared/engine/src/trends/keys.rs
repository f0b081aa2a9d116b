//! The values that rows of a partition are split by.
//!
//! Must stay true: a key is the value itself, so that parts agree on it; codes are good inside one partition only.

use std::collections::HashMap;

use arrow_buffer::ScalarBuffer;

use crate::breakdown::{BreakdownReader, TextColumn};
use crate::error::CalcResult;
use crate::filter::Mask;
use crate::limits;
use crate::query::CohortChoice;
use crate::scan::{ColumnRef, JoinedColumnKey, MISSING, Run};
use crate::work::WorkBudget;

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
    Texts(BreakdownReader),
    /// From membership.
    Cohorts(Vec<CohortChoice>),
}

/// The keys of a partition by their codes; no more of them than a breakdown may have.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) keys: Vec<Key>,
    /// Those of the first keys, in their order. The others are added when they are looked for.
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
    fn code(&mut self, key: Key, work: &WorkBudget<'_>) -> CalcResult<u32> {
        self.index_keys(work)?;
        work.consume(PER_KEY)?;
        if let Some(code) = self.codes.get(&key) {
            return Ok(*code);
        }
        let code = u32::try_from(self.keys.len()).unwrap_or(MISSING);
        self.keys.push(key.clone());
        self.codes.insert(key, code);
        self.check_limit()?;
        Ok(code)
    }

    /// Makes the keys of the first run known, which waited until another one may have the same.
    fn index_keys(&mut self, work: &WorkBudget<'_>) -> CalcResult<()> {
        let first = self.codes.len();
        for (key, code) in self.keys.iter().skip(first).zip(first..) {
            work.consume(PER_KEY)?;
            self.codes.insert(key.clone(), u32::try_from(code).unwrap_or(MISSING));
        }
        Ok(())
    }

    fn check_limit(&self) -> CalcResult<()> {
        if self.keys.len() > limits::BREAKDOWN_VALUES {
            return Err(limits::too_many("breakdown", "distinct values", limits::BREAKDOWN_VALUES));
        }
        Ok(())
    }

    /// The layers of a run. A row of a person in several cohorts is in as many of them.
    pub(super) fn layers(
        &mut self,
        split: &Split,
        run: &Run,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Layer>> {
        Ok(match split {
            Split::Whole => {
                vec![Layer { mask: Mask::Every, codes: Codes::Same(self.code(Key::Whole, work)?) }]
            }
            Split::Texts(reader) => {
                vec![Layer { mask: Mask::Every, codes: self.texts(reader.texts(run, work)?, work)? }]
            }
            Split::Cohorts(choices) => choices
                .iter()
                .map(|choice| {
                    let codes = Codes::Same(self.code(Key::Cohort(*choice), work)?);
                    work.consume(run.actors.len())?;
                    Ok(Layer { mask: members(*choice, run), codes })
                })
                .collect::<CalcResult<_>>()?,
        })
    }

    fn texts(&mut self, mut parts: Vec<TextColumn>, work: &WorkBudget<'_>) -> CalcResult<Codes> {
        if let [only] = parts.as_mut_slice() {
            let own = std::mem::take(&mut only.values).into_iter();
            let own = own.map(|value| Key::Texts(vec![Some(value)]));
            let (missing, own): (u32, Vec<u32>) = if self.keys.is_empty() {
                self.keys.push(Key::Texts(vec![None]));
                self.keys.extend(own);
                self.check_limit()?;
                (0, (1..).take(self.keys.len() - 1).collect())
            } else {
                let missing = self.code(Key::Texts(vec![None]), work)?;
                (missing, own.map(|key| self.code(key, work)).collect::<CalcResult<_>>()?)
            };
            let code = |index: &u32| own.get(*index as usize).copied().unwrap_or(missing);
            let table = only.table.iter().map(code).collect();
            return Ok(Codes::Coded(only.codes.clone(), table, code(&only.missing)));
        }
        let text = |part: &TextColumn, index: u32| {
            usize::try_from(index).ok().and_then(|index| part.values.get(index)).cloned()
        };
        let rows = parts.first().map_or(0, |part| part.codes.len());
        let mut known: HashMap<[u32; 3], u32> = HashMap::new();
        let codes = (0..rows).map(|row| {
            work.consume(1)?;
            let mut place = [MISSING; 3];
            for (place, part) in place.iter_mut().zip(&parts) {
                *place = part.of(row);
            }
            if let Some(code) = known.get(&place) {
                return Ok(*code);
            }
            let texts = parts.iter().zip(place).map(|(part, code)| text(part, code)).collect();
            let code = self.code(Key::Texts(texts), work)?;
            known.insert(place, code);
            Ok(code)
        });
        Ok(Codes::Rows(codes.collect::<CalcResult<_>>()?))
    }
}

/// Work that finding a key costs.
const PER_KEY: usize = 16;

/// The rows of members.
fn members(choice: CohortChoice, run: &Run) -> Mask {
    let CohortChoice::Cohort(id) = choice else { return Mask::Every };
    let Some(column) = run.column(&ColumnRef::Joined(JoinedColumnKey::InCohort(id))) else {
        return Mask::Nothing;
    };
    let is: Vec<bool> = column.values.iter().map(|value| *value == serde_json::Value::Bool(true)).collect();
    let of = |code: &u32| usize::try_from(*code).ok().and_then(|code| is.get(code)).copied();
    Mask::Rows(column.codes.iter().map(|code| of(code).unwrap_or(false)).collect())
}
