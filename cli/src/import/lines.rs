//! A file of lines, plain or gzip, read with bounded memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::error::ImportError;

/// Longest line.
pub const LINE_BYTES_MAX: usize = 16 << 20;
const BUFFER_BYTES: usize = 256 * 1024;

/// The lines of a file.
pub(super) struct Lines {
    reader: Box<dyn BufRead + Send>,
    read: Arc<AtomicU64>,
    line: u64,
    digest: Sha256,
    buffer: Vec<u8>,
}

/// Counts the bytes that are taken from a file.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Lines {
    /// The lines of `file`, which is gzip when `is_gzip`.
    pub(super) fn new(file: File, is_gzip: bool) -> Lines {
        let read = Arc::new(AtomicU64::new(0));
        let counted = BufReader::with_capacity(BUFFER_BYTES, Counted { file, read: read.clone() });
        let reader: Box<dyn BufRead + Send> = if is_gzip {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(counted)))
        } else {
            Box::new(counted)
        };
        Lines { reader, read, line: 0, digest: Sha256::new(), buffer: Vec::new() }
    }

    /// Bytes of the file that have been read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The next line that is not blank, and its number; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, ImportError> {
        loop {
            self.buffer.clear();
            let most = LINE_BYTES_MAX as u64 + 1;
            let line = self.line + 1;
            let count = (&mut self.reader)
                .take(most)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|error| ImportError::of_line(line, format!("cannot be read: {error}")))?;
            if count == 0 {
                return Ok(None);
            }
            if count > LINE_BYTES_MAX {
                let megabytes = LINE_BYTES_MAX >> 20;
                return Err(ImportError::of_line(line, format!("longer than {megabytes} MiB")));
            }
            self.line = line;
            self.digest.update(&self.buffer);
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        Ok(Some((self.line, self.buffer.trim_ascii())))
    }

    /// The digest of what has been read, compression taken off.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.digest.clone().finalize().into()
    }
}
