//! Reads a file that is one JSON array of objects, element by element.
//!
//! Must stay true: at most one element is in memory.

use std::io::BufRead;

use serde_json::Value;

use super::content::Content;
use super::{LINE_BYTES_MAX, RawRecord, RecordReader, too_long_message};
use crate::import::error::ImportError;

/// A streaming reader of the elements of an array.
pub(crate) struct ArrayReader {
    content: Content,
    state: ArrayState,
    element: u64,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayState {
    /// Before the opening bracket.
    Before,
    /// After the opening bracket: an element or the end.
    First,
    /// After an element: a comma or the end.
    Between,
    /// After a comma: an element.
    Next,
    /// After the closing bracket.
    After,
}

impl ArrayReader {
    pub(crate) fn new(content: Content) -> ArrayReader {
        ArrayReader { content, state: ArrayState::Before, element: 0, buffer: Vec::new() }
    }

    fn error(&self, message: impl Into<String>) -> ImportError {
        ImportError::at_line(self.element + 1, message).with_unit("element")
    }

    /// The next byte that is not white space, without consuming it.
    fn peek(&mut self) -> Result<Option<u8>, ImportError> {
        loop {
            let (blank, next) = match self.content.fill_buf() {
                Ok([]) => return Ok(None),
                Ok(bytes) => {
                    let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                    (blank, bytes.get(blank).copied())
                }
                Err(error) => return Err(self.error(format!("cannot be read: {error}"))),
            };
            self.content.consume(blank);
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    /// Reads the bytes of an object into the buffer, up to its closing brace.
    fn read_object(&mut self) -> Result<(), ImportError> {
        self.buffer.clear();
        let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
        loop {
            let (taken, is_end) = match self.content.fill_buf() {
                Ok([]) => return Err(self.error("the file ends inside the array")),
                Ok(bytes) => {
                    let mut end = None;
                    for (place, byte) in bytes.iter().enumerate() {
                        match (in_text, byte) {
                            (true, _) if is_escaped => is_escaped = false,
                            (true, b'\\') => is_escaped = true,
                            (_, b'"') => in_text = !in_text,
                            (false, b'{' | b'[') => depth += 1,
                            (false, b'}' | b']') => {
                                depth = depth.saturating_sub(1);
                                if depth == 0 {
                                    end = Some(place + 1);
                                    break;
                                }
                            }
                            _ => {}
                        }
                    }
                    let taken = end.unwrap_or(bytes.len());
                    self.buffer.extend_from_slice(&bytes[..taken]);
                    (taken, end.is_some())
                }
                Err(error) => return Err(self.error(format!("cannot be read: {error}"))),
            };
            self.content.consume(taken);
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(self.error(too_long_message()));
            }
            if is_end {
                return Ok(());
            }
        }
    }
}

impl RecordReader for ArrayReader {
    fn next(&mut self) -> Result<Option<RawRecord>, ImportError> {
        loop {
            let next = self.peek()?;
            self.state = match (self.state, next) {
                (ArrayState::After, None) => return Ok(None),
                (ArrayState::After, Some(_)) => return Err(self.error("something follows the array")),
                (_, None) => return Err(self.error("the file ends inside the array")),
                (ArrayState::Before, Some(b'[')) => ArrayState::First,
                (ArrayState::First | ArrayState::Between, Some(b']')) => ArrayState::After,
                (ArrayState::Between, Some(b',')) => ArrayState::Next,
                (ArrayState::First | ArrayState::Next, Some(b'{')) => {
                    self.read_object()?;
                    self.state = ArrayState::Between;
                    let fields = match serde_json::from_slice(&self.buffer) {
                        Ok(Value::Object(fields)) => fields,
                        Ok(_) => return Err(self.error("not a JSON object")),
                        Err(error) => return Err(self.error(format!("not valid JSON: {error}"))),
                    };
                    self.element += 1;
                    return Ok(Some(RawRecord { number: self.element, fields }));
                }
                (ArrayState::First | ArrayState::Next, Some(_)) => {
                    return Err(self.error("not a JSON object"));
                }
                (ArrayState::Before | ArrayState::Between, Some(_)) => {
                    return Err(self.error("not valid JSON: a comma or the end of the array is missing"));
                }
            };
            self.content.consume(1);
        }
    }

    fn position(&self) -> (u64, u64) {
        self.content.position()
    }

    fn digest(&self) -> Option<[u8; 32]> {
        Some(self.content.digest())
    }
}
