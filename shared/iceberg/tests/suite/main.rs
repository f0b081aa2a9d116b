//! Tests of published tables, in one program.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop at once")]

mod publication;
mod removal;
mod s3;
mod support;
