//! The gaps between the steps of an actor in a strict funnel: finds out which have another event in between.
//!
//! Must stay true: gaps are sorted by actor and time, and gaps of one actor do not overlap; the status of a gap depends on
//! the rows of all runs. A run and the open gaps are merged with galloping search on both sides, so the cost is that of the
//! shorter list.

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::k_way_merge::{MatchedRun, RowMatches, gallop};
use crate::scan::Micros;

/// What the event at the end of a gap does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GapEnd {
    /// It matches the path's next step.
    Step,
    /// It repeats the path's last step.
    Repeat,
    /// It matches another step and ends the path, unless there is another event at the same instant.
    Stop,
}

/// Whether other events are in a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GapStatus {
    /// There is no other event.
    Open,
    /// Another event is in between.
    Broken,
    /// Another event has the same time as one end of the gap. Only the full scan can decide what that means.
    Tied,
}

/// The time between an event of a path and the next event that matches a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) actor: u32,
    pub(super) from: Micros,
    pub(super) to: Micros,
    /// Depth of the path before the gap.
    pub(super) depth: u8,
    pub(super) end: GapEnd,
    pub(super) status: GapStatus,
}

/// Sets the status of the gaps. Rows that match a step are ends of gaps; all other rows that matter break them.
pub(super) fn classify_gaps(
    gaps: &mut [Gap],
    runs: &[MatchedRun<'_>],
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    let mut open: Vec<usize> = (0..gaps.len()).collect();
    // Largest run first: it breaks the most gaps.
    let mut order: Vec<&MatchedRun<'_>> = runs.iter().collect();
    order.sort_by_key(|matched| std::cmp::Reverse(matched.run.actors.len()));
    let mut classified = 0;
    for matched in order {
        let rows = matched.run.actors.len();
        match &matched.matches {
            RowMatches::Same(matches) if matches.steps() != 0 => continue,
            RowMatches::Same(_) => {
                work.consume(1 + open.len().min(rows))?;
                classified += classify_by_run(gaps, &open, matched, |_| true);
            }
            RowMatches::Each(matches) => {
                work.consume(1 + open.len().min(rows) + rows / 16)?;
                classified += classify_by_run(gaps, &open, matched, |row| {
                    !matches[row].is_empty() && matches[row].steps() == 0
                });
            }
        }
        // Compacts the list only when that pays off, not after each of thousands of event names.
        if classified > open.len() / 4 {
            work.consume(open.len())?;
            open.retain(|gap| gaps[*gap].status == GapStatus::Open);
            classified = 0;
        }
    }
    Ok(())
}

/// Sets the status of open gaps from the rows of a run that `breaks` accepts. Returns the number of gaps that changed.
fn classify_by_run(
    gaps: &mut [Gap],
    open: &[usize],
    matched: &MatchedRun<'_>,
    breaks: impl Fn(usize) -> bool,
) -> usize {
    let (actors, times) = (matched.run.actors.as_ref(), matched.run.times.as_ref());
    let rows = actors.len().min(times.len());
    let (mut next, mut row, mut classified) = (0, 0, 0);
    while let Some(gap) = open.get(next).map(|gap| &mut gaps[*gap]) {
        let (actor, from) = (gap.actor, gap.from);
        row = gallop(row, rows, |row| actors[row] < actor || (actors[row] == actor && times[row] < from));
        if row == rows {
            break;
        }
        let actor_time = (actors[row], times[row]);
        if actor_time > (actor, gap.to) {
            next = gallop(next + 1, open.len(), |next| {
                let gap = &gaps[open[next]];
                (gap.actor, gap.to) < actor_time
            });
        } else if breaks(row) {
            // Keeps the row: it may be at the beginning of the next gap too.
            if gap.status == GapStatus::Open {
                gap.status = if from < actor_time.1 && actor_time.1 < gap.to {
                    GapStatus::Broken
                } else {
                    GapStatus::Tied
                };
                classified += 1;
            }
            next += 1;
        } else {
            row += 1;
        }
    }
    classified
}
