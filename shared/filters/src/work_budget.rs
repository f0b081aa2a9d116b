//! Work budget and cancellation of one pass over a partition.
//!
//! Must stay true: code consumes the worst-case cost of work before it does the work, so that no single actor or value can
//! delay cancellation. More than [`limits::EVALUATIONS`] comparisons fail. Code that cannot return an error stops when
//! [`WorkBudget::try_consume`] is false; its caller's next [`WorkBudget::consume`] returns the error.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{CalcError, CalcResult};
use crate::limits;

/// Units of work between two checks for cancellation. A unit is one event times the conditions it is tested with, or one
/// byte of text.
pub const WORK_PER_CHECK: usize = 1 << 16;

/// Units of work of testing one value, beside the bytes of its text.
const WORK_PER_VALUE: usize = 16;

/// Signals to all threads that work on a result that it is no longer needed.
#[derive(Debug, Clone, Default)]
pub struct CancellationToken(Arc<AtomicBool>);

impl CancellationToken {
    /// Requests cancellation. Work stops at its next check.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a guard that cancels the token when it is dropped. Held by a request's future, it cancels the work when the
    /// request times out or the client disconnects.
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

/// Counts work, and checks for cancellation every [`WORK_PER_CHECK`] units.
pub struct WorkBudget<'s> {
    is_cancelled: &'s dyn Fn() -> bool,
    until_check: Cell<usize>,
    /// Comparisons left.
    evaluations: Cell<u64>,
    /// The error that ended the pass; all later calls return it.
    error: RefCell<Option<CalcError>>,
}

impl<'s> WorkBudget<'s> {
    /// A budget for one pass. The first call of `consume` already checks `is_cancelled`.
    pub fn new(is_cancelled: &'s dyn Fn() -> bool) -> Self {
        Self::with_evaluations(is_cancelled, limits::EVALUATIONS)
    }

    fn with_evaluations(is_cancelled: &'s dyn Fn() -> bool, evaluations: u64) -> Self {
        let (until_check, error) = (Cell::new(0), RefCell::new(None));
        Self { is_cancelled, until_check, evaluations: Cell::new(evaluations), error }
    }

    /// Consumes units of work that is about to be done. An error if the pass was cancelled or has failed.
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

    /// As [`WorkBudget::consume`], for code that cannot return an error.
    #[inline]
    pub fn try_consume(&self, work: usize) -> bool {
        self.consume(work).is_ok()
    }

    /// Checks for cancellation now.
    #[cold]
    pub fn check(&self) -> CalcResult<()> {
        if let Some(error) = &*self.error.borrow() {
            return Err(error.clone());
        }
        if (self.is_cancelled)() {
            return self.fail(CalcError::timeout());
        }
        self.until_check.set(WORK_PER_CHECK);
        Ok(())
    }

    /// Consumes the work of comparing one value of `text_bytes` bytes `comparisons` times, and counts it towards
    /// [`limits::EVALUATIONS`].
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

    /// Ends the pass with an error, which every later call returns.
    pub fn fail(&self, error: CalcError) -> CalcResult<()> {
        self.until_check.set(0);
        let mut first_error = self.error.borrow_mut();
        Err(first_error.get_or_insert(error).clone())
    }
}

/// The comparisons that are left of [`limits::EVALUATIONS`] for one result, if several passes make it one after another.
#[derive(Debug, Clone)]
pub struct ComparisonBudget(u64);

impl Default for ComparisonBudget {
    fn default() -> Self {
        Self(limits::EVALUATIONS)
    }
}

impl ComparisonBudget {
    /// A budget of that many comparisons.
    pub fn of(comparisons: u64) -> Self {
        Self(comparisons)
    }

    /// Runs a pass, and subtracts its comparisons.
    pub fn pass<T>(
        &mut self,
        is_cancelled: &dyn Fn() -> bool,
        pass: impl FnOnce(&WorkBudget<'_>) -> CalcResult<T>,
    ) -> CalcResult<T> {
        let work = WorkBudget::with_evaluations(is_cancelled, self.0);
        let result = pass(&work);
        self.0 = work.evaluations.get();
        result
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
