//! The versions of a table: numbered metadata files, of which the highest is the current one.
//!
//! `metadata/vN.metadata.json` and `metadata/version-hint.text`, as Iceberg's catalog of folders has them, so that engines find
//! the newest version by the location of the table alone. Must stay true: a version is committed by creating its metadata file,
//! which succeeds for one of several publishers; the hint is written after it, and never stays below the newest version
//! when all publishers have ended.

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
            let listed = self.files.list(&format!("{}/metadata", self.folder)).await?;
            let Some(number) = listed.iter().filter_map(|(name, _)| number_of(name)).max() else {
                return Ok(None);
            };
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

    /// The number in the hint; none if there is none.
    async fn hint(&self) -> Result<Option<u64>, EventStoreError> {
        let hint = self.files.get(&self.hint_file()).await?;
        Ok(hint.and_then(|hint| std::str::from_utf8(&hint).ok()?.trim().parse().ok()))
    }

    /// Publishes the metadata file of a version. Returns false if another publisher has published a version with this number.
    pub(crate) async fn commit(&self, number: u64, body: Bytes) -> Result<bool, EventStoreError> {
        if !self.files.create(&self.metadata_file(number), body).await? {
            return Ok(false);
        }
        self.write_hint(number).await?;
        Ok(true)
    }

    /// Writes the hint: `number`, or a later version. Of two publishers, the one that writes last may have the lower number; it
    /// finds the other's version.
    async fn write_hint(&self, number: u64) -> Result<(), EventStoreError> {
        let mut newest = number;
        loop {
            self.files.replace(&self.hint_file(), Bytes::from(newest.to_string())).await?;
            let hinted = newest;
            while self.files.get(&self.metadata_file(newest + 1)).await?.is_some() {
                newest += 1;
            }
            if newest == hinted {
                return Ok(());
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
    use super::*;

    #[test]
    fn only_metadata_files_are_versions() {
        assert_eq!(number_of("project=1/events/metadata/v12.metadata.json"), Some(12));
        for other in ["v1.metadata.json.gz", "snap-1.avro", "version-hint.text", "vx.metadata.json"] {
            assert_eq!(number_of(&format!("project=1/events/metadata/{other}")), None, "{other}");
        }
    }
}
