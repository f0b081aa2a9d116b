//! The `pennon` command: one binary that runs the whole product on one machine, and administers it anywhere.

pub mod adopt;
pub mod allocator;
pub mod api;
pub mod args;
pub mod background_runtime;
pub mod backup;
pub mod check;
pub mod client;
pub mod compact;
pub mod cost;
pub mod data;
pub mod delete;
pub mod doctor;
pub mod embedded;
pub mod environment;
pub mod export;
pub mod flags;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod import;
pub mod init;
pub mod installation;
pub mod keys;
pub mod local_access;
pub mod output;
pub mod part_server;
pub mod private;
pub mod query;
pub mod record_check;
pub mod serve;
pub mod show;
pub mod tables;
pub mod tail;
pub mod workspace;
