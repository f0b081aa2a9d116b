//! Stored records that several functions use.

mod declared;
mod feed;
mod membership;
mod organization;
mod project;
pub mod project_numbers;
mod role;
mod user;

pub use declared::Declared;
pub use feed::{FEED_BYTES_LIMIT, FEED_BYTES_MAX, FeedForm, FeedHead, FeedPlace};
pub use membership::{Membership, RoleMembership};
pub use organization::{AccessLevel, Level, Organization};
pub use project::{Project, TokenRow};
pub use role::{Role, RoleMember};
pub use user::{User, UserRecord, organization_member};
