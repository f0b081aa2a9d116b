//! The event store's answer to a calculation: blocks and segments as one set of events, in the engine's order.
//!
//! Must stay true: what a scan gives does not depend on what has been compacted or imported when; memory is bounded,
//! larger questions are refused; nothing is decoded on a thread that must not block.

pub(crate) mod chunk;
pub(crate) mod merge;

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::RowSelection;
use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::{EventSelection, Partition, ScanRequest};

use crate::EventStore;
use crate::error::EventStoreError;
use crate::resolution::Resolution;
use crate::segment::prune;
use crate::segment::read::SegmentFile;
use crate::tail::Choice;
use chunk::{Chunk, GROUPS, Source, Wanted};

/// Most rows of one scan.
pub const ROWS_MAX: u64 = 12_000_000;
/// Most values (rows times columns) of one scan.
pub const VALUES_MAX: u64 = 100_000_000;

/// What a scan gives.
#[derive(Debug, Default)]
pub struct Scan {
    /// The events, by shares of the persons.
    pub partitions: Vec<Partition>,
    /// What it took.
    pub stats: ScanStats,
}

/// What a scan took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Events in the partitions.
    pub rows: u64,
    /// Rows decoded to find them, those of neighbouring pages included.
    pub rows_decoded: u64,
    /// Bytes of column data read from the object store.
    pub bytes_read: u64,
    /// Segments that were looked into.
    pub segments: u64,
    /// Events in blocks that wait for compaction.
    pub hot_rows: u64,
}

/// A row group of a segment, and which of its rows to decode.
struct Task {
    file: Arc<SegmentFile>,
    group: usize,
    selection: RowSelection,
}

impl EventStore {
    /// The events that `request` names, of a project whose group types have these names, by index.
    ///
    /// [`EventStoreError::TooLarge`] when they are more than [`ROWS_MAX`], or take more than [`VALUES_MAX`] values.
    pub async fn scan(
        &self,
        project: ProjectId,
        group_types: &[String],
        request: &ScanRequest,
    ) -> Result<Scan, EventStoreError> {
        let wanted = Arc::new(Wanted::new(request, group_types));
        let snapshot = self.snapshot_of(project, choice(&wanted)).await?;
        let mut stats = ScanStats { hot_rows: snapshot.hot_events, ..ScanStats::default() };
        let hot = self.not_in_segments(&snapshot.manifest, snapshot.hot).await?;

        let names = match &request.events {
            EventSelection::All => None,
            EventSelection::Named(names) => Some(names),
        };
        let mut tasks = Vec::new();
        let mut rows = hot.len() as u64;
        for entry in
            snapshot.manifest.segments.iter().filter(|entry| entry.may_have(names, request.from, request.to))
        {
            let file = self.segment(entry).await?;
            stats.segments += 1;
            for (group, selection) in prune::select(file.metadata(), request) {
                rows += selection.row_count() as u64;
                tasks.push(Task { file: file.clone(), group, selection });
            }
            check(rows, wanted.columns.len())?;
        }
        check(rows, wanted.columns.len())?;
        stats.rows_decoded = rows;
        let (mut chunks, bytes_read) = self.decode(tasks, &wanted, &snapshot.resolution).await?;
        stats.bytes_read = bytes_read;
        chunks.push(Chunk::of_rows(&hot, &wanted, &snapshot.resolution));
        drop(hot);
        let partitions = merged(chunks, &wanted).await?;
        stats.rows =
            partitions.iter().flat_map(|partition| &partition.runs).map(|run| run.times.len() as u64).sum();
        Ok(Scan { partitions, stats })
    }

    async fn decode(
        &self,
        tasks: Vec<Task>,
        wanted: &Arc<Wanted>,
        resolution: &Arc<Resolution>,
    ) -> Result<(Vec<Chunk>, u64), EventStoreError> {
        let decoded = tasks.into_iter().map(|task| {
            let (wanted, resolution) = (wanted.clone(), resolution.clone());
            async move {
                let columns = wanted.projection(&task.file.footer);
                let objects = &self.inner.objects;
                let decoded = task.file.decode(objects, task.group, Some(task.selection), &columns).await?;
                let chunks = tokio::task::spawn_blocking(move || {
                    let batches = decoded.batches.iter();
                    let chunks =
                        batches.map(|batch| Chunk::of_batch(batch, &task.file.footer, &wanted, &resolution));
                    chunks.collect::<Result<Vec<_>, _>>()
                });
                Ok::<_, EventStoreError>((chunks.await??, decoded.bytes_read))
            }
        });
        let decoded = futures::stream::iter(decoded).buffered(cores() * 2).try_collect::<Vec<_>>().await?;
        let bytes = decoded.iter().map(|(_, bytes)| bytes).sum();
        Ok((decoded.into_iter().flat_map(|(chunks, _)| chunks).collect(), bytes))
    }
}

/// What of blocks a request needs.
fn choice(wanted: &Arc<Wanted>) -> Choice {
    let (named, asked) = (wanted.clone(), wanted.clone());
    let asks_for = move |key: &str| {
        asked.columns.iter().any(|(_, source)| match source {
            Source::DistinctId => false,
            Source::AllProperties => true,
            Source::Property(wanted) => wanted == key,
            Source::Group { own, .. } => own == key || key == GROUPS,
        })
    };
    let (from, to) = (wanted.request.from, wanted.request.to);
    // The name is judged here, at a time that is always wanted if any is.
    let event = Arc::new(move |event: &str| named.has(event, from));
    Choice { event, from, to, property: Arc::new(asks_for) }
}

async fn merged(chunks: Vec<Chunk>, wanted: &Wanted) -> Result<Vec<Partition>, EventStoreError> {
    let keys = Arc::new(wanted.columns.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>());
    let chunks = Arc::new(chunks);
    let dealing = chunks.clone();
    let buckets = tokio::task::spawn_blocking(move || merge::deal(&dealing)).await?;
    let partitions = buckets.into_iter().map(|bucket| {
        let (chunks, keys) = (chunks.clone(), keys.clone());
        tokio::task::spawn_blocking(move || merge::partition(&chunks, bucket, &keys))
    });
    futures::stream::iter(partitions).buffered(cores()).map_err(Into::into).try_collect().await
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

fn check(rows: u64, columns: usize) -> Result<(), EventStoreError> {
    if rows > ROWS_MAX || rows * columns as u64 > VALUES_MAX {
        return Err(EventStoreError::TooLarge(format!(
            "The question covers about {rows} events with {columns} properties; at most {ROWS_MAX} events and \
             {VALUES_MAX} values are read for one. Narrow the dates or the events."
        )));
    }
    Ok(())
}
