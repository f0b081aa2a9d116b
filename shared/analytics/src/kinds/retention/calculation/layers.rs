//! The rows of a partition as a breakdown sees them: which events start and return, and the breakdown value of each.
//!
//! Must stay true: with cohorts there is one layer per cohort, which has only events of its members, so an actor can be in
//! several; any other breakdown has one layer. Missing, null and empty are the empty text.

use std::collections::HashMap;

use arrow_buffer::ScalarBuffer;
use pennon_filters::error::CalcResult;
use pennon_filters::text::{number_of, text_length};
use pennon_filters::work_budget::WorkBudget;

use super::CompiledRetention;
use crate::breakdown::{BreakdownReader, TextColumn};
use crate::kinds::retention::limits;
use crate::mask::Mask;
use crate::query::CohortChoice;
use crate::scan::{Column, ColumnRef, EventRun, JoinedColumnKey, MISSING, Partition};

/// The compiled breakdown.
#[derive(Debug, Clone)]
pub(super) enum RetentionBreakdown {
    /// No breakdown: one value, the empty text.
    None,
    /// By the values of a property.
    Property(BreakdownReader),
    /// By cohort membership.
    Cohorts(Vec<CohortChoice>),
}

/// The rows of one run in one layer.
pub(super) struct LayerRun<'a> {
    pub(super) run: &'a EventRun,
    /// Starting events.
    pub(super) starts: Mask,
    /// Returning events.
    pub(super) returns: Mask,
    /// Events of the target's name or action that pass the query's filters; only for first-ever retention.
    pub(super) targets: Mask,
    /// The code of each row's breakdown value.
    pub(super) values: RowValues,
    /// By row: the number that is added up; empty if nothing is.
    pub(super) numbers: Vec<f64>,
}

/// The codes of the breakdown values of rows.
#[derive(Clone)]
pub(super) enum RowValues {
    /// One code for all rows.
    Same(u32),
    /// Column codes, a table from column code to value code, and the value code of codes outside of the table.
    ByColumnCode(ScalarBuffer<u32>, Vec<u32>, u32),
}

impl RowValues {
    /// The code of a row's value.
    #[inline]
    pub(super) fn code_of(&self, row: usize) -> u32 {
        match self {
            Self::Same(code) => *code,
            Self::ByColumnCode(codes, table, missing) => {
                let code = codes.get(row).and_then(|code| table.get(*code as usize));
                code.copied().unwrap_or(*missing)
            }
        }
    }

    /// Whether rows may have different values.
    pub(super) fn differ(&self) -> bool {
        matches!(self, Self::ByColumnCode(..))
    }
}

/// The distinct breakdown values of a partition, by code.
#[derive(Debug, Default)]
pub(super) struct PartitionValues {
    pub(super) texts: Vec<String>,
    codes: HashMap<String, u32>,
}

/// Codes of one partition: those of its values, and that of the empty text, which it has even if all rows have a value.
const CODES: usize = limits::BREAKDOWN_VALUES + 1;

/// Work units of one lookup of a value.
const WORK_PER_LOOKUP: usize = 16;

impl PartitionValues {
    fn code_of(&mut self, text: &str, work: &WorkBudget<'_>) -> CalcResult<u32> {
        work.consume(WORK_PER_LOOKUP)?;
        if let Some(code) = self.codes.get(text) {
            return Ok(*code);
        }
        if self.texts.len() == CODES {
            return Err(limits::too_many("breakdown", "distinct values", limits::BREAKDOWN_VALUES));
        }
        let code = u32::try_from(self.texts.len()).unwrap_or(MISSING);
        self.texts.push(text.to_owned());
        self.codes.insert(text.to_owned(), code);
        Ok(code)
    }

    fn row_values(&mut self, column: &TextColumn, work: &WorkBudget<'_>) -> CalcResult<RowValues> {
        let missing = self.code_of("", work)?;
        let codes =
            column.values.iter().map(|text| self.code_of(text, work)).collect::<CalcResult<Vec<u32>>>()?;
        let code = |index: &u32| codes.get(*index as usize).copied().unwrap_or(missing);
        let table = column.table.iter().map(code).collect();
        Ok(RowValues::ByColumnCode(column.codes.clone(), table, code(&column.missing)))
    }
}

/// The rows of a partition without its layers.
pub(super) struct PartitionRows<'a> {
    pub(super) values: PartitionValues,
    /// Number of actors of the partition.
    pub(super) actors: usize,
    /// Runs with a starting or returning event.
    runs: Vec<LayerRun<'a>>,
    /// By layer: the cohort; `None` for all rows.
    layers: Vec<Option<CohortChoice>>,
}

impl<'a> PartitionRows<'a> {
    /// Tests all rows of a partition.
    pub(super) fn new(
        retention: &CompiledRetention,
        partition: &'a Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Self> {
        let (mut values, mut runs) = (PartitionValues::default(), Vec::new());
        let layers = match &retention.breakdown {
            RetentionBreakdown::Cohorts(choices) => {
                for choice in choices {
                    values.code_of(&cohort_text(*choice), work)?;
                }
                choices.iter().copied().map(Some).collect()
            }
            _ => vec![None],
        };
        for run in &partition.runs {
            work.check()?;
            let shared = retention.shared.mask(run, work)?;
            if shared == Mask::Nothing {
                continue;
            }
            let starts = retention.target.mask(run, work)?.and(shared.clone());
            let returns = match retention.has_same_entity {
                true => starts.clone(),
                false => retention.returning.mask(run, work)?.and(shared.clone()),
            };
            let targets = match &retention.unfiltered_target {
                Some(matcher) => matcher.mask(run, work)?.and(shared),
                None => Mask::Nothing,
            };
            if [&starts, &returns, &targets].into_iter().all(|mask| *mask == Mask::Nothing) {
                continue;
            }
            let row_values = match &retention.breakdown {
                RetentionBreakdown::Property(reader) => match reader.texts(run, work)?.first() {
                    Some(column) => values.row_values(column, work)?,
                    None => RowValues::Same(values.code_of("", work)?),
                },
                RetentionBreakdown::None => RowValues::Same(values.code_of("", work)?),
                RetentionBreakdown::Cohorts(_) => RowValues::Same(0),
            };
            let numbers = match &retention.number {
                Some(key) => numbers(run.column(key), run.actors.len(), work)?,
                None => Vec::new(),
            };
            runs.push(LayerRun { run, starts, returns, targets, values: row_values, numbers });
        }
        Ok(Self { values, actors: partition.actors.len(), runs, layers })
    }

    /// Calls back with the runs of each layer.
    pub(super) fn for_each_layer(
        self,
        work: &WorkBudget<'_>,
        mut callback: impl FnMut(&[LayerRun<'a>]) -> CalcResult<()>,
    ) -> CalcResult<()> {
        for (code, layer) in (0..).zip(&self.layers) {
            match layer {
                None => callback(&self.runs)?,
                Some(choice) => {
                    let members = |run: &LayerRun<'a>| run.of_cohort(*choice, code, work);
                    callback(&self.runs.iter().map(members).collect::<CalcResult<Vec<_>>>()?)?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> LayerRun<'a> {
    /// The rows of a cohort's members, whose value has this code.
    fn of_cohort(&self, choice: CohortChoice, code: u32, work: &WorkBudget<'_>) -> CalcResult<LayerRun<'a>> {
        work.check()?;
        work.consume(self.run.actors.len())?;
        let members = members(choice, self.run);
        Ok(LayerRun {
            run: self.run,
            starts: self.starts.clone().and(members.clone()),
            returns: self.returns.clone().and(members.clone()),
            targets: self.targets.clone().and(members),
            values: RowValues::Same(code),
            numbers: self.numbers.clone(),
        })
    }
}

/// The breakdown value of a cohort in results.
fn cohort_text(choice: CohortChoice) -> String {
    match choice {
        CohortChoice::All => "0".to_owned(),
        CohortChoice::Cohort(id) => id.to_string(),
    }
}

/// The rows of a cohort's members.
fn members(choice: CohortChoice, run: &EventRun) -> Mask {
    let CohortChoice::Cohort(id) = choice else { return Mask::Every };
    let Some(column) = run.column(&ColumnRef::Joined(JoinedColumnKey::InCohort(id))) else {
        return Mask::Nothing;
    };
    let is_member: Vec<bool> =
        column.values.iter().map(|value| *value == serde_json::Value::Bool(true)).collect();
    let of = |code: &u32| is_member.get(*code as usize).copied().unwrap_or(false);
    Mask::of(column.codes.iter().map(of).collect())
}

/// By row: the number of a column; 0 for anything else. A value is converted once, unless there are more values than rows.
fn numbers(column: Option<&Column>, rows: usize, work: &WorkBudget<'_>) -> CalcResult<Vec<f64>> {
    let Some(column) = column else { return Ok(vec![0.0; rows]) };
    let number = |value: &serde_json::Value| {
        work.consume(WORK_PER_LOOKUP + text_length(value))?;
        Ok(number_of(value).unwrap_or(0.0))
    };
    work.consume(rows)?;
    if column.values.len() > rows {
        let of = |row| column.value(row).map_or(Ok(0.0), number);
        return (0..rows).map(of).collect();
    }
    let by_code = column.values.iter().map(number).collect::<CalcResult<Vec<f64>>>()?;
    Ok(column.codes.iter().map(|code| by_code.get(*code as usize).copied().unwrap_or(0.0)).collect())
}
