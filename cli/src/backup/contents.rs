//! `backup.json`: the contents of a backup.
//!
//! Must stay true: the format number is read before anything else, and a newer format is rejected; every file is listed with
//! its size and digest, and the list has its own digest; no path leads out of the backup.

use std::collections::HashSet;
use std::path::{Component, Path};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{CONTENTS, hash_file, hex, path_error};
use crate::data::{EVENTS, PAYLOAD_KEY};
use crate::embedded;

/// The format of the backups that this release writes.
pub const FORMAT: u32 = 1;

/// The contents of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The format number.
    pub format: u32,
    /// The release that wrote the backup.
    pub release: String,
    /// All writes that were acknowledged before this time are included.
    pub taken_at: DateTime<Utc>,
    /// Whether the key of secret payloads is included.
    pub payload_key: bool,
    /// All files but `backup.json`, sorted by path.
    pub files: Vec<BackupFile>,
    /// SHA-256 of the list of files.
    pub digest: String,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// The path in the backup, with slashes.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
}

/// The only field that is read of an unknown format.
#[derive(Deserialize)]
struct FormatNumber {
    format: u32,
}

impl Contents {
    /// The contents of a backup that was created at `taken_at`.
    pub fn new(taken_at: DateTime<Utc>, files: Vec<BackupFile>) -> Contents {
        let payload_key = files.iter().any(|file| file.path == PAYLOAD_KEY);
        let digest = list_digest(&files);
        let release = env!("CARGO_PKG_VERSION").to_owned();
        Contents { format: FORMAT, release, taken_at, payload_key, files, digest }
    }

    /// Writes `backup.json` into `directory`.
    pub(super) fn write(&self, directory: &Path) -> Result<(), String> {
        let path = directory.join(CONTENTS);
        let text = serde_json::to_string_pretty(self).map_err(|e| e.to_string())?;
        std::fs::write(&path, text + "\n").map_err(path_error(&path, "written"))
    }

    /// The contents of the backup in `directory`.
    pub(super) fn read(directory: &Path) -> Result<Contents, String> {
        let path = directory.join(CONTENTS);
        let text = std::fs::read_to_string(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("it has no {CONTENTS}: it is not a backup, or an unfinished one")
            }
            _ => path_error(&path, "read")(e),
        })?;
        Contents::parse(&text)
    }

    /// Reads the text of a `backup.json`.
    pub fn parse(text: &str) -> Result<Contents, String> {
        let damaged = |problem: &dyn std::fmt::Display| format!("its {CONTENTS} is damaged: {problem}");
        let FormatNumber { format } = serde_json::from_str(text).map_err(|e| damaged(&e))?;
        if format != FORMAT {
            return Err(format!(
                "it has format {format}, and this release reads {FORMAT}: a newer release wrote it, which also restores it"
            ));
        }
        let contents: Contents = serde_json::from_str(text).map_err(|e| damaged(&e))?;
        if contents.digest != list_digest(&contents.files) {
            return Err(damaged(&"its list of files is not the one that was written"));
        }
        match contents.files.iter().find(|file| !is_backup_path(&file.path)) {
            Some(file) => Err(damaged(&format!("{:?} does not belong into a backup", file.path))),
            None if has_duplicates(&contents.files) => Err(damaged(&"it lists a file twice")),
            None if total_bytes(&contents.files).is_none() => {
                Err(damaged(&"its sizes cannot be those of files"))
            }
            None if !contents.files.iter().any(|file| file.path == embedded::FILE) => {
                Err(damaged(&"it lists no tables"))
            }
            None => Ok(contents),
        }
    }

    /// Verifies the sizes and digests of the files in `directory`. `on_verified` is called with the size of each.
    pub(super) fn verify_files(
        &self,
        directory: &Path,
        on_verified: &mut dyn FnMut(u64),
    ) -> Result<(), String> {
        for file in &self.files {
            let path = directory.join(&file.path);
            let (sha256, bytes) = hash_file(&path).map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => format!("{} is missing", file.path),
                _ => path_error(&path, "read")(e),
            })?;
            if bytes != file.bytes {
                return Err(format!("{} has {bytes} bytes and had {}", file.path, file.bytes));
            }
            if sha256 != file.sha256 {
                return Err(format!("{} is damaged: its checksum does not match", file.path));
            }
            on_verified(bytes);
        }
        Ok(())
    }

    /// The total size of the files in bytes.
    pub fn bytes(&self) -> u64 {
        total_bytes(&self.files).unwrap_or(u64::MAX)
    }

    /// The number of files that are objects of the event store.
    pub fn objects(&self) -> usize {
        self.files.iter().filter(|file| file.path.starts_with(EVENTS)).count()
    }
}

/// Whether a backup may have a file at `path`.
pub(super) fn is_backup_path(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    let is_plain = parts.clone().all(|part| matches!(part, Component::Normal(_))) && !path.contains('\\');
    let first = parts.next().and_then(|part| part.as_os_str().to_str());
    let is_alone = parts.next().is_none();
    is_plain
        && match first {
            Some(EVENTS) => !is_alone,
            Some(embedded::FILE | PAYLOAD_KEY | CONTENTS) => is_alone,
            _ => false,
        }
}

/// The sum of the sizes; `None` if it does not fit into a number.
fn total_bytes(files: &[BackupFile]) -> Option<u64> {
    files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.bytes))
}

fn has_duplicates(files: &[BackupFile]) -> bool {
    let mut seen = HashSet::new();
    !files.iter().all(|file| file.path != CONTENTS && seen.insert(&file.path))
}

fn list_digest(files: &[BackupFile]) -> String {
    let mut digest = Sha256::new();
    for BackupFile { path, bytes, sha256 } in files {
        digest.update(format!("{path}\0{bytes}\0{sha256}\n"));
    }
    hex(&digest.finalize())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file_entry(path: &str) -> BackupFile {
        BackupFile { path: path.to_owned(), bytes: 1, sha256: "00".to_owned() }
    }

    fn parsed(contents: &Contents) -> Result<Contents, String> {
        Contents::parse(&serde_json::to_string(contents).unwrap())
    }

    #[test]
    fn contents_round_trip_and_a_changed_list_is_rejected() {
        let files = vec![file_entry("dynamodb.sqlite"), file_entry("events/project=1/events/a.parquet")];
        let contents = Contents::new(DateTime::UNIX_EPOCH, files);
        assert_eq!(parsed(&contents).unwrap(), contents);
        assert_eq!((contents.bytes(), contents.objects(), contents.payload_key), (2, 1, false));
        let mut shorter = contents.clone();
        shorter.files.pop();
        assert!(parsed(&shorter).unwrap_err().contains("list of files"));
        let mut other = contents;
        other.files[0].bytes = 2;
        assert!(parsed(&other).unwrap_err().contains("list of files"));
    }

    #[test]
    fn a_list_with_a_duplicate_or_itself_is_rejected() {
        for double in ["dynamodb.sqlite", "events/a", "backup.json"] {
            let files = ["dynamodb.sqlite", "events/a", double].map(file_entry).to_vec();
            let error = parsed(&Contents::new(DateTime::UNIX_EPOCH, files)).unwrap_err();
            assert!(error.contains("twice"), "{error}");
        }
    }

    #[test]
    fn sizes_whose_sum_is_no_number_are_rejected() {
        let sized = |path: &str, bytes: u64| BackupFile { bytes, ..file_entry(path) };
        let contents = |bytes: u64| {
            let files = vec![sized("dynamodb.sqlite", u64::MAX - 1), sized("events/a", bytes)];
            Contents::new(DateTime::UNIX_EPOCH, files)
        };
        assert_eq!(parsed(&contents(1)).unwrap().bytes(), u64::MAX);
        assert!(parsed(&contents(2)).unwrap_err().contains("sizes"));
    }

    #[test]
    fn a_newer_format_is_rejected_whatever_its_other_fields() {
        let error = Contents::parse(r#"{"format": 2, "tables": "elsewhere"}"#).unwrap_err();
        assert!(error.contains("format 2") && error.contains("newer release"), "{error}");
        assert!(Contents::parse("{}").unwrap_err().contains("damaged"));
    }

    #[test]
    fn paths_out_of_the_backup_are_rejected() {
        for path in ["dynamodb.sqlite", "payload.key", "events/a", "events/project=1/events/a.sums"] {
            assert!(is_backup_path(path), "{path}");
        }
        for path in
            ["", "events", "lock", "/etc/passwd", "../a", "events/../../a", "events/./../a", "payload.key/a"]
        {
            assert!(!is_backup_path(path), "{path}");
            let contents =
                Contents::new(DateTime::UNIX_EPOCH, vec![file_entry("dynamodb.sqlite"), file_entry(path)]);
            assert!(parsed(&contents).unwrap_err().contains("does not belong"), "{path}");
        }
    }
}
