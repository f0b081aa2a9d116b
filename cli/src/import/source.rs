//! Reads a file of any format with the mapping of its vendor: yields records to store, and updates of persons and groups to
//! fold.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::chunk::Chunk;
use super::detect::RecordFormat;
use super::error::ImportError;
use super::formats::array::ArrayReader;
use super::formats::content::Content;
use super::formats::csv::{ColumnKind, CsvReader};
use super::formats::lines::LineReader;
use super::formats::parquet::ParquetReader;
use super::formats::parquet_events::{self, ParquetEventReader};
use super::formats::{RawRecord, RecordReader};
use super::mappings::{MappedRecord, Mapping, MappingContext, Vendor};
use super::people::PeopleBuilder;
use super::record::{ImportRecord, SourceRecord};
use super::report::SourceDescription;
use super::time::TimeFormats;
use super::{ExtraFields, ImportOptions};

/// Results of the first pass that the second pass needs.
#[derive(Debug, Clone, Default)]
pub(super) struct ContentInfo {
    /// The SHA-256 of the content, from which uuids are derived.
    pub digest: [u8; 32],
    /// The types of the columns of a CSV file.
    pub columns: Option<Vec<ColumnKind>>,
}

/// Counts of the first pass.
#[derive(Debug, Default)]
pub(super) struct FirstPassCounts {
    pub lines: u64,
    pub events: u64,
    pub persons: u64,
    pub groups: u64,
    /// Records with dropped fields, by the rule that drops them.
    pub ignored: BTreeMap<&'static str, u64>,
}

/// A file that is being read.
pub(super) struct ImportSource {
    path: PathBuf,
    reader: Reader,
    format: RecordFormat,
    mapping: Box<dyn Mapping>,
    /// The first record, which was read to detect the vendor.
    first: Option<RawRecord>,
    options: ImportOptions,
    extra: ExtraFields,
    content_info: ContentInfo,
    times: TimeFormats,
    description: SourceDescription,
}

enum Reader {
    /// Parquet with the columns of an event, which is read without an object per row.
    ParquetEvents(Box<ParquetEventReader>),
    Records(Box<dyn RecordReader>),
}

fn unreadable(error: std::io::Error) -> ImportError {
    ImportError::for_content(format!("cannot be read: {error}"))
}

impl ImportSource {
    /// Opens a file. `content_info` is the result of the first pass; with `by_record` Parquet is always read row by row.
    pub(super) fn open(
        path: &Path,
        options: ImportOptions,
        content_info: Option<ContentInfo>,
        by_record: bool,
    ) -> Result<ImportSource, ImportError> {
        let content_info = content_info.unwrap_or_default();
        let (content, format, compression) = Content::open(File::open(path).map_err(unreadable)?)?;
        let mut records: Box<dyn RecordReader> = match format {
            RecordFormat::JsonLines => Box::new(LineReader::new(content)),
            RecordFormat::JsonArray => Box::new(ArrayReader::new(content)),
            RecordFormat::Csv(delimiter) => {
                Box::new(CsvReader::open(content, delimiter, content_info.columns.clone())?)
            }
            RecordFormat::Parquet => Box::new(ParquetReader::open(File::open(path).map_err(unreadable)?)?),
        };
        let extra = options.extra.unwrap_or(match format {
            RecordFormat::Parquet => ExtraFields::Properties,
            _ => ExtraFields::Refuse,
        });
        let first = records.next()?;
        let (vendor, recognised_by) = match options.from {
            Some(vendor) => (vendor, None),
            None if !options.map.is_empty() => (Vendor::Pennon, None),
            None => match detect_vendor(records.as_ref(), first.as_ref()) {
                Some((vendor, by)) => (vendor, Some(by)),
                None => (Vendor::Pennon, None),
            },
        };
        let mapping = vendor.mapping(&options);
        if let Some(columns) = records.columns() {
            let checked = mapping.check_columns(columns, extra);
            checked.map_err(|message| match format {
                RecordFormat::Csv(_) => ImportError::at_line(1, message),
                _ => ImportError::for_content(message),
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
        let is_parquet_of_events = format == RecordFormat::Parquet
            && vendor == Vendor::Pennon
            && options.map.is_empty()
            && extra == ExtraFields::Properties
            && !by_record;
        let (reader, first) = match is_parquet_of_events {
            true => (
                Reader::ParquetEvents(Box::new(ParquetEventReader::open(
                    File::open(path).map_err(unreadable)?,
                )?)),
                None,
            ),
            false => (Reader::Records(records), first),
        };
        let path = path.to_owned();
        let times = TimeFormats::default();
        Ok(ImportSource {
            path,
            reader,
            format,
            mapping,
            first,
            options,
            extra,
            content_info,
            times,
            description,
        })
    }

    /// The next record after mapping, with its number; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, MappedRecord)>, ImportError> {
        let Reader::Records(records) = &mut self.reader else { return Ok(None) };
        let record = match self.first.take() {
            Some(record) => Some(record),
            None => records.next()?,
        };
        let Some(RawRecord { number, fields }) = record else { return Ok(None) };
        let mut context = MappingContext {
            line: number,
            options: &self.options,
            extra: self.extra,
            content: &self.content_info.digest,
            times: &mut self.times,
        };
        let mapped = self.mapping.map(fields, &mut context);
        let unit = self.format.unit();
        let mapped = mapped.map_err(|message| ImportError::at_line(number, message).with_unit(unit))?;
        Ok(Some((number, mapped)))
    }

    /// Validates at most `limit` records, and applies their updates to `people`. Returns the number of records.
    pub(super) fn check(
        &mut self,
        limit: u64,
        people: &mut PeopleBuilder,
        counts: &mut FirstPassCounts,
    ) -> Result<u64, ImportError> {
        let mut checked = 0;
        while checked < limit {
            if let Reader::ParquetEvents(rows) = &mut self.reader {
                if !rows.check(&self.options, people)? {
                    break;
                }
                counts.events += 1;
            } else {
                let Some((number, mapped)) = self.next()? else { break };
                let unit = self.format.unit();
                for update in mapped.updates {
                    let applied = people.apply(mapped.project, update);
                    applied.map_err(|message| ImportError::at_line(number, message).with_unit(unit))?;
                }
                for rule in mapped.ignored {
                    *counts.ignored.entry(rule).or_default() += 1;
                }
                match mapped.record {
                    Some(ImportRecord::Event(_)) => counts.events += 1,
                    Some(ImportRecord::Person(_)) => counts.persons += 1,
                    Some(ImportRecord::Group(_)) => counts.groups += 1,
                    None => {}
                }
            }
            checked += 1;
        }
        counts.lines += checked;
        Ok(checked)
    }

    /// Reads at most `limit` records into `chunk`, until it is full. Returns the number of records.
    pub(super) fn read_into(&mut self, chunk: &mut Chunk, limit: u64) -> Result<u64, ImportError> {
        let mut read = 0;
        while read < limit && !chunk.is_full() {
            if let Reader::ParquetEvents(rows) = &mut self.reader {
                let digest = &self.content_info.digest;
                if !rows.read_into(&self.options, digest, |project| chunk.columns(project))? {
                    break;
                }
            } else {
                let Some((line, mapped)) = self.next()? else { break };
                if let Some(record) = mapped.record {
                    let pushed = chunk.push(SourceRecord { line, project: mapped.project, record });
                    pushed.map_err(|error| ImportError::at_line(line, error.to_string()))?;
                }
            }
            read += 1;
        }
        chunk.records += read;
        Ok(read)
    }

    /// The word for a record in messages.
    pub(super) fn unit(&self) -> &'static str {
        self.format.unit()
    }

    /// How much was read, and the total, in bytes or rows.
    pub(super) fn position(&self) -> (u64, u64) {
        match &self.reader {
            Reader::ParquetEvents(rows) => (rows.rows_read(), rows.rows()),
            Reader::Records(records) => records.position(),
        }
    }

    /// The result of the first pass, after its end.
    pub(super) fn content_info(&self) -> Result<ContentInfo, ImportError> {
        let (digest, columns) = match &self.reader {
            Reader::ParquetEvents(_) => (None, None),
            Reader::Records(records) => (records.digest(), records.column_kinds()),
        };
        let digest = match digest {
            Some(digest) => digest,
            None => File::open(&self.path)
                .and_then(|mut file| parquet_events::hash_file(&mut file))
                .map_err(unreadable)?,
        };
        Ok(ContentInfo { digest, columns })
    }

    /// The description of the file, with the formats of the times that were read so far.
    pub(super) fn description(&self) -> SourceDescription {
        let times = match &self.reader {
            Reader::ParquetEvents(rows) => rows.times(),
            Reader::Records(_) => &self.times,
        };
        SourceDescription { times: times.formats().collect(), ..self.description.clone() }
    }
}

/// Detects the vendor by the columns and the first record.
fn detect_vendor(records: &dyn RecordReader, first: Option<&RawRecord>) -> Option<(Vendor, String)> {
    let mut fields: Map<String, Value> =
        records.columns().into_iter().flatten().map(|column| (column.clone(), Value::Null)).collect();
    fields.extend(first.map(|record| record.fields.clone()).unwrap_or_default());
    Vendor::detect(&fields)
}
