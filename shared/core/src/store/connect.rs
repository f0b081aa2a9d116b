//! Connects a CLI command to the tables of a deployment, with error messages that name the next step.
//!
//! Must stay true: no error contains the SDK's debug output, and each is returned within seconds.

use std::time::Duration;

use aws_sdk_dynamodb::config::ProvideCredentials;

use super::error::causes;
use super::{Key, Store, StoreError, client};
use crate::config::{StoreConfig, variable};

/// Timeout of the region and credentials providers. Outside of AWS some of them wait for the instance metadata service.
const PROVIDER_TIME: Duration = Duration::from_secs(5);

/// Why the configured tables cannot be used.
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
    /// The credentials are invalid, expired, or do not allow reads of the table.
    #[error("AWS refused the credentials ({0}); check that they are valid and of the deployment's account")]
    Refused(String),
    /// The endpoint does not respond.
    #[error("DynamoDB cannot be reached at {endpoint} ({cause}); check {setting} and the network")]
    Unreachable {
        /// The endpoint's URL, or its region.
        endpoint: String,
        /// The environment variable that configures it.
        setting: &'static str,
        /// The cause.
        cause: String,
    },
    /// Anything else.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Error codes of DynamoDB for invalid credentials.
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
    /// Connects to the tables of `config` with the settings of the environment. Reads the key `probe` once, which the caller
    /// must be allowed to read; the item need not exist.
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
                return Err(ConnectError::NoCredentials(format!("no response within {seconds} seconds")));
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
    let variables = ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"];
    let configured =
        variables.into_iter().find_map(|name| Some((name, variable(name).filter(|url| !url.is_empty())?)));
    let (setting, endpoint) = configured.unwrap_or_else(|| ("AWS_REGION", format!("the region {region}")));
    ConnectError::Unreachable { endpoint, setting, cause }
}
