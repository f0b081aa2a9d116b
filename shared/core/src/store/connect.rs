//! Connects a CLI command to the tables of a deployment, with error messages that name the next step.
//!
//! Must stay true: no error contains the SDK's debug output, each is one line, and each is returned within seconds.

use std::time::Duration;

use super::{AwsAccess, Key, Store, StoreError, client, client_config};
use crate::config::{StoreConfig, variable};

/// Timeout of the region provider. Outside of AWS some of them wait for the instance metadata service.
const PROVIDER_TIME: Duration = Duration::from_secs(5);
/// Timeout of the credentials, which an external process or a sign-in service may provide.
const CREDENTIALS_TIME: Duration = Duration::from_secs(10);
/// Timeout of one attempt, and of a call with all retries, of a command: its uploads may fill the line.
const COMMAND_ATTEMPT_TIME: Duration = Duration::from_secs(15);
const COMMAND_OPERATION_TIME: Duration = Duration::from_secs(60);

/// Why the configured tables cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No region is set.
    #[error(
        "no AWS region is set; set AWS_REGION, or `region` of the profile, to the region of the deployment, such as \
         eu-central-1"
    )]
    NoRegion,
    /// There are no credentials.
    #[error("no AWS credentials were found ({cause}); {}", sign_in_step(cause))]
    NoCredentials {
        /// The cause.
        cause: String,
    },
    /// The credentials are invalid, expired, or do not allow reads of the table.
    #[error("AWS refused the credentials ({0}); check that they are valid and of the deployment's account")]
    Refused(String),
    /// The account has no such table in the region.
    #[error(
        "there is no table {table} in the region {region}; set AWS_REGION to the region of the deployment, \
         PENNON_RECORDS_TABLE to the output RecordsTableName of its stack, and use credentials of its account"
    )]
    NoTable {
        /// The table's name.
        table: String,
        /// The region.
        region: String,
    },
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

/// The error code of DynamoDB for a missing table.
const NO_TABLE: &str = "ResourceNotFoundException";
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
        let region = shared.region().ok_or(ConnectError::NoRegion)?.as_ref().to_owned();
        let no_credentials = |cause: &str| ConnectError::NoCredentials { cause: first_line(cause) };
        let provider =
            shared.credentials_provider().ok_or_else(|| no_credentials("no provider is set up"))?;
        let endpoint = shared.endpoint_url().map(str::to_owned);
        let access = AwsAccess::new(region.clone(), endpoint, provider);
        match tokio::time::timeout(CREDENTIALS_TIME, access.credentials()).await {
            Ok(Ok(_)) => {}
            Ok(Err(cause)) => return Err(no_credentials(&cause)),
            Err(_) => {
                let seconds = CREDENTIALS_TIME.as_secs();
                return Err(no_credentials(&format!("no response within {seconds} seconds")));
            }
        }
        // The first call has the timeouts of functions, so that an unreachable endpoint is reported soon.
        match Store::new(&client(&shared, None), config).records.get(probe).await {
            Ok(_) => {
                let patient = client_config(&shared, COMMAND_ATTEMPT_TIME, COMMAND_OPERATION_TIME).build();
                let client = aws_sdk_dynamodb::Client::from_conf(patient);
                Ok(Store { access: Some(access), ..Store::new(&client, config) })
            }
            Err(StoreError::Busy(cause)) => Err(unreachable(&region, cause)),
            Err(StoreError::Failed(text)) if CREDENTIAL_CODES.iter().any(|code| text.starts_with(code)) => {
                Err(ConnectError::Refused(text))
            }
            Err(StoreError::Failed(text)) if text.contains(NO_TABLE) => {
                Err(ConnectError::NoTable { table: config.records_table.clone(), region })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The first line of a cause; the others list every source of credentials.
fn first_line(cause: &str) -> String {
    let first = cause.lines().next().unwrap_or_default();
    first.trim_end_matches(" Attempted:").trim_end_matches('.').to_owned()
}

/// What to do about missing credentials.
fn sign_in_step(cause: &str) -> &'static str {
    let cause = cause.to_ascii_lowercase();
    if cause.contains("sso") {
        "run `aws sso login`, with `--profile NAME` if AWS_PROFILE names a profile"
    } else if cause.contains("login") {
        "run `aws login`, with `--profile NAME` if AWS_PROFILE names a profile"
    } else {
        "set AWS_PROFILE to a profile of `aws configure list-profiles`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    }
}

fn unreachable(region: &str, cause: String) -> ConnectError {
    let variables = ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"];
    let configured =
        variables.into_iter().find_map(|name| Some((name, variable(name).filter(|url| !url.is_empty())?)));
    let (setting, endpoint) = configured.unwrap_or_else(|| ("AWS_REGION", format!("the region {region}")));
    ConnectError::Unreachable { endpoint, setting, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_fits_the_kind_of_credentials() {
        let step = |cause: &str| ConnectError::NoCredentials { cause: first_line(cause) }.to_string();
        assert!(step("failed to load the cached SSO token").contains("run `aws sso login`"));
        assert!(step("failed to load cached login token").contains("run `aws login`"));
        assert!(step("no providers in chain provided credentials").contains("set AWS_PROFILE"));
        let listed = step("the credential provider was not enabled. Attempted:\n a\n b");
        assert_eq!(listed.lines().count(), 1);
        assert!(listed.contains("(the credential provider was not enabled);"), "{listed}");
    }
}
