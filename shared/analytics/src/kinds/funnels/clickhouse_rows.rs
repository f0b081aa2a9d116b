//! The numbers of a funnel in the rows of its statement.

use super::FunnelsQuery;
use super::step_numbers::{StepNumbers, ValueTexts};
use crate::clickhouse::{RowsError, SqlRows};

/// The numbers of a funnel, whose breakdown values are limited already.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FunnelNumbers {
    /// By breakdown value: the numbers of each step. Without a breakdown there is a single row with an empty value.
    pub(super) rows: Vec<(ValueTexts, Vec<StepNumbers>)>,
    /// The number of breakdown values before the limit; 0 without a breakdown.
    pub(super) value_count: usize,
}

/// Reads the rows: one for each step of each breakdown value.
pub(super) fn read(rows: &SqlRows<'_>, query: &FunnelsQuery) -> Result<FunnelNumbers, RowsError> {
    let (steps, is_split) = (query.series.len(), query.common.breakdown.is_some());
    rows.require_columns(&["step", "count", "average_conversion_time", "median_conversion_time"])?;
    if is_split {
        rows.require_columns(&["breakdown_value", "value_count"])?;
    }
    let mut numbers = FunnelNumbers::default();
    for row in rows.iter() {
        let row = row?;
        let mut value = ValueTexts::new();
        if is_split {
            value = row.texts("breakdown_value")?;
            numbers.value_count = row.index("value_count")?;
        }
        let step = StepNumbers {
            count: row.integer("count")?,
            average: row.optional_number("average_conversion_time")?,
            median: row.optional_number("median_conversion_time")?,
        };
        let place = row.index("step")?;
        match numbers.rows.last_mut().filter(|(_, last)| last.len() < steps) {
            None if place == 0 => numbers.rows.push((value, vec![step])),
            Some((last, list)) if *last == value && list.len() == place => list.push(step),
            _ => return Err(RowsError::invalid("the steps are not in their order")),
        }
    }
    if numbers.rows.last().is_some_and(|(_, list)| list.len() != steps) {
        return Err(RowsError::invalid("a step is missing"));
    }
    if !is_split && numbers.rows.len() != 1 {
        return Err(RowsError::invalid("the funnel is missing or listed twice"));
    }
    Ok(numbers)
}
