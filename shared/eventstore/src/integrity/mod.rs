//! Detects and reports damage: checksums of stored objects, format numbers, quarantine of what does not fit.
//!
//! [`checksums`] verifies what is read, [`check`] reads everything, [`quarantine`] marks damaged segments in the manifest,
//! [`damaged_blocks`] does so for blocks, [`formats`] refuses what a newer release wrote. Nothing here repairs by guessing,
//! and nothing is dropped unless an operator names it. The door is [`checksums::Checksums`].

mod check;
mod damaged_blocks;

pub use check::{CheckProgress, Checked, DamagedSegment};
