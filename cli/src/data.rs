//! The data directory of a local installation: the database, the events, and who has them open.
//!
//! One process at a time has the database open; the others reach it through that process's DynamoDB port. A lock that
//! the operating system drops with its process decides, so a killed server leaves nothing to clean up.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use pennon_core::config::{events_memory, payload_keys};
use pennon_core::payload_keys::{PayloadKeys, new_key};
use pennon_core::store::Store;
use pennon_eventstore::{EventStore, Settings};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::embedded::preflight::{self, Thoroughness, examine, sentence};
use crate::embedded::{self, Embedded, remote_store};
use crate::private;

mod read_only;

/// The file by whose lock a process says that it has the directory.
pub(crate) const LOCK: &str = "lock";
const SERVER: &str = "server.json";
/// The directory of the events.
pub(crate) const EVENTS: &str = "events";
/// The file with the key of secret payloads.
pub(crate) const PAYLOAD_KEY: &str = "payload.key";

/// Where a running server can be reached. Not `Debug`: who has it can change every table.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Base URL of the API.
    pub http: String,
    /// Endpoint of the embedded DynamoDB.
    pub dynamodb: String,
    /// The AWS access key id that this endpoint requires; another one at each start.
    pub access_key_id: String,
    /// Its process.
    pub pid: u32,
}

/// The events at `events_url`, with as much memory as `PENNON_EVENTS_MEMORY_MB` allows.
pub fn open_events(store: &Store, events_url: &str) -> Result<EventStore, String> {
    let settings = events_memory().map_or_else(Settings::default, Settings::for_memory);
    EventStore::open_with(store.clone(), events_url, settings).map_err(|e| e.to_string())
}

/// A data directory.
#[derive(Debug, Clone)]
pub struct DataDirectory {
    path: PathBuf,
    /// Nothing in it may be written.
    is_read_only: bool,
    /// It was opened by a command that only reads.
    is_to_read: bool,
}

/// The right to have the database open, for as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl std::fmt::Debug for ServerInfo {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ServerInfo({}, {}, {})", self.http, self.dynamodb, self.pid)
    }
}

/// A store on a data directory: our own, or that of the server that has it open.
#[derive(Debug)]
pub struct OpenStore {
    /// The tables.
    pub store: Store,
    /// The server behind it, if it is not our own.
    pub server: Option<ServerInfo>,
    /// Whether it is a copy that goes with this value: the directory cannot be written, and nothing in it is changed.
    pub is_copy: bool,
    /// The database, if it is our own, and its directory.
    own: Option<(Embedded, PathBuf)>,
    _lock: Option<Lock>,
    _copy: Option<TempDir>,
}

impl OpenStore {
    /// Counts writes from now on, once the tables were found to belong to their events. A server counts by itself.
    pub fn count_writes(&self) -> Result<(), String> {
        self.own.as_ref().map_or(Ok(()), |(embedded, directory)| embedded.count_writes(directory))
    }
}

impl DataDirectory {
    /// The directory at `path`, created where there is none.
    pub fn at(path: &Path) -> Result<DataDirectory, String> {
        std::fs::create_dir_all(path.join(EVENTS)).map_err(|e| unusable(path, &e))?;
        DataDirectory::canonical(path)
    }

    /// The directory at `path`, which holds an installation: for commands that have nothing to do in an empty one.
    pub fn existing(path: &Path) -> Result<DataDirectory, String> {
        if holds_installation(path) { DataDirectory::at(path) } else { Err(no_installation(path)) }
    }

    /// As [`DataDirectory::existing`], for a command that only reads: a directory that cannot be written stays as it is.
    pub fn to_read(path: &Path) -> Result<DataDirectory, String> {
        if !holds_installation(path) {
            return Err(no_installation(path));
        }
        let is_read_only = read_only::is_read_only(path);
        Ok(DataDirectory { is_read_only, is_to_read: true, ..DataDirectory::canonical(path)? })
    }

    fn canonical(path: &Path) -> Result<DataDirectory, String> {
        let path = path.canonicalize().map_err(|e| unusable(path, &e))?;
        Ok(DataDirectory { path, is_read_only: false, is_to_read: false })
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the events lie, as a URL.
    pub fn events_url(&self) -> String {
        format!("file://{}", self.path.join(EVENTS).display())
    }

    /// The keys that secret payloads are encrypted with: those of the environment, then the directory's own, which is
    /// made when it is first asked for.
    pub fn payload_keys(&self) -> Result<PayloadKeys, String> {
        let path = self.path.join(PAYLOAD_KEY);
        let failed = |e: std::io::Error| format!("{} cannot be used: {e}", path.display());
        let own = match std::fs::read_to_string(&path) {
            Ok(own) => own,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let own = new_key();
                if self.is_to_read {
                    // Nothing was encrypted with a key that was never made.
                    return payload_keys(&own);
                }
                write_private(&path, &own).map_err(failed)?;
                own
            }
            Err(e) => return Err(failed(e)),
        };
        payload_keys(&own).map_err(|e| format!("{e}; the directory's own key is in {}", path.display()))
    }

    /// The lock, unless another process has it.
    pub fn lock(&self) -> Result<Option<Lock>, String> {
        let path = self.path.join(LOCK);
        let failed = |e: &dyn std::fmt::Display| format!("{} cannot be locked: {e}", path.display());
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|e| failed(&e))?;
        match file.try_lock() {
            Ok(()) => {
                // Whoever served here before is gone; what it announced would lead others astray.
                self.withdraw();
                private::restrict(&self.path);
                Ok(Some(Lock { _file: file }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(failed(&e)),
        }
    }

    /// Says where this process serves, for others to find.
    pub fn announce(&self, info: &ServerInfo) -> Result<(), String> {
        let text = serde_json::to_string_pretty(info).map_err(|e| e.to_string())?;
        let path = self.path.join(SERVER);
        write_private(&path, &text).map_err(|e| format!("{} cannot be written: {e}", path.display()))
    }

    /// Takes the announcement back.
    pub fn withdraw(&self) {
        // It is not there unless this process, or one that was killed, wrote it.
        let _ = std::fs::remove_file(self.path.join(SERVER));
    }

    /// Opens the database, whose lock is held, after looking whether it is the one that was written here last.
    pub async fn open_database(&self, how: Thoroughness) -> Result<Embedded, String> {
        examine(&self.path, &self.path.join(EVENTS), how)?;
        self.open_unexamined().await
    }

    /// The same, whatever was written here last.
    pub async fn open_unexamined(&self) -> Result<Embedded, String> {
        let failed = |what: String| sentence(&self.path.join(embedded::FILE), &what);
        Embedded::open(&self.path).await.map_err(|e| failed(e.to_string()))
    }

    /// A store on this directory, directly or through the server that has it open.
    pub async fn open(&self) -> Result<OpenStore, String> {
        if self.is_read_only {
            return read_only::open(&self.path).await;
        }
        if let Some(lock) = self.lock()? {
            return self.open_locked(lock).await;
        }
        let info = self.server().ok_or_else(|| self.no_announcement())?;
        if let Err(why) = embedded::reach(&info.dynamodb, &info.access_key_id).await {
            // A server that was killed a moment ago may have held the lock until now.
            return match self.lock()? {
                Some(lock) => self.open_locked(lock).await,
                None => Err(self.unreachable(&info, &why)),
            };
        }
        Ok(OpenStore::of_server(info))
    }

    async fn open_locked(&self, lock: Lock) -> Result<OpenStore, String> {
        let embedded = self.open_database(Thoroughness::Quick).await?;
        let store = embedded.store(None);
        let own = Some((embedded, self.path.clone()));
        Ok(OpenStore { store, server: None, is_copy: false, own, _lock: Some(lock), _copy: None })
    }

    /// What the server that runs on this directory has announced; none where none has.
    pub fn server(&self) -> Option<ServerInfo> {
        let text = std::fs::read_to_string(self.path.join(SERVER)).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn no_announcement(&self) -> String {
        format!(
            "{} is in use by another process that does not say where it serves; wait until it has started or ended, \
             and try again",
            self.path.display()
        )
    }

    fn unreachable(&self, info: &ServerInfo, why: &str) -> String {
        let ServerInfo { dynamodb, pid, .. } = info;
        format!(
            "{} is in use, but the server that announced itself (process {pid}) does not answer at {dynamodb}: {why}. End \
             that process, or wait until it answers, and try again",
            self.path.display()
        )
    }
}

impl OpenStore {
    /// The store that a running server offers.
    fn of_server(info: ServerInfo) -> OpenStore {
        let store = remote_store(&info.dynamodb, &info.access_key_id);
        OpenStore { store, server: Some(info), is_copy: false, own: None, _lock: None, _copy: None }
    }
}

/// Whether a database, or what a lost one leaves behind, is in the directory at `path`.
pub fn holds_installation(path: &Path) -> bool {
    let log = format!("{}-wal", embedded::FILE);
    let names = [embedded::FILE, &log, embedded::write_mark::MARK, SERVER];
    names.iter().any(|name| path.join(name).exists()) || preflight::has_file(&path.join(EVENTS))
}

/// Why a command that needs an installation does nothing.
pub(crate) fn no_installation(path: &Path) -> String {
    format!(
        "{} holds no Pennon installation; create one there with `pennon serve` or `pennon apply FILE`, or name another \
         directory with --data",
        path.display()
    )
}

fn unusable(path: &Path, error: &std::io::Error) -> String {
    format!("the data directory {} cannot be used: {error}", path.display())
}

/// Writes a file that only its owner reads, where the system knows owners; whole, or not at all.
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
