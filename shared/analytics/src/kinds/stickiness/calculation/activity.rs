//! Counts in how many intervals each actor of a partition is active.
//!
//! Must stay true: one pass over the rows, with a table whose size does not depend on the number of actors. The events of an
//! actor in an interval are all counted before the criterion is applied, whatever runs hold them.

use std::collections::HashMap;

use pennon_filters::error::CalcResult;
use pennon_filters::text::text_of;
use pennon_filters::work_budget::WorkBudget;

use super::intervals::Intervals;
use crate::actor_blocks::{ActorBlocks, MatchingRows};
use crate::kinds::stickiness::query::Criterion;
use crate::mask::Mask;
use crate::scan::Column;

/// Counters of one block of actors: 4 MiB, which fits into the caches of a core.
const COUNTERS: usize = 1 << 20;

/// Whether so many events make an actor active in an interval.
#[inline]
pub(super) fn is_active(criterion: Option<Criterion>, events: u32) -> bool {
    events > 0
        && criterion.is_none_or(|criterion| criterion.comparison.accepts(events.into(), criterion.value))
}

/// By actor of the partition: in how many intervals it is active.
pub(super) fn count_active_intervals(
    rows: &[MatchingRows<'_>],
    actors: usize,
    intervals: &Intervals,
    criterion: Option<Criterion>,
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<u32>> {
    let mut active = vec![0_u32; actors];
    let Some(finder) = intervals.finder() else { return Ok(active) };
    let width = intervals.width;
    let actors_per_block = (COUNTERS / width).clamp(1, actors.max(1));
    let mut counters = vec![0_u32; actors_per_block * width];
    // Actor in the block and interval of each counter above 0.
    let mut counted: Vec<(u32, u32)> = Vec::new();
    let mut blocks = ActorBlocks::new(rows.iter().map(|rows| rows.run), actors_per_block);
    while let Some(block) = blocks.next_block(work)? {
        block.for_each_row(rows, work, |actor, time| {
            let Some(interval) = finder.number_of(time) else { return };
            let Some(counter) = counters.get_mut(actor * width + interval as usize) else { return };
            if *counter == 0 {
                counted.push((actor as u32, interval));
            }
            *counter = counter.saturating_add(1);
        })?;
        work.consume(counted.len())?;
        for (actor, interval) in counted.drain(..) {
            let counter = counters.get_mut(actor as usize * width + interval as usize);
            let events = counter.map(std::mem::take).unwrap_or_default();
            if is_active(criterion, events)
                && let Some(active) = active.get_mut(block.first_actor + actor as usize)
            {
                *active += 1;
            }
        }
    }
    Ok(active)
}

/// The events in each interval with any, ascending by interval.
pub(super) type IntervalEvents = Vec<(u32, u32)>;

/// By value of `columns`, which has one for each run: the events in each interval. Null is no value.
pub(super) fn count_values(
    rows: &[MatchingRows<'_>],
    columns: &[Column],
    intervals: &Intervals,
    work: &WorkBudget<'_>,
) -> CalcResult<HashMap<String, IntervalEvents>> {
    let mut ordinals: HashMap<String, u32> = HashMap::new();
    let mut events: Vec<(u32, u32)> = Vec::new();
    let Some(finder) = intervals.finder() else { return Ok(HashMap::new()) };
    for (MatchingRows { run, mask }, column) in rows.iter().zip(columns) {
        work.check()?;
        let mut ordinal = |text: String| {
            let next = u32::try_from(ordinals.len()).unwrap_or(u32::MAX);
            *ordinals.entry(text).or_insert(next)
        };
        let mut by_code = Vec::with_capacity(column.values.len());
        for value in column.values.iter() {
            let text = text_of(value);
            work.consume(1 + text.as_ref().map_or(0, |text| text.len()))?;
            by_code.push(text.map(|text| ordinal(text.into_owned())));
        }
        for (row, (code, time)) in column.codes.iter().zip(&run.times).enumerate() {
            work.consume(1)?;
            let passes = *mask == Mask::Every || mask.has(row);
            let value = usize::try_from(*code).ok().and_then(|code| by_code.get(code).copied().flatten());
            if let (true, Some(value), Some(interval)) = (passes, value, finder.number_of(*time)) {
                events.push((value, interval));
            }
        }
    }
    work.consume(events.len())?;
    events.sort_unstable();
    let mut by_ordinal: HashMap<u32, IntervalEvents> = HashMap::new();
    for equal in events.chunk_by(|left, right| left == right) {
        work.consume(1)?;
        if let Some((value, interval)) = equal.first() {
            let count = u32::try_from(equal.len()).unwrap_or(u32::MAX);
            by_ordinal.entry(*value).or_default().push((*interval, count));
        }
    }
    let with_events = |(text, ordinal)| Some((text, by_ordinal.remove(&ordinal)?));
    Ok(ordinals.into_iter().filter_map(with_events).collect())
}
