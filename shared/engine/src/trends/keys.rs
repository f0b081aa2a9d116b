//! The breakdown values of a partition's rows.
//!
//! Must stay true: partial results are keyed by the value itself; codes of values are valid only within one partition.

use std::collections::HashMap;

use arrow_buffer::ScalarBuffer;

use crate::breakdown::{Reader, Texts};
use crate::error::CalcResult;
use crate::filter::Mask;
use crate::limits;
use crate::query::CohortChoice;
use crate::scan::{FactKey, MISSING, RowKey, Run};
use crate::work::WorkBudget;

/// A breakdown value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    /// There is no breakdown.
    Whole,
    /// One text per dimension; `None` for missing, null and empty.
    Texts(Vec<Option<String>>),
    /// A cohort, or all users.
    Cohort(CohortChoice),
}

/// The compiled breakdown.
#[derive(Debug, Clone)]
pub(super) enum Split {
    /// No breakdown.
    Whole,
    /// By property values.
    Texts(Reader),
    /// By cohort membership.
    Cohorts(Vec<CohortChoice>),
}

/// The breakdown values of a partition, numbered by codes; at most [`limits::BREAKDOWN_VALUES`].
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) keys: Vec<Key>,
    /// Codes by value. Values of the first run are indexed lazily, when another run needs a lookup.
    codes: HashMap<Key, u32>,
}

/// An assignment of rows of a run to values. With cohorts there is one layer per cohort, so a row can be in several.
pub(super) struct Layer {
    /// The rows of the layer: all rows, or the members of a cohort.
    pub(super) mask: Mask,
    pub(super) codes: Codes,
}

/// The code of each row's value.
pub(super) enum Codes {
    /// The same code for all rows.
    Same(u32),
    /// One code per row.
    Rows(Vec<u32>),
    /// Column codes, a table from column code to value code, and the value code of rows outside the table.
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

    /// Indexes the values that were added without an index.
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

    /// The layers of a run.
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

    fn texts(&mut self, mut parts: Vec<Texts>, work: &WorkBudget<'_>) -> CalcResult<Codes> {
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
        let text = |part: &Texts, index: u32| {
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

/// Work units of one value lookup.
const PER_KEY: usize = 16;

/// The rows of a cohort's members.
fn members(choice: CohortChoice, run: &Run) -> Mask {
    let CohortChoice::Cohort(id) = choice else { return Mask::Every };
    let Some(column) = run.column(&RowKey::Fact(FactKey::Member(id))) else { return Mask::Nothing };
    let is: Vec<bool> = column.values.iter().map(|value| *value == serde_json::Value::Bool(true)).collect();
    let of = |code: &u32| usize::try_from(*code).ok().and_then(|code| is.get(code)).copied();
    Mask::Rows(column.codes.iter().map(|code| of(code).unwrap_or(false)).collect())
}
