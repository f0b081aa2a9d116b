//! Numbered files of lines under gzip.
//!
//! Must stay true: a file ends where the next line may be read by itself; what was finished is on the disk.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

/// Most lines of a file.
const LINES: u64 = 1_000_000;
/// Bytes of text after which a file is full.
const BYTES: u64 = 512 << 20;

/// Files that are called one after the other: `events-1.jsonl.gz`, `events-2.jsonl.gz` and so on.
pub(super) struct Files {
    directory: PathBuf,
    name: &'static str,
    number: u32,
    file: Option<GzEncoder<BufWriter<File>>>,
    lines: u64,
    bytes: u64,
}

impl Files {
    /// None yet.
    pub(super) fn new(directory: &Path, name: &'static str) -> Files {
        Files { directory: directory.to_owned(), name, number: 0, file: None, lines: 0, bytes: 0 }
    }

    /// Writes a value as a line.
    pub(super) fn line(&mut self, value: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_vec(value).map_err(|e| e.to_string())?;
        self.text(&text, true)
    }

    /// Writes a line. A new file is begun only where it `may_begin` one.
    pub(super) fn text(&mut self, text: &[u8], may_begin: bool) -> Result<(), String> {
        if may_begin && (self.lines >= LINES || self.bytes >= BYTES) {
            self.end()?;
        }
        let path = self.path();
        let written = self.open().and_then(|file| {
            file.write_all(text)?;
            file.write_all(b"\n")
        });
        written.map_err(|e| failed(&path, &e))?;
        self.lines += 1;
        self.bytes += text.len() as u64 + 1;
        Ok(())
    }

    /// Ends the last file.
    pub(super) fn finish(mut self) -> Result<(), String> {
        self.end()
    }

    fn path(&self) -> PathBuf {
        let number = if self.file.is_some() { self.number } else { self.number + 1 };
        self.directory.join(format!("{}-{number}.jsonl.gz", self.name))
    }

    fn open(&mut self) -> std::io::Result<&mut GzEncoder<BufWriter<File>>> {
        match self.file {
            Some(ref mut file) => Ok(file),
            None => {
                let file = File::create_new(self.path())?;
                self.number += 1;
                Ok(self.file.insert(GzEncoder::new(BufWriter::new(file), Compression::default())))
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        let path = self.path();
        (self.lines, self.bytes) = (0, 0);
        let Some(file) = self.file.take() else { return Ok(()) };
        let written = file.finish().and_then(|file| file.into_inner()?.sync_all());
        written.map_err(|e| failed(&path, &e))
    }
}

/// Writes a file of text that only its owner reads, where the system knows owners.
pub(super) fn write_text(path: &Path, text: &str) -> Result<(), String> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|e| failed(path, &e))
}

/// Sees to it that the names of a directory are on the disk, where the system knows how.
pub(super) fn sync_directory(path: &Path) -> std::io::Result<()> {
    match cfg!(unix) {
        true => File::open(path)?.sync_all(),
        false => Ok(()),
    }
}

/// The message of a file that cannot be written.
pub(super) fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be written: {error}", path.display())
}
