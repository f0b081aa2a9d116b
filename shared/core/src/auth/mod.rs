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
pub use cache::{KEY_CACHE_SECONDS, KeyCache};
pub use key::{KeyRecord, Membership, RoleMembership, hash_bytes, hash_key, mask_key};
pub use last_used::LAST_USED_INTERVAL_SECONDS;
pub use scope::{Scope, grants, is_scope};
pub use sharing_link::{SharedRecord, sharing_token_hash};
pub use tokens::{REMEMBERED as TOKEN_CACHE_TTL, Tokens};
