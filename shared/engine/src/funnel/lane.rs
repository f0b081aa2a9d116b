//! What the passes over the runs of a funnel's steps share: the rows of one actor in a run, and which run goes on first.

use std::ops::Range;

use crate::scan::Micros;

/// The rows of `actor`, which begin at `first` if there are any, from the first to the last of these that is within
/// `bounds` and counts; and the first row behind the actor's.
#[inline]
pub(super) fn rows_of(
    (actors, times): (&[u32], &[Micros]),
    first: usize,
    actor: u32,
    bounds: (Micros, Micros),
    counts: impl Fn(usize) -> bool,
) -> (Range<usize>, usize) {
    let mut next = first;
    let mut end = next;
    while end < actors.len() && actors[end] == actor {
        end += 1;
    }
    let behind = end;
    while next < end && (times[next] < bounds.0 || !counts(next)) {
        next += 1;
    }
    while next < end && (times[end - 1] > bounds.1 || !counts(end - 1)) {
        end -= 1;
    }
    (next..end, behind)
}

/// The lane with the earliest next row and its time; no lane when several have it. A lane without a row has no time.
#[inline]
pub(super) fn earliest(times: impl Iterator<Item = Option<Micros>>) -> Option<(Option<usize>, Micros)> {
    let mut best: Option<(Option<usize>, Micros)> = None;
    for (index, time) in times.enumerate() {
        let Some(time) = time else { continue };
        best = match best {
            Some((_, other)) if other < time => best,
            Some((_, other)) if other == time => Some((None, time)),
            _ => Some((Some(index), time)),
        };
    }
    best
}
