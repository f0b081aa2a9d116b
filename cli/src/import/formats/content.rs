//! The bytes of a file without their compression, with the digest of what was read and how far it is.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use crate::import::detect::{Compression, Format, compression, format};
use crate::import::error::ImportError;

const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes that are looked at to tell a format.
const START_BYTES: usize = 64 * 1024;

/// The content of a file.
pub(crate) struct Content {
    inner: BufReader<Box<dyn Read + Send>>,
    read: Arc<AtomicU64>,
    bytes: u64,
    digest: Sha256,
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

fn unreadable(error: &std::io::Error) -> ImportError {
    ImportError::of_content(format!("cannot be read: {error}"))
}

impl Content {
    /// Opens a file, and tells what it is.
    pub(crate) fn open(file: File) -> Result<(Content, Format, Compression), ImportError> {
        let bytes = file.metadata().map_err(|error| unreadable(&error))?.len();
        let read = Arc::new(AtomicU64::new(0));
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, Counted { file, read: read.clone() });
        let compression = compression(raw.fill_buf().map_err(|error| unreadable(&error))?);
        let mut plain: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(raw),
            Compression::Gzip => Box::new(MultiGzDecoder::new(raw)),
            Compression::Zstd => {
                Box::new(zstd::stream::read::Decoder::with_buffer(raw).map_err(|error| unreadable(&error))?)
            }
        };
        let mut start = Vec::new();
        let looked = (&mut plain).take(START_BYTES as u64).read_to_end(&mut start);
        looked.map_err(|error| ImportError::of_line(1, format!("cannot be read: {error}")))?;
        let format = format(&start, compression).map_err(ImportError::of_content)?;
        let mut start = Cursor::new(start);
        if start.get_ref().starts_with(b"\xef\xbb\xbf") {
            start.set_position(3);
        }
        let inner =
            BufReader::with_capacity(BUFFER_BYTES, Box::new(start.chain(plain)) as Box<dyn Read + Send>);
        Ok((Content { inner, read, bytes, digest: Sha256::new() }, format, compression))
    }

    /// Bytes of the file that have been read, and how many it has.
    pub(crate) fn position(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.bytes)
    }

    /// The digest of what has been read, compression taken off.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.digest.clone().finalize().into()
    }
}

impl BufRead for Content {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.digest.update(&self.inner.buffer()[..count]);
        self.inner.consume(count);
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}
