//! A Parquet object that is read in parts: footer and page index once, then only the pages that somebody wants. Where the
//! pages of a column lie is decoded when the column is first read: that of all columns costs as much as many a question.
//!
//! Must stay true: decoding happens on threads that may block; a damaged file is an error that names it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::objects::Objects;
use crate::segments::parquet_io::page_index::PageIndex;

/// What is read at first from the end of a file: footer and page index of most files.
const TAIL_BYTES: u64 = 128 * 1024;

/// What is read of the index of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Index {
    /// Where pages lie.
    Places,
    /// Their smallest and largest values too, for [`ParquetFile::rows_with_ids`].
    PlacesAndBounds,
}

/// An opened file.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    pub object: String,
    reader: ArrowReaderMetadata,
}

/// Rows decoded from one row group.
pub(crate) struct Decoded {
    pub batches: Vec<RecordBatch>,
    pub bytes_read: u64,
}

impl ParquetFile {
    /// Reads the footer of `object`, which has so many bytes.
    pub(crate) async fn open(
        objects: &Objects,
        object: &str,
        bytes: u64,
        index: Index,
    ) -> Result<ParquetFile, EventStoreError> {
        let damaged = |e: EventStoreError| match e {
            EventStoreError::Corrupt(what) => EventStoreError::Corrupt(format!("{object}: {what}")),
            other => other,
        };
        let metadata = metadata(objects, object, bytes, index).await.map_err(damaged)?;
        let reader = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
            .map_err(|e| damaged(e.into()))?;
        Ok(ParquetFile { object: object.to_owned(), reader })
    }

    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.reader.metadata()
    }

    /// How many row groups it has.
    pub(crate) fn groups(&self) -> usize {
        self.metadata().num_row_groups()
    }

    /// How many rows a row group has.
    pub(crate) fn group_rows(&self, group: usize) -> usize {
        usize::try_from(self.metadata().row_group(group).num_rows()).unwrap_or(0)
    }

    /// The names of all its columns.
    pub(crate) fn columns(&self) -> Vec<String> {
        self.reader.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The named columns of the selected rows of a row group.
    pub(crate) async fn decode<S: AsRef<str>>(
        &self,
        objects: &Objects,
        group: usize,
        selection: Option<RowSelection>,
        columns: &[S],
    ) -> Result<Decoded, EventStoreError> {
        let rows = self.group_rows(group);
        let read = Vec::new();
        let push = |read: &mut Vec<RecordBatch>, batch| {
            read.push(batch);
            Ok(())
        };
        let (batches, bytes_read) =
            self.decode_by(objects, (group, selection), columns, rows, read, push).await?;
        Ok(Decoded { batches, bytes_read })
    }

    /// The same, at most so many rows at once: `add` is called with `to` and one batch after the other, on threads that
    /// may block. Returns `to`, and how many bytes were read.
    pub(crate) async fn decode_by<S: AsRef<str>, T: Send + 'static>(
        &self,
        objects: &Objects,
        (group, selection): (usize, Option<RowSelection>),
        columns: &[S],
        rows: usize,
        mut to: T,
        add: impl Fn(&mut T, RecordBatch) -> Result<(), EventStoreError> + Copy + Send + 'static,
    ) -> Result<(T, u64), EventStoreError> {
        let wanted = |name: &str| columns.iter().any(|column| column.as_ref() == name);
        let schema = self.reader.schema();
        let places = schema.fields().iter().enumerate().filter(|(_, field)| wanted(field.name()));
        let mask = ProjectionMask::leaves(self.reader.parquet_schema(), places.map(|(place, _)| place));
        let mut builder = ParquetPushDecoderBuilder::new_with_metadata(self.reader.clone())
            .with_projection(mask)
            .with_batch_size(rows.max(1))
            .with_row_groups(vec![group]);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        let mut decoder = builder.build()?;
        let mut bytes_read = 0;
        loop {
            let (back, added, wanted) = tokio::task::spawn_blocking(move || step(decoder, to, add)).await??;
            let Some(ranges) = wanted else { return Ok((added, bytes_read)) };
            (decoder, to) = (back, added);
            let parts = objects.ranges(&self.object, &ranges).await?;
            bytes_read += parts.iter().map(|part| part.len() as u64).sum::<u64>();
            decoder.push_ranges(ranges, parts)?;
        }
    }

    /// The rows of a row group whose `column` of 16-byte ids may hold one of `ids`; none when no page can.
    pub(crate) fn rows_with_ids(
        &self,
        group: usize,
        column: &str,
        ids: &BTreeSet<Uuid>,
    ) -> Option<RowSelection> {
        let rows = self.group_rows(group);
        let columns = self.metadata().file_metadata().schema_descr().columns();
        let place = columns.iter().position(|found| found.name() == column);
        let ranges = place.and_then(|place| self.pages_with_ids(group, place, rows, ids));
        let all = std::iter::once(0..rows).collect();
        let selection = RowSelection::from_consecutive_ranges(ranges.unwrap_or(all).into_iter(), rows);
        selection.selects_any().then_some(selection)
    }

    /// None where the file has no usable index, and everything has to be looked at.
    fn pages_with_ids(
        &self,
        group: usize,
        column: usize,
        rows: usize,
        ids: &BTreeSet<Uuid>,
    ) -> Option<Vec<Range<usize>>> {
        let provider = self.metadata().page_index()?;
        let ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) = provider.column_index(group, column)? else {
            return None;
        };
        let locations = provider.offset_index(group, column)?.page_locations();
        let starts = locations.iter().map(|page| usize::try_from(page.first_row_index).ok());
        let mut starts = starts.collect::<Option<Vec<_>>>()?;
        starts.push(rows);
        if starts.first() != Some(&0) || !starts.is_sorted() {
            return None;
        }
        let may_hold = |page: usize| {
            let bounds = (index.min_value(page), index.max_value(page));
            let (Some(min), Some(max)) = bounds else { return true };
            let (Ok(min), Ok(max)) = (Uuid::from_slice(min), Uuid::from_slice(max)) else { return true };
            min > max || ids.range(min..=max).next().is_some()
        };
        let pages = (0..starts.len() - 1).filter(|page| may_hold(*page));
        Some(pages.map(|page| starts[page]..starts[page + 1]).collect())
    }
}

type Step<T> = (ParquetPushDecoder, T, Option<Vec<Range<u64>>>);

/// Decodes until bytes are missing (then says which) or there are no more rows.
fn step<T>(
    mut decoder: ParquetPushDecoder,
    mut to: T,
    add: impl Fn(&mut T, RecordBatch) -> Result<(), EventStoreError>,
) -> Result<Step<T>, EventStoreError> {
    loop {
        match decoder.try_decode()? {
            DecodeResult::Data(batch) => add(&mut to, batch)?,
            DecodeResult::NeedsData(ranges) => return Ok((decoder, to, Some(ranges))),
            DecodeResult::Finished => return Ok((decoder, to, None)),
        }
    }
}

async fn metadata(
    objects: &Objects,
    object: &str,
    bytes: u64,
    index: Index,
) -> Result<ParquetMetaData, EventStoreError> {
    let policy = match index {
        Index::Places => PageIndexPolicy::Skip,
        Index::PlacesAndBounds => PageIndexPolicy::Optional,
    };
    let mut decoder = ParquetMetaDataPushDecoder::try_new(bytes)?.with_page_index_policy(policy);
    let tail_start = bytes.saturating_sub(TAIL_BYTES);
    let from_tail = tail_start..bytes;
    let mut wanted = Vec::from([from_tail]);
    let mut tail = None;
    let metadata = loop {
        let parts = objects.ranges(object, &wanted).await?;
        tail = tail.or_else(|| parts.first().cloned());
        decoder.push_ranges(wanted, parts)?;
        match decoder.try_decode()? {
            DecodeResult::Data(metadata) => break metadata,
            DecodeResult::NeedsData(ranges) => wanted = ranges,
            DecodeResult::Finished => return Err(EventStoreError::corrupt("no footer")),
        }
    };
    let Some(places) = places(&metadata).filter(|_| index == Index::Places) else { return Ok(metadata) };
    let (start, read) = match tail {
        Some(tail) if places.start >= tail_start => (tail_start, tail),
        _ => {
            let read = objects.ranges(object, std::slice::from_ref(&places)).await?;
            (places.start, read.into_iter().next().unwrap_or_default())
        }
    };
    let places = PageIndex::new(&metadata, start, read);
    Ok(metadata.into_builder().set_page_index(Some(Arc::new(places))).build())
}

/// Where the file says where pages lie: one range for all columns. None where some column has no such index.
fn places(metadata: &ParquetMetaData) -> Option<Range<u64>> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let ranges = columns.map(|column| column.offset_index_range()).collect::<Option<Vec<_>>>()?;
    let (start, end) =
        (ranges.iter().map(|range| range.start).min()?, ranges.iter().map(|range| range.end).max()?);
    Some(start..end)
}
