//! Whether an evaluation may run operations that take milliseconds: compile a regular expression, or search a long
//! text.
//!
//! Must stay true: the result of an evaluation that skipped such an operation is not used.

use std::cell::Cell;

use pennon_filters::work_budget::CancellationToken;

/// Whether slow searches are allowed.
#[derive(Debug, Clone, Copy)]
pub enum SlowSearches<'a> {
    /// Allowed.
    Allowed,
    /// Allowed until the evaluation is cancelled.
    UntilCancelled(&'a CancellationToken),
    /// Not allowed; the cell is set when one was needed, and the evaluation has to be repeated on a blocking thread.
    Detect(&'a Cell<bool>),
}

impl SlowSearches<'_> {
    /// Whether a slow operation may start now.
    pub(super) fn may_begin(self) -> bool {
        match self {
            Self::Allowed => true,
            Self::UntilCancelled(cancellation) => !cancellation.is_cancelled(),
            Self::Detect(is_detected) => {
                is_detected.set(true);
                false
            }
        }
    }
}
