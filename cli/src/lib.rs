//! The `pennon` command: one binary that runs the whole product on one machine, and administers it anywhere.

pub mod allocator;
pub mod args;
pub mod backup;
pub mod check;
pub mod compact;
pub mod cost;
pub mod data;
pub mod delete;
pub mod embedded;
pub mod export;
pub mod import;
pub mod keys;
pub mod query;
pub mod serve;
pub mod workspace;
