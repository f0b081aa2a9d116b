//! Opens the installation that a command works on: a data directory, or the tables and the bucket of a deployment.
//!
//! Must stay true: tables and events of different installations are never used together; every event store that a
//! command opens respects `PENNON_EVENTS_MEMORY_MB`; a command that only reads creates no installation.

use std::path::Path;
use std::time::Duration;

use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::{Config, payload_keys};
use pennon_core::store::{Key, Store, keys};
use pennon_eventstore::{EventStore, EventStoreError};
use tempfile::TempDir;

use crate::api::Services;
use crate::args::Target;
use crate::data::{DataDirectory, OpenStore, holds_installation, open_events};

/// Timeout of the check that a deployment's events belong to its tables.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The tables and events that a command works on.
pub struct Installation {
    /// The tables.
    pub store: Store,
    /// The events, which belong to the tables.
    pub events: EventStore,
    /// The URL of the events.
    pub events_url: String,
    /// The directory of a local installation.
    pub directory: Option<DataDirectory>,
    /// The open tables of a local installation, with their lock.
    pub local: Option<OpenStore>,
    /// The temporary directory of an installation for a preview; the last field, so that it is removed last.
    _preview: Option<TempDir>,
}

impl Installation {
    /// The events for writing: gives an installation without an id one first.
    pub async fn claim_events(&self) -> Result<EventStore, String> {
        self.events.claim_installation().await.map_err(|e| e.to_string())?;
        Ok(self.events.clone())
    }

    /// The services that handle API requests in this process.
    pub fn services(&self) -> Result<Services, String> {
        let payload_keys = match &self.directory {
            Some(directory) => directory.payload_keys()?,
            None => payload_keys("")?,
        };
        let app = App::new(self.store.clone(), Clock::Running).with_payload_keys(payload_keys);
        Ok(Services::new(app, self.events.clone()))
    }
}

/// Opens the installation `target`; creates a local one if it does not exist.
pub async fn open(target: &Target) -> Result<Installation, String> {
    open_with(target, DataDirectory::at).await
}

/// As [`open`], for a command that changes an existing installation.
pub async fn open_existing(target: &Target) -> Result<Installation, String> {
    open_with(target, DataDirectory::existing).await
}

/// As [`open_existing`], for a command that changes nothing: the directory may be read-only.
pub async fn open_for_reading(target: &Target) -> Result<Installation, String> {
    open_with(target, DataDirectory::for_reading).await
}

/// As [`open_for_reading`], for a command that previews its changes: if there is no installation, it uses an empty one in a
/// temporary directory.
pub async fn open_for_preview(target: &Target) -> Result<Installation, String> {
    if target.cloud || holds_installation(&target.data.data) {
        return open_for_reading(target).await;
    }
    let preview = tempfile::Builder::new().prefix("pennon-").tempdir();
    let preview =
        preview.map_err(|e| format!("no temporary directory can be created for the preview: {e}"))?;
    let installation = open_with(target, |_| DataDirectory::at(preview.path())).await?;
    Ok(Installation { _preview: Some(preview), ..installation })
}

async fn open_with(
    target: &Target,
    open_directory: impl FnOnce(&Path) -> Result<DataDirectory, String>,
) -> Result<Installation, String> {
    if !target.cloud {
        let directory = open_directory(&target.data.data)?;
        let local = directory.open().await?;
        let events_url = directory.events_url();
        let events = open_verified_events(&local.store, &events_url).await?;
        local.count_writes()?;
        return Ok(Installation {
            store: local.store.clone(),
            events,
            events_url,
            directory: Some(directory),
            local: Some(local),
            _preview: None,
        });
    }
    let (store, events_url) = connect_cloud().await?;
    let events = tokio::time::timeout(CONNECT_TIMEOUT, open_verified_events(&store, &events_url)).await;
    let events = events
        .unwrap_or_else(|_| Err(format!("no response within {} seconds", CONNECT_TIMEOUT.as_secs())))
        .map_err(|e| format!("the events at {events_url} cannot be used: {e}"))?;
    Ok(Installation { store, events, events_url, directory: None, local: None, _preview: None })
}

/// Connects to the tables of the deployment that the environment names; returns them and the URL of the events.
pub async fn connect_cloud() -> Result<(Store, String), String> {
    let config = Config::from_env();
    let events_url = config.events_url.ok_or(
        "--cloud needs PENNON_EVENTS_URL, and the names of the tables in PENNON_RECORDS_TABLE and PENNON_BLOCKS_TABLE; \
         the outputs of the stack have their values",
    )?;
    let probe = Key::new(keys::INSTALLATION, "CONNECT");
    let store = Store::connect(&config.store, &probe).await.map_err(|error| format!("--cloud: {error}"))?;
    Ok((store, events_url))
}

/// Opens the events at `url`, and verifies that they are of the same installation as the tables of `store`.
pub async fn open_verified_events(store: &Store, url: &str) -> Result<EventStore, String> {
    let events = open_events(store, url)?;
    events.verify_installation().await.map_err(|error| match error {
        EventStoreError::Objects(_) if !url.starts_with("file://") => {
            let region = store.access.as_ref().map_or("of the environment", |access| &access.region);
            // The response of a bucket has several lines.
            let error = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            format!(
                "{error}; check PENNON_EVENTS_URL, AWS_ENDPOINT_URL_S3, the region ({region}), the credentials and the network"
            )
        }
        other => other.to_string(),
    })?;
    Ok(events)
}
