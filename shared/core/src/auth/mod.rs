//! Who calls, and what the key allows.

mod access;
mod key;
mod scope;

pub use access::{Access, Caller, KeyCache, REMEMBERED_SECONDS};
pub use key::{KeyRecord, Membership, RoleMembership, hash_key, mask_key};
pub use scope::{grants, is_scope};
