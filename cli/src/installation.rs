//! Opening what a command works on: a data directory, or the tables and the bucket of a deployment.
//!
//! Must stay true: tables and events of different installations are never worked on together; every event store that a
//! command opens keeps to `PENNON_EVENTS_MEMORY_MB`; a command that only reads creates no installation.

use std::path::Path;
use std::time::Duration;

use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::{Config, payload_keys};
use pennon_core::store::{ConnectError, Key, Store, keys};
use pennon_eventstore::{EventStore, EventStoreError};
use tempfile::TempDir;

use crate::args::Target;
use crate::data::{DataDirectory, OpenStore, holds_installation, open_events};
use crate::serve::Services;

/// How long a deployment may take to show that its events belong to its tables.
const CONNECT_TIME: Duration = Duration::from_secs(15);

/// What a command works on: the tables, and where the events lie.
pub struct Installation {
    /// The tables.
    pub store: Store,
    /// The events, which were compared with the tables.
    pub events: EventStore,
    /// Where they lie.
    pub events_url: String,
    /// Of a local one.
    pub directory: Option<DataDirectory>,
    /// Keeps a local database to this process.
    pub local: Option<OpenStore>,
    /// The directory of an installation that is there for a preview alone; removed last.
    _preview: Option<TempDir>,
}

impl Installation {
    /// The events, to be changed: an installation without an id gets one first.
    pub async fn claimed(&self) -> Result<EventStore, String> {
        self.events.claim_installation().await.map_err(|e| e.to_string())?;
        Ok(self.events.clone())
    }

    /// What answers requests over it, in this process.
    pub fn services(&self) -> Result<Services, String> {
        let payload_keys = match &self.directory {
            Some(directory) => directory.payload_keys()?,
            None => payload_keys("")?,
        };
        let app = App::new(self.store.clone(), Clock::Running).with_payload_keys(payload_keys);
        Ok(Services::over(app, self.events.clone()))
    }
}

/// Opens what `target` names; a local installation is created where there is none.
pub async fn open(target: &Target) -> Result<Installation, String> {
    open_with(target, DataDirectory::at).await
}

/// As [`open`], for a command that changes an installation that is there.
pub async fn open_existing(target: &Target) -> Result<Installation, String> {
    open_with(target, DataDirectory::existing).await
}

/// As [`open_existing`], for a command that changes nothing: the directory may be one that cannot be written.
pub async fn open_to_read(target: &Target) -> Result<Installation, String> {
    open_with(target, DataDirectory::to_read).await
}

/// As [`open_to_read`], for a command that shows what it would change: where there is no installation yet, one in a
/// temporary directory takes its place.
pub async fn open_to_preview(target: &Target) -> Result<Installation, String> {
    if target.cloud || holds_installation(&target.data.data) {
        return open_to_read(target).await;
    }
    let preview = tempfile::Builder::new().prefix("pennon-").tempdir();
    let preview =
        preview.map_err(|e| format!("no temporary directory can be created for the preview: {e}"))?;
    let installation = open_with(target, |_| DataDirectory::at(preview.path())).await?;
    Ok(Installation { _preview: Some(preview), ..installation })
}

async fn open_with(
    target: &Target,
    at: impl FnOnce(&Path) -> Result<DataDirectory, String>,
) -> Result<Installation, String> {
    if !target.cloud {
        let directory = at(&target.data.data)?;
        let local = directory.open().await?;
        let events_url = directory.events_url();
        let events = compared(&local.store, &events_url).await?;
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
    let (store, events_url) = cloud().await?;
    let events = tokio::time::timeout(CONNECT_TIME, compared(&store, &events_url)).await;
    let events = events
        .unwrap_or_else(|_| Err(format!("no answer within {} seconds", CONNECT_TIME.as_secs())))
        .map_err(|e| format!("the events at {events_url} cannot be used: {e}"))?;
    Ok(Installation { store, events, events_url, directory: None, local: None, _preview: None })
}

/// The tables and the address of the events that the environment names.
pub async fn cloud() -> Result<(Store, String), String> {
    let config = Config::from_env();
    let events_url = config.events_url.ok_or(
        "--cloud needs PENNON_EVENTS_URL, and the names of the tables in PENNON_RECORDS_TABLE and PENNON_BLOCKS_TABLE; \
         the outputs of the stack say what they are",
    )?;
    let probe = Key::new(keys::INSTALLATION, "CONNECT");
    let store = Store::connect(&config.store, &probe).await.map_err(in_one_line)?;
    Ok((store, events_url))
}

fn in_one_line(error: ConnectError) -> String {
    let error = match error {
        // Below its first line the text lists every place where credentials were looked for.
        ConnectError::NoCredentials(cause) => {
            let first = cause.lines().next().unwrap_or_default();
            ConnectError::NoCredentials(
                first.trim_end_matches(" Attempted:").trim_end_matches('.').to_owned(),
            )
        }
        other => other,
    };
    format!("--cloud: {error}")
}

/// The events at `url`, which were compared with the tables: they are of one installation.
async fn compared(store: &Store, url: &str) -> Result<EventStore, String> {
    let events = open_events(store, url)?;
    events.verify_installation().await.map_err(|error| match error {
        EventStoreError::Objects(_) if !url.starts_with("file://") => {
            format!("{error}; check PENNON_EVENTS_URL, AWS_ENDPOINT_URL_S3, the credentials and the network")
        }
        other => other.to_string(),
    })?;
    Ok(events)
}
