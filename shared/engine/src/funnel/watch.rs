//! The clock of a pass: looked at after so much work, whoever's events it was spent on.
//!
//! Must stay true: what a scan does is paid for before it is done, at its most, so that no actor keeps a calculation
//! going that nobody waits for.

use crate::error::{CalcError, CalcResult};

/// Work between two looks at the clock: an event, times what it is held against.
pub const WORK_PER_LOOK: usize = 1 << 16;

/// Counts work and looks at the clock now and then.
pub struct Watch<'s> {
    stop: &'s dyn Fn() -> bool,
    left: usize,
}

impl<'s> Watch<'s> {
    /// `stop` says that the time is over. It is asked at the first work already.
    pub fn new(stop: &'s dyn Fn() -> bool) -> Self {
        Self { stop, left: 0 }
    }

    /// Pays for work to be done; refused when the time is over.
    #[inline]
    pub fn spend(&mut self, work: usize) -> CalcResult<()> {
        match self.left.checked_sub(work) {
            Some(left) => self.left = left,
            None if (self.stop)() => return Err(CalcError::timeout()),
            None => self.left = WORK_PER_LOOK,
        }
        Ok(())
    }
}
