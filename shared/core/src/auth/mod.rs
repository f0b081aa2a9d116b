//! Authentication and authorization: API keys, scopes, project tokens and sharing links.

mod access;
mod cache;
mod declared_keys;
mod key;
mod key_spec;
mod last_used;
mod scope;
mod sharing_link;
mod token_cache;

pub use access::{Access, Caller};
pub(crate) use cache::ProjectPrediction;
pub use cache::{KEY_CACHE_SECONDS, KeyCache};
pub use declared_keys::{DeclaredKey, DeclaredKeys, delete_key};
pub use key::{InProcessKey, KeyRecord, hash_bytes, hash_key, mask_key};
pub use key_spec::{KeySpec, Secret};
pub use last_used::LAST_USED_INTERVAL_SECONDS;
pub(crate) use last_used::record_use;
pub use scope::{Scope, grants, is_scope};
pub(crate) use sharing_link::SHARING_TOKEN_BYTES_MAX;
pub use sharing_link::{SharedRecord, SharedRecordId, sharing_token_hash};
pub use token_cache::{TOKEN_BYTES_MAX, TOKEN_CACHE_TTL, TokenCache};
