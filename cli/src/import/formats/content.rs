//! The decompressed content of a file, with its digest and the read position.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use crate::import::detect::{Compression, RecordFormat, detect_compression, detect_format};
use crate::import::error::ImportError;

const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes that are read to detect the format.
const START_BYTES: usize = 64 * 1024;

/// A reader of the decompressed content of a file.
pub(crate) struct Content {
    inner: BufReader<Box<dyn Read + Send>>,
    read: Arc<AtomicU64>,
    bytes: u64,
    digest: Sha256,
}

/// Counts the bytes that are read from a file.
struct CountingReader {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

fn unreadable(error: &std::io::Error) -> ImportError {
    ImportError::for_content(format!("cannot be read: {error}"))
}

impl Content {
    /// Opens a file, and detects its format and compression.
    pub(crate) fn open(file: File) -> Result<(Content, RecordFormat, Compression), ImportError> {
        let bytes = file.metadata().map_err(|error| unreadable(&error))?.len();
        let read = Arc::new(AtomicU64::new(0));
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, CountingReader { file, read: read.clone() });
        let compression = detect_compression(raw.fill_buf().map_err(|error| unreadable(&error))?);
        let mut plain: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(raw),
            Compression::Gzip => Box::new(MultiGzDecoder::new(raw)),
            Compression::Zstd => {
                Box::new(zstd::stream::read::Decoder::with_buffer(raw).map_err(|error| unreadable(&error))?)
            }
        };
        let mut start = Vec::new();
        let read_start = (&mut plain).take(START_BYTES as u64).read_to_end(&mut start);
        read_start.map_err(|error| ImportError::at_line(1, format!("cannot be read: {error}")))?;
        let format = detect_format(&start, compression).map_err(ImportError::for_content)?;
        let mut start = Cursor::new(start);
        if start.get_ref().starts_with(b"\xef\xbb\xbf") {
            start.set_position(3);
        }
        let inner =
            BufReader::with_capacity(BUFFER_BYTES, Box::new(start.chain(plain)) as Box<dyn Read + Send>);
        Ok((Content { inner, read, bytes, digest: Sha256::new() }, format, compression))
    }

    /// The bytes of the file that were read, and its size.
    pub(crate) fn position(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.bytes)
    }

    /// The SHA-256 of the decompressed content that was read.
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
