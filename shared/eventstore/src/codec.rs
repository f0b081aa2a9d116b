//! The binary form of values inside blocks: exact, compact, and safe to read whatever the bytes are.
//!
//! A value is a tag and its content; lengths and integers are variable-length, seven bits a byte, lowest first.
//! Must stay true: what was written comes back equal, 50 and 50.0 apart, keys in their order; a reader never allocates
//! more than the bytes in front of it could describe, and never recurses deeper than [`DEPTH_MAX`].

use serde_json::{Map, Number, Value};

use crate::error::EventStoreError;

/// Deepest nesting of a value.
pub(crate) const DEPTH_MAX: usize = 130;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INTEGER: u8 = 3;
const UNSIGNED: u8 = 4;
const FLOAT: u8 = 5;
const TEXT: u8 = 6;
const ARRAY: u8 = 7;
const OBJECT: u8 = 8;

pub(crate) fn write_unsigned(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n as u8) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Signed numbers alternate, so that small negative ones are short too.
pub(crate) fn write_signed(out: &mut Vec<u8>, n: i64) {
    write_unsigned(out, ((n << 1) ^ (n >> 63)) as u64);
}

pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    write_unsigned(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn write_object(out: &mut Vec<u8>, map: &Map<String, Value>) {
    write_unsigned(out, map.len() as u64);
    for (key, value) in map {
        write_text(out, key);
        write_value(out, value);
    }
}

pub(crate) fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(false) => out.push(FALSE),
        Value::Bool(true) => out.push(TRUE),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => {
            out.push(TEXT);
            write_text(out, text);
        }
        Value::Array(items) => {
            out.push(ARRAY);
            write_unsigned(out, items.len() as u64);
            items.iter().for_each(|item| write_value(out, item));
        }
        Value::Object(map) => {
            out.push(OBJECT);
            write_object(out, map);
        }
    }
}

fn write_number(out: &mut Vec<u8>, number: &Number) {
    if let Some(n) = number.as_i64() {
        out.push(INTEGER);
        write_signed(out, n);
    } else if let Some(n) = number.as_u64() {
        out.push(UNSIGNED);
        write_unsigned(out, n);
    } else {
        out.push(FLOAT);
        out.extend_from_slice(&number.as_f64().unwrap_or(0.0).to_le_bytes());
    }
}

/// Reads what the functions above wrote.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
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

    /// A count of things of at least one byte each.
    pub(crate) fn count(&mut self) -> Result<usize, EventStoreError> {
        let count = usize::try_from(self.unsigned()?).map_err(|_| cut())?;
        if count > self.rest.len() { Err(cut()) } else { Ok(count) }
    }

    pub(crate) fn text(&mut self) -> Result<String, EventStoreError> {
        let length = self.count()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(EventStoreError::corrupt)
    }

    pub(crate) fn object(&mut self) -> Result<Map<String, Value>, EventStoreError> {
        self.object_within(DEPTH_MAX)
    }

    /// One value of any kind.
    pub(crate) fn whole_value(&mut self) -> Result<Value, EventStoreError> {
        self.value(DEPTH_MAX)
    }

    fn object_within(&mut self, depth: usize) -> Result<Map<String, Value>, EventStoreError> {
        let count = self.count()?;
        let mut map = Map::with_capacity(count.min(1024));
        for _ in 0..count {
            let key = self.text()?;
            map.insert(key, self.value(depth)?);
        }
        Ok(map)
    }

    fn value(&mut self, depth: usize) -> Result<Value, EventStoreError> {
        let below =
            || depth.checked_sub(1).ok_or_else(|| EventStoreError::corrupt("a value nested too deeply"));
        Ok(match self.byte()? {
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
                let below = below()?;
                let count = self.count()?;
                (0..count).map(|_| self.value(below)).collect::<Result<_, _>>()?
            }
            OBJECT => Value::Object(self.object_within(below()?)?),
            tag => return Err(EventStoreError::Corrupt(format!("a value of unknown kind {tag}"))),
        })
    }
}

fn cut() -> EventStoreError {
    EventStoreError::corrupt("the bytes end early")
}
