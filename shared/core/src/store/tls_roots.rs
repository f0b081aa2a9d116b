//! Which certificates connections to AWS trust, and the first connection, which is made while a function starts.
//!
//! Reading all of a machine's root certificates takes more than half of the work of a start, and AWS's endpoints are
//! certified by five roots, published at <https://www.amazontrust.com/repository/>. Must stay true: these alone are trusted only
//! where nobody said which others are, and where the first connection has shown that they do; a first connection that fails keeps
//! no function from starting.

use std::time::Duration;

use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::http::SharedHttpClient;

use super::{Key, Store, StoreError};
use crate::config::{StoreConfig, trusts_others};

/// The roots of AWS's endpoints, as PEM.
pub const AMAZON_ROOTS: &str = include_str!("amazon_roots.pem");

/// How long a start waits for the first connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whose certificates are trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Roots {
    /// Those of the machine, or of the environment's.
    #[default]
    Machine,
    /// [`AMAZON_ROOTS`] alone.
    Amazon,
}

impl Store {
    /// The tables of `config`, reached as the environment says, with a connection that is open already: `probe`, a key that the
    /// caller may read, is read once, whether or not there is such an item.
    pub async fn connect_at_start(config: &StoreConfig, probe: &Key) -> Store {
        if trusts_others() {
            let store = Store::from_env(config).await;
            reach(&store, probe).await;
            return store;
        }
        let Some(client) = client_of_few() else { return Store::from_env(config).await };
        let shared = aws_config::from_env().http_client(client).load().await;
        let store = Store { roots: Roots::Amazon, ..Store::new(&super::client(&shared, None), config) };
        if reach(&store, probe).await { store } else { Store::from_env(config).await }
    }
}

/// Whether the table answered, were it by a refusal.
async fn reach(store: &Store, probe: &Key) -> bool {
    match tokio::time::timeout(PATIENCE, store.records.get(probe)).await {
        Ok(Ok(_) | Err(StoreError::Conflict | StoreError::Condition { .. } | StoreError::Corrupt(_))) => true,
        Ok(Err(error)) => {
            tracing::warn!(cause = %error, "the table was not reached at the start");
            false
        }
        Err(_) => {
            tracing::warn!("the table did not answer at the start");
            false
        }
    }
}

/// A client that trusts [`AMAZON_ROOTS`] and is else the SDK's own.
fn client_of_few() -> Option<SharedHttpClient> {
    let roots = TrustStore::empty().with_pem_certificate(AMAZON_ROOTS.as_bytes());
    let context = TlsContext::builder().with_trust_store(roots).build().ok()?;
    let provider = Provider::Rustls(CryptoMode::AwsLc);
    Some(aws_smithy_http_client::Builder::new().tls_provider(provider).tls_context(context).build_https())
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
        assert!(client_of_few().is_some());
    }
}
