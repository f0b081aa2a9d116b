//! A file of any format with the mapping of its vendor, as records to store and facts to fold.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::chunk::Chunk;
use super::detect::Format;
use super::error::ImportError;
use super::formats::array::Elements;
use super::formats::content::Content;
use super::formats::csv::{ColumnKind, Table};
use super::formats::lines::Lines;
use super::formats::parquet::TableRecords;
use super::formats::rows::{self, Rows};
use super::formats::{RawRecord, RecordReader};
use super::mappings::{Context, Mapped, Mapping, Vendor};
use super::people::People;
use super::record::{Placed, Record};
use super::report::SourceDescription;
use super::time::TimeFields;
use super::{ExtraFields, ImportOptions};

/// What the check of a file found out, for the pass that stores it.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownContent {
    /// The digest of the content: uuids are derived from it.
    pub digest: [u8; 32],
    /// What the columns of a CSV file are.
    pub columns: Option<Vec<ColumnKind>>,
}

/// What a check counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub lines: u64,
    pub events: u64,
    pub persons: u64,
    pub groups: u64,
    /// By the rule that says so.
    pub ignored: BTreeMap<&'static str, u64>,
}

/// A file that is being read.
pub(super) struct Source {
    path: PathBuf,
    reader: Reader,
    format: Format,
    mapping: Box<dyn Mapping>,
    /// The record that was read to recognise the vendor.
    pending: Option<RawRecord>,
    options: ImportOptions,
    extra: ExtraFields,
    known: KnownContent,
    times: TimeFields,
    description: SourceDescription,
}

enum Reader {
    /// Parquet with the columns of an event.
    Rows(Box<Rows>),
    Records(Box<dyn RecordReader>),
}

fn unreadable(error: std::io::Error) -> ImportError {
    ImportError::of_content(format!("cannot be read: {error}"))
}

impl Source {
    /// Opens a file. `known` is what an earlier pass found out; `by_record` reads Parquet row by row in any case.
    pub(super) fn open(
        path: &Path,
        options: ImportOptions,
        known: Option<KnownContent>,
        by_record: bool,
    ) -> Result<Source, ImportError> {
        let known = known.unwrap_or_default();
        let (content, format, compression) = Content::open(File::open(path).map_err(unreadable)?)?;
        let mut records: Box<dyn RecordReader> = match format {
            Format::JsonLines => Box::new(Lines::new(content)),
            Format::JsonArray => Box::new(Elements::new(content)),
            Format::Csv(delimiter) => Box::new(Table::open(content, delimiter, known.columns.clone())?),
            Format::Parquet => Box::new(TableRecords::open(File::open(path).map_err(unreadable)?)?),
        };
        let extra = options.extra.unwrap_or(match format {
            Format::Parquet => ExtraFields::Properties,
            _ => ExtraFields::Refuse,
        });
        let pending = records.next()?;
        let (vendor, recognised_by) = match options.from {
            Some(vendor) => (vendor, None),
            None if !options.map.is_empty() => (Vendor::Pennon, None),
            None => match recognise(records.as_ref(), pending.as_ref()) {
                Some((vendor, by)) => (vendor, Some(by)),
                None => (Vendor::Pennon, None),
            },
        };
        let mapping = vendor.mapping(&options);
        if let Some(columns) = records.columns() {
            let checked = mapping.check_columns(columns, extra);
            checked.map_err(|message| match format {
                Format::Csv(_) => ImportError::of_line(1, message),
                _ => ImportError::of_content(message),
            })?;
        }
        let description = SourceDescription {
            format: format.name(),
            compression: compression.name(),
            vendor: vendor.name(),
            recognised_by,
            mapping: mapping.describe(),
            times: Vec::new(),
        };
        let is_direct = format == Format::Parquet
            && vendor == Vendor::Pennon
            && options.map.is_empty()
            && extra == ExtraFields::Properties
            && !by_record;
        let (reader, pending) = match is_direct {
            true => (Reader::Rows(Box::new(Rows::open(File::open(path).map_err(unreadable)?)?)), None),
            false => (Reader::Records(records), pending),
        };
        let path = path.to_owned();
        let times = TimeFields::default();
        Ok(Source { path, reader, format, mapping, pending, options, extra, known, times, description })
    }

    /// What the next record says, and its number; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Mapped)>, ImportError> {
        let Reader::Records(records) = &mut self.reader else { return Ok(None) };
        let record = match self.pending.take() {
            Some(record) => Some(record),
            None => records.next()?,
        };
        let Some(RawRecord { number, fields }) = record else { return Ok(None) };
        let mut context = Context {
            line: number,
            options: &self.options,
            extra: self.extra,
            content: &self.known.digest,
            times: &mut self.times,
        };
        let mapped = self.mapping.map(fields, &mut context);
        let unit = self.format.unit();
        let mapped = mapped.map_err(|message| ImportError::of_line(number, message).in_unit(unit))?;
        Ok(Some((number, mapped)))
    }

    /// Checks up to `most` records, and takes what they say of persons and groups. Returns how many there were.
    pub(super) fn check(
        &mut self,
        most: u64,
        people: &mut People,
        counts: &mut Counts,
    ) -> Result<u64, ImportError> {
        let mut checked = 0;
        while checked < most {
            if let Reader::Rows(rows) = &mut self.reader {
                if !rows.check(&self.options, people)? {
                    break;
                }
                counts.events += 1;
            } else {
                let Some((number, mapped)) = self.next()? else { break };
                let unit = self.format.unit();
                for fact in mapped.facts {
                    let taken = people.take(mapped.project, fact);
                    taken.map_err(|message| ImportError::of_line(number, message).in_unit(unit))?;
                }
                for rule in mapped.ignored {
                    *counts.ignored.entry(rule).or_default() += 1;
                }
                match mapped.record {
                    Some(Record::Event(_)) => counts.events += 1,
                    Some(Record::Person(_)) => counts.persons += 1,
                    Some(Record::Group(_)) => counts.groups += 1,
                    None => {}
                }
            }
            checked += 1;
        }
        counts.lines += checked;
        Ok(checked)
    }

    /// Puts up to `most` records into `chunk`, until it is full. Returns how many were read.
    pub(super) fn take(&mut self, most: u64, chunk: &mut Chunk) -> Result<u64, ImportError> {
        let mut taken = 0;
        while taken < most && !chunk.is_full() {
            if let Reader::Rows(rows) = &mut self.reader {
                let digest = &self.known.digest;
                if !rows.take(&self.options, digest, |project| chunk.columns(project))? {
                    break;
                }
            } else {
                let Some((line, mapped)) = self.next()? else { break };
                if let Some(record) = mapped.record {
                    let put = chunk.put(Placed { line, project: mapped.project, record });
                    put.map_err(|error| ImportError::of_line(line, error.to_string()))?;
                }
            }
            taken += 1;
        }
        chunk.records += taken;
        Ok(taken)
    }

    /// What one of its records is called in messages.
    pub(super) fn unit(&self) -> &'static str {
        self.format.unit()
    }

    /// How much has been read, and of how much.
    pub(super) fn position(&self) -> (u64, u64) {
        match &self.reader {
            Reader::Rows(rows) => (rows.rows_read(), rows.rows()),
            Reader::Records(records) => records.position(),
        }
    }

    /// What was found out, once it has been read to its end.
    pub(super) fn known(&self) -> Result<KnownContent, ImportError> {
        let (digest, columns) = match &self.reader {
            Reader::Rows(_) => (None, None),
            Reader::Records(records) => (records.digest(), records.column_kinds()),
        };
        let digest = match digest {
            Some(digest) => digest,
            None => {
                File::open(&self.path).and_then(|mut file| rows::digest(&mut file)).map_err(unreadable)?
            }
        };
        Ok(KnownContent { digest, columns })
    }

    /// What the file is, with the forms of the times that were read so far.
    pub(super) fn description(&self) -> SourceDescription {
        let times = match &self.reader {
            Reader::Rows(rows) => rows.times(),
            Reader::Records(_) => &self.times,
        };
        SourceDescription { times: times.forms().collect(), ..self.description.clone() }
    }
}

/// Whose file it is, by its columns and its first record.
fn recognise(records: &dyn RecordReader, first: Option<&RawRecord>) -> Option<(Vendor, String)> {
    let mut fields: Map<String, Value> =
        records.columns().into_iter().flatten().map(|column| (column.clone(), Value::Null)).collect();
    fields.extend(first.map(|record| record.fields.clone()).unwrap_or_default());
    Vendor::recognise(&fields)
}
