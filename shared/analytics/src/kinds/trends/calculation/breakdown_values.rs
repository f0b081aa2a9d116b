//! The breakdown values of a partition's rows.
//!
//! Must stay true: partial results are keyed by the value itself; codes of values are valid only within one partition.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};

use crate::breakdown::{BreakdownReader, TextColumn};
use crate::kinds::trends::limits;
use crate::mask::Mask;
use crate::query::CohortChoice;
use crate::scan::{ColumnRef, EventRun, JoinedColumnKey, MISSING};

/// A breakdown value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum BreakdownValue {
    /// There is no breakdown.
    NoBreakdown,
    /// One text per dimension; `None` for missing, null and empty.
    Texts(Arc<[Option<String>]>),
    /// A cohort, or all users.
    Cohort(CohortChoice),
}

/// The compiled breakdown.
#[derive(Debug, Clone)]
pub(super) enum TrendBreakdown {
    /// No breakdown.
    None,
    /// By property values.
    Properties(BreakdownReader),
    /// By cohort membership.
    Cohorts(Vec<CohortChoice>),
}

/// The breakdown values of a partition, numbered by codes; at most [`limits::BREAKDOWN_VALUES`].
#[derive(Debug, Default)]
pub(super) struct BreakdownValues {
    pub(super) list: Vec<BreakdownValue>,
    /// Codes by value. Values of the first run are indexed lazily, when another run needs a lookup.
    codes: HashMap<BreakdownValue, u32>,
}

/// An assignment of rows of a run to values. With cohorts there is one layer per cohort, so a row can be in several.
pub(super) struct BreakdownLayer {
    /// The rows of the layer: all rows, or the members of a cohort.
    pub(super) mask: Mask,
    pub(super) codes: ValueCodes,
}

/// The code of each row's value.
pub(super) enum ValueCodes {
    /// The same code for all rows.
    Same(u32),
    /// One code per row.
    PerRow(Vec<u32>),
    /// Column codes, a table from column code to value code, and the value code of rows outside the table.
    ByColumnCode(ScalarBuffer<u32>, Vec<u32>, u32),
}

impl ValueCodes {
    /// The code of a row.
    #[inline]
    pub(super) fn code_of(&self, row: usize) -> u32 {
        match self {
            Self::Same(code) => *code,
            Self::PerRow(codes) => codes.get(row).copied().unwrap_or(MISSING),
            Self::ByColumnCode(codes, table, missing) => {
                let code = codes.get(row).and_then(|code| table.get(*code as usize));
                code.copied().unwrap_or(*missing)
            }
        }
    }
}

impl BreakdownValues {
    fn code_of(&mut self, value: BreakdownValue, work: &WorkBudget<'_>) -> CalcResult<u32> {
        self.index_values(work)?;
        work.consume(WORK_PER_LOOKUP)?;
        if let Some(code) = self.codes.get(&value) {
            return Ok(*code);
        }
        let code = u32::try_from(self.list.len()).unwrap_or(MISSING);
        self.list.push(value.clone());
        self.codes.insert(value, code);
        self.check_limit()?;
        Ok(code)
    }

    /// Indexes the values that were added without an index.
    fn index_values(&mut self, work: &WorkBudget<'_>) -> CalcResult<()> {
        let first = self.codes.len();
        for (key, code) in self.list.iter().skip(first).zip(first..) {
            work.consume(WORK_PER_LOOKUP)?;
            self.codes.insert(key.clone(), u32::try_from(code).unwrap_or(MISSING));
        }
        Ok(())
    }

    fn check_limit(&self) -> CalcResult<()> {
        if self.list.len() > limits::BREAKDOWN_VALUES {
            return Err(limits::too_many("breakdown", "distinct values", limits::BREAKDOWN_VALUES));
        }
        Ok(())
    }

    /// The layers of a run.
    pub(super) fn layers(
        &mut self,
        breakdown: &TrendBreakdown,
        run: &EventRun,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<BreakdownLayer>> {
        Ok(match breakdown {
            TrendBreakdown::None => {
                vec![BreakdownLayer {
                    mask: Mask::Every,
                    codes: ValueCodes::Same(self.code_of(BreakdownValue::NoBreakdown, work)?),
                }]
            }
            TrendBreakdown::Properties(reader) => {
                vec![BreakdownLayer {
                    mask: Mask::Every,
                    codes: self.text_codes(reader.texts(run, work)?, work)?,
                }]
            }
            TrendBreakdown::Cohorts(choices) => choices
                .iter()
                .map(|choice| {
                    let codes = ValueCodes::Same(self.code_of(BreakdownValue::Cohort(*choice), work)?);
                    work.consume(run.actors.len())?;
                    Ok(BreakdownLayer { mask: members(*choice, run), codes })
                })
                .collect::<CalcResult<_>>()?,
        })
    }

    fn text_codes(
        &mut self,
        mut dimensions: Vec<TextColumn>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<ValueCodes> {
        if let [only] = dimensions.as_mut_slice() {
            let values = std::mem::take(&mut only.values).into_iter();
            let values = values.map(|value| BreakdownValue::Texts([Some(value)].into()));
            let (missing, value_codes): (u32, Vec<u32>) = if self.list.is_empty() {
                self.list.push(BreakdownValue::Texts([None].into()));
                self.list.extend(values);
                self.check_limit()?;
                (0, (1..).take(self.list.len() - 1).collect())
            } else {
                let missing = self.code_of(BreakdownValue::Texts([None].into()), work)?;
                (missing, values.map(|value| self.code_of(value, work)).collect::<CalcResult<_>>()?)
            };
            let code = |index: &u32| value_codes.get(*index as usize).copied().unwrap_or(missing);
            let table = only.table.iter().map(code).collect();
            return Ok(ValueCodes::ByColumnCode(only.codes.clone(), table, code(&only.missing)));
        }
        let text = |dimension: &TextColumn, index: u32| {
            usize::try_from(index).ok().and_then(|index| dimension.values.get(index)).cloned()
        };
        let rows = dimensions.first().map_or(0, |dimension| dimension.codes.len());
        let mut codes_by_texts: HashMap<[u32; 3], u32> = HashMap::new();
        let codes = (0..rows).map(|row| {
            work.consume(1)?;
            let mut text_indexes = [MISSING; 3];
            for (text_index, dimension) in text_indexes.iter_mut().zip(&dimensions) {
                *text_index = dimension.of(row);
            }
            if let Some(code) = codes_by_texts.get(&text_indexes) {
                return Ok(*code);
            }
            let texts =
                dimensions.iter().zip(text_indexes).map(|(dimension, code)| text(dimension, code)).collect();
            let code = self.code_of(BreakdownValue::Texts(texts), work)?;
            codes_by_texts.insert(text_indexes, code);
            Ok(code)
        });
        Ok(ValueCodes::PerRow(codes.collect::<CalcResult<_>>()?))
    }
}

/// Work units of one value lookup.
const WORK_PER_LOOKUP: usize = 16;

/// The rows of a cohort's members.
fn members(choice: CohortChoice, run: &EventRun) -> Mask {
    let CohortChoice::Cohort(id) = choice else { return Mask::Every };
    let Some(column) = run.column(&ColumnRef::Joined(JoinedColumnKey::InCohort(id))) else {
        return Mask::Nothing;
    };
    let is_member: Vec<bool> =
        column.values.iter().map(|value| *value == serde_json::Value::Bool(true)).collect();
    let of = |code: &u32| usize::try_from(*code).ok().and_then(|code| is_member.get(code)).copied();
    Mask::Rows(column.codes.iter().map(|code| of(code).unwrap_or(false)).collect())
}
