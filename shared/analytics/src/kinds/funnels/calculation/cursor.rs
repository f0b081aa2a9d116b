//! Helpers of the fast paths' cursors: the rows of one actor in a run, and the cursor with the earliest row.

use std::ops::Range;

use crate::scan::Micros;

/// The rows of `actor`, trimmed to the first and last one that is within `bounds` and counts, and the index behind the
/// actor's last row. The actor's rows begin at `first`, if it has any.
#[inline]
pub(super) fn actor_rows(
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
    let after_actor = end;
    while next < end && (times[next] < bounds.0 || !counts(next)) {
        next += 1;
    }
    while next < end && (times[end - 1] > bounds.1 || !counts(end - 1)) {
        end -= 1;
    }
    (next..end, after_actor)
}

/// The index of the cursor with the earliest next row, and the row's time. The index is `None` if several cursors share
/// that time. A cursor without rows has no time.
#[inline]
pub(super) fn earliest_cursor(
    times: impl Iterator<Item = Option<Micros>>,
) -> Option<(Option<usize>, Micros)> {
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
