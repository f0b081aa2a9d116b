//! What the actors of a partition add up to, by row of the answer.
//!
//! Must stay true: parts add up in any order; a row is there only if somebody counts in it.

use std::collections::BTreeMap;

use super::values::Values;
use super::{Funnel, Outcome};
use crate::dates::buckets::Buckets;
use crate::error::{CalcError, CalcResult};
use crate::limits;
use crate::scan::{Micros, Partition};
use crate::work::WorkBudget;

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

/// The rows of a partition by code of the value, all of one size.
struct Sheet {
    rows: Vec<Row>,
    counts: usize,
    hops: usize,
    /// Numbers that may still be made room for.
    room: usize,
    full: bool,
}

impl Sheet {
    fn new(counts: usize, hops: usize) -> Self {
        Self { rows: Vec::new(), counts, hops, room: limits::FUNNEL_NUMBERS, full: false }
    }

    /// The row of a value; none when there is no room for more rows.
    fn row(&mut self, value: u32) -> Option<&mut Row> {
        let index = value as usize;
        if self.rows.len() <= index {
            self.rows.resize_with(index + 1, Row::default);
        }
        let row = self.rows.get_mut(index)?;
        if row.counts.is_empty() {
            // A list takes as much as a few numbers.
            let size = self.counts + 4 * self.hops;
            match self.room.checked_sub(size) {
                Some(room) => self.room = room,
                None => self.full = true,
            }
            if self.full {
                return None;
            }
            row.widen(self.counts, self.hops);
        }
        Some(row)
    }

    fn keyed(self, funnel: &Funnel, values: &Values) -> CalcResult<Rows> {
        if self.full {
            let text = "The breakdown has too many values for so many steps or periods.";
            return Err(CalcError::invalid("breakdown", text));
        }
        let rows = (0..).zip(self.rows).filter(|(_, row)| !row.counts.is_empty());
        Ok(Rows(rows.map(|(value, row)| (funnel.split.key(value, values), row)).collect()))
    }
}

impl Funnel {
    /// How many reached each step, and the hops.
    pub(super) fn step_rows(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Rows> {
        let steps = self.query.series.len();
        let optional = self.rules().optional;
        let mut sheet = Sheet::new(steps, steps);
        let values = self.outcomes(partition, work, |Outcome { value, times, steps: reached, .. }| {
            let Some(row) = sheet.row(value) else { return };
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
        sheet.keyed(self, &values)
    }

    /// How long those took who got from the one step to the other.
    pub(super) fn time_rows(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Rows> {
        let (from, to) = self.query.step_range();
        let mut sheet = Sheet::new(1, 1);
        let values = self.outcomes(partition, work, |outcome| {
            if let (Some(first), Some(last)) = (outcome.times.get(from), outcome.times.get(to))
                && let Some(row) = sheet.row(outcome.value)
            {
                row.counts[0] += 1;
                row.hops[0].push(last - first);
            }
        })?;
        sheet.keyed(self, &values)
    }

    /// How many entered and converted in each period.
    pub(super) fn period_rows(
        &self,
        buckets: &Buckets,
        partition: &Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Rows> {
        let periods = buckets.len();
        let mut sheet = Sheet::new(2 * periods, 0);
        let values = self.entries(buckets, partition, work, |_, value, entries| {
            for entry in entries {
                let Some(row) = sheet.row(value) else { return };
                row.counts[entry.period] += 1;
                if entry.converted {
                    row.counts[periods + entry.period] += 1;
                }
            }
        })?;
        sheet.keyed(self, &values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_refused_when_there_is_no_room_for_their_numbers() {
        let mut sheet = Sheet::new(limits::FUNNEL_NUMBERS / 4, 0);
        for value in [0, 3, 5, 9, 3, 0] {
            assert!(sheet.row(value).is_some());
        }
        assert!(!sheet.full);
        assert!(sheet.row(7).is_none());
        assert!(sheet.full);
    }
}
