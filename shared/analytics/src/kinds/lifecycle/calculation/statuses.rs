//! The statuses of actors in periods, from the periods in which they are active.
//!
//! Must stay true: one pass over the rows sets a bit for each active period of an actor, in a table whose size does not depend on
//! the number of actors; everything else is arithmetic on these bits.

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::periods::Periods;
use crate::actor_blocks::{ActorBlocks, MatchingRows};
use crate::kinds::lifecycle::query::LifecycleStatus;
use crate::scan::Micros;

/// Words of bits of one block of actors: 1 MiB, which fits into the caches of a core.
const WORDS: usize = 1 << 17;

/// An actor in a shown period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ActorStatus {
    /// Index into the actors of the partition.
    pub(super) actor: usize,
    /// The period; 0 is the hidden one, which has no status.
    pub(super) period: usize,
    pub(super) status: LifecycleStatus,
}

/// Calls back with each status of each actor in the shown periods. `created` has the creation time of each actor.
pub(super) fn for_each_status(
    rows: &[MatchingRows<'_>],
    created: &[Micros],
    periods: &Periods,
    work: &WorkBudget<'_>,
    mut visit: impl FnMut(ActorStatus),
) -> CalcResult<()> {
    let Some(finder) = periods.finder() else { return Ok(()) };
    let words = periods.count().div_ceil(64);
    let actors_per_block = (WORDS / words).clamp(1, created.len().max(1));
    let mut active = vec![0_u64; actors_per_block * words];
    let mut blocks = ActorBlocks::new(rows.iter().map(|rows| rows.run), actors_per_block);
    while let Some(block) = blocks.next_block(work)? {
        block.for_each_row(rows, work, |actor, time| {
            if let Some(period) = finder.period_of(time)
                && let Some(word) = active.get_mut(actor * words + period / 64)
            {
                *word |= 1 << (period % 64);
            }
        })?;
        work.consume(active.len())?;
        for (index, active) in active.chunks_mut(words).enumerate() {
            if active.iter().all(|word| *word == 0) {
                continue;
            }
            let actor = block.first_actor + index;
            // An actor without a known creation time was created by its first event.
            let created = created.get(actor).copied().unwrap_or(Micros::MAX);
            let is_created_in =
                |period: usize| created == Micros::MAX || finder.period_of(created) == Some(period);
            classify(active, periods.count(), is_created_in, |period, status| {
                visit(ActorStatus { actor, period, status });
            });
            active.fill(0);
        }
    }
    Ok(())
}

/// Calls back with the status of one actor in each of `count` periods but the first, where it has one. `active` has a bit for
/// each period; `is_created_in` is called for the first active one.
fn classify(
    active: &[u64],
    count: usize,
    is_created_in: impl Fn(usize) -> bool,
    mut visit: impl FnMut(usize, LifecycleStatus),
) {
    let mut was_active = false;
    let mut is_first = true;
    for (index, word) in active.iter().enumerate() {
        // Bit i: active in the period before i.
        let before = (word << 1) | u64::from(was_active);
        was_active = word >> 63 != 0;
        for_each_bit(word & !before, |bit| {
            let period = index * 64 + bit;
            let is_new = is_first && is_created_in(period);
            is_first = false;
            if period > 0 {
                let status = if is_new { LifecycleStatus::New } else { LifecycleStatus::Resurrecting };
                visit(period, status);
            }
        });
        for_each_bit(word & before, |bit| visit(index * 64 + bit, LifecycleStatus::Returning));
        for_each_bit(before & !word, |bit| {
            let period = index * 64 + bit;
            if period < count {
                visit(period, LifecycleStatus::Dormant);
            }
        });
    }
}

/// Calls back with the index of each bit that is set, ascending.
fn for_each_bit(mut word: u64, mut visit: impl FnMut(usize)) {
    while word != 0 {
        visit(word.trailing_zeros() as usize);
        word &= word - 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The definition, period by period.
        #[test]
        fn statuses_are_those_of_the_definition(
            active in prop::collection::vec(any::<bool>(), 1..150), created in prop::option::of(0..150_usize),
        ) {
            let mut words = vec![0_u64; active.len().div_ceil(64)];
            for (period, _) in active.iter().enumerate().filter(|(_, active)| **active) {
                words[period / 64] |= 1 << (period % 64);
            }
            let mut got = vec![None; active.len()];
            classify(&words, active.len(), |period| created == Some(period), |period, status| {
                assert!(got[period].replace(status).is_none());
            });
            let first = active.iter().position(|active| *active);
            for (period, is_active) in active.iter().enumerate().skip(1) {
                let want = match (is_active, active[period - 1]) {
                    (true, true) => Some(LifecycleStatus::Returning),
                    (true, false) if first == Some(period) && created == Some(period) => Some(LifecycleStatus::New),
                    (true, false) => Some(LifecycleStatus::Resurrecting),
                    (false, true) => Some(LifecycleStatus::Dormant),
                    (false, false) => None,
                };
                prop_assert_eq!(got[period], want, "{}", period);
            }
            prop_assert_eq!(got[0], None);
        }
    }
}
