//! Which rows of a breakdown stay and which become one.
//!
//! Must stay true: the ranking is that of the answer, so that the people behind the row of the rest are those of the
//! rows that it is made of; equal rows are ranked by their values, whatever the parts were.

use std::cmp::Ordering;

use super::Funnel;
use super::rows::{Row, Rows};
use crate::error::CalcResult;
use crate::limits;
use crate::query::{BreakdownBy, DimensionSource};

/// The texts of a value.
type Key = Vec<String>;

/// The value of the row that the rest make.
pub(super) const OTHER: &str = "Other";

/// More people at the last step first, then at the step before, and so on.
fn ranked(left: &Row, right: &Row) -> Ordering {
    let (left, right) = (left.counts.iter().rev(), right.counts.iter().rev());
    right.cmp(left)
}

impl Funnel {
    /// How many rows stay; those of cohorts and expressions all do.
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

    /// Refuses more rows than an answer can carry, where none may be added up.
    pub(super) fn check_rows(&self, rows: &Rows) -> CalcResult<()> {
        let most = limits::FUNNEL_OBJECTS / self.query.series.len().max(1);
        if self.limit() == usize::MAX && rows.0.len() > most {
            let what = "values of an expression for so many steps";
            return Err(limits::too_many("breakdown", what, most));
        }
        Ok(())
    }

    /// The rows of the answer in its order, the rest added up; and if there is a rest, the values that are not in it.
    pub(super) fn top(&self, rows: Rows) -> (Vec<(Key, Row)>, Option<Vec<Key>>) {
        let mut rows: Vec<_> = rows.0.into_iter().collect();
        rows.sort_by(|left, right| ranked(&left.1, &right.1));
        if rows.len() <= self.limit() {
            return (rows, None);
        }
        let mut other = Row::default();
        rows.drain(self.limit()..).for_each(|(_, row)| other.add(row));
        // A value of that name is no row of its own beside it.
        if let Some(named) = rows.iter().position(|(key, _)| is_other(key)) {
            other.add(rows.remove(named).1);
        }
        let kept = rows.iter().map(|(key, _)| key.clone()).collect();
        rows.push((vec![OTHER.to_owned()], other));
        rows.sort_by(|left, right| ranked(&left.1, &right.1));
        (rows, Some(kept))
    }
}

/// The value has the name of the rest.
pub(super) fn is_other(key: &[String]) -> bool {
    matches!(key, [only] if only == OTHER)
}
