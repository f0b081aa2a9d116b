//! The versions of a table: numbered metadata files, of which the highest is the current one.
//!
//! `metadata/vN.metadata.json` and `metadata/version-hint.text`, as Iceberg's catalog of folders has them, so that engines find
//! the newest version by the location of the table alone. Must stay true: a version is committed by creating its metadata file,
//! which succeeds for one of several publishers; the hint is written after it, and never stays below the newest version
//! when all publishers have ended. Metadata of replaced versions is deleted, so a number can be created a second time by a publisher
//! that slept since: it finds the hint, or a later version, and withdraws.

use bytes::Bytes;
use pennon_eventstore::{EventStoreError, TableFiles};

use crate::metadata::TableVersion;

/// Read attempts while versions are published and deleted.
const READ_ATTEMPTS: usize = 3;

/// The versions of the table in a folder.
#[derive(Debug, Clone)]
pub(crate) struct VersionLog {
    files: TableFiles,
    folder: String,
}

impl VersionLog {
    pub(crate) fn new(files: TableFiles, folder: String) -> VersionLog {
        VersionLog { files, folder }
    }

    /// The name of the metadata file of a version.
    pub(crate) fn metadata_file(&self, number: u64) -> String {
        format!("{}/metadata/v{number}.metadata.json", self.folder)
    }

    /// The beginning of the names of a snapshot's files, which no other publisher uses.
    pub(crate) fn snapshot_file(&self, snapshot: i64) -> String {
        format!("{}/metadata/snap-{snapshot}", self.folder)
    }

    /// The name of the file with the number of the newest version.
    pub(crate) fn hint_file(&self) -> String {
        format!("{}/metadata/version-hint.text", self.folder)
    }

    /// Reads the newest version, if there is one, and completes its publication if the publisher stopped before the hint.
    pub(crate) async fn newest(&self) -> Result<Option<TableVersion>, EventStoreError> {
        for _ in 0..READ_ATTEMPTS {
            let Some(number) = self.highest().await? else { return Ok(None) };
            if let Some(body) = self.files.get(&self.metadata_file(number)).await? {
                let version = TableVersion::parse(number, &body).unwrap_or_else(|error| {
                    tracing::warn!(folder = self.folder, number, %error, "a table's metadata cannot be read");
                    TableVersion::unreadable(number)
                });
                if self.hint().await?.is_none_or(|hint| hint < number) {
                    self.write_hint(number).await?;
                }
                return Ok(Some(version));
            }
        }
        Err(EventStoreError::Contended)
    }

    /// The highest number of a version.
    async fn highest(&self) -> Result<Option<u64>, EventStoreError> {
        let listed = self.files.list(&format!("{}/metadata", self.folder)).await?;
        Ok(listed.iter().filter_map(|(name, _)| number_of(name)).max())
    }

    /// The number in the hint; none if there is none.
    async fn hint(&self) -> Result<Option<u64>, EventStoreError> {
        let hint = self.files.get(&self.hint_file()).await?;
        Ok(hint.and_then(|hint| std::str::from_utf8(&hint).ok()?.trim().parse().ok()))
    }

    /// Whether this version exists and is the one that the hint names. A publisher that remembers a version compares it before it
    /// publishes the next one.
    pub(crate) async fn is_newest(&self, number: u64) -> Result<bool, EventStoreError> {
        let is_hinted = self.hint().await? == Some(number);
        Ok(is_hinted && self.exists(number).await?)
    }

    async fn exists(&self, number: u64) -> Result<bool, EventStoreError> {
        Ok(self.files.get(&self.metadata_file(number)).await?.is_some())
    }

    /// Publishes the metadata file of a version. Returns false if another publisher has published a version with this number.
    pub(crate) async fn commit(&self, version: &TableVersion, body: Bytes) -> Result<bool, EventStoreError> {
        let name = self.metadata_file(version.number);
        if !self.files.create(&name, body).await? {
            return Ok(false);
        }
        if self.hint().await?.is_some_and(|hint| hint > version.number)
            && let Some(newest) = self.newest().await?
            && newest.number > version.number
        {
            if newest.follows(version) {
                return Ok(true);
            }
            // Its publisher does not know this version: an earlier one had the number, and its metadata was deleted.
            self.files.remove(&[name]).await?;
            return Ok(false);
        }
        self.write_hint(version.number).await?;
        Ok(true)
    }

    /// Writes the hint: `number`, or a later version. Of two publishers, the one that writes last may have the lower number; it
    /// finds the other's version.
    async fn write_hint(&self, number: u64) -> Result<(), EventStoreError> {
        let mut newest = number;
        loop {
            self.files.replace(&self.hint_file(), Bytes::from(newest.to_string())).await?;
            let hinted = newest;
            while self.exists(newest + 1).await? {
                newest += 1;
            }
            if newest > hinted {
                continue;
            }
            if self.exists(hinted).await? {
                return Ok(());
            }
            // After a long pause, this version and those after it may be deleted.
            match self.highest().await? {
                Some(highest) if highest > hinted => newest = highest,
                _ => return Ok(()),
            }
        }
    }
}

/// The number of the version in the name of a metadata file.
fn number_of(name: &str) -> Option<u64> {
    let (_, file) = name.rsplit_once('/')?;
    file.strip_prefix('v')?.strip_suffix(".metadata.json")?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metadata::TableState;
    use pennon::embedded::Embedded;
    use pennon_eventstore::EventStore;

    async fn log(folder: &std::path::Path) -> VersionLog {
        let store = Embedded::in_memory().await.unwrap().store(None);
        let events = EventStore::open(store, &format!("file://{}", folder.display())).unwrap();
        VersionLog::new(events.table_files().clone(), "project=1/events".to_owned())
    }

    fn version(number: u64) -> TableVersion {
        let mut version = TableVersion::next(None, &[], TableState::default(), 0);
        version.number = number;
        version.files.own = vec![format!("list-{number}-{}", version.uuid)];
        version
    }

    #[tokio::test]
    async fn a_number_that_was_deleted_is_not_published_again() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path()).await;
        let body = || Bytes::from(uuid::Uuid::new_v4().to_string());
        for number in [1, 2, 3] {
            assert!(log.commit(&version(number), body()).await.unwrap());
        }
        assert!(log.is_newest(3).await.unwrap());
        log.files.remove(&[log.metadata_file(2)]).await.unwrap();
        assert!(!log.commit(&version(2), body()).await.unwrap());
        assert!(!log.exists(2).await.unwrap());
        assert!(!log.commit(&version(3), body()).await.unwrap());
        assert_eq!(log.hint().await.unwrap(), Some(3));
        for number in [1, 2, 4] {
            assert!(!log.is_newest(number).await.unwrap());
        }
        // A publisher that slept before it wrote the hint.
        log.files.remove(&[log.metadata_file(1)]).await.unwrap();
        log.write_hint(1).await.unwrap();
        assert_eq!(log.hint().await.unwrap(), Some(3));
    }

    #[test]
    fn only_metadata_files_are_versions() {
        assert_eq!(number_of("project=1/events/metadata/v12.metadata.json"), Some(12));
        for other in ["v1.metadata.json.gz", "snap-1.avro", "version-hint.text", "vx.metadata.json"] {
            assert_eq!(number_of(&format!("project=1/events/metadata/{other}")), None, "{other}");
        }
    }
}
