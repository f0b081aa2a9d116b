//! The numbers of a stickiness in the rows of its statement.

use super::StickinessQuery;
use crate::clickhouse::{RowsError, SqlRows};

/// Reads the rows: for each series one for each of its `bars`. Returns how many actors are active in exactly so many
/// intervals.
pub(super) fn read(
    rows: &SqlRows<'_>,
    query: &StickinessQuery,
    bars: usize,
) -> Result<Vec<Vec<u64>>, RowsError> {
    rows.require_columns(&["series", "intervals", "value"])?;
    let mut all = vec![Vec::with_capacity(bars); query.series.len()];
    for row in rows.iter() {
        let row = row?;
        let list = all.get_mut(row.index("series")?);
        let list = list.ok_or_else(|| RowsError::invalid("there is no such series"))?;
        if row.index("intervals")? != list.len() + 1 {
            return Err(RowsError::invalid("the bars are not in their order"));
        }
        list.push(row.integer("value")?);
    }
    for list in &mut all {
        if list.len() != bars {
            return Err(RowsError::invalid("a series has another number of bars"));
        }
        if query.is_cumulative {
            subtract_following(list)?;
        }
    }
    Ok(all)
}

/// Subtracts from each bar, which holds the actors of all following bars too, the one after it.
fn subtract_following(bars: &mut [u64]) -> Result<(), RowsError> {
    for at in 1..bars.len() {
        let rest = bars[at - 1].checked_sub(bars[at]);
        bars[at - 1] = rest.ok_or_else(|| RowsError::invalid("a cumulative bar is lower than the next"))?;
    }
    Ok(())
}
