//! The `pennon` command: one binary that runs the whole product on one machine, and administers it anywhere.

pub mod embedded;
pub mod workspace;
