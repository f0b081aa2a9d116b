//! Authentication and authorization: API keys, scopes, project tokens and sharing links.

mod access;
mod cache;
mod key;
mod last_used;
mod project;
mod scope;
mod sharing_link;
mod tokens;

pub use access::{Access, Caller};
pub use cache::{KeyCache, REMEMBERED_SECONDS};
pub use key::{KeyRecord, Membership, RoleMembership, hash_bytes, hash_key, mask_key};
pub use last_used::USE_NOTED_EVERY_SECONDS;
pub use scope::{Scope, grants, is_scope};
pub use sharing_link::{OpenedBy, link_hash};
pub use tokens::{REMEMBERED as TOKENS_REMEMBERED, Tokens};
