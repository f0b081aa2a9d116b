//! `pennon apply`: an installation that follows a file.

mod apply;
mod check;
mod file;
mod rows;
mod saved;
mod state;
mod written;

pub use apply::{Applied, ApplyError, Options, apply, revoke};
pub use file::{ActionSpec, CohortSpec, DashboardSpec, KeySpec, Workspace};
pub use saved::{FlagSpec, InsightSpec, TileSpec, of_flag, of_insight};
pub use state::{NewKey, State};
pub use written::apply_all;

#[cfg(test)]
mod tests;
