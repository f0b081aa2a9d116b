//! Connecting a command to the tables of a deployment, with an error that names the next step.
//!
//! Must stay true: no error holds what the SDK prints of its own values, and each comes within seconds.

use std::time::Duration;

use aws_sdk_dynamodb::config::ProvideCredentials;

use super::error::causes;
use super::{Key, Store, StoreError, client};
use crate::config::{StoreConfig, variable};

/// How long the providers of regions and credentials may take. Outside of AWS some of them wait for a service of the machine.
const PROVIDER_TIME: Duration = Duration::from_secs(5);

/// Why the tables that the environment names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No region is set.
    #[error("no AWS region is set; set AWS_REGION to the region of the deployment, such as eu-central-1")]
    NoRegion,
    /// There are no credentials.
    #[error(
        "no AWS credentials were found ({0}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run \
         eval \"$(aws configure export-credentials --format env)\""
    )]
    NoCredentials(String),
    /// The credentials are wrong, too old, or do not allow reads of the table.
    #[error("AWS refused the credentials ({0}); check that they are valid and of the deployment's account")]
    Refused(String),
    /// Nothing answers.
    #[error("DynamoDB cannot be reached at {endpoint} ({cause}); check {setting} and the network")]
    Unreachable {
        /// The endpoint, or the region whose endpoint it is.
        endpoint: String,
        /// The variable that named it.
        setting: &'static str,
        /// Why.
        cause: String,
    },
    /// Anything else.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Error codes of DynamoDB that are about credentials.
const CREDENTIAL_CODES: [&str; 7] = [
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
];

impl Store {
    /// The tables of `config`, reached as the environment says. `probe`, a key that the caller may read, is read once,
    /// whether or not there is such an item.
    pub async fn connect(config: &StoreConfig, probe: &Key) -> Result<Store, ConnectError> {
        let shared = tokio::time::timeout(PROVIDER_TIME, aws_config::load_from_env()).await;
        let shared = shared.map_err(|_| ConnectError::NoRegion)?;
        let region =
            shared.region().map(|region| region.as_ref().to_owned()).ok_or(ConnectError::NoRegion)?;
        let provider = shared.credentials_provider();
        let provider =
            provider.ok_or_else(|| ConnectError::NoCredentials("no provider is set up".to_owned()))?;
        match tokio::time::timeout(PROVIDER_TIME, provider.provide_credentials()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(ConnectError::NoCredentials(causes(&error))),
            Err(_) => {
                let seconds = PROVIDER_TIME.as_secs();
                return Err(ConnectError::NoCredentials(format!("no answer within {seconds} seconds")));
            }
        }
        let store = Store::new(&client(&shared, None), config);
        match store.records.get(probe).await {
            Ok(_) => Ok(store),
            Err(StoreError::Busy(cause)) => Err(unreachable(&region, cause)),
            Err(StoreError::Failed(text)) if CREDENTIAL_CODES.iter().any(|code| text.starts_with(code)) => {
                Err(ConnectError::Refused(text))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn unreachable(region: &str, cause: String) -> ConnectError {
    let named = ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"];
    let named =
        named.into_iter().find_map(|name| Some((name, variable(name).filter(|url| !url.is_empty())?)));
    let (setting, endpoint) = named.unwrap_or_else(|| ("AWS_REGION", format!("the region {region}")));
    ConnectError::Unreachable { endpoint, setting, cause }
}
