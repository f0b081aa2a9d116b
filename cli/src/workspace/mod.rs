//! `pennon apply`: declarative configuration of an installation by a workspace file.
//!
//! [`apply_all`] is the entry point. `file` parses the file, `validate` checks it, `declarations` merges it with the stored declarations,
//! `rows` derives all other rows from these, and `apply` writes the difference. Flags and insights (`flag_insight_specs`) are
//! written through the API's routes (`flag_insight_writer`).

mod apply;
mod declarations;
mod file;
mod flag_insight_specs;
mod flag_insight_writer;
mod rows;
mod validate;

pub use apply::{ApplyError, ApplyOptions, ApplyResult, apply};
pub use declarations::{Declarations, NewKey};
pub use file::{ActionSpec, CohortSpec, DashboardSpec, Workspace};
pub use flag_insight_specs::{FlagSpec, InsightSpec, TileSpec, flag_to_spec, insight_to_spec};
pub use flag_insight_writer::apply_all;
pub(crate) use rows::derive_rows;

#[cfg(test)]
mod tests;
