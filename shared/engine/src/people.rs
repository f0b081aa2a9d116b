//! The people behind a number of an answer.
//!
//! Must stay true: whoever counts into a number is found by its selector, and nobody else.

use uuid::Uuid;

use crate::scan::Micros;

/// One who counts into a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// Who it is, as in [`crate::scan::Partition::actors`].
    pub actor: Uuid,
    /// The group's key or the distinct id, where the question counts these instead of persons.
    pub key: Option<String>,
    /// When the events happened that count, ascending.
    pub times: Vec<Micros>,
}
