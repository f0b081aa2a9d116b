//! Tests of the whole event store, in one program.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop at once")]

mod block_backlog;
mod block_partitions;
mod compaction;
mod compaction_tasks;
mod concurrent_queries;
mod damage;
mod damaged_blocks;
mod erased_merges;
mod erasure;
mod event_list;
mod export;
mod faults;
mod first_times;
mod import;
mod imported_merges;
mod installation;
mod layouts;
mod memory;
mod merge_failures;
mod merges;
mod partition_cache;
mod parts;
mod persons;
mod queued;
mod read_rounds;
mod s3;
mod simulation;
mod store;
mod support;
mod version_conflicts;
