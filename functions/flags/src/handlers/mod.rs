//! One file per action.

mod activity;
mod create;
mod definitions;
mod destroy;
mod evaluate;
mod list;
mod retrieve;
mod status;
mod update;

pub use activity::{activity, all_activity};
pub use create::create;
pub use definitions::{definitions, local_evaluation};
pub use destroy::destroy;
pub use evaluate::evaluate;
pub use list::list;
pub use retrieve::retrieve;
pub use status::status;
pub use update::{replace, update};

/// How often a lost race is judged again before the caller is told to come back.
const TRIES: u32 = 12;
