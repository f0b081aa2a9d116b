//! K-way merge order: the target position of each row of several runs of one event, by person, time and
//! arrival.
//!
//! Must stay true: every position is used once; the position of a row does not depend on its source run.

use arrow_buffer::ScalarBuffer;
use pennon_analytics::scan::{Micros, Seq};

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

/// Sort key of rows.
type Place = (u32, Micros, Seq);

impl MergeInput<'_> {
    fn code(&self, row: usize) -> u32 {
        let code = self.run.core.codes[row];
        self.map.map_or(code, |map| map[(code - self.from) as usize])
    }

    fn place(&self, row: usize, form: TieOrder) -> Option<Place> {
        let time = *self.run.core.times.get(row)?;
        let seq = if let TieOrder::Seqs = form { self.run.seqs()[row] } else { 0 };
        Some((self.code(row), time, seq))
    }

    /// The new person codes of its rows.
    pub fn codes(&self) -> ScalarBuffer<u32> {
        match self.map {
            None => self.run.core.codes.clone(),
            Some(_) => (0..self.run.core.codes.len()).map(|row| self.code(row)).collect(),
        }
    }
}

/// Consecutive rows of a head in the merged run.
#[derive(Debug, Clone, Copy)]
struct Span {
    head: usize,
    from: usize,
    to: usize,
}

/// The target position of each row of each head, whose `codes` are given. Segments mostly cover different
/// times: then counting the rows of each person is enough; rows are compared only where times overlap.
pub(super) fn places(
    heads: &[MergeInput<'_>],
    codes: &[ScalarBuffer<u32>],
    persons: usize,
    form: TieOrder,
) -> Vec<Vec<u32>> {
    match by_time(heads) {
        Some(turns) => counted(codes, &turns, persons),
        None => of_spans(heads, &spans(heads, form)),
    }
}

/// The heads in order of time; none if two overlap.
fn by_time(heads: &[MergeInput<'_>]) -> Option<Vec<usize>> {
    let bounds = heads.iter().enumerate().map(|(at, head)| {
        let times = head.run.core.times.iter().copied();
        (times.clone().min().unwrap_or(Micros::MAX), times.max().unwrap_or(Micros::MIN), at)
    });
    let mut bounds = bounds.collect::<Vec<_>>();
    bounds.sort_unstable();
    let apart = bounds.windows(2).all(|pair| pair[0].1 < pair[1].0);
    apart.then(|| bounds.into_iter().map(|(.., at)| at).collect())
}

/// Positions when the heads follow each other in time, in the order `turns`.
fn counted(codes: &[ScalarBuffer<u32>], turns: &[usize], persons: usize) -> Vec<Vec<u32>> {
    let mut next = vec![0_u32; persons + 1];
    for code in codes.iter().flat_map(|codes| codes.iter()) {
        next[*code as usize + 1] += 1;
    }
    for person in 1..next.len() {
        next[person] += next[person - 1];
    }
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

fn of_spans(heads: &[MergeInput<'_>], spans: &[Span]) -> Vec<Vec<u32>> {
    let mut places =
        heads.iter().map(|head| Vec::with_capacity(head.run.core.codes.len())).collect::<Vec<_>>();
    let mut next = 0;
    for Span { head, from, to } in spans {
        let rows = (to - from) as u32;
        places[*head].extend(next..next + rows);
        next += rows;
    }
    places
}

/// Merge order of all heads, person by person: the rows of a person in one head mostly precede those in the
/// next.
fn spans(heads: &[MergeInput<'_>], form: TieOrder) -> Vec<Span> {
    const END: u32 = u32::MAX;
    let code = |head: usize, row: usize| match heads[head].run.core.codes.len() > row {
        true => heads[head].code(row),
        false => END,
    };
    let mut next = vec![0; heads.len()];
    let mut codes = (0..heads.len()).map(|head| code(head, 0)).collect::<Vec<_>>();
    let (mut spans, mut of_person) = (Vec::new(), Vec::new());
    loop {
        let person = codes.iter().copied().min().unwrap_or(END);
        if person == END {
            return spans;
        }
        of_person.clear();
        for (head, first) in codes.iter_mut().enumerate().filter(|(_, first)| **first == person) {
            let (own, from) = (&heads[head].run.core.codes, next[head]);
            let to = from + own[from..].iter().take_while(|code| **code == own[from]).count();
            of_person.push(Span { head, from, to });
            (next[head], *first) = (to, code(head, to));
        }
        if !follow_each_other(heads, form, &mut of_person) {
            of_person = interleaved(heads, form, &of_person);
        }
        for span in of_person.drain(..) {
            match spans.last_mut() {
                Some(Span { head, to, .. }) if (*head, *to) == (span.head, span.from) => *to = span.to,
                _ => spans.push(span),
            }
        }
    }
}

/// Sorts the spans of a person by their first rows. Returns whether each ends before the next one starts.
fn follow_each_other(heads: &[MergeInput<'_>], form: TieOrder, spans: &mut [Span]) -> bool {
    if spans.len() < 2 {
        return true;
    }
    let place = |span: &Span, row: usize| (heads[span.head].place(row, form), span.head);
    spans.sort_unstable_by_key(|span| place(span, span.from));
    spans.windows(2).all(|pair| place(&pair[0], pair[0].to - 1) < place(&pair[1], pair[1].from))
}

/// Merges overlapping spans: repeatedly takes from the span with the first row.
fn interleaved(heads: &[MergeInput<'_>], form: TieOrder, of: &[Span]) -> Vec<Span> {
    let mut next = of.iter().map(|span| span.from).collect::<Vec<_>>();
    let mut spans = Vec::new();
    loop {
        let firsts = of.iter().zip(&next).enumerate().filter(|(_, (span, row))| **row < span.to);
        let mut firsts =
            firsts.filter_map(|(at, (span, row))| Some((heads[span.head].place(*row, form)?, at)));
        let Some(mut first) = firsts.next() else { return spans };
        let mut second: Option<(Place, usize)> = None;
        for other in firsts {
            if other < first {
                second = Some(first);
                first = other;
            } else if second.is_none_or(|second| other < second) {
                second = Some(other);
            }
        }
        let at = first.1;
        let Span { head, to: end, .. } = of[at];
        let from = next[at];
        let mut to = from + 1;
        match second {
            None => to = end,
            Some(second) => {
                while to < end && heads[head].place(to, form).is_some_and(|place| (place, at) < second) {
                    to += 1;
                }
            }
        }
        spans.push(Span { head, from, to });
        next[at] = to;
    }
}
