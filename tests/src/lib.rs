//! Black-box tests: the real routers over the real embedded DynamoDB, one workspace a test, no ports and no sleeping.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot be set up should stop at once"
)]

mod app;
mod calls;
pub mod cases;
mod faults;
pub mod fuzz;
pub mod generated_calls;
pub mod history;
pub mod history_run;
pub mod insight_history;
pub mod linearizability;
pub mod log;
mod meter;
mod partial_batch;
mod partition_limits;
mod parts;
pub mod queries;
mod random;
mod response;
mod schema;

pub use app::{Keys, NOW, TestApp, now_micros};
pub use calls::{as_worker, record_calls};
pub use faults::{Fault, Faults};
pub use meter::{Meter, UsedUnits};
pub use partition_limits::{LimitedTable, PartitionLimits, TableCounts};
pub use parts::PartProcesses;
pub use random::{Random, noise};
pub use response::{TestResponse, percent_encoded};
