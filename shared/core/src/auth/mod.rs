//! Who calls, and what the key allows.

mod access;
mod cache;
mod key;
mod link;
mod project;
mod scope;
mod tokens;
mod used;

pub use access::{Access, Caller};
pub use cache::{KeyCache, REMEMBERED_SECONDS};
pub use key::{KeyRecord, Membership, RoleMembership, hash_bytes, hash_key, mask_key};
pub use link::{OpenedBy, link_hash};
pub use scope::{Scope, grants, is_scope};
pub use tokens::{REMEMBERED as TOKENS_REMEMBERED, Tokens};
pub use used::USE_NOTED_EVERY_SECONDS;
