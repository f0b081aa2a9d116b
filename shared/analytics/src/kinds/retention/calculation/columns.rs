//! The columns of a result: which one counts a return that is so many periods after the start.
//!
//! Must stay true: column 0 counts every actor of the row; an actor counts once in a column.

use crate::kinds::retention::RetentionQuery;

/// The columns of a result.
#[derive(Debug, Clone)]
pub(super) struct CohortColumns {
    /// Number of columns.
    count: usize,
    /// By distance in periods: the column of a return.
    column_of_distance: Vec<u32>,
    /// First and last distance of each column.
    distances: Vec<(u64, u64)>,
    /// Whether an actor counts in all columns up to its last one.
    cumulative: bool,
}

impl CohortColumns {
    /// The columns of a query; no return is further away than `max_distance`.
    pub(super) fn new(query: &RetentionQuery, max_distance: usize) -> Self {
        let count = query.column_count();
        let one_period_each = vec![1; count.saturating_sub(1)];
        let widths = if query.brackets.is_empty() { &one_period_each } else { &query.brackets };
        let (mut column_of_distance, mut distances) = (vec![0], vec![(0, 0)]);
        for (column, width) in (1..).zip(widths) {
            let first = distances.last().map_or(0, |(_, last): &(u64, u64)| last.saturating_add(1));
            let last = first.saturating_add(width - 1);
            distances.push((first, last));
            let known = usize::try_from(last).unwrap_or(usize::MAX).min(max_distance);
            column_of_distance.resize(column_of_distance.len().max(known.saturating_add(1)), column);
        }
        Self { count, column_of_distance, distances, cumulative: query.cumulative }
    }

    /// Number of columns.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The column of a return by its distance; none for the start's own period and behind the last column.
    #[inline]
    pub(super) fn of_distance(&self, distance: u32) -> Option<u32> {
        self.column_of_distance.get(distance as usize).copied().filter(|column| *column > 0)
    }

    /// Completes the ascending columns in which an actor returned: if the columns are cumulative, with those before the last.
    pub(super) fn complete(&self, returned: &mut Vec<u32>) {
        if self.cumulative
            && let Some(last) = returned.last().copied()
        {
            returned.clear();
            returned.extend(1..=last);
        }
    }

    /// The distances that a column counts, as its label: `4` or `5-14`.
    pub(super) fn distance_text(&self, column: usize) -> String {
        match self.distances.get(column) {
            Some((first, last)) if first < last => format!("{first}-{last}"),
            Some((first, _)) => first.to_string(),
            None => column.to_string(),
        }
    }
}
