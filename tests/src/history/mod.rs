//! Histories of concurrent calls, and their checks.
//!
//! [`clients::run`] lets many clients send random requests about a few flags and records every call with its beginning and its
//! end. [`check::check`] is a pure function of the recorded calls and the final stored state: it finds the one order of
//! writes that explains everything, or reports what no order explains. It shares no code with the product.

pub mod check;
pub mod clients;
mod keys;
mod lives;
pub mod model;

pub use check::check;
pub use model::{Call, Entry, Fields, History, Outcome, Request, Stored};
