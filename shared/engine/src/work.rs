//! The work of one pass over a share of the actors: what may be spent, and whether it still has to be done.
//!
//! Must stay true: work is paid for before it is done, at its most, so that no actor and no value keeps a calculation
//! going that was cancelled. What tests values beyond [`limits::EVALUATIONS`] is refused. Code that has no error to
//! return stops when [`WorkBudget::try_consume`] is false; the next [`WorkBudget::consume`] of its caller returns the refusal.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{CalcError, CalcResult};
use crate::limits;

/// Work between two checks for cancellation: an event, times what it is compared with; or so many bytes of a text.
pub const WORK_PER_CHECK: usize = 1 << 16;

/// What testing one value costs beside the bytes of its text.
const WORK_PER_VALUE: usize = 16;

/// Says that a result is not wanted any more: to whoever works on it, on any thread.
#[derive(Debug, Clone, Default)]
pub struct CancellationToken(Arc<AtomicBool>);

impl CancellationToken {
    /// The work stops soon.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Cancels it when the guard is dropped: with the future of a request that timed out or whose client hung up.
    #[must_use]
    pub fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

/// Cancels its token when it is dropped.
#[derive(Debug)]
pub struct CancelOnDrop(CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Counts work, and checks for cancellation now and then.
pub struct WorkBudget<'s> {
    is_cancelled: &'s dyn Fn() -> bool,
    until_check: Cell<usize>,
    /// Tests of values that are left.
    evaluations: Cell<u64>,
    /// Why nothing more may be done.
    refusal: RefCell<Option<CalcError>>,
}

impl<'s> WorkBudget<'s> {
    /// The budget of one pass. `is_cancelled` is called before the first work already.
    pub fn new(is_cancelled: &'s dyn Fn() -> bool) -> Self {
        Self::with_evaluations(is_cancelled, limits::EVALUATIONS)
    }

    fn with_evaluations(is_cancelled: &'s dyn Fn() -> bool, evaluations: u64) -> Self {
        let (until_check, refusal) = (Cell::new(0), RefCell::new(None));
        Self { is_cancelled, until_check, evaluations: Cell::new(evaluations), refusal }
    }

    /// Pays for work to be done; an error when the pass was cancelled, or something in it was refused.
    #[inline]
    pub fn consume(&self, work: usize) -> CalcResult<()> {
        match self.until_check.get().checked_sub(work) {
            Some(left) => {
                self.until_check.set(left);
                Ok(())
            }
            None => self.check(),
        }
    }

    /// The same for code that has no error to return.
    #[inline]
    pub fn try_consume(&self, work: usize) -> bool {
        self.consume(work).is_ok()
    }

    /// Checks now, whatever was paid for.
    #[cold]
    pub fn check(&self) -> CalcResult<()> {
        if let Some(refusal) = &*self.refusal.borrow() {
            return Err(refusal.clone());
        }
        if (self.is_cancelled)() {
            return self.fail(CalcError::timeout());
        }
        self.until_check.set(WORK_PER_CHECK);
        Ok(())
    }

    /// Pays for so many comparisons with a value whose text is so long.
    pub fn consume_comparisons(&self, comparisons: usize, text_bytes: usize) -> CalcResult<()> {
        let bytes = comparisons.saturating_mul(text_bytes);
        let work = comparisons.saturating_mul(WORK_PER_VALUE).saturating_add(bytes / 4);
        let evaluations = comparisons.saturating_add(bytes / limits::EVALUATION_BYTES);
        match self.evaluations.get().checked_sub(u64::try_from(evaluations).unwrap_or(u64::MAX)) {
            Some(left) => self.evaluations.set(left),
            None => return self.fail(limits::too_many_evaluations()),
        }
        self.consume(work.max(1))
    }

    /// Ends the pass: whatever is paid for from here on is refused.
    pub fn fail(&self, refusal: CalcError) -> CalcResult<()> {
        self.until_check.set(0);
        let mut known = self.refusal.borrow_mut();
        Err(known.get_or_insert(refusal).clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_cancelled_pass_does_no_more_than_the_work_of_one_check() {
        let cancelled = Cell::new(false);
        let is_cancelled = || cancelled.get();
        let work = WorkBudget::new(&is_cancelled);
        work.consume(1).unwrap();
        cancelled.set(true);
        let done = (0..).take_while(|_| work.try_consume(1)).count();
        assert_eq!(done, WORK_PER_CHECK);
        cancelled.set(false);
        assert_eq!(work.consume(1).unwrap_err(), CalcError::timeout(), "and stays cancelled");
    }

    #[test]
    fn evaluations_are_allowed_up_to_the_limit() {
        let never = || false;
        let work = WorkBudget::with_evaluations(&never, 10);
        (0..10).for_each(|_| work.consume_comparisons(1, 8).unwrap());
        let refusal = work.consume_comparisons(1, 8).unwrap_err();
        assert!(refusal.detail.contains(&limits::EVALUATIONS.to_string()), "{refusal}");
        assert_eq!(work.consume(1).unwrap_err(), refusal, "nothing more is done");
        let work = WorkBudget::with_evaluations(&never, 10);
        assert!(work.consume_comparisons(1, 9 * limits::EVALUATION_BYTES).is_ok(), "long texts count more");
        assert!(work.consume_comparisons(1, 0).is_err());
    }
}
