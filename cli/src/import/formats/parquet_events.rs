//! Reads a Parquet file with the columns of an event directly into the store's columns; `person_id` updates persons.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;

use parquet::basic::Compression;
use pennon_eventstore::{
    EventColumns, EventStoreError, ParquetImport, ParquetImportRows, Properties, PropertyValue,
    read_properties,
};
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use crate::import::ImportOptions;
use crate::import::error::ImportError;
use crate::import::people::PeopleBuilder;
use crate::import::record::{derive_uuid, parse_event_name, parse_id, parse_project, parse_uuid};
use crate::import::time::{TimeFormat, TimeFormats};

/// Columns that a file of events must have.
const REQUIRED_COLUMNS: [&str; 3] = ["event", "distinct_id", "timestamp"];
/// The years 1 to 9999, in microseconds since the epoch.
const VALID_TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// A reader of the rows of a file.
pub(crate) struct ParquetEventReader {
    table: ParquetImport,
    columns: EventColumnIndexes,
    /// The current batch of rows.
    batch: Option<ParquetImportRows>,
    /// The next row in the batch.
    next_in_batch: usize,
    /// The number of rows that were read.
    row: u64,
    times: TimeFormats,
}

/// The indexes of the columns of an event, and of the other columns, which are properties.
struct EventColumnIndexes {
    event: Option<usize>,
    distinct_id: Option<usize>,
    timestamp: Option<usize>,
    uuid: Option<usize>,
    project: Option<usize>,
    person: Option<usize>,
    properties: Option<usize>,
    others: Vec<(usize, String)>,
}

impl EventColumnIndexes {
    fn new(columns: &[String]) -> EventColumnIndexes {
        let index = |name: &str| columns.iter().position(|column| column == name);
        let mut indexes = EventColumnIndexes {
            event: index("event"),
            distinct_id: index("distinct_id"),
            timestamp: index("timestamp"),
            uuid: index("uuid"),
            project: index("project"),
            person: index("person_id"),
            properties: index("properties"),
            others: Vec::new(),
        };
        let known = [indexes.event, indexes.distinct_id, indexes.timestamp, indexes.uuid, indexes.project];
        let known =
            known.into_iter().chain([indexes.person, indexes.properties]).flatten().collect::<Vec<_>>();
        let others = columns.iter().cloned().enumerate().filter(|(index, _)| !known.contains(index));
        indexes.others = others.collect();
        indexes
    }
}

/// A row of the file.
struct EventRow<'a> {
    batch: &'a ParquetImportRows,
    columns: &'a EventColumnIndexes,
    /// The row's index in the batch.
    index: usize,
}

impl<'a> EventRow<'a> {
    fn cell(&self, column: Option<usize>) -> Option<PropertyValue<'a>> {
        self.batch.cell(column?, self.index)
    }

    fn project(&self, options: &ImportOptions) -> Result<u64, String> {
        let value = self.cell(self.columns.project).map(|cell| cell.to_value());
        parse_project(value.as_ref(), options.default_project)
    }

    fn event(&self) -> Result<Cow<'a, str>, String> {
        match self.cell(self.columns.event) {
            Some(PropertyValue::Text(text)) => Ok(text),
            other => parse_event_name(other.map(|cell| cell.to_value())).map(Cow::Owned),
        }
    }

    fn id(&self, column: Option<usize>, field: &str) -> Result<Cow<'a, str>, String> {
        match self.cell(column) {
            Some(PropertyValue::Text(text)) if !text.trim().is_empty() => Ok(text),
            other => parse_id(other.map(|cell| cell.to_value()), field).map(Cow::Owned),
        }
    }

    fn timestamp(&self, line: u64, times: &mut TimeFormats) -> Result<i64, String> {
        let at = self.columns.timestamp.and_then(|column| self.batch.instant(column, self.index));
        match at.filter(|at| VALID_TIMES.contains(at)) {
            Some(at) => {
                times.check("timestamp", TimeFormat::Typed, line)?;
                Ok(at)
            }
            None => {
                let value = self.cell(self.columns.timestamp).map(|cell| cell.to_value());
                times.parse("timestamp", line, value.as_ref())
            }
        }
    }

    fn properties(&self, into: &mut impl Properties) -> Result<(), String> {
        match self.cell(self.columns.properties) {
            None | Some(PropertyValue::Null) => {}
            Some(PropertyValue::Text(text)) if text.is_empty() => {}
            Some(PropertyValue::Text(text) | PropertyValue::Json(text)) => read_properties(&text, into)
                .map_err(|error| match serde_json::from_str::<IgnoredAny>(&text) {
                    Ok(_) if !text.trim_start().starts_with('{') => "properties must be an object".to_owned(),
                    _ => format!("properties is not valid JSON: {error}"),
                })?,
            Some(_) => return Err("properties must be an object".to_owned()),
        }
        for (column, key) in &self.columns.others {
            if let Some(cell) = self.batch.cell(*column, self.index) {
                into.property(key, cell);
            }
        }
        Ok(())
    }

    /// Validates all fields, and updates the person.
    fn check(
        &self,
        line: u64,
        options: &ImportOptions,
        people: &mut PeopleBuilder,
        times: &mut TimeFormats,
    ) -> Result<(), String> {
        let project = self.project(options)?;
        self.event()?;
        let distinct_id = self.id(self.columns.distinct_id, "distinct_id")?;
        self.timestamp(line, times)?;
        parse_uuid(self.cell(self.columns.uuid).map(|cell| cell.to_value()))?;
        self.properties(&mut ())?;
        if self.cell(self.columns.person).is_some_and(|person| person != PropertyValue::Null) {
            people.add_distinct_id(project, &self.id(self.columns.person, "person_id")?, &distinct_id)?;
        }
        Ok(())
    }
}

impl ParquetEventReader {
    /// A reader of `file`, which must have the required columns.
    pub(crate) fn open(file: File) -> Result<ParquetEventReader, ImportError> {
        let table = open_table(file)?;
        if let Some(missing) =
            REQUIRED_COLUMNS.iter().find(|needed| !table.columns().iter().any(|column| column == *needed))
        {
            return Err(ImportError::for_content(format!("has no column {missing}")));
        }
        let columns = EventColumnIndexes::new(table.columns());
        let times = TimeFormats::default();
        Ok(ParquetEventReader { table, columns, batch: None, next_in_batch: 0, row: 0, times })
    }

    /// The number of rows that were read.
    pub(crate) fn rows_read(&self) -> u64 {
        self.row
    }

    /// The formats of the times.
    pub(crate) fn times(&self) -> &TimeFormats {
        &self.times
    }

    /// The number of rows of the file.
    pub(crate) fn rows(&self) -> u64 {
        self.table.rows()
    }

    /// Advances to the next row; false at the end.
    fn advance(&mut self) -> Result<bool, ImportError> {
        while self.batch.as_ref().is_none_or(|batch| self.next_in_batch >= batch.len()) {
            self.batch = match self.table.next_rows() {
                None => return Ok(false),
                Some(rows) => Some(rows.map_err(|error| {
                    ImportError::at_line(self.row + 1, error_message(error)).with_unit("row")
                })?),
            };
            self.next_in_batch = 0;
        }
        self.next_in_batch += 1;
        self.row += 1;
        Ok(true)
    }

    /// The current row.
    fn row(&self) -> Option<EventRow<'_>> {
        Some(EventRow { batch: self.batch.as_ref()?, columns: &self.columns, index: self.next_in_batch - 1 })
    }

    /// Validates the next row, and updates its person; false at the end.
    pub(crate) fn check(
        &mut self,
        options: &ImportOptions,
        people: &mut PeopleBuilder,
    ) -> Result<bool, ImportError> {
        if !self.advance()? {
            return Ok(false);
        }
        let mut times = std::mem::take(&mut self.times);
        let checked = self.row().map_or(Ok(()), |row| row.check(self.row, options, people, &mut times));
        self.times = times;
        checked.map(|()| true).map_err(|message| ImportError::at_line(self.row, message).with_unit("row"))
    }

    /// Adds the next row to the columns of its project; false at the end.
    pub(crate) fn read_into<'c>(
        &mut self,
        options: &ImportOptions,
        content: &[u8; 32],
        columns: impl FnOnce(u64) -> &'c mut EventColumns,
    ) -> Result<bool, ImportError> {
        if !self.advance()? {
            return Ok(false);
        }
        let mut times = std::mem::take(&mut self.times);
        let Some(row) = self.row() else { return Ok(false) };
        let line = self.row;
        let add_row = || {
            let columns = columns(row.project(options)?);
            let uuid = parse_uuid(row.cell(row.columns.uuid).map(|cell| cell.to_value()))?;
            let uuid = uuid.unwrap_or_else(|| derive_uuid(content, line));
            let distinct_id = row.id(row.columns.distinct_id, "distinct_id")?;
            columns.event(line, uuid, &row.event()?, &distinct_id, row.timestamp(line, &mut times)?);
            row.properties(columns)
        };
        let added: Result<(), String> = add_row();
        self.times = times;
        added.map(|()| true).map_err(|message| ImportError::at_line(line, message).with_unit("row"))
    }
}

/// Opens a file whose columns can be decoded.
pub(super) fn open_table(file: File) -> Result<ParquetImport, ImportError> {
    let table = ParquetImport::open(file).map_err(|error| ImportError::for_content(error_message(error)))?;
    let unsupported =
        table.compressions().iter().find_map(|(column, codec)| Some((column, unsupported_codec(*codec)?)));
    match unsupported {
        None => Ok(table),
        Some((column, codec)) => Err(ImportError::for_content(format!(
            "column {column} is compressed with {codec}, which cannot be read; write the file with zstd, snappy, gzip or \
             lz4, or uncompressed"
        ))),
    }
}

/// The error message for a user's file, without the advice for a corrupt segment.
pub(super) fn error_message(error: EventStoreError) -> String {
    match error {
        EventStoreError::Corrupt(message) => message,
        other => other.to_string(),
    }
}

/// The name of a codec that this program cannot decode; see the features of `parquet` in `Cargo.toml`.
fn unsupported_codec(compression: Compression) -> Option<&'static str> {
    match compression {
        Compression::BROTLI(_) => Some("brotli"),
        Compression::LZO => Some("lzo"),
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::LZ4
        | Compression::LZ4_RAW
        | Compression::ZSTD(_) => None,
    }
}

/// The SHA-256 of a file.
pub(crate) fn hash_file(file: &mut File) -> std::io::Result<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest.finalize().into()),
            count => digest.update(&buffer[..count]),
        }
    }
}
