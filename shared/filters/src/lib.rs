//! Filter semantics that feature flags and analytics share: operators, regular expressions, versions, dates, values of
//! request bodies.
//!
//! Must stay true: everything here is a pure function, and nothing here knows flags, queries or event columns; of the two
//! sides it only knows which operators they have.

pub mod body;
mod compile_budget;
pub mod dates;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod limits;
pub mod operator;
pub mod re2;
pub mod regex_bounds;
pub mod semver;
pub mod text;
pub mod work_budget;

pub use compile_budget::CompileBudget;
pub use error::{CalcError, CalcResult, ErrorKind};
pub use work_budget::{CancelOnDrop, CancellationToken, ComparisonBudget, WorkBudget};
