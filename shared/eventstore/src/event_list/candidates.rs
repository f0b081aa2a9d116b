//! Determines the next events of a list, by time and arrival order alone.
//!
//! A priority queue of unread parts of segments by their latest possible time, and one of the events read from
//! them. An event is next when no unread part can hold a later one. Must stay true: candidates come in
//! descending order of time and arrival, and events with equal time and arrival come in one batch.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use pennon_analytics::scan::{Micros, Seq};
use uuid::Uuid;

use super::{EventKey, EventList, EventListFilter};
use crate::error::EventStoreError;
use crate::manifest::{Manifest, SegmentEntry};
use crate::memory::{MemoryLease, Purpose, QueryMemory};
use crate::persons::PersonMerges;
use crate::segments::number_columns::{ColumnBytes, NumericColumn, NumericColumnReader, bytes_of};
use crate::segments::reader::SegmentFile;
use crate::segments::writer::range_of;
use crate::snapshots::BlockEvents;

/// Parts of the first read; doubled each time, up to [`PARTS_AT_ONCE_MAX`].
const PARTS_AT_ONCE: usize = 8;
const PARTS_AT_ONCE_MAX: usize = 128;
/// Files that are read concurrently.
const READS_AT_ONCE: usize = 16;

/// Location of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventLocation {
    /// Index into the events of blocks.
    Block(usize),
    /// Index of the file, row group and row.
    Segment(usize, usize, usize),
}

/// A candidate for the next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub time: Micros,
    pub seq: Seq,
    pub place: EventLocation,
}

/// An unread part with its latest possible time.
struct QueuedPart {
    latest: Micros,
    part: PendingPart,
}

enum PendingPart {
    Segment(Box<SegmentEntry>),
    /// Index of the file, row group, and rows of one run.
    Rows(usize, usize, Range<usize>),
}

impl PartialEq for QueuedPart {
    fn eq(&self, other: &QueuedPart) -> bool {
        self.latest == other.latest
    }
}

impl Eq for QueuedPart {}

impl PartialOrd for QueuedPart {
    fn partial_cmp(&self, other: &QueuedPart) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedPart {
    fn cmp(&self, other: &QueuedPart) -> std::cmp::Ordering {
        self.latest.cmp(&other.latest)
    }
}

/// The candidates that were not returned yet.
pub(super) struct Candidates {
    pub(super) list: EventList,
    pub(super) requested: Arc<EventListFilter>,
    pub(super) waiting: BlockEvents,
    pub(super) person_merges: PersonMerges,
    pub(super) files: Vec<Arc<SegmentFile>>,
    /// Bytes of segments that were read.
    pub(super) bytes_read: u64,
    /// The last one that was returned; its uuid is the smallest of its batch.
    pub(super) last: Option<EventKey>,
    /// All ids of the selected person; none means any person.
    persons: Option<BTreeSet<Uuid>>,
    unread: BinaryHeap<QueuedPart>,
    found: BinaryHeap<Candidate>,
    at_once: usize,
    lease: MemoryLease,
}

impl Candidates {
    pub(super) fn new(
        list: EventList,
        requested: Arc<EventListFilter>,
        manifest: &Manifest,
        waiting: BlockEvents,
        person_merges: PersonMerges,
        persons: Option<BTreeSet<Uuid>>,
        memory: &QueryMemory,
    ) -> Candidates {
        let is_of_person = |person: &Uuid| persons.as_ref().is_none_or(|ids| ids.contains(person));
        let of_blocks = waiting.rows.iter().enumerate().filter_map(|(at, row)| {
            let (time, seq) = (row.event.timestamp, row.seq);
            let is_requested = requested.may_have(time, seq) && is_of_person(&row.person);
            is_requested.then_some(Candidate { time, seq, place: EventLocation::Block(at) })
        });
        let found = of_blocks.collect();
        let (from, to) = (requested.after.saturating_add(1), requested.latest());
        let entries = manifest.segments.iter();
        let entries = entries.filter(|entry| entry.may_have(requested.names.as_ref(), from, to));
        let unread = entries.map(|entry| QueuedPart {
            latest: entry.max_time.min(to),
            part: PendingPart::Segment(Box::new(entry.clone())),
        });
        let unread = unread.collect();
        Candidates {
            lease: memory.lease(Purpose::Known),
            at_once: PARTS_AT_ONCE,
            files: Vec::new(),
            bytes_read: 0,
            last: None,
            list,
            requested,
            waiting,
            person_merges,
            persons,
            unread,
            found,
        }
    }

    /// The next `most` candidates, and those with the same time and arrival as the last of them; empty at the
    /// end.
    pub(super) async fn next(&mut self, most: usize) -> Result<Vec<Candidate>, EventStoreError> {
        let mut next: Vec<Candidate> = Vec::new();
        loop {
            let top = self.found.peek();
            if next.len() >= most
                && let Some(last) = next.last()
                && top.is_none_or(|top| (top.time, top.seq) != (last.time, last.seq))
            {
                break;
            }
            let latest_unread = self.unread.peek().map(|part| part.latest);
            match (top, latest_unread) {
                (Some(top), latest) if latest.is_none_or(|latest| top.time > latest) => {
                    next.push(*top);
                    self.found.pop();
                }
                (_, Some(_)) => self.read_parts().await?,
                (_, None) => break,
            }
        }
        if let Some(last) = next.last() {
            self.last = Some(EventKey { time: last.time, seq: last.seq, uuid: Uuid::nil() });
        }
        Ok(next)
    }

    /// Whether there is another candidate.
    pub(super) async fn has_more(&mut self) -> Result<bool, EventStoreError> {
        while self.found.is_empty() && !self.unread.is_empty() {
            self.read_parts().await?;
        }
        Ok(!self.found.is_empty())
    }

    /// Reads the parts with the latest possible times.
    async fn read_parts(&mut self) -> Result<(), EventStoreError> {
        let mut entries = Vec::new();
        let mut rows: BTreeMap<(usize, usize), Vec<Range<usize>>> = BTreeMap::new();
        for part in std::iter::from_fn(|| self.unread.pop()).take(self.at_once) {
            match part.part {
                PendingPart::Segment(entry) => entries.push(entry),
                PendingPart::Rows(file, group, range) => rows.entry((file, group)).or_default().push(range),
            }
        }
        self.at_once = (self.at_once * 2).min(PARTS_AT_ONCE_MAX);
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let opened = entries.iter().map(|entry| self.list.segments.open(entry)).collect::<Vec<_>>();
        let opened = futures::stream::iter(opened).buffered(READS_AT_ONCE).try_collect::<Vec<_>>().await?;
        for file in opened {
            self.add_file(file).await?;
        }
        let reads = rows.into_iter().map(|((file, group), mut ranges)| {
            ranges.sort_unstable_by_key(|range| range.start);
            read_rows((file, self.files[file].clone()), group, ranges, self.persons.as_ref())
        });
        let reads = futures::stream::iter(reads.collect::<Vec<_>>()).buffered(READS_AT_ONCE);
        let reads = reads.try_collect::<Vec<_>>().await?;
        for (read, bytes) in reads {
            self.bytes_read += bytes;
            self.found.extend(read.into_iter().filter(|one| self.requested.may_have(one.time, one.seq)));
        }
        self.lease.set((self.found.capacity() * size_of::<Candidate>()) as u64)
    }

    /// Adds the matching parts of a segment to the queue.
    async fn add_file(&mut self, file: Arc<SegmentFile>) -> Result<(), EventStoreError> {
        let at = self.files.len();
        self.files.push(file.clone());
        let (from, to) = (self.requested.after.saturating_add(1), self.requested.latest());
        let pages = match self.persons {
            // Rows of a person are contiguous; the person codes locate them.
            Some(_) => None,
            None => {
                let (pages, bytes) = file.page_times().await.map_err(|error| file.named(error))?;
                self.bytes_read += bytes;
                Some(pages)
            }
        };
        for (group, range) in file.footer.ranges.iter().enumerate() {
            let may_have =
                |ids: &BTreeSet<Uuid>| ids.iter().any(|id| range_of(*id, file.footer.bits) == range.number);
            if !self.persons.as_ref().is_none_or(may_have) {
                continue;
            }
            let pages = pages.and_then(|pages| pages.get(group)).map_or(&[][..], Vec::as_slice);
            let mut end = 0;
            for run in &range.runs {
                let rows = end..end + run.rows as usize;
                end = rows.end;
                let name = file.footer.names.get(run.name as usize);
                let is_named = name.is_some_and(|name| self.requested.is_named(name));
                if !is_named || run.min_time > to || run.max_time < from {
                    continue;
                }
                let first = pages.partition_point(|page| page.rows.end <= rows.start);
                let own = pages[first..].iter().take_while(|page| page.rows.start < rows.end);
                let mut parts = own
                    .map(|page| {
                        let rows = page.rows.start.max(rows.start)..page.rows.end.min(rows.end);
                        (page.max_time.min(run.max_time), rows)
                    })
                    .collect::<Vec<_>>();
                if parts.is_empty() {
                    parts.push((run.max_time, rows));
                }
                let parts = parts.into_iter().filter(|(latest, _)| *latest >= from);
                self.unread.extend(parts.map(|(latest, rows)| QueuedPart {
                    latest: latest.min(to),
                    part: PendingPart::Rows(at, group, rows),
                }));
            }
        }
        Ok(())
    }
}

/// Reads times and arrival order of rows of a row group, of the given persons if any. Returns the bytes read.
async fn read_rows(
    (at, file): (usize, Arc<SegmentFile>),
    group: usize,
    mut rows: Vec<Range<usize>>,
    persons: Option<&BTreeSet<Uuid>>,
) -> Result<(Vec<Candidate>, u64), EventStoreError> {
    let mut bytes_read = 0;
    if let Some(persons) = persons {
        (rows, bytes_read) = rows_of_persons(&file, group, rows, persons).await?;
    }
    if rows.is_empty() {
        return Ok((Vec::new(), bytes_read));
    }
    let columns = [NumericColumn::Time, NumericColumn::SeqHigh, NumericColumn::SeqLow];
    let (parts, bytes) = read_columns(&file, group, &columns, &rows).await?;
    let reading = file.clone();
    let read = tokio::task::spawn_blocking(move || {
        let reader =
            NumericColumnReader { metadata: reading.metadata(), parts: Arc::new(parts), group, rows: &rows };
        let (times, seqs) = (reader.times()?, reader.seqs()?);
        let mut candidates = Vec::with_capacity(rows.iter().map(ExactSizeIterator::len).sum());
        for ((rows, times), seqs) in rows.iter().zip(times).zip(seqs) {
            let of_rows = rows.clone().zip(times.iter().zip(seqs));
            candidates.extend(of_rows.map(|(row, (time, seq))| Candidate {
                time: *time,
                seq,
                place: EventLocation::Segment(at, group, row),
            }));
        }
        Ok::<_, EventStoreError>(candidates)
    });
    let candidates = read.await?.map_err(|error| file.named(error))?;
    Ok((candidates, bytes_read + bytes))
}

/// Selects the rows of these persons. Each row range is of one run, which is sorted by person.
async fn rows_of_persons(
    file: &Arc<SegmentFile>,
    group: usize,
    rows: Vec<Range<usize>>,
    persons: &BTreeSet<Uuid>,
) -> Result<(Vec<Range<usize>>, u64), EventStoreError> {
    let ids = file.persons(group).await?;
    let known = ids.as_chunks::<16>().0;
    let codes = persons.iter().filter_map(|id| known.binary_search(id.as_bytes()).ok());
    let codes = codes.filter_map(|code| u32::try_from(code).ok()).collect::<Vec<_>>();
    let mut bytes_read = ids.len() as u64;
    if codes.is_empty() {
        return Ok((Vec::new(), bytes_read));
    }
    let (parts, bytes) = read_columns(file, group, &[NumericColumn::PersonCode], &rows).await?;
    bytes_read += bytes;
    let (reading, count) = (file.clone(), known.len());
    let read = tokio::task::spawn_blocking(move || {
        let reader =
            NumericColumnReader { metadata: reading.metadata(), parts: Arc::new(parts), group, rows: &rows };
        let mut own = Vec::new();
        for (rows, of_rows) in rows.iter().zip(reader.codes(count)?) {
            for code in &codes {
                let first = of_rows.partition_point(|other| other < code);
                let end = of_rows.partition_point(|other| other <= code);
                if first < end {
                    own.push(rows.start + first..rows.start + end);
                }
            }
        }
        Ok::<_, EventStoreError>(own)
    });
    Ok((read.await?.map_err(|error| file.named(error))?, bytes_read))
}

async fn read_columns(
    file: &SegmentFile,
    group: usize,
    columns: &[NumericColumn],
    rows: &[Range<usize>],
) -> Result<(ColumnBytes, u64), EventStoreError> {
    let ranges = bytes_of(file.metadata(), group, columns, rows).map_err(|error| file.named(error))?;
    let read = file.ranges(&ranges).await?;
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    Ok((ColumnBytes::new(&ranges, read), bytes))
}
