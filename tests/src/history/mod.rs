//! Histories of concurrent calls, and what must hold of them.
//!
//! [`clients::run`] lets many clients do random things to a few flags and notes every call with its beginning and its
//! end. [`check::check`] is a pure function over what was noted and what is stored in the end: it finds the one order of
//! writes that explains everything, or says what nothing explains. It shares no code with the product.

pub mod check;
pub mod clients;
mod keys;
mod lives;
pub mod model;

pub use check::check;
pub use model::{Call, Entry, Fields, History, Request, Stored, Told};
