//! Tests of the crate from the outside, in one program.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop at once")]

mod allowed_values;
mod corpus_dates;
mod corpus_operators;
mod definitions_and_values;
mod support;
