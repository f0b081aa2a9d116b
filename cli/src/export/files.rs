//! Writes lines into numbered gzip files of limited size.
//!
//! Must stay true: a new file starts only where the caller allows it; finished files are synced to the disk.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

/// Most lines of a file.
const LINES_MAX: u64 = 1_000_000;
/// Bytes of uncompressed text after which a file is full.
const BYTES_MAX: u64 = 512 << 20;

/// A series of files: `events-1.jsonl.gz`, `events-2.jsonl.gz` and so on.
pub(super) struct LineFiles {
    directory: PathBuf,
    name: &'static str,
    number: u32,
    file: Option<GzEncoder<BufWriter<File>>>,
    lines: u64,
    bytes: u64,
}

impl LineFiles {
    /// A series in `directory`. The first line creates the first file.
    pub(super) fn new(directory: &Path, name: &'static str) -> LineFiles {
        LineFiles { directory: directory.to_owned(), name, number: 0, file: None, lines: 0, bytes: 0 }
    }

    /// Writes a value as a line of JSON.
    pub(super) fn write_json(&mut self, value: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_vec(value).map_err(|e| e.to_string())?;
        self.write_line(&text, true)
    }

    /// Writes a line. It may be the first of a new file only with `may_start_file`.
    pub(super) fn write_line(&mut self, text: &[u8], may_start_file: bool) -> Result<(), String> {
        if may_start_file && (self.lines >= LINES_MAX || self.bytes >= BYTES_MAX) {
            self.finish_file()?;
        }
        let path = self.path();
        let written = self.open().and_then(|file| {
            file.write_all(text)?;
            file.write_all(b"\n")
        });
        written.map_err(|e| write_error(&path, &e))?;
        self.lines += 1;
        self.bytes += text.len() as u64 + 1;
        Ok(())
    }

    /// Finishes the last file.
    pub(super) fn finish(mut self) -> Result<(), String> {
        self.finish_file()
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

    fn finish_file(&mut self) -> Result<(), String> {
        let path = self.path();
        (self.lines, self.bytes) = (0, 0);
        let Some(file) = self.file.take() else { return Ok(()) };
        let written = file.finish().and_then(|file| file.into_inner()?.sync_all());
        written.map_err(|e| write_error(&path, &e))
    }
}

/// Writes a text file, readable only by its owner on systems that have owners.
pub(super) fn write_text(path: &Path, text: &str) -> Result<(), String> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|e| write_error(path, &e))
}

/// Syncs the entries of a directory, on systems that support it.
pub(super) fn sync_directory(path: &Path) -> std::io::Result<()> {
    match cfg!(unix) {
        true => File::open(path)?.sync_all(),
        false => Ok(()),
    }
}

/// The error message for a file that cannot be written.
pub(super) fn write_error(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be written: {error}", path.display())
}
