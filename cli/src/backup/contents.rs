//! `backup.json`: what a backup holds.
//!
//! Must stay true: the format number is read before anything else, and a newer one is refused; every file is listed with
//! its size and digest, and the list with a digest of its own; a path leads nowhere but into the backup.

use std::collections::HashSet;
use std::path::{Component, Path};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{CONTENTS, at, digest, hex};
use crate::data::{EVENTS, PAYLOAD_KEY};
use crate::embedded;

/// The format of the backups that this release writes.
pub const FORMAT: u32 = 1;

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The form of the backup.
    pub format: u32,
    /// Which release wrote it.
    pub release: String,
    /// What was acknowledged before this moment is in it.
    pub taken_at: DateTime<Utc>,
    /// Whether the key of secret payloads is.
    pub payload_key: bool,
    /// Its files but this one, by their paths.
    pub files: Vec<Listed>,
    /// SHA-256 of the list.
    pub digest: String,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Below the backup, with slashes.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
}

/// The one field that is read of a format that is not known.
#[derive(Deserialize)]
struct Form {
    format: u32,
}

impl Contents {
    /// The contents of a backup that was taken at `taken_at`.
    pub fn of(taken_at: DateTime<Utc>, files: Vec<Listed>) -> Contents {
        let payload_key = files.iter().any(|file| file.path == PAYLOAD_KEY);
        let digest = list_digest(&files);
        let release = env!("CARGO_PKG_VERSION").to_owned();
        Contents { format: FORMAT, release, taken_at, payload_key, files, digest }
    }

    /// Writes them into `directory`.
    pub(super) fn write(&self, directory: &Path) -> Result<(), String> {
        let path = directory.join(CONTENTS);
        let text = serde_json::to_string_pretty(self).map_err(|e| e.to_string())?;
        std::fs::write(&path, text + "\n").map_err(at(&path, "written"))
    }

    /// Those of the backup in `directory`.
    pub(super) fn read(directory: &Path) -> Result<Contents, String> {
        let path = directory.join(CONTENTS);
        let text = std::fs::read_to_string(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("it has no {CONTENTS}: it is no backup, or one that was never finished")
            }
            _ => at(&path, "read")(e),
        })?;
        Contents::parse(&text)
    }

    /// Reads the text of a `backup.json`.
    pub fn parse(text: &str) -> Result<Contents, String> {
        let damaged = |what: &dyn std::fmt::Display| format!("its {CONTENTS} is damaged: {what}");
        let Form { format } = serde_json::from_str(text).map_err(|e| damaged(&e))?;
        if format != FORMAT {
            return Err(format!(
                "it has format {format}, and this release reads {FORMAT}: a newer release wrote it, which also restores it"
            ));
        }
        let contents: Contents = serde_json::from_str(text).map_err(|e| damaged(&e))?;
        if contents.digest != list_digest(&contents.files) {
            return Err(damaged(&"its list of files is not the one that was written"));
        }
        match contents.files.iter().find(|file| !is_ours(&file.path)) {
            Some(file) => Err(damaged(&format!("{:?} does not belong into a backup", file.path))),
            None if has_doubles(&contents.files) => Err(damaged(&"it lists a file twice")),
            None if !contents.files.iter().any(|file| file.path == embedded::FILE) => {
                Err(damaged(&"it lists no tables"))
            }
            None => Ok(contents),
        }
    }

    /// Compares the files in `directory` with what is listed. `compared` is told of the bytes of each.
    pub(super) fn compare(&self, directory: &Path, compared: &mut dyn FnMut(u64)) -> Result<(), String> {
        for file in &self.files {
            let path = directory.join(&file.path);
            let (found, bytes) = digest(&path).map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => format!("{} is missing", file.path),
                _ => at(&path, "read")(e),
            })?;
            if bytes != file.bytes {
                return Err(format!("{} has {bytes} bytes and had {}", file.path, file.bytes));
            }
            if found != file.sha256 {
                return Err(format!("{} is damaged: its bytes are not those that were written", file.path));
            }
            compared(bytes);
        }
        Ok(())
    }

    /// How many bytes its files have.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// How many of its files are objects of the event store.
    pub fn objects(&self) -> usize {
        self.files.iter().filter(|file| file.path.starts_with(EVENTS)).count()
    }
}

/// Whether a backup may have a file at `path`.
pub(super) fn is_ours(path: &str) -> bool {
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

fn has_doubles(files: &[Listed]) -> bool {
    let mut seen = HashSet::new();
    !files.iter().all(|file| file.path != CONTENTS && seen.insert(&file.path))
}

fn list_digest(files: &[Listed]) -> String {
    let mut digest = Sha256::new();
    for Listed { path, bytes, sha256 } in files {
        digest.update(format!("{path}\0{bytes}\0{sha256}\n"));
    }
    hex(&digest.finalize())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn listed(path: &str) -> Listed {
        Listed { path: path.to_owned(), bytes: 1, sha256: "00".to_owned() }
    }

    fn parsed(contents: &Contents) -> Result<Contents, String> {
        Contents::parse(&serde_json::to_string(contents).unwrap())
    }

    #[test]
    fn contents_come_back_and_what_was_changed_is_noticed() {
        let files = vec![listed("dynamodb.sqlite"), listed("events/project=1/events/a.parquet")];
        let contents = Contents::of(DateTime::UNIX_EPOCH, files);
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
    fn a_list_that_has_a_file_twice_or_itself_is_refused() {
        for double in ["dynamodb.sqlite", "events/a", "backup.json"] {
            let files = ["dynamodb.sqlite", "events/a", double].map(listed).to_vec();
            let refused = parsed(&Contents::of(DateTime::UNIX_EPOCH, files)).unwrap_err();
            assert!(refused.contains("twice"), "{refused}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_whatever_else_it_says() {
        let refused = Contents::parse(r#"{"format": 2, "tables": "elsewhere"}"#).unwrap_err();
        assert!(refused.contains("format 2") && refused.contains("newer release"), "{refused}");
        assert!(Contents::parse("{}").unwrap_err().contains("damaged"));
    }

    #[test]
    fn paths_lead_nowhere_else() {
        for path in ["dynamodb.sqlite", "payload.key", "events/a", "events/project=1/events/a.sums"] {
            assert!(is_ours(path), "{path}");
        }
        for path in
            ["", "events", "lock", "/etc/passwd", "../a", "events/../../a", "events/./../a", "payload.key/a"]
        {
            assert!(!is_ours(path), "{path}");
            let contents = Contents::of(DateTime::UNIX_EPOCH, vec![listed("dynamodb.sqlite"), listed(path)]);
            assert!(parsed(&contents).unwrap_err().contains("does not belong"), "{path}");
        }
    }
}
