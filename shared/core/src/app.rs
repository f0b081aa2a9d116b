//! What every handler is given: the store, the clock, and the keys seen a moment ago.

use crate::activity::WriteTimes;
use crate::auth::{KeyCache, Tokens};
use crate::clock::Clock;
use crate::payload_keys::PayloadKeys;
use crate::store::Store;
use crate::throttle::Rates;

/// The state that the functions share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    /// The tables.
    pub store: Store,
    /// The time.
    pub clock: Clock,
    /// Keys seen a moment ago.
    pub keys: KeyCache,
    /// Project tokens seen a moment ago.
    pub tokens: Tokens,
    /// How often a key may ask, if that is limited.
    pub rates: Option<Rates>,
    /// What secret payloads are encrypted with.
    pub payload_keys: PayloadKeys,
    /// The newest instants of the activity logs.
    pub write_times: WriteTimes,
}

impl App {
    /// An app over `store`, with `clock` as its time.
    pub fn new(store: Store, clock: Clock) -> App {
        App {
            store,
            clock,
            keys: KeyCache::default(),
            tokens: Tokens::default(),
            rates: None,
            payload_keys: PayloadKeys::default(),
            write_times: WriteTimes::default(),
        }
    }

    /// The same app, which limits how often a key may ask.
    #[must_use]
    pub fn with_rate_limits(self, rates: Option<Rates>) -> App {
        App { rates, ..self }
    }

    /// The same app, which can keep secret payloads.
    #[must_use]
    pub fn with_payload_keys(self, payload_keys: PayloadKeys) -> App {
        App { payload_keys, ..self }
    }
}
