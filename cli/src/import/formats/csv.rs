//! Reads a CSV file with a header.
//!
//! Must stay true: the type of a column (number, boolean or text) is inferred from all of its values in the first pass; an
//! empty cell is an absent value; one record is in memory.

use std::collections::HashSet;
use std::io::Read;

use csv::StringRecord;
use serde_json::{Map, Number, Value};

use super::content::Content;
use super::{LINE_BYTES_MAX, RawRecord, RecordReader, too_long_message};
use crate::import::error::ImportError;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// No value yet.
    Empty,
    /// `true` and `false`.
    Boolean,
    /// JSON numbers.
    Number,
    /// Anything else.
    Text,
}

impl ColumnKind {
    fn infer(cell: &str) -> ColumnKind {
        match cell {
            "" => ColumnKind::Empty,
            "true" | "false" => ColumnKind::Boolean,
            // Only if nothing is lost: 007, +1 and integers above 64 bits stay texts.
            _ if parse_number(cell).is_some() => ColumnKind::Number,
            _ => ColumnKind::Text,
        }
    }

    /// The type of a column with values of both types.
    fn unify(self, other: ColumnKind) -> ColumnKind {
        match (self, other) {
            (ColumnKind::Empty, kind) | (kind, ColumnKind::Empty) => kind,
            (one, other) if one == other => one,
            _ => ColumnKind::Text,
        }
    }

    fn value(self, cell: &str) -> Value {
        match self {
            ColumnKind::Boolean => Value::Bool(cell == "true"),
            ColumnKind::Number => parse_number(cell).map_or_else(|| Value::from(cell), Value::Number),
            ColumnKind::Empty | ColumnKind::Text => Value::from(cell),
        }
    }
}

fn parse_number(cell: &str) -> Option<Number> {
    let first = cell.trim_start_matches('-').as_bytes().first()?;
    if !first.is_ascii_digit() {
        return None;
    }
    let number = serde_json::from_str::<Number>(cell).ok()?;
    let is_whole = !cell.contains(['.', 'e', 'E']);
    (!is_whole || number.is_i64() || number.is_u64()).then_some(number)
}

/// Fails if a record is longer than [`LINE_BYTES_MAX`].
struct RecordLimitReader {
    content: Content,
    since_record: u64,
}

impl Read for RecordLimitReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.since_record > LINE_BYTES_MAX as u64 {
            return Err(std::io::Error::other(too_long_message()));
        }
        let count = self.content.read(buffer)?;
        self.since_record += count as u64;
        Ok(count)
    }
}

/// A reader of the rows of a file.
pub(crate) struct CsvReader {
    reader: csv::Reader<RecordLimitReader>,
    columns: Vec<String>,
    /// The column types from the first pass.
    known: Option<Vec<ColumnKind>>,
    /// The column types inferred so far.
    inferred: Vec<ColumnKind>,
    row: StringRecord,
}

impl CsvReader {
    pub(crate) fn open(
        content: Content,
        delimiter: u8,
        known: Option<Vec<ColumnKind>>,
    ) -> Result<CsvReader, ImportError> {
        let content = RecordLimitReader { content, since_record: 0 };
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(content);
        let header = reader.headers().map_err(|error| ImportError::at_line(1, error_message(&error)))?;
        let columns: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        let mut names = HashSet::with_capacity(columns.len());
        for (place, name) in columns.iter().enumerate() {
            if name.is_empty() {
                return Err(ImportError::at_line(1, format!("column {} has no name", place + 1)));
            }
            if !names.insert(name) {
                return Err(ImportError::at_line(1, format!("there are two columns `{name}`")));
            }
        }
        let inferred = vec![ColumnKind::Empty; columns.len()];
        Ok(CsvReader { reader, columns, known, inferred, row: StringRecord::new() })
    }
}

/// The error message without the position, which the caller adds.
fn error_message(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("has {len} cells, and the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8".to_owned(),
        csv::ErrorKind::Io(error) => error.to_string(),
        _ => error.to_string(),
    }
}

impl RecordReader for CsvReader {
    fn next(&mut self) -> Result<Option<RawRecord>, ImportError> {
        self.reader.get_mut().since_record = 0;
        let line = self.reader.position().line();
        match self.reader.read_record(&mut self.row) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                let line = error.position().map_or(line, csv::Position::line);
                return Err(ImportError::at_line(line, error_message(&error)));
            }
        }
        let line = self.row.position().map_or(line, csv::Position::line);
        let mut fields = Map::new();
        for (place, cell) in self.row.iter().enumerate() {
            self.inferred[place] = self.inferred[place].unify(ColumnKind::infer(cell));
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
        Some(self.inferred.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Seek as _, Write as _};

    use super::*;

    fn columns_of(header: &str) -> Result<usize, ImportError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.rewind().unwrap();
        let (content, _, _) = Content::open(file).unwrap();
        CsvReader::open(content, b',', None).map(|reader| reader.columns.len())
    }

    /// If each name was compared with all before it, this test would take minutes.
    #[test]
    fn a_header_may_have_many_columns() {
        let mut names: Vec<String> = (0..400_000).map(|number| format!("c{number}")).collect();
        assert_eq!(columns_of(&names.join(",")), Ok(400_000));
        names.push(" c7 ".to_owned());
        let error = columns_of(&names.join(",")).unwrap_err();
        assert!(error.to_string().contains("two columns `c7`"), "{error}");
    }

    #[test]
    fn the_type_of_a_column_is_inferred_from_all_cells() {
        let kind = |cells: &[&str]| {
            cells.iter().map(|cell| ColumnKind::infer(cell)).fold(ColumnKind::Empty, ColumnKind::unify)
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
