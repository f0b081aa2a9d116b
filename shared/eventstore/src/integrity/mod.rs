//! Full verification of stored data, and removal of damaged data on request.
//!
//! [`check`] reads every object and block, [`damaged_blocks`] reports and drops blocks. (Every read is verified anyway:
//! [`crate::objects`].) Nothing here repairs by guessing, and nothing is dropped unless an operator names it.
//! The public interface is [`IntegrityChecker`].

mod check;
mod damaged_blocks;

pub(crate) use check::IntegrityChecker;
pub use check::{CheckProgress, CheckReport, DamagedSegment};
