//! Reads a file with one JSON object per line.

use std::io::{BufRead, Read};

use serde_json::Value;

use super::content::Content;
use super::{LINE_BYTES_MAX, RawRecord, RecordReader, too_long_message};
use crate::import::error::ImportError;

/// A reader of the lines of a file.
pub(crate) struct LineReader {
    content: Content,
    line: u64,
    buffer: Vec<u8>,
}

impl LineReader {
    pub(crate) fn new(content: Content) -> LineReader {
        LineReader { content, line: 0, buffer: Vec::new() }
    }
}

impl RecordReader for LineReader {
    /// The next line that is not blank.
    fn next(&mut self) -> Result<Option<RawRecord>, ImportError> {
        loop {
            self.buffer.clear();
            let limit = LINE_BYTES_MAX as u64 + 1;
            let line = self.line + 1;
            let count = (&mut self.content)
                .take(limit)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|error| ImportError::at_line(line, format!("cannot be read: {error}")))?;
            if count == 0 {
                return Ok(None);
            }
            if count > LINE_BYTES_MAX {
                return Err(ImportError::at_line(line, too_long_message()));
            }
            self.line = line;
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        let failed = |message: String| ImportError::at_line(self.line, message);
        match serde_json::from_slice(self.buffer.trim_ascii()) {
            Ok(Value::Object(fields)) => Ok(Some(RawRecord { number: self.line, fields })),
            Ok(_) => Err(failed("not a JSON object".to_owned())),
            Err(error) if error.is_eof() => Err(failed(format!(
                "not valid JSON: {error}; an object over several lines is read as an element of a JSON array only"
            ))),
            Err(error) => Err(failed(format!("not valid JSON: {error}"))),
        }
    }

    fn position(&self) -> (u64, u64) {
        self.content.position()
    }

    fn digest(&self) -> Option<[u8; 32]> {
        Some(self.content.digest())
    }
}
