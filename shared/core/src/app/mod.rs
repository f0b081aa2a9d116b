//! The state of every handler (the store, the clock, the caches of keys and tokens), and its authorization of requests.
//!
//! [`App::project`] and its variants are the only way from a request to the data of a project.

mod authorization;
mod shared_link;

use crate::auth::{KeyCache, TokenCache};
use crate::clock::Clock;
use crate::payload_keys::PayloadKeys;
use crate::store::Store;
use crate::throttle::Rates;
use crate::write_times::WriteTimes;

/// The state that the functions share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    /// The DynamoDB tables.
    pub store: Store,
    /// The clock.
    pub clock: Clock,
    /// The API key cache.
    pub keys: KeyCache,
    /// The project token cache.
    pub tokens: TokenCache,
    /// The rate limits per API key; `None` if there are none.
    pub rates: Option<Rates>,
    /// The encryption keys of secret flag payloads.
    pub payload_keys: PayloadKeys,
    /// The newest instant of each activity log.
    pub write_times: WriteTimes,
}

impl App {
    /// An app without rate limits and payload keys.
    pub fn new(store: Store, clock: Clock) -> App {
        App {
            store,
            clock,
            keys: KeyCache::default(),
            tokens: TokenCache::default(),
            rates: None,
            payload_keys: PayloadKeys::default(),
            write_times: WriteTimes::default(),
        }
    }

    /// The same app with rate limits.
    #[must_use]
    pub fn with_rate_limits(self, rates: Option<Rates>) -> App {
        App { rates, ..self }
    }

    /// The same app with encryption keys for secret payloads.
    #[must_use]
    pub fn with_payload_keys(self, payload_keys: PayloadKeys) -> App {
        App { payload_keys, ..self }
    }
}
