//! Opens the object store that a URL names: a directory, or a bucket with the client of its connections.
//!
//! Must stay true: a function has the environment's credentials and the short timeouts of requests within AWS; a command of the
//! CLI has the credentials of its profile, and timeouts that fit a slow line.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::{Certificate, ClientConfigKey, ClientOptions, CredentialProvider, Error, RetryConfig};
use pennon_core::config::{names_s3_endpoint, object_store_uses_http};
use pennon_core::store::{AMAZON_ROOTS, AwsAccess, TlsRoots};

use super::Objects;
use super::fresh_connections::FreshConnector;
use super::large_uploads::LargeUploads;
use super::object_versions::ObjectVersions;
use crate::error::EventStoreError;

/// Timeout of a request of a command, beyond those of `RetryPolicy`, which fit the size. The default of 30 seconds is less than
/// a part of an object takes over a slow line.
const COMMAND_TIMEOUT: &str = "1 hour";

impl Objects {
    /// Opens `file:///directory` (created when missing) or `s3://bucket/prefix`. The connections to a bucket trust `roots`.
    /// Its region and credentials are those of `access`, or else of the environment.
    pub(crate) fn open(
        url: &str,
        roots: TlsRoots,
        access: Option<&AwsAccess>,
    ) -> Result<Objects, EventStoreError> {
        if let Some(directory) = url.strip_prefix("file://") {
            return open_directory(url, PathBuf::from(directory));
        }
        let Some(place) = url.strip_prefix("s3://") else {
            return Err(EventStoreError::Location(format!(
                "{url} is neither file:///directory nor s3://bucket/prefix"
            )));
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let connector = FreshConnector::default();
        // Retries are done here, see `RetryPolicy`: the same for every store, within the time of a request.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::from_env();
        if roots == TlsRoots::Amazon {
            builder = builder.with_client_options(amazon_client_options()?);
        }
        // A configured endpoint without TLS is intended.
        let mut uses_http = object_store_uses_http();
        if let Some(access) = access {
            let credentials = Arc::new(CommandCredentials(access.clone()));
            builder = builder.with_region(&access.region).with_credentials(credentials);
            builder =
                builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), COMMAND_TIMEOUT);
            if let Some(endpoint) = access.endpoint.as_ref().filter(|_| !names_s3_endpoint()) {
                uses_http |= endpoint.starts_with("http://");
                builder = builder.with_endpoint(endpoint);
            }
        }
        builder = if uses_http { builder.with_allow_http(true) } else { builder };
        let builder = builder.with_bucket_name(bucket).with_conditional_put(S3ConditionalPut::ETagMatch);
        let s3 = Arc::new(builder.with_retry(retry).with_http_connector(connector.clone()).build()?);
        let mut objects = Objects::new(s3.clone(), prefix).with_large_uploads(LargeUploads::new(s3.clone()));
        objects.location = url.trim_end_matches('/').into();
        objects.versions = connector.client().map(|client| ObjectVersions::new(s3, client));
        Ok(if access.is_some() { objects.for_slow_line() } else { objects })
    }
}

fn open_directory(url: &str, directory: PathBuf) -> Result<Objects, EventStoreError> {
    if !directory.is_absolute() {
        return Err(EventStoreError::Location(format!("{url} names no absolute directory")));
    }
    std::fs::create_dir_all(&directory)
        .map_err(|e| EventStoreError::Location(format!("{} cannot be made: {e}", directory.display())))?;
    let store = LocalFileSystem::new_with_prefix(directory)?.with_fsync(true);
    let location = url.trim_end_matches('/').into();
    Ok(Objects { is_directory: true, location, ..Objects::new(Arc::new(store), "") })
}

/// The settings of connections that trust Amazon's roots only.
fn amazon_client_options() -> Result<ClientOptions, EventStoreError> {
    let client = ClientOptions::new().with_no_system_certificates(true);
    let certificates = Certificate::from_pem_bundle(AMAZON_ROOTS.as_bytes())?;
    Ok(certificates.into_iter().fold(client, ClientOptions::with_root_certificate))
}

/// The credentials of a command of the CLI.
#[derive(Debug)]
struct CommandCredentials(AwsAccess);

#[async_trait]
impl CredentialProvider for CommandCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let credentials = self.0.credentials().await.map_err(|cause| Error::Unauthenticated {
            path: "the credentials".to_owned(),
            source: cause.into(),
        })?;
        Ok(Arc::new(AwsCredential {
            key_id: credentials.access_key_id,
            secret_key: credentials.secret_access_key,
            token: credentials.session_token,
        }))
    }
}
