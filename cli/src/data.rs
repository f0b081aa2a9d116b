//! The data directory of a local installation: the database, the events, and who has them open.
//!
//! One process at a time has the database open; the others reach it through that process's DynamoDB port. A lock that
//! the operating system drops with its process decides, so a killed server leaves nothing to clean up.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use pennon_core::config::payload_keys;
use pennon_core::payload_keys::{PayloadKeys, new_key};
use pennon_core::store::Store;
use serde::{Deserialize, Serialize};

use crate::embedded::{Embedded, remote_store};

/// The file by whose lock a process says that it has the directory.
pub(crate) const LOCK: &str = "lock";
const SERVER: &str = "server.json";
/// The directory of the events.
pub(crate) const EVENTS: &str = "events";
/// The file with the key of secret payloads.
pub(crate) const PAYLOAD_KEY: &str = "payload.key";

/// Where a running server can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Base URL of the API.
    pub http: String,
    /// Endpoint of the embedded DynamoDB.
    pub dynamodb: String,
    /// Its process.
    pub pid: u32,
}

/// A data directory.
#[derive(Debug, Clone)]
pub struct DataDirectory {
    path: PathBuf,
}

/// The right to have the database open, for as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// A store on a data directory: our own, or that of the server that has it open.
#[derive(Debug)]
pub struct OpenStore {
    /// The tables.
    pub store: Store,
    /// The server behind it, if it is not our own.
    pub server: Option<ServerInfo>,
    _lock: Option<Lock>,
}

impl DataDirectory {
    /// The directory at `path`, made if it is not there.
    pub fn at(path: &Path) -> Result<DataDirectory, String> {
        let failed = |e| format!("the data directory {} cannot be used: {e}", path.display());
        std::fs::create_dir_all(path.join(EVENTS)).map_err(failed)?;
        Ok(DataDirectory { path: path.canonicalize().map_err(failed)? })
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
        std::fs::write(&path, text).map_err(|e| format!("{} cannot be written: {e}", path.display()))
    }

    /// Takes the announcement back.
    pub fn withdraw(&self) {
        // It is not there unless this process, or one that was killed, wrote it.
        let _ = std::fs::remove_file(self.path.join(SERVER));
    }

    /// A store on this directory, directly or through the server that has it open.
    pub async fn open(&self) -> Result<OpenStore, String> {
        if let Some(lock) = self.lock()? {
            let embedded = Embedded::open(&self.path).await.map_err(|e| e.to_string())?;
            return Ok(OpenStore { store: embedded.store(None), server: None, _lock: Some(lock) });
        }
        let path = self.path.join(SERVER);
        let info: ServerInfo = std::fs::read_to_string(&path)
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .ok_or_else(|| {
                format!(
                    "{} is in use by another process that does not say where it serves; wait until it has started \
                     or ended, and try again",
                    self.path.display()
                )
            })?;
        Ok(OpenStore { store: remote_store(&info.dynamodb), server: Some(info), _lock: None })
    }
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
