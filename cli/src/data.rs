//! The data directory of a local installation: the database, the events, and the lock of the process that has them open.
//!
//! One process at a time has the database open; others use that process's DynamoDB port. The lock is a file lock of the
//! operating system, which ends with its process, so a killed server leaves nothing to clean up.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use pennon_core::config::{events_memory, payload_keys};
use pennon_core::payload_keys::{PayloadKeys, new_key};
use pennon_core::store::Store;
use pennon_eventstore::{EventStore, Settings};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::embedded::preflight::{self, Thoroughness, check_database, damage_message};
use crate::embedded::{self, Embedded, remote_store};
use crate::private;

mod read_only;

/// The file that the process which uses the directory locks.
pub(crate) const LOCK: &str = "lock";
const SERVER: &str = "server.json";
/// The directory of the events.
pub(crate) const EVENTS: &str = "events";
/// The file with the key of secret payloads.
pub(crate) const PAYLOAD_KEY: &str = "payload.key";

/// The addresses of a running server, and the access key id of its tables. Its `Debug` output omits that secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Base URL of the API.
    pub http: String,
    /// Endpoint of the embedded DynamoDB.
    pub dynamodb: String,
    /// The AWS access key id that this endpoint requires; a new one at each start.
    pub access_key_id: String,
    /// The server's process id.
    pub pid: u32,
}

/// Opens the events at `events_url`, with the memory limit of `PENNON_EVENTS_MEMORY_MB`.
pub fn open_events(store: &Store, events_url: &str) -> Result<EventStore, String> {
    let settings = events_memory().map_or_else(Settings::default, Settings::for_memory);
    // Only a connection to DynamoDB, not to this machine's database, has credentials.
    let settings = if store.access.is_some() { settings.for_dynamodb() } else { settings };
    EventStore::open_with(store.clone(), events_url, settings).map_err(|e| e.to_string())
}

/// A data directory.
#[derive(Debug, Clone)]
pub struct DataDirectory {
    path: PathBuf,
    /// The file system or its permissions allow no writes.
    is_read_only: bool,
    /// Opened by a command that only reads.
    is_for_reading: bool,
}

/// The lock of a data directory, held until this is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl std::fmt::Debug for ServerInfo {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ServerInfo({}, {}, {})", self.http, self.dynamodb, self.pid)
    }
}

/// The tables of a data directory: opened by this process, or through the server that has them open.
#[derive(Debug)]
pub struct OpenStore {
    /// The tables.
    pub store: Store,
    /// The server that has the database open, if it is not this process.
    pub server: Option<ServerInfo>,
    /// Whether this is a temporary copy, because the directory cannot be written.
    pub is_copy: bool,
    /// The database, if this process opened it, and its directory.
    embedded: Option<(Embedded, PathBuf)>,
    _lock: Option<Lock>,
    _copy: Option<TempDir>,
}

impl OpenStore {
    /// Starts the write mark. Called after the tables were found to belong to the events. A server has its own.
    pub fn count_writes(&self) -> Result<(), String> {
        self.embedded.as_ref().map_or(Ok(()), |(embedded, directory)| embedded.count_writes(directory))
    }
}

impl DataDirectory {
    /// The directory at `path`; creates it if it does not exist.
    pub fn at(path: &Path) -> Result<DataDirectory, String> {
        std::fs::create_dir_all(path.join(EVENTS)).map_err(|e| unusable(path, &e))?;
        DataDirectory::canonical(path)
    }

    /// The directory at `path`; an error if it has no installation.
    pub fn existing(path: &Path) -> Result<DataDirectory, String> {
        if holds_installation(path) { DataDirectory::at(path) } else { Err(no_installation_message(path)) }
    }

    /// As [`DataDirectory::existing`], for a command that only reads: the directory may be read-only.
    pub fn for_reading(path: &Path) -> Result<DataDirectory, String> {
        if !holds_installation(path) {
            return Err(no_installation_message(path));
        }
        let is_read_only = read_only::is_read_only(path);
        Ok(DataDirectory { is_read_only, is_for_reading: true, ..DataDirectory::canonical(path)? })
    }

    fn canonical(path: &Path) -> Result<DataDirectory, String> {
        let path = path.canonicalize().map_err(|e| unusable(path, &e))?;
        Ok(DataDirectory { path, is_read_only: false, is_for_reading: false })
    }

    /// The absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The URL of the events.
    pub fn events_url(&self) -> String {
        format!("file://{}", self.path.join(EVENTS).display())
    }

    /// The keys that encrypt secret payloads: those of the environment, then the directory's own, which is created at the
    /// first call.
    pub fn payload_keys(&self) -> Result<PayloadKeys, String> {
        let path = self.path.join(PAYLOAD_KEY);
        let failed = |e: std::io::Error| format!("{} cannot be used: {e}", path.display());
        let own = match std::fs::read_to_string(&path) {
            Ok(own) => own,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let own = new_key();
                if self.is_for_reading {
                    // Nothing was encrypted yet, so the new key need not be stored.
                    return payload_keys(&own);
                }
                write_private(&path, &own).map_err(failed)?;
                own
            }
            Err(e) => return Err(failed(e)),
        };
        payload_keys(&own).map_err(|e| format!("{e}; the directory's own key is in {}", path.display()))
    }

    /// The directory's own payload key, which a server creates when it starts.
    pub fn own_payload_key(&self) -> Result<String, String> {
        let path = self.path.join(PAYLOAD_KEY);
        let key =
            std::fs::read_to_string(&path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
        Ok(key.trim().to_owned())
    }

    /// Acquires the lock; `None` if another process has it.
    pub fn lock(&self) -> Result<Option<Lock>, String> {
        let path = self.path.join(LOCK);
        let failed = |e: &dyn std::fmt::Display| format!("{} cannot be locked: {e}", path.display());
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|e| failed(&e))?;
        match file.try_lock() {
            Ok(()) => {
                // The previous server has ended; its announcement is stale.
                self.withdraw();
                private::restrict(&self.path);
                Ok(Some(Lock { _file: file }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(failed(&e)),
        }
    }

    /// Writes the addresses of this server, for other processes.
    pub fn announce(&self, info: &ServerInfo) -> Result<(), String> {
        let text = serde_json::to_string_pretty(info).map_err(|e| e.to_string())?;
        let path = self.path.join(SERVER);
        write_private(&path, &text).map_err(|e| format!("{} cannot be written: {e}", path.display()))
    }

    /// Removes the addresses of this server.
    pub fn withdraw(&self) {
        // The file exists only if this process, or a killed one, wrote it.
        let _ = std::fs::remove_file(self.path.join(SERVER));
    }

    /// Checks and opens the database. The caller holds the lock.
    pub async fn open_database(&self, thoroughness: Thoroughness) -> Result<Embedded, String> {
        check_database(&self.path, &self.path.join(EVENTS), thoroughness)?;
        self.open_unchecked().await
    }

    /// Opens the database without the check that no acknowledged writes are missing. The caller holds the lock.
    pub async fn open_unchecked(&self) -> Result<Embedded, String> {
        let failed = |problem: String| damage_message(&self.path.join(embedded::FILE), &problem);
        Embedded::open(&self.path).await.map_err(|e| failed(e.to_string()))
    }

    /// Opens the tables, directly or through the server that has them open.
    pub async fn open(&self) -> Result<OpenStore, String> {
        if self.is_read_only {
            return read_only::open(&self.path).await;
        }
        if let Some(lock) = self.lock()? {
            return self.open_locked(lock).await;
        }
        let info = self.server().ok_or_else(|| self.no_announcement_message())?;
        if let Err(reason) = embedded::check_endpoint(&info.dynamodb, &info.access_key_id).await {
            // A server that was just killed may have held the lock until now.
            return match self.lock()? {
                Some(lock) => self.open_locked(lock).await,
                None => Err(self.unreachable_message(&info, &reason)),
            };
        }
        Ok(OpenStore::through_server(info))
    }

    async fn open_locked(&self, lock: Lock) -> Result<OpenStore, String> {
        let embedded = self.open_database(Thoroughness::Quick).await?;
        let store = embedded.store(None);
        let embedded = Some((embedded, self.path.clone()));
        Ok(OpenStore { store, server: None, is_copy: false, embedded, _lock: Some(lock), _copy: None })
    }

    /// The announced addresses of the server of this directory, if any.
    pub fn server(&self) -> Option<ServerInfo> {
        let text = std::fs::read_to_string(self.path.join(SERVER)).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn no_announcement_message(&self) -> String {
        format!(
            "{} is in use by another process that has not announced its address; wait until it has started or ended, \
             and try again",
            self.path.display()
        )
    }

    fn unreachable_message(&self, info: &ServerInfo, reason: &str) -> String {
        let ServerInfo { dynamodb, pid, .. } = info;
        format!(
            "{} is in use, but the server that announced itself (process {pid}) does not respond at {dynamodb}: {reason}. End \
             that process, or wait until it responds, and try again",
            self.path.display()
        )
    }
}

impl OpenStore {
    /// The tables of a running server.
    fn through_server(info: ServerInfo) -> OpenStore {
        let store = remote_store(&info.dynamodb, &info.access_key_id);
        OpenStore { store, server: Some(info), is_copy: false, embedded: None, _lock: None, _copy: None }
    }
}

/// Whether the directory at `path` has a database, or files that belonged to a lost one.
pub fn holds_installation(path: &Path) -> bool {
    let log = format!("{}-wal", embedded::FILE);
    let names = [embedded::FILE, &log, embedded::write_mark::MARK, SERVER];
    names.iter().any(|name| path.join(name).exists()) || preflight::has_file(&path.join(EVENTS))
}

/// The error message of a command that needs an installation.
pub(crate) fn no_installation_message(path: &Path) -> String {
    format!(
        "{} holds no Pennon installation; create one there with `pennon serve` or `pennon apply FILE`, or name another \
         directory with --data",
        path.display()
    )
}

fn unusable(path: &Path, error: &std::io::Error) -> String {
    format!("the data directory {} cannot be used: {error}", path.display())
}

/// Writes a file atomically, readable only by its owner on systems that have owners.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let unfinished = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_has_one_payload_key_for_its_owner_alone() {
        let place = tempfile::tempdir().unwrap();
        let directory = DataDirectory::at(place.path()).unwrap();
        let sealed = directory.payload_keys().unwrap().seal("p", "x").unwrap();
        assert_eq!(directory.payload_keys().unwrap().open("p", &sealed).unwrap(), "x");
        let path = place.path().join(PAYLOAD_KEY);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(&path, "no key").unwrap();
        assert!(directory.payload_keys().unwrap_err().contains("payload.key"));
    }
}
