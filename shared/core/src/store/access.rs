//! The region and the credentials with which a command of the CLI reaches a deployment, for DynamoDB and for the bucket alike.
//!
//! The SDK resolves them from the environment, from profiles, SSO, `aws login`, external processes, containers and instances,
//! as far as its features are enabled: those of the command line, not of the functions. Must stay true: neither a key nor a
//! token is in `Debug` output; credentials are refreshed before they expire.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::config::{Credentials, ProvideCredentials, SharedCredentialsProvider};
use tokio::sync::Mutex;

use super::error::causes;

/// Credentials are requested again this long before they expire.
const REFRESH_BEFORE_EXPIRY: Duration = Duration::from_secs(300);

/// The region, the endpoint and the credentials of a deployment.
#[derive(Clone)]
pub struct AwsAccess {
    /// The region.
    pub region: String,
    /// The endpoint for all services, if one is configured.
    pub endpoint: Option<String>,
    provider: SharedCredentialsProvider,
    cached: Arc<Mutex<Option<Credentials>>>,
}

impl fmt::Debug for AwsAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AwsAccess({})", self.region)
    }
}

/// The credentials of a request. Its `Debug` output has no secret.
pub struct AwsCredentials {
    /// The id of the access key.
    pub access_key_id: String,
    /// The secret of the access key.
    pub secret_access_key: String,
    /// The token of temporary credentials.
    pub session_token: Option<String>,
}

impl fmt::Debug for AwsCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AwsCredentials")
    }
}

impl AwsAccess {
    pub(super) fn new(
        region: String,
        endpoint: Option<String>,
        provider: SharedCredentialsProvider,
    ) -> AwsAccess {
        AwsAccess { region, endpoint, provider, cached: Arc::default() }
    }

    /// The credentials; the error is a text for the user.
    pub async fn credentials(&self) -> Result<AwsCredentials, String> {
        let mut cached = self.cached.lock().await;
        if let Some(credentials) = cached.as_ref().filter(|known| is_usable(known, SystemTime::now())) {
            return Ok(AwsCredentials::of(credentials));
        }
        let credentials = self.provider.provide_credentials().await.map_err(|error| causes(&error))?;
        let response = AwsCredentials::of(&credentials);
        *cached = Some(credentials);
        Ok(response)
    }
}

impl AwsCredentials {
    fn of(credentials: &Credentials) -> AwsCredentials {
        AwsCredentials {
            access_key_id: credentials.access_key_id().to_owned(),
            secret_access_key: credentials.secret_access_key().to_owned(),
            session_token: credentials.session_token().map(str::to_owned),
        }
    }
}

fn is_usable(credentials: &Credentials, now: SystemTime) -> bool {
    credentials.expiry().is_none_or(|expiry| now + REFRESH_BEFORE_EXPIRY < expiry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_requested_again_before_they_expire() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let until = |seconds| {
            let expiry = Some(now + Duration::from_secs(seconds));
            Credentials::new("id", "secret", None, expiry, "test")
        };
        assert!(is_usable(&until(301), now));
        assert!(!is_usable(&until(300), now));
        assert!(is_usable(&Credentials::new("id", "secret", None, None, "test"), now));
    }

    #[tokio::test]
    async fn no_secret_is_in_debug_output() -> Result<(), String> {
        let credentials =
            Credentials::new("id-of-test", "secret-of-test", Some("token-of-test".to_owned()), None, "test");
        let access =
            AwsAccess::new("eu-central-1".to_owned(), None, SharedCredentialsProvider::new(credentials));
        let given = access.credentials().await?;
        assert_eq!(given.access_key_id, "id-of-test");
        assert_eq!(given.session_token.as_deref(), Some("token-of-test"));
        let printed = format!("{access:?} {given:?}");
        assert_eq!(printed, "AwsAccess(eu-central-1) AwsCredentials");
        Ok(())
    }
}
