//! Tests of the whole event store, in one program.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop at once")]

mod apart;
mod compaction;
mod contended;
mod damage;
mod damaged_blocks;
mod erased_merges;
mod erasure;
mod export;
mod faults;
mod import;
mod imported;
mod installation;
mod kept;
mod layouts;
mod meanwhile;
mod memory;
mod merges;
mod newest;
mod people;
mod s3;
mod store;
mod support;
mod waiting;
