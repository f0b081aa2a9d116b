//! How much one query may compile.
//!
//! Must stay true: all filters of a query share one budget, so its compile time and memory are bounded.

use crate::limits;

/// Limits of compiling one query.
#[derive(Debug, Clone, Copy)]
pub struct CompileBudget {
    /// Regular expressions left.
    pub regexes: usize,
}

impl Default for CompileBudget {
    fn default() -> Self {
        Self { regexes: limits::REGEXES }
    }
}
