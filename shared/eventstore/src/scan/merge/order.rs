//! K-way merge order: the target position of each row of several runs of one event, by person, time and
//! arrival.
//!
//! Must stay true: every position is used once; the position of a row does not depend on its source run.

use arrow_buffer::ScalarBuffer;
use pennon_analytics::scan::Micros;

use super::SourceRun;

/// How rows of one person and time are ordered.
#[derive(Debug, Clone, Copy)]
pub(super) enum TieOrder {
    Untied,
    Ties,
    Seqs,
}

/// A source run of the merge.
pub(super) struct MergeInput<'a> {
    pub run: &'a SourceRun,
    /// New person indices from `from` on; none if they do not change.
    pub map: Option<&'a [u32]>,
    pub from: u32,
}

impl MergeInput<'_> {
    fn code(&self, row: usize) -> u32 {
        let code = self.run.core.codes[row];
        self.map.map_or(code, |map| map[(code - self.from) as usize])
    }

    /// The new person codes of its rows.
    pub fn codes(&self) -> ScalarBuffer<u32> {
        match self.map {
            None => self.run.core.codes.clone(),
            Some(_) => (0..self.run.core.codes.len()).map(|row| self.code(row)).collect(),
        }
    }
}

/// The target position of each row of each head, whose `codes` are given. Segments mostly cover different times, so
/// rows are placed by counting the rows of each person; only the persons with rows in the time that two heads
/// share are sorted.
pub(super) fn places(
    heads: &[MergeInput<'_>],
    codes: &[ScalarBuffer<u32>],
    persons: usize,
    form: TieOrder,
) -> Vec<Vec<u32>> {
    let (turns, apart) = by_time(heads);
    let mut ends = vec![0_u32; persons + 1];
    for code in codes.iter().flat_map(|codes| codes.iter()) {
        ends[*code as usize + 1] += 1;
    }
    for person in 1..ends.len() {
        ends[person] += ends[person - 1];
    }
    if apart {
        return counted(codes, &turns, &mut ends);
    }
    let unordered = unordered_persons(heads, codes, &turns, persons);
    let mut places = counted(codes, &turns, &mut ends);
    sort_persons(heads, codes, &unordered, form, &mut places);
    places
}

/// The heads by their first time, and whether each ends before the next one starts.
fn by_time(heads: &[MergeInput<'_>]) -> (Vec<usize>, bool) {
    let bounds = heads.iter().enumerate().map(|(at, head)| {
        let times = head.run.core.times.iter().copied();
        (times.clone().min().unwrap_or(Micros::MAX), times.max().unwrap_or(Micros::MIN), at)
    });
    let mut bounds = bounds.collect::<Vec<_>>();
    bounds.sort_unstable();
    let apart = bounds.windows(2).all(|pair| pair[0].1 < pair[1].0);
    (bounds.into_iter().map(|(.., at)| at).collect(), apart)
}

/// Positions when the rows of a person in one head precede those in the next, in the order `turns`. `next` has the
/// first position of each person.
fn counted(codes: &[ScalarBuffer<u32>], turns: &[usize], next: &mut [u32]) -> Vec<Vec<u32>> {
    let mut places = vec![Vec::new(); codes.len()];
    for head in turns {
        let place = |code: &u32| {
            let next = &mut next[*code as usize];
            *next += 1;
            *next - 1
        };
        places[*head] = codes[*head].iter().map(place).collect();
    }
    places
}

/// By person: whether a row in one head may have to precede a row in an earlier one.
fn unordered_persons(
    heads: &[MergeInput<'_>],
    codes: &[ScalarBuffer<u32>],
    turns: &[usize],
    persons: usize,
) -> Vec<bool> {
    let mut last = vec![Micros::MIN; persons];
    let mut unordered = vec![false; persons];
    for head in turns {
        let (codes, times) = (&codes[*head], &heads[*head].run.core.times);
        let mut row = 0;
        while row < codes.len() {
            let code = codes[row];
            let end = row + codes[row..].iter().take_while(|other| **other == code).count();
            let last = &mut last[code as usize];
            unordered[code as usize] |= times[row] <= *last;
            *last = (*last).max(times[end - 1]);
            row = end;
        }
    }
    unordered
}

/// Sorts the rows of some persons among the positions that these rows have.
fn sort_persons(
    heads: &[MergeInput<'_>],
    codes: &[ScalarBuffer<u32>],
    unordered: &[bool],
    form: TieOrder,
    places: &mut [Vec<u32>],
) {
    let mut rows = Vec::new();
    for (head, codes) in codes.iter().enumerate() {
        let seqs = if let TieOrder::Seqs = form { heads[head].run.seqs() } else { &[] };
        let times = &heads[head].run.core.times;
        let own = (0..codes.len()).filter(|row| unordered[codes[*row] as usize]);
        rows.extend(own.map(|row| {
            let seq = seqs.get(row).copied().unwrap_or_default();
            (codes[row], times[row], seq, head as u32, row as u32)
        }));
    }
    let mut taken =
        rows.iter().map(|(.., head, row)| places[*head as usize][*row as usize]).collect::<Vec<_>>();
    // Positions ascend by person, as the rows do. The rows of each head are sorted already, which a stable sort uses.
    taken.sort();
    rows.sort();
    for ((.., head, row), place) in rows.into_iter().zip(taken) {
        places[head as usize][row as usize] = place;
    }
}
