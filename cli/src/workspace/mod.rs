//! `pennon apply`: an installation that follows a file.

mod apply;
mod check;
mod file;
mod rows;
mod state;

pub use apply::{Applied, ApplyError, Options, apply, revoke};
pub use file::{KeySpec, Workspace};
pub use state::{NewKey, State};

#[cfg(test)]
mod tests;
