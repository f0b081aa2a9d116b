//! A CSV file with a header, read with bounded memory.
//!
//! Must stay true: whether a column has numbers, booleans or texts is decided by all of its values, while the file is
//! checked; an empty cell is an absent value.

use std::io::Read;

use csv::StringRecord;
use serde_json::{Map, Number, Value};

use super::content::Content;
use super::{LINE_BYTES_MAX, RawRecord, RecordReader, too_long};
use crate::import::error::ImportError;

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// No value yet.
    Empty,
    /// `true` and `false`.
    Boolean,
    /// Numbers as JSON has them.
    Number,
    /// Anything else.
    Text,
}

impl ColumnKind {
    fn of(cell: &str) -> ColumnKind {
        match cell {
            "" => ColumnKind::Empty,
            "true" | "false" => ColumnKind::Boolean,
            // Only where nothing is lost: 007, +1 and digits beyond 64 bits stay texts.
            _ if number(cell).is_some() => ColumnKind::Number,
            _ => ColumnKind::Text,
        }
    }

    fn and(self, other: ColumnKind) -> ColumnKind {
        match (self, other) {
            (ColumnKind::Empty, kind) | (kind, ColumnKind::Empty) => kind,
            (one, other) if one == other => one,
            _ => ColumnKind::Text,
        }
    }

    fn value(self, cell: &str) -> Value {
        match self {
            ColumnKind::Boolean => Value::Bool(cell == "true"),
            ColumnKind::Number => number(cell).map_or_else(|| Value::from(cell), Value::Number),
            ColumnKind::Empty | ColumnKind::Text => Value::from(cell),
        }
    }
}

fn number(cell: &str) -> Option<Number> {
    let first = cell.trim_start_matches('-').as_bytes().first()?;
    if !first.is_ascii_digit() {
        return None;
    }
    let number = serde_json::from_str::<Number>(cell).ok()?;
    let is_whole = !cell.contains(['.', 'e', 'E']);
    (!is_whole || number.is_i64() || number.is_u64()).then_some(number)
}

/// Reads a file, and fails where a record is longer than it may be.
struct Limited {
    content: Content,
    since_record: u64,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.since_record > LINE_BYTES_MAX as u64 {
            return Err(std::io::Error::other(too_long()));
        }
        let count = self.content.read(buffer)?;
        self.since_record += count as u64;
        Ok(count)
    }
}

/// The rows of a file.
pub(crate) struct Table {
    reader: csv::Reader<Limited>,
    columns: Vec<String>,
    /// As known from the check.
    known: Option<Vec<ColumnKind>>,
    seen: Vec<ColumnKind>,
    row: StringRecord,
}

impl Table {
    pub(crate) fn open(
        content: Content,
        delimiter: u8,
        known: Option<Vec<ColumnKind>>,
    ) -> Result<Table, ImportError> {
        let content = Limited { content, since_record: 0 };
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(content);
        let header = reader.headers().map_err(|error| ImportError::of_line(1, reason(&error)))?;
        let columns: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        for (place, name) in columns.iter().enumerate() {
            if name.is_empty() {
                return Err(ImportError::of_line(1, format!("column {} has no name", place + 1)));
            }
            if columns[..place].contains(name) {
                return Err(ImportError::of_line(1, format!("there are two columns `{name}`")));
            }
        }
        let seen = vec![ColumnKind::Empty; columns.len()];
        Ok(Table { reader, columns, known, seen, row: StringRecord::new() })
    }
}

/// What is wrong, without the position that the message has beside it.
fn reason(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("has {len} cells, and the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8".to_owned(),
        csv::ErrorKind::Io(error) => error.to_string(),
        _ => error.to_string(),
    }
}

impl RecordReader for Table {
    fn next(&mut self) -> Result<Option<RawRecord>, ImportError> {
        self.reader.get_mut().since_record = 0;
        let line = self.reader.position().line();
        match self.reader.read_record(&mut self.row) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                let line = error.position().map_or(line, csv::Position::line);
                return Err(ImportError::of_line(line, reason(&error)));
            }
        }
        let line = self.row.position().map_or(line, csv::Position::line);
        let mut fields = Map::new();
        for (place, cell) in self.row.iter().enumerate() {
            self.seen[place] = self.seen[place].and(ColumnKind::of(cell));
            if !cell.is_empty() {
                let kind = self.known.as_ref().map_or(ColumnKind::Text, |known| known[place]);
                fields.insert(self.columns[place].clone(), kind.value(cell));
            }
        }
        Ok(Some(RawRecord { number: line, fields }))
    }

    fn position(&self) -> (u64, u64) {
        self.reader.get_ref().content.position()
    }

    fn digest(&self) -> Option<[u8; 32]> {
        Some(self.reader.get_ref().content.digest())
    }

    fn columns(&self) -> Option<&[String]> {
        Some(&self.columns)
    }

    fn column_kinds(&self) -> Option<Vec<ColumnKind>> {
        Some(self.seen.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_of_one_kind() {
        let kind = |cells: &[&str]| {
            cells.iter().map(|cell| ColumnKind::of(cell)).fold(ColumnKind::Empty, ColumnKind::and)
        };
        assert_eq!(kind(&["1", "", "-2.5", "1e3"]), ColumnKind::Number);
        assert_eq!(kind(&["8", "007"]), ColumnKind::Text);
        assert_eq!(kind(&["true", "false", ""]), ColumnKind::Boolean);
        assert_eq!(kind(&["true", "1"]), ColumnKind::Text);
        assert_eq!(kind(&["", ""]), ColumnKind::Empty);
        assert_eq!(kind(&["123456789012345678901234567890"]), ColumnKind::Text);
        assert_eq!(ColumnKind::Number.value("50.0"), serde_json::json!(50.0));
        assert_eq!(ColumnKind::Text.value("007"), serde_json::json!("007"));
    }
}
