//! Saved insights: the record, its fields, and its rows in the records table.
//!
//! * `fields`: the table of all fields; `input` validates the fields of a body, `apply` applies them to `record`, [`Insight`].
//! * `store`: [`Insight`] as a [`crate::resource::Resource`], and transactions that write several insights.
//! * `summary_row`, `row_checksums`: the rows that lists filter and sort by, verified by checksums.
//! * `flag_references`: whether an insight refers to a flag; `dashboard_change`: its dashboards in the activity log.
//!
//! Must stay true: a write is one transaction of the record, its summary row, its short id and its activity entry. The folder
//! knows neither results nor endpoints.

mod apply;
mod dashboard_change;
mod fields;
mod flag_references;
mod input;
pub(crate) mod record;
mod row_checksums;
mod store;
mod summary_row;

pub use dashboard_change::dashboard_change;
pub use fields::{ResponseForm, fields_json, workspace_field_names};
pub use flag_references::refers_to_flag;
pub use input::InsightInput;
pub use record::{Insight, counter_value_of_id, id_of_count};
pub use row_checksums::InsightRowKind;
pub use store::{InsightChange, change, changes, fetch_insights, key, row_key};
pub use summary_row::InsightRow;

/// The scope of reads.
pub const READ: &str = "insight:read";
/// The scope of writes.
pub const WRITE: &str = "insight:write";
