//! A Parquet file, row by row, as events; its `person_id` column as persons.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;

use parquet::basic::Compression;
use pennon_eventstore::{
    Cell, EventColumns, EventStoreError, Properties, TableFile, TableRows, read_properties,
};
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use crate::import::ImportOptions;
use crate::import::error::ImportError;
use crate::import::people::People;
use crate::import::record::{id, name, own_uuid, project, uuid_of_line};
use crate::import::time::{TimeFields, TimeForm};

/// Columns that every file of events has.
const NEEDED: [&str; 3] = ["event", "distinct_id", "timestamp"];
/// Instants of the years 1 to 9999, in microseconds.
const INSTANTS: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// The rows of a file.
pub(crate) struct Rows {
    table: TableFile,
    places: Places,
    waiting: Option<TableRows>,
    /// How many of those that wait have been taken.
    at: usize,
    row: u64,
    times: TimeFields,
}

/// Where the columns with a meaning are, and the others, which are properties.
struct Places {
    event: Option<usize>,
    distinct_id: Option<usize>,
    timestamp: Option<usize>,
    uuid: Option<usize>,
    project: Option<usize>,
    person: Option<usize>,
    properties: Option<usize>,
    own: Vec<(usize, String)>,
}

impl Places {
    fn of(columns: &[String]) -> Places {
        let place = |name: &str| columns.iter().position(|column| column == name);
        let mut places = Places {
            event: place("event"),
            distinct_id: place("distinct_id"),
            timestamp: place("timestamp"),
            uuid: place("uuid"),
            project: place("project"),
            person: place("person_id"),
            properties: place("properties"),
            own: Vec::new(),
        };
        let known = [places.event, places.distinct_id, places.timestamp, places.uuid, places.project];
        let known = known.into_iter().chain([places.person, places.properties]).flatten().collect::<Vec<_>>();
        let own = columns.iter().cloned().enumerate().filter(|(place, _)| !known.contains(place));
        places.own = own.collect();
        places
    }
}

/// A row of the file.
struct Row<'a> {
    rows: &'a TableRows,
    places: &'a Places,
    at: usize,
}

impl<'a> Row<'a> {
    fn cell(&self, place: Option<usize>) -> Option<Cell<'a>> {
        self.rows.cell(place?, self.at)
    }

    fn project(&self, options: &ImportOptions) -> Result<u64, String> {
        let value = self.cell(self.places.project).map(|cell| cell.to_value());
        project(value.as_ref(), options.default_project)
    }

    fn event(&self) -> Result<Cow<'a, str>, String> {
        match self.cell(self.places.event) {
            Some(Cell::Text(text)) => Ok(text),
            other => name(other.map(|cell| cell.to_value())).map(Cow::Owned),
        }
    }

    fn id(&self, place: Option<usize>, field: &str) -> Result<Cow<'a, str>, String> {
        match self.cell(place) {
            Some(Cell::Text(text)) if !text.trim().is_empty() => Ok(text),
            other => id(other.map(|cell| cell.to_value()), field).map(Cow::Owned),
        }
    }

    fn timestamp(&self, line: u64, times: &mut TimeFields) -> Result<i64, String> {
        let at = self.places.timestamp.and_then(|place| self.rows.instant(place, self.at));
        match at.filter(|at| INSTANTS.contains(at)) {
            Some(at) => {
                times.note("timestamp", TimeForm::Typed, line)?;
                Ok(at)
            }
            None => {
                let value = self.cell(self.places.timestamp).map(|cell| cell.to_value());
                times.instant("timestamp", line, value.as_ref())
            }
        }
    }

    fn properties(&self, into: &mut impl Properties) -> Result<(), String> {
        match self.cell(self.places.properties) {
            None | Some(Cell::Null) => {}
            Some(Cell::Text(text)) if text.is_empty() => {}
            Some(Cell::Text(text) | Cell::Json(text)) => read_properties(&text, into).map_err(|error| {
                match serde_json::from_str::<IgnoredAny>(&text) {
                    Ok(_) if !text.trim_start().starts_with('{') => "properties must be an object".to_owned(),
                    _ => format!("properties is not valid JSON: {error}"),
                }
            })?,
            Some(_) => return Err("properties must be an object".to_owned()),
        }
        for (place, key) in &self.places.own {
            if let Some(cell) = self.rows.cell(*place, self.at) {
                into.property(key, cell);
            }
        }
        Ok(())
    }

    /// Reads all of it, as storing it will.
    fn check(
        &self,
        line: u64,
        options: &ImportOptions,
        people: &mut People,
        times: &mut TimeFields,
    ) -> Result<(), String> {
        let project = self.project(options)?;
        self.event()?;
        let distinct_id = self.id(self.places.distinct_id, "distinct_id")?;
        self.timestamp(line, times)?;
        own_uuid(self.cell(self.places.uuid).map(|cell| cell.to_value()))?;
        self.properties(&mut ())?;
        if self.cell(self.places.person).is_some_and(|person| person != Cell::Null) {
            people.same(project, &self.id(self.places.person, "person_id")?, &distinct_id)?;
        }
        Ok(())
    }
}

impl Rows {
    /// The rows of `file`.
    pub(crate) fn open(file: File) -> Result<Rows, ImportError> {
        let table = open_table(file)?;
        if let Some(missing) =
            NEEDED.iter().find(|needed| !table.columns().iter().any(|column| column == *needed))
        {
            return Err(ImportError::of_content(format!("has no column {missing}")));
        }
        let places = Places::of(table.columns());
        Ok(Rows { table, places, waiting: None, at: 0, row: 0, times: TimeFields::default() })
    }

    /// Rows that have been read.
    pub(crate) fn rows_read(&self) -> u64 {
        self.row
    }

    /// In which form the times are.
    pub(crate) fn times(&self) -> &TimeFields {
        &self.times
    }

    /// Rows of the file.
    pub(crate) fn rows(&self) -> u64 {
        self.table.rows()
    }

    /// Goes to the next row; false at the end.
    fn step(&mut self) -> Result<bool, ImportError> {
        while self.waiting.as_ref().is_none_or(|waiting| self.at >= waiting.len()) {
            self.waiting = match self.table.next_rows() {
                None => return Ok(false),
                Some(rows) => Some(
                    rows.map_err(|error| ImportError::of_line(self.row + 1, reason(error)).in_unit("row"))?,
                ),
            };
            self.at = 0;
        }
        self.at += 1;
        self.row += 1;
        Ok(true)
    }

    /// Of the row that was gone to.
    fn row(&self) -> Option<Row<'_>> {
        Some(Row { rows: self.waiting.as_ref()?, places: &self.places, at: self.at - 1 })
    }

    /// Checks the next row, and notes whom it names; false at the end.
    pub(crate) fn check(
        &mut self,
        options: &ImportOptions,
        people: &mut People,
    ) -> Result<bool, ImportError> {
        if !self.step()? {
            return Ok(false);
        }
        let mut times = std::mem::take(&mut self.times);
        let checked = self.row().map_or(Ok(()), |row| row.check(self.row, options, people, &mut times));
        self.times = times;
        checked.map(|()| true).map_err(|message| ImportError::of_line(self.row, message).in_unit("row"))
    }

    /// Gives the next row to the columns of its project; false at the end.
    pub(crate) fn take<'c>(
        &mut self,
        options: &ImportOptions,
        content: &[u8; 32],
        columns: impl FnOnce(u64) -> &'c mut EventColumns,
    ) -> Result<bool, ImportError> {
        if !self.step()? {
            return Ok(false);
        }
        let mut times = std::mem::take(&mut self.times);
        let Some(row) = self.row() else { return Ok(false) };
        let line = self.row;
        let taken = || {
            let columns = columns(row.project(options)?);
            let uuid = own_uuid(row.cell(row.places.uuid).map(|cell| cell.to_value()))?;
            let uuid = uuid.unwrap_or_else(|| uuid_of_line(content, line));
            let distinct_id = row.id(row.places.distinct_id, "distinct_id")?;
            columns.event(line, uuid, &row.event()?, &distinct_id, row.timestamp(line, &mut times)?);
            row.properties(columns)
        };
        let taken: Result<(), String> = taken();
        self.times = times;
        taken.map(|()| true).map_err(|message| ImportError::of_line(line, message).in_unit("row"))
    }
}

/// Opens a file whose columns can be decoded.
pub(super) fn open_table(file: File) -> Result<TableFile, ImportError> {
    let table = TableFile::open(file).map_err(|error| ImportError::of_content(reason(error)))?;
    let undecodable =
        table.compressions().iter().find_map(|(column, how)| Some((column, undecodable(*how)?)));
    match undecodable {
        None => Ok(table),
        Some((column, how)) => Err(ImportError::of_content(format!(
            "column {column} is compressed with {how}, which cannot be read; write the file with zstd, snappy, gzip or \
             lz4, or uncompressed"
        ))),
    }
}

/// What is wrong with the file, which is the user's own and no stored segment.
pub(super) fn reason(error: EventStoreError) -> String {
    match error {
        EventStoreError::Corrupt(what) => what,
        other => other.to_string(),
    }
}

/// The name of a compression that this program has no decoder for: see the features of `parquet` in its manifest.
fn undecodable(compression: Compression) -> Option<&'static str> {
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

/// The digest of a whole file.
pub(crate) fn digest(file: &mut File) -> std::io::Result<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest.finalize().into()),
            count => digest.update(&buffer[..count]),
        }
    }
}
