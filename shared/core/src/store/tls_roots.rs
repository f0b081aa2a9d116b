//! The trusted root certificates of connections to AWS, and the first connection at start-up.
//!
//! Loading all root certificates of the system takes more than half of the work of a cold start, and AWS's endpoints use five
//! roots, published at <https://www.amazontrust.com/repository/>. Must stay true: only these are trusted if no other
//! certificates are configured and the first connection succeeds with them; a failed first connection does not keep a
//! function from starting.

use std::time::Duration;

use aws_smithy_http_client::tls::{TlsContext, TrustStore};

use super::fresh_connections::FreshConnections;
use super::{Key, Store, StoreError};
use crate::config::{StoreConfig, needs_system_roots};

/// The roots of AWS's endpoints, as PEM.
pub const AMAZON_ROOTS: &str = include_str!("amazon_roots.pem");

/// Timeout of the first connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The trusted root certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsRoots {
    /// Those of the system, or those configured in the environment.
    #[default]
    Machine,
    /// [`AMAZON_ROOTS`] only.
    Amazon,
}

impl Store {
    /// Connects to the tables of `config` with the settings of the environment, and opens a connection by reading the key
    /// `probe`, which the caller must be allowed to read; the item need not exist.
    pub async fn connect_at_start(config: &StoreConfig, probe: &Key) -> Store {
        if needs_system_roots() {
            let store = Store::from_env(config).await;
            is_reachable(&store, probe).await;
            return store;
        }
        let connections = FreshConnections::new(TlsRoots::Amazon);
        let shared = aws_config::from_env().http_client(connections).load().await;
        let store = Store { roots: TlsRoots::Amazon, ..Store::new(&super::client(&shared, None), config) };
        if is_reachable(&store, probe).await { store } else { Store::from_env(config).await }
    }
}

/// Whether the table responds, possibly with an error.
async fn is_reachable(store: &Store, probe: &Key) -> bool {
    match tokio::time::timeout(PROBE_TIMEOUT, store.records.get(probe)).await {
        Ok(Ok(_) | Err(StoreError::Conflict | StoreError::Condition { .. } | StoreError::Corrupt(_))) => true,
        Ok(Err(error)) => {
            tracing::warn!(cause = %error, "the table could not be reached at start-up");
            false
        }
        Err(_) => {
            tracing::warn!("the table did not respond within 2 s at start-up");
            false
        }
    }
}

/// The context of connections that trust [`AMAZON_ROOTS`] only.
pub(super) fn amazon_trust_store() -> Option<TlsContext> {
    let roots = TrustStore::empty().with_pem_certificate(AMAZON_ROOTS.as_bytes());
    TlsContext::builder().with_trust_store(roots).build().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest, Sha256};

    use super::*;

    /// SHA-256 of the certificates, as Amazon Trust Services publishes them.
    const PUBLISHED: [&str; 5] = [
        "8ecde6884f3d87b1125ba31ac3fcb13d7016de7f57cc904fe1cb97c6ae98196e",
        "1ba5b2aa8c65401a82960118f80bec4f62304d83cec4713a19c39c011ea46db4",
        "18ce6cfe7bf14e60b2e347b8dfe868cb31d02ebb3ada271569f50343b46db3a4",
        "e35d28419ed02025cfa69038cd623962458da5c695fbdea3c22b0bfb25897092",
        "568d6905a2c88708a4b3025190edcfedb1974a606a13c6e5290fcb2ae63edab5",
    ];

    #[test]
    fn the_roots_are_the_published_ones() {
        let certificates = AMAZON_ROOTS.split("-----BEGIN CERTIFICATE-----").skip(1);
        let digests: Vec<String> = certificates
            .map(|text| {
                let body: String = text.split("-----END").next().unwrap().split_whitespace().collect();
                Sha256::digest(STANDARD.decode(body).unwrap()).iter().map(|b| format!("{b:02x}")).collect()
            })
            .collect();
        assert_eq!(digests, PUBLISHED);
        assert!(amazon_trust_store().is_some());
    }
}
