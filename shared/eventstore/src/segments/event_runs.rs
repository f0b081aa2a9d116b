//! Layout of a person range: its runs, its persons, and ties in time.
//!
//! Must stay true: rows that are not sorted by (event, person, time, seq) are refused; the code of a person is
//! its index among the sorted persons of the range; ties number the events of one person at one time by
//! arrival, across event names.

use std::ops::Range as Rows;

use arrow_array::types::Int32Type;
use arrow_array::{Array, DictionaryArray, FixedSizeBinaryArray, StringArray};
use pennon_analytics::scan::{Micros, Seq};

use crate::error::EventStoreError;

/// The sort columns of a range.
pub(super) struct SortColumns<'a> {
    pub events: &'a DictionaryArray<Int32Type>,
    pub names: &'a StringArray,
    pub persons: &'a FixedSizeBinaryArray,
    pub times: &'a [Micros],
    pub seq_high: &'a [u64],
    pub seq_low: &'a [u64],
}

/// Consecutive rows of one event.
pub(super) struct Run {
    pub name: String,
    pub rows: Rows<usize>,
}

/// The layout of the rows.
pub(super) struct RunLayout {
    pub runs: Vec<Run>,
    /// Ascending, as 128-bit integers.
    pub persons: Vec<u128>,
    /// Person code by row.
    pub codes: Vec<u32>,
    /// Tie number by row.
    pub ties: Vec<u32>,
}

impl SortColumns<'_> {
    fn person(&self, row: usize) -> u128 {
        self.persons.value(row).try_into().map_or(0, u128::from_be_bytes)
    }

    fn seq(&self, row: usize) -> Seq {
        (u128::from(self.seq_high[row]) << 64) | u128::from(self.seq_low[row])
    }

    fn name(&self, row: usize) -> Result<&str, EventStoreError> {
        let code = self.events.key(row).filter(|code| *code < self.names.len());
        code.map(|code| self.names.value(code))
            .ok_or_else(|| EventStoreError::corrupt("an event without a name"))
    }

    /// The runs; an error if rows are not sorted.
    fn runs(&self, persons: &[u128]) -> Result<Vec<Run>, EventStoreError> {
        let mut runs: Vec<Run> = Vec::new();
        let codes = self.events.keys().values();
        for row in 0..self.times.len() {
            let has_more_work = match runs.last_mut() {
                Some(run) if codes[row] == codes[row - 1] || run.name == self.name(row)? => {
                    let place = |row: usize| (persons[row], self.times[row], self.seq(row));
                    if place(row - 1) > place(row) {
                        return Err(EventStoreError::corrupt("rows of a segment are not in order"));
                    }
                    run.rows.end = row + 1;
                    true
                }
                _ => false,
            };
            if !has_more_work {
                let name = self.name(row)?.to_owned();
                if runs.last().is_some_and(|last| last.name >= name) {
                    return Err(EventStoreError::corrupt("runs of a segment are not in order"));
                }
                runs.push(Run { name, rows: row..row + 1 });
            }
        }
        Ok(runs)
    }
}

impl RunLayout {
    /// Computes the layout of sorted rows.
    pub(super) fn of(keys: &SortColumns<'_>) -> Result<RunLayout, EventStoreError> {
        let of_rows = (0..keys.times.len()).map(|row| keys.person(row)).collect::<Vec<_>>();
        let runs = keys.runs(&of_rows)?;
        let mut persons = of_rows.clone();
        persons.dedup();
        persons.sort_unstable();
        persons.dedup();
        let mut codes = Vec::with_capacity(of_rows.len());
        for run in &runs {
            let mut at = 0;
            for person in &of_rows[run.rows.clone()] {
                // Within a run persons ascend: the next one is never before the last.
                if persons[at] != *person {
                    at += persons[at..].partition_point(|before| before < person);
                }
                codes.push(at as u32);
            }
        }
        let ties = ties(keys, &codes);
        Ok(RunLayout { runs, persons, codes, ties })
    }
}

/// The tie number of each row, by arrival.
///
/// Most rows have no tie. Two passes over a bitmap of hashes find candidates, and only these are sorted.
fn ties(keys: &SortColumns<'_>, codes: &[u32]) -> Vec<u32> {
    let rows = codes.len();
    let bits = (rows.max(32) * 32).next_power_of_two().trailing_zeros();
    let hash = |row: usize| {
        let mixed = (keys.times[row] as u64) ^ u64::from(codes[row]).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = mixed >> (64 - bits);
        ((bit >> 6) as usize, 1_u64 << (bit & 63))
    };
    let (mut once, mut twice) = (vec![0_u64; 1 << (bits - 6)], vec![0_u64; 1 << (bits - 6)]);
    for row in 0..rows {
        let (word, bit) = hash(row);
        twice[word] |= once[word] & bit;
        once[word] |= bit;
    }
    let mut maybe = (0..rows)
        .filter(|row| {
            let (word, bit) = hash(*row);
            twice[word] & bit != 0
        })
        .collect::<Vec<_>>();
    maybe.sort_unstable_by_key(|row| (codes[*row], keys.times[*row], keys.seq(*row)));
    let mut ties = vec![0; rows];
    for pair in maybe.windows(2) {
        if (codes[pair[0]], keys.times[pair[0]]) == (codes[pair[1]], keys.times[pair[1]]) {
            ties[pair[1]] = ties[pair[0]] + 1;
        }
    }
    ties
}
