//! Stored things that several functions need.

mod organization;
mod project;
mod role;
mod user;

pub use organization::{AccessLevel, Level, Organization};
pub use project::{Project, TokenRow};
pub use role::{Role, RoleMember};
pub use user::{User, UserRecord};
