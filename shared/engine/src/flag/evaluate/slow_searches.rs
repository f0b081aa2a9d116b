//! Whether an evaluation may do what takes milliseconds: compile a regular expression, or search a long text for one.
//!
//! Must stay true: an evaluation in which something was not allowed is not used.

use std::cell::Cell;

use crate::work::CancellationToken;

/// Whether slow searches are allowed.
#[derive(Debug, Clone, Copy)]
pub enum SlowSearches<'a> {
    /// They are.
    Allowed,
    /// Until the evaluation is cancelled.
    UntilCancelled(&'a CancellationToken),
    /// They are not, and it is noted that one was met: the evaluation has to be repeated on a thread that may be busy.
    Noted(&'a Cell<bool>),
}

impl SlowSearches<'_> {
    /// Whether one may begin now.
    pub(super) fn may_begin(self) -> bool {
        match self {
            Self::Allowed => true,
            Self::UntilCancelled(cancellation) => !cancellation.is_cancelled(),
            Self::Noted(is_met) => {
                is_met.set(true);
                false
            }
        }
    }
}
