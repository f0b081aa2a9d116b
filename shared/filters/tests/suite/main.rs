//! Tests of the crate from the outside, in one program.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop at once")]

mod corpus_dates;
mod support;
