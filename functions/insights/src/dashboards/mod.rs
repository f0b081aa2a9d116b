//! Dashboards: their endpoints, their records, and the insights on them.
//!
//! * `handlers`: the endpoints; `input` parses bodies, `response` formats dashboards with the results of their insights.
//! * `record`: [`DashboardRecord`], a [`crate::resource::Resource`].
//! * `content`: the insights on a dashboard, with their tiles.
//! * `cleanup`: what is deferred after a deletion.
//! * [`generated`]: dashboards and insights that other features create.

pub(crate) mod cleanup;
pub(crate) mod content;
pub mod generated;
pub mod handlers;
pub(crate) mod input;
mod record;
mod response;

pub use record::DashboardRecord;
