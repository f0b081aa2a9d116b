//! `libsqlite3-sys` as rusqlite 0.36 expects it, over the SQLite of a newer release of the same crate.
//!
//! The embedded DynamoDB (dynoxide-rs 3.2) requires rusqlite 0.36, whose `libsqlite3-sys` 0.34 bundles SQLite 3.49.2.
//! Before 3.51.3 a checkpoint in one connection can corrupt the write-ahead log of another, and one process here has
//! several connections to one file. The `[patch.crates-io]` section of the root manifest puts this crate in place of 0.34:
//! it re-exports 0.38, whose C interface is a superset. SQLite is linked once.
//!
//! Must stay true: `pennon` refuses to start with an SQLite before 3.51.3 (`cli/src/embedded`). Once dynoxide-rs requires a rusqlite that bundles
//! SQLite 3.51.3 or later, this crate and the patch can go.

pub use libsqlite3_sys_current::*;
