//! What the actors of a partition add up to, by row of the answer.
//!
//! Must stay true: parts add up in any order; a row is there only if somebody counts in it.

use std::collections::BTreeMap;

use super::values::Values;
use super::{Funnel, Outcome};
use crate::dates::buckets::Buckets;
use crate::error::CalcResult;
use crate::scan::{Micros, Partition};

/// Rows by the value of the breakdown; without one there is one, whose key is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rows(pub(super) BTreeMap<Vec<String>, Row>);

/// One row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Steps: how many reached each of them. Over time: the entries of every period, then the conversions.
    pub(super) counts: Vec<u64>,
    /// Steps: for each step, the microseconds that it took those who took any. As times: those of everybody.
    pub(super) hops: Vec<Vec<Micros>>,
}

impl Rows {
    /// The sum of two parts.
    #[must_use]
    pub(crate) fn merge(mut self, other: Self) -> Self {
        for (key, row) in other.0 {
            self.0.entry(key).or_default().add(row);
        }
        self
    }
}

impl Row {
    /// Adds another row to this one.
    pub(super) fn add(&mut self, other: Self) {
        self.widen(other.counts.len(), other.hops.len());
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, more)| *sum += more);
        for (sum, more) in self.hops.iter_mut().zip(other.hops) {
            if sum.is_empty() {
                *sum = more;
            } else {
                sum.extend(more);
            }
        }
    }

    /// Makes room for so many numbers and lists at least.
    pub(super) fn widen(&mut self, counts: usize, hops: usize) {
        if self.counts.len() < counts {
            self.counts.resize(counts, 0);
        }
        if self.hops.len() < hops {
            self.hops.resize_with(hops, Vec::new);
        }
    }
}

/// The row of a value.
fn row_of(rows: &mut Vec<Row>, value: u32, counts: usize, hops: usize) -> &mut Row {
    let index = value as usize;
    if rows.len() <= index {
        rows.resize_with(index + 1, Row::default);
    }
    let row = &mut rows[index];
    if row.counts.is_empty() {
        row.widen(counts, hops);
    }
    row
}

impl Funnel {
    /// How many reached each step, and the hops.
    pub(super) fn step_rows(&self, partition: &Partition, stop: &dyn Fn() -> bool) -> CalcResult<Rows> {
        let steps = self.query.series.len();
        let optional = self.rules().optional;
        let mut rows: Vec<Row> = Vec::new();
        let values = self.outcomes(partition, stop, |Outcome { value, times, steps: reached, .. }| {
            let row = row_of(&mut rows, value, steps, steps);
            let (mut left, mut before) = (reached, None);
            let mut times = times.iter();
            while left != 0 {
                let step = left.trailing_zeros() as usize;
                left &= left - 1;
                row.counts[step] += 1;
                if optional >> step & 1 != 0 {
                    continue;
                }
                let Some(time) = times.next() else { continue };
                // Steps of one instant took no time that could be averaged.
                if let Some(before) = before.replace(*time)
                    && *time > before
                {
                    row.hops[step].push(*time - before);
                }
            }
        })?;
        Ok(self.keyed(rows, &values))
    }

    /// How long those took who got from the one step to the other.
    pub(super) fn time_rows(&self, partition: &Partition, stop: &dyn Fn() -> bool) -> CalcResult<Rows> {
        let (from, to) = self.query.step_range();
        let mut rows: Vec<Row> = Vec::new();
        let values = self.outcomes(partition, stop, |outcome| {
            if let (Some(first), Some(last)) = (outcome.times.get(from), outcome.times.get(to)) {
                let row = row_of(&mut rows, outcome.value, 1, 1);
                row.counts[0] += 1;
                row.hops[0].push(last - first);
            }
        })?;
        Ok(self.keyed(rows, &values))
    }

    /// How many entered and converted in each period.
    pub(super) fn period_rows(
        &self,
        buckets: &Buckets,
        partition: &Partition,
        stop: &dyn Fn() -> bool,
    ) -> CalcResult<Rows> {
        let periods = buckets.len();
        let mut rows: Vec<Row> = Vec::new();
        let values = self.entries(buckets, partition, stop, |_, value, entries| {
            for entry in entries {
                let row = row_of(&mut rows, value, 2 * periods, 0);
                row.counts[entry.period] += 1;
                if entry.converted {
                    row.counts[periods + entry.period] += 1;
                }
            }
        })?;
        Ok(self.keyed(rows, &values))
    }

    fn keyed(&self, rows: Vec<Row>, values: &Values) -> Rows {
        let rows = (0..).zip(rows).filter(|(_, row)| !row.counts.is_empty());
        Rows(rows.map(|(value, row)| (self.split.key(value, values), row)).collect())
    }
}
