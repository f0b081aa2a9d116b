//! Partial reads of a Parquet object: footer and page index once, then only the requested pages. The page
//! locations of a column are decoded on its first use: decoding them for all columns would cost as much as many
//! queries.
//!
//! Must stay true: decoding runs on blocking threads; a damaged file is an error that names it. The public interface is
//! [`ParquetFile`].

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use uuid::Uuid;

use super::decoding::DecodeThreads;
use super::page_index::PageIndex;
use crate::error::EventStoreError;
use crate::objects::Objects;

/// Bytes read first from the end of a file, which hold footer and page index of most files: this share of it, within bounds. Of a
/// bucket, a second read costs more than all of these bytes.
const TAIL_DIVISOR: u64 = 256;
const TAIL_BYTES_MIN: u64 = 128 * 1024;
const TAIL_BYTES_MAX: u64 = 1024 * 1024;

/// Which parts of the page index are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageIndexParts {
    /// Page locations.
    Places,
    /// Minimum and maximum values too, for [`ParquetFile::rows_with_ids`].
    PlacesAndBounds,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    pub object: String,
    pub(in crate::segments) objects: Objects,
    reader: ArrowReaderMetadata,
}

/// Rows decoded from one row group.
pub(crate) struct DecodedColumns {
    pub batches: Vec<RecordBatch>,
    pub bytes_read: u64,
}

impl ParquetFile {
    /// Reads the footer of `object`, which has `size` bytes.
    pub(crate) async fn open(
        objects: &Objects,
        object: &str,
        bytes: u64,
        index: PageIndexParts,
    ) -> Result<ParquetFile, EventStoreError> {
        let damaged = |e: EventStoreError| match e {
            EventStoreError::Corrupt(what) => EventStoreError::Corrupt(format!("{object}: {what}")),
            other => other,
        };
        let metadata = metadata(objects, object, bytes, index).await.map_err(damaged)?;
        let reader = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
            .map_err(|e| damaged(e.into()))?;
        Ok(ParquetFile { object: object.to_owned(), objects: objects.clone(), reader })
    }

    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.reader.metadata()
    }

    /// Number of row groups.
    pub(crate) fn groups(&self) -> usize {
        self.metadata().num_row_groups()
    }

    /// Number of rows of a row group.
    pub(crate) fn group_rows(&self, group: usize) -> usize {
        usize::try_from(self.metadata().row_group(group).num_rows()).unwrap_or(0)
    }

    /// The names of all its columns.
    pub(crate) fn columns(&self) -> Vec<String> {
        self.reader.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Whether a column has no value in a row group, by the footer.
    pub(crate) fn is_null(&self, group: usize, column: &str) -> bool {
        let group = self.metadata().row_group(group);
        let rows = u64::try_from(group.num_rows()).ok();
        let of_name = group.columns().iter().find(|of| of.column_descr().name() == column);
        let nulls = of_name.and_then(|of| of.statistics()?.null_count_opt());
        nulls.is_some() && nulls == rows
    }

    /// Decodes the named columns of the selected rows of a row group.
    pub(crate) async fn decode<S: AsRef<str>>(
        &self,
        group: usize,
        selection: Option<RowSelection>,
        columns: &[S],
    ) -> Result<DecodedColumns, EventStoreError> {
        self.decode_on(DecodeThreads::Any, (group, selection), columns).await
    }

    /// As above for a scan, see [`decode_in_turn`](super::decode_in_turn).
    pub(crate) async fn decode_in_turn<S: AsRef<str>>(
        &self,
        group: usize,
        selection: Option<RowSelection>,
        columns: &[S],
    ) -> Result<DecodedColumns, EventStoreError> {
        self.decode_on(DecodeThreads::InTurn, (group, selection), columns).await
    }

    async fn decode_on<S: AsRef<str>>(
        &self,
        threads: DecodeThreads,
        (group, selection): (usize, Option<RowSelection>),
        columns: &[S],
    ) -> Result<DecodedColumns, EventStoreError> {
        let rows = self.group_rows(group);
        let read = Vec::new();
        let push = |read: &mut Vec<RecordBatch>, batch| {
            read.push(batch);
            Ok(())
        };
        let place = (group, selection);
        let (batches, bytes_read) = self.decode_steps(threads, place, columns, rows, (read, push)).await?;
        Ok(DecodedColumns { batches, bytes_read })
    }

    /// As above, in batches of at most so many rows: `add` is called with `to` and each batch, on blocking
    /// threads. Returns `to` and the bytes read.
    pub(crate) async fn decode_by<S: AsRef<str>, T: Send + 'static>(
        &self,
        place: (usize, Option<RowSelection>),
        columns: &[S],
        rows: usize,
        to: T,
        add: impl Fn(&mut T, RecordBatch) -> Result<(), EventStoreError> + Copy + Send + 'static,
    ) -> Result<(T, u64), EventStoreError> {
        self.decode_steps(DecodeThreads::Any, place, columns, rows, (to, add)).await
    }

    async fn decode_steps<S: AsRef<str>, T: Send + 'static>(
        &self,
        threads: DecodeThreads,
        (group, selection): (usize, Option<RowSelection>),
        columns: &[S],
        rows: usize,
        (mut to, add): (
            T,
            impl Fn(&mut T, RecordBatch) -> Result<(), EventStoreError> + Copy + Send + 'static,
        ),
    ) -> Result<(T, u64), EventStoreError> {
        let requested = |name: &str| columns.iter().any(|column| column.as_ref() == name);
        let schema = self.reader.schema();
        let places = schema.fields().iter().enumerate().filter(|(_, field)| requested(field.name()));
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
        // The first step decodes nothing: it plans the reads, which therefore do not wait for a turn.
        let mut step_threads = DecodeThreads::Any;
        loop {
            let (back, added, requested) = step_threads.run(move || step(decoder, to, add)).await??;
            step_threads = threads;
            let Some(ranges) = requested else { return Ok((added, bytes_read)) };
            (decoder, to) = (back, added);
            let parts = self.objects.ranges(&self.object, &ranges).await?;
            bytes_read += parts.iter().map(|part| part.len() as u64).sum::<u64>();
            decoder.push_ranges(ranges, parts)?;
        }
    }

    /// Selects the rows of a row group whose 16-byte `column` may hold one of `ids`; none when no page can.
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

    /// None if the file has no usable index, and all pages have to be read.
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

/// Decodes until bytes are missing (returns which) or the rows end.
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
    index: PageIndexParts,
) -> Result<ParquetMetaData, EventStoreError> {
    let policy = match index {
        PageIndexParts::Places => PageIndexPolicy::Skip,
        PageIndexParts::PlacesAndBounds => PageIndexPolicy::Optional,
    };
    let mut decoder = ParquetMetaDataPushDecoder::try_new(bytes)?.with_page_index_policy(policy);
    let tail_start = bytes.saturating_sub((bytes / TAIL_DIVISOR).clamp(TAIL_BYTES_MIN, TAIL_BYTES_MAX));
    let from_tail = tail_start..bytes;
    let mut requested = Vec::from([from_tail]);
    let mut tail = None;
    let metadata = loop {
        let parts = objects.ranges(object, &requested).await?;
        tail = tail.or_else(|| parts.first().cloned());
        decoder.push_ranges(requested, parts)?;
        match decoder.try_decode()? {
            DecodeResult::Data(metadata) => break metadata,
            DecodeResult::NeedsData(ranges) => requested = ranges,
            DecodeResult::Finished => return Err(EventStoreError::corrupt("no footer")),
        }
    };
    let Some(places) = places(&metadata).filter(|_| index == PageIndexParts::Places) else {
        return Ok(metadata);
    };
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

/// The byte range of all page locations. None if any column has none.
fn places(metadata: &ParquetMetaData) -> Option<Range<u64>> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let ranges = columns.map(|column| column.offset_index_range()).collect::<Option<Vec<_>>>()?;
    let (start, end) =
        (ranges.iter().map(|range| range.start).min()?, ranges.iter().map(|range| range.end).max()?);
    Some(start..end)
}
