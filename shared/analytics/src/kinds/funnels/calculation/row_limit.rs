//! Applies the breakdown limit: keeps the top rows and adds up the others in one row.
//!
//! Must stay true: rows are ranked as in the result, so the people link of the row "Other" lists the actors of the rows it
//! adds up. Ties are ranked by the breakdown value, independent of how the data was partitioned.

use std::cmp::Ordering;

use pennon_filters::error::CalcResult;

use super::CompiledFunnel;
use super::rows::{FunnelRow, FunnelRows};
use crate::kinds::funnels::limits;
use crate::kinds::funnels::step_numbers::{StepNumbers, ValueTexts};
use crate::query::{BreakdownBy, DimensionSource};

/// The breakdown value of the row that adds up the rows over the limit.
pub(super) const OTHER: &str = "Other";

/// Descending by the count of the last step, then of the step before, and so on.
fn compare_rows(left: &FunnelRow, right: &FunnelRow) -> Ordering {
    let (left, right) = (left.counts.iter().rev(), right.counts.iter().rev());
    right.cmp(left)
}

/// The same for the numbers of steps.
fn compare_numbers(left: &[StepNumbers], right: &[StepNumbers]) -> Ordering {
    let counts = |numbers: &[StepNumbers]| numbers.iter().rev().map(|step| step.count).collect::<Vec<_>>();
    counts(right).cmp(&counts(left))
}

impl CompiledFunnel {
    /// The number of rows that stay. Rows of cohorts and expressions are not limited.
    pub(super) fn limit(&self) -> usize {
        let Some(breakdown) = &self.query.common.breakdown else { return 1 };
        let all = match &breakdown.by {
            BreakdownBy::Cohorts { .. } => true,
            BreakdownBy::Dimensions { dimensions: parts, .. } => {
                parts.iter().any(|part| matches!(part.source, DimensionSource::Expression(_)))
            }
        };
        if all { usize::MAX } else { breakdown.limit.unwrap_or(limits::BREAKDOWN_LIMIT) }
    }

    /// Rejects more rows than a result can hold, where rows are not limited.
    pub(super) fn check_rows(&self, rows: &FunnelRows) -> CalcResult<()> {
        let max_rows = limits::FUNNEL_OBJECTS / self.query.series.len().max(1);
        if self.limit() == usize::MAX && rows.0.len() > max_rows {
            let what = "values of an expression for so many steps";
            return Err(limits::too_many("breakdown", what, max_rows));
        }
        Ok(())
    }

    /// The rows in result order, and the values that are not in "Other", if there is such a row.
    pub(super) fn limit_rows(
        &self,
        rows: FunnelRows,
    ) -> (Vec<(ValueTexts, FunnelRow)>, Option<Vec<ValueTexts>>) {
        let mut rows: Vec<_> = rows.0.into_iter().collect();
        rows.sort_by(|left, right| compare_rows(&left.1, &right.1));
        if rows.len() <= self.limit() {
            return (rows, None);
        }
        let mut other = FunnelRow::default();
        rows.drain(self.limit()..).for_each(|(_, row)| other.merge(row));
        // A real value named "Other" is merged into the row.
        if let Some(real_other) = rows.iter().position(|(key, _)| is_other(key)) {
            other.merge(rows.remove(real_other).1);
        }
        let kept_values = rows.iter().map(|(key, _)| key.clone()).collect();
        rows.push((vec![OTHER.to_owned()], other));
        rows.sort_by(|left, right| compare_rows(&left.1, &right.1));
        (rows, Some(kept_values))
    }
}

/// Sorts rows that are limited and added up already, as [`CompiledFunnel::limit_rows`] does. With `cut`, returns the values
/// that are not in "Other".
pub(super) fn sort_limited_rows(
    rows: &mut Vec<(ValueTexts, Vec<StepNumbers>)>,
    cut: bool,
) -> Option<Vec<ValueTexts>> {
    rows.sort_by(|left, right| compare_numbers(&left.1, &right.1).then_with(|| left.0.cmp(&right.0)));
    let other = rows.iter().position(|(key, _)| is_other(key)).filter(|_| cut)?;
    let other = rows.remove(other);
    let kept_values = rows.iter().map(|(key, _)| key.clone()).collect();
    rows.push(other);
    rows.sort_by(|left, right| compare_numbers(&left.1, &right.1));
    Some(kept_values)
}

/// Whether this is the value of the row of other values.
pub(super) fn is_other(key: &[String]) -> bool {
    matches!(key, [only] if only == OTHER)
}
