//! A Parquet file, row by row, as events; its `person_id` column, at the end, as persons.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use pennon_eventstore::{PersonRecord, TableFile};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::ImportOptions;
use super::error::ImportError;
use super::record::{EventFields, Placed, Record, event, id, project, properties, uuid_of_line};

/// Columns that every file of events has.
const NEEDED: [&str; 3] = ["event", "distinct_id", "timestamp"];

/// The rows of a file.
pub(super) struct Rows {
    table: TableFile,
    waiting: std::vec::IntoIter<Map<String, Value>>,
    row: u64,
    persons: Persons,
    left: Option<std::vec::IntoIter<(u64, PersonRecord)>>,
}

/// The distinct ids that rows name for each person of a project.
#[derive(Default)]
struct Persons {
    ids: HashMap<(u64, String), Vec<String>>,
}

impl Rows {
    /// The rows of `file`.
    pub(super) fn open(file: File) -> Result<Rows, ImportError> {
        let table = TableFile::open(file).map_err(|error| ImportError::of_content(error.to_string()))?;
        if let Some(missing) =
            NEEDED.iter().find(|needed| !table.columns().iter().any(|column| column == *needed))
        {
            return Err(ImportError::of_content(format!("has no column {missing}")));
        }
        let waiting = Vec::new().into_iter();
        Ok(Rows { table, waiting, row: 0, persons: Persons::default(), left: None })
    }

    /// Rows that have been read.
    pub(super) fn rows_read(&self) -> u64 {
        self.row
    }

    /// Rows of the file.
    pub(super) fn rows(&self) -> u64 {
        self.table.rows()
    }

    /// The next event, or after the last a person; none at the end.
    pub(super) fn next(
        &mut self,
        options: &ImportOptions,
        content: &[u8; 32],
    ) -> Result<Option<Placed>, ImportError> {
        loop {
            if let Some(row) = self.waiting.next() {
                self.row += 1;
                let placed = self.persons.event(row, self.row, options, content);
                return placed.map(Some).map_err(|message| ImportError::of_line(self.row, message));
            }
            match self.table.next_rows() {
                Some(Ok(rows)) => self.waiting = rows.into_iter(),
                Some(Err(error)) => return Err(ImportError::of_line(self.row + 1, error.to_string())),
                None => break,
            }
        }
        let left = self.left.get_or_insert_with(|| self.persons.take().into_iter());
        let person = |(project, person)| Placed {
            line: self.row,
            project,
            record: Record::Person(person),
            bytes: 100,
        };
        Ok(left.next().map(person))
    }
}

impl Persons {
    fn event(
        &mut self,
        mut row: Map<String, Value>,
        line: u64,
        options: &ImportOptions,
        content: &[u8; 32],
    ) -> Result<Placed, String> {
        let project = project(row.get("project"), options.default_project)?;
        row.remove("project");
        let person = row.remove("person_id").filter(|person| !person.is_null());
        let mut of_row = match row.remove("properties") {
            Some(Value::String(text)) if text.is_empty() => Map::new(),
            Some(Value::String(text)) => properties(Some(
                serde_json::from_str(&text).map_err(|e| format!("properties is not valid JSON: {e}"))?,
            ))?,
            other => properties(other)?,
        };
        let mut fields = EventFields {
            event: row.remove("event"),
            distinct_id: row.remove("distinct_id"),
            timestamp: row.remove("timestamp"),
            uuid: row.remove("uuid"),
            properties: Map::new(),
        };
        let bytes =
            row.iter().chain(&of_row).map(|(key, value)| key.len() + text_bytes(value)).sum::<usize>() + 200;
        of_row.extend(row);
        fields.properties = of_row;
        let event = event(fields, uuid_of_line(content, line))?;
        if let Some(person) = person {
            let ids = self.ids.entry((project, id(Some(person), "person_id")?)).or_default();
            if !ids.contains(&event.distinct_id) {
                ids.push(event.distinct_id.clone());
            }
        }
        Ok(Placed { line, project, record: Record::Event(event), bytes })
    }

    /// The persons of several distinct ids: the others are persons without being told. In a certain order, so that an
    /// import is reproducible.
    fn take(&mut self) -> Vec<(u64, PersonRecord)> {
        let several = std::mem::take(&mut self.ids).into_iter().filter(|(_, ids)| ids.len() > 1);
        let mut several = several.collect::<Vec<_>>();
        several.sort();
        let record = |distinct_ids| PersonRecord { distinct_ids, properties: Map::new(), created_at: None };
        several.into_iter().map(|((project, _), ids)| (project, record(ids))).collect()
    }
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + text_bytes(value)).sum(),
        _ => 8,
    }
}

/// The digest of a whole file.
pub(super) fn digest(file: &mut File) -> std::io::Result<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest.finalize().into()),
            count => digest.update(&buffer[..count]),
        }
    }
}
