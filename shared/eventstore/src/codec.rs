//! Binary encoding of JSON values inside blocks: exact, compact, and safe to decode from any bytes.
//!
//! A value is a tag and its content; lengths and integers are variable-length (LEB128, seven bits per byte,
//! lowest first). An array is its values, an object its fields (tag, key, content), up to an end marker, so
//! that both can be encoded while they are parsed. Must stay true: decoding returns an equal value (50 and 50.0
//! differ, keys keep their order, the last value of a repeated key wins); a decoder never allocates more than
//! the remaining bytes can describe, and never recurses deeper than [`DEPTH_MAX`].

use serde_json::{Map, Number, Value};

use crate::error::EventStoreError;

/// Deepest nesting of a value.
pub(crate) const DEPTH_MAX: usize = 130;

pub(crate) const NULL: u8 = 0;
pub(crate) const FALSE: u8 = 1;
pub(crate) const TRUE: u8 = 2;
pub(crate) const INTEGER: u8 = 3;
pub(crate) const UNSIGNED: u8 = 4;
pub(crate) const FLOAT: u8 = 5;
pub(crate) const TEXT: u8 = 6;
pub(crate) const ARRAY: u8 = 7;
pub(crate) const OBJECT: u8 = 8;
pub(crate) const END: u8 = 9;

pub(crate) fn write_unsigned(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n as u8) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Zigzag encoding, so that small negative numbers are short.
pub(crate) fn write_signed(out: &mut Vec<u8>, n: i64) {
    write_unsigned(out, ((n << 1) ^ (n >> 63)) as u64);
}

pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    write_unsigned(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn write_value(out: &mut Vec<u8>, value: &Value) {
    out.push(tag(value));
    write_content(out, value);
}

/// A field: the tag, the key as `write_key` writes it, the content.
pub(crate) fn write_field(out: &mut Vec<u8>, write_key: impl FnOnce(&mut Vec<u8>), value: &Value) {
    out.push(tag(value));
    write_key(out);
    write_content(out, value);
}

fn tag(value: &Value) -> u8 {
    match value {
        Value::Null => NULL,
        Value::Bool(false) => FALSE,
        Value::Bool(true) => TRUE,
        Value::Number(number) if number.is_i64() => INTEGER,
        Value::Number(number) if number.is_u64() => UNSIGNED,
        Value::Number(_) => FLOAT,
        Value::String(_) => TEXT,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

fn write_content(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            if let Some(n) = number.as_i64() {
                write_signed(out, n);
            } else if let Some(n) = number.as_u64() {
                write_unsigned(out, n);
            } else {
                out.extend_from_slice(&number.as_f64().unwrap_or(0.0).to_le_bytes());
            }
        }
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            items.iter().for_each(|item| write_value(out, item));
            out.push(END);
        }
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| write_field(out, |out| write_text(out, key), value));
            out.push(END);
        }
    }
}

/// Decoder for the functions above.
pub(crate) struct BinaryReader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> BinaryReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> BinaryReader<'a> {
        BinaryReader { rest: bytes, length: bytes.len() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of bytes read.
    pub(crate) fn place(&self) -> usize {
        self.length - self.rest.len()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], EventStoreError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(cut)?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, EventStoreError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], EventStoreError> {
        self.take(N)?.try_into().map_err(|_| cut())
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, EventStoreError> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(EventStoreError::corrupt("a number of more than ten bytes"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, EventStoreError> {
        let n = self.unsigned()?;
        Ok(((n >> 1) as i64) ^ -((n & 1) as i64))
    }

    /// A count of items of at least one byte each.
    pub(crate) fn count(&mut self) -> Result<usize, EventStoreError> {
        let count = usize::try_from(self.unsigned()?).map_err(|_| cut())?;
        if count > self.rest.len() { Err(cut()) } else { Ok(count) }
    }

    pub(crate) fn text(&mut self) -> Result<String, EventStoreError> {
        let length = self.count()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(EventStoreError::corrupt)
    }

    /// Decodes one value.
    pub(crate) fn whole_value(&mut self) -> Result<Value, EventStoreError> {
        let tag = self.byte()?;
        self.content(tag, DEPTH_MAX)
    }

    /// The text that follows a tag, if the tag is that of a text.
    pub(crate) fn text_of(&mut self, tag: u8) -> Result<Option<&'a str>, EventStoreError> {
        if tag != TEXT {
            return Ok(None);
        }
        let length = self.count()?;
        std::str::from_utf8(self.take(length)?).map(Some).map_err(EventStoreError::corrupt)
    }

    /// The tag of the next field; the key follows, then the content.
    pub(crate) fn tag(&mut self) -> Result<u8, EventStoreError> {
        self.byte()
    }

    /// The content of a value with this tag.
    pub(crate) fn value(&mut self, tag: u8) -> Result<Value, EventStoreError> {
        self.content(tag, DEPTH_MAX)
    }

    /// Skips the content of a value with this tag.
    pub(crate) fn skip(&mut self, tag: u8) -> Result<(), EventStoreError> {
        self.skip_within(tag, DEPTH_MAX)
    }

    fn skip_text(&mut self) -> Result<(), EventStoreError> {
        let length = self.count()?;
        self.take(length).map(|_| ())
    }

    fn skip_within(&mut self, tag: u8, depth: usize) -> Result<(), EventStoreError> {
        match tag {
            NULL | FALSE | TRUE => Ok(()),
            INTEGER | UNSIGNED => self.unsigned().map(|_| ()),
            FLOAT => self.take(8).map(|_| ()),
            TEXT => self.skip_text(),
            ARRAY | OBJECT => {
                let depth = below(depth)?;
                loop {
                    match self.byte()? {
                        END => return Ok(()),
                        inner => {
                            if tag == OBJECT {
                                self.skip_text()?;
                            }
                            self.skip_within(inner, depth)?;
                        }
                    }
                }
            }
            tag => Err(unknown(tag)),
        }
    }

    fn content(&mut self, tag: u8, depth: usize) -> Result<Value, EventStoreError> {
        Ok(match tag {
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            INTEGER => Value::from(self.signed()?),
            UNSIGNED => Value::from(self.unsigned()?),
            FLOAT => {
                let float = f64::from_le_bytes(self.array()?);
                Number::from_f64(float)
                    .map(Value::Number)
                    .ok_or_else(|| EventStoreError::corrupt("no number"))?
            }
            TEXT => Value::String(self.text()?),
            ARRAY => {
                let depth = below(depth)?;
                let mut items = Vec::new();
                loop {
                    match self.byte()? {
                        END => break Value::Array(items),
                        inner => items.push(self.content(inner, depth)?),
                    }
                }
            }
            OBJECT => {
                let depth = below(depth)?;
                let mut map = Map::new();
                loop {
                    match self.byte()? {
                        END => break Value::Object(map),
                        inner => {
                            let key = self.text()?;
                            map.insert(key, self.content(inner, depth)?);
                        }
                    }
                }
            }
            tag => return Err(unknown(tag)),
        })
    }
}

fn below(depth: usize) -> Result<usize, EventStoreError> {
    depth.checked_sub(1).ok_or_else(|| EventStoreError::corrupt("a value nested too deeply"))
}

fn unknown(tag: u8) -> EventStoreError {
    EventStoreError::Corrupt(format!("a value of unknown kind {tag}"))
}

fn cut() -> EventStoreError {
    EventStoreError::corrupt("the bytes end early")
}
