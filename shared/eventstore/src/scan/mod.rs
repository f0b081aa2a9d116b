//! The event store's answer to a calculation: blocks and segments as one set of events, in the engine's order.
//!
//! A scan finds the runs that a request names in the footers of the segments, loads them range by range (`load`) from the
//! cache or the files (`piece`, `columns`), takes the rows of merged persons out and those of blocks in (`side`), and puts
//! the sources of each share of the persons together (`merge`). Must stay true: what a scan gives does not depend on what
//! has been compacted, imported or cached when; memory is bounded, larger questions are refused; nothing is decoded on a
//! thread that must not block.

mod columns;
mod compiled_request;
mod decode;
pub(crate) mod decode_budget;
mod delta;
mod load;
mod merge;
mod partition_cache;
pub(crate) mod piece;
mod plan;
mod property_objects;
mod row_selection;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::{ColumnKey, Partition, ScanRequest};

use crate::EventStore;
use crate::error::EventStoreError;
use crate::memory::QuestionMemory;
use crate::persons::person_merge_cache::Resolved;
use crate::segments::writer::range_bits;
use compiled_request::Wanted;
use delta::Chunk;
use load::{Loaded, Task, Took};
use merge::Source;
use partition_cache::{ByNumber, Keeping};
use plan::{Budget, Planned};

/// Rows of a partition of events that lie in blocks alone, about.
const PARTITION_ROWS: usize = 65_536;
/// Most bits of a person's id that tell partitions of such events apart.
const PARTITION_BITS: u32 = 8;

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
    /// Rows of segments that were gone through.
    pub rows_touched: u64,
    /// Rows of segments that were decoded because the cache did not have them.
    pub rows_decoded: u64,
    /// Bytes of column data read from the object store.
    pub bytes_read: u64,
    /// Bytes of memory that the rows take, those in the cache included.
    pub bytes_held: u64,
    /// Pieces of columns that the cache had.
    pub cache_hits: u64,
    /// Pieces of columns that it did not have.
    pub cache_misses: u64,
    /// Segments that were looked into.
    pub segments: u64,
    /// Events in blocks that wait for compaction.
    pub hot_rows: u64,
}

impl EventStore {
    /// The events that `request` names, of a project whose group types have these names, by index.
    ///
    /// [`EventStoreError::TooLarge`] when they take more than [`crate::Settings::scan_bytes`].
    pub async fn scan(
        &self,
        project: ProjectId,
        group_types: &[String],
        request: &ScanRequest,
    ) -> Result<Scan, EventStoreError> {
        self.scan_within(project, group_types, request, &self.question_memory()).await
    }

    /// The memory of one question: its scans may take [`crate::Settings::scan_bytes`] together, and all of it, of all
    /// questions at one time, [`crate::Settings::memory_bytes`].
    pub fn question_memory(&self) -> QuestionMemory {
        self.inner.memory.question(self.inner.settings.scan_bytes)
    }

    /// As [`EventStore::scan`], for one of several scans that share `room`.
    pub async fn scan_within(
        &self,
        project: ProjectId,
        group_types: &[String],
        request: &ScanRequest,
        room: &QuestionMemory,
    ) -> Result<Scan, EventStoreError> {
        let wanted = Arc::new(Wanted::new(request, group_types));
        let snapshot = self.snapshot_of(project, compiled_request::choice(&wanted, room)).await?;
        let mut stats = ScanStats { hot_rows: snapshot.hot_events, ..ScanStats::default() };
        let hot = self.not_in_segments(&snapshot.manifest, snapshot.hot).await?;

        let budget = Budget::new(room.clone(), &wanted);
        let files = self.wanted_segments(&snapshot.manifest, &wanted).await?;
        stats.segments = files.len() as u64;
        let planned = plan::of(&files, &hot, &wanted);
        stats.rows_touched = planned.rows();
        budget.expect(planned.rows() + hot.len() as u64)?;

        let hot = Chunk::of_rows(&hot, &planned.names, &wanted, &snapshot.resolution);
        // What the rows took, of which these columns were made, is theirs.
        drop(snapshot.hot_taken);
        stats.bytes_held += budget.take_rows(hot.events.len(), &hot.columns)?;
        let resolved = &snapshot.resolved;
        let mut loaded = self.load_all(&planned, &wanted, resolved, room, &mut stats).await?;
        if !hot.events.is_empty() {
            loaded.side.push(hot);
        }
        let partitions = self.put_together(planned, loaded, &wanted, resolved, room, &mut stats).await?;
        let runs = partitions.iter().flat_map(|partition| &partition.runs);
        stats.rows = runs.map(|run| run.times.len() as u64).sum();
        Ok(Scan { partitions, stats })
    }

    /// Loads every task, and takes the rows of merged persons out.
    async fn load_all(
        &self,
        planned: &Planned,
        wanted: &Arc<Wanted>,
        resolved: &Arc<Resolved>,
        room: &QuestionMemory,
        stats: &mut ScanStats,
    ) -> Result<AllLoaded, EventStoreError> {
        let seqs = wanted.request.arrivals;
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let loads = planned.tasks.iter().map(|task| self.load_resolved(task, wanted, resolved, (seqs, room)));
        let mut loads = futures::stream::iter(loads.collect::<Vec<_>>()).buffered(cores() * 2);
        let mut all = AllLoaded::default();
        while let Some((loaded, chunks, took)) = loads.try_next().await? {
            stats.add(took);
            if !chunks.is_empty() {
                all.touched.insert(all.ranges.len());
            }
            all.ranges.push(loaded);
            all.side.extend(chunks);
        }
        Ok(all)
    }

    async fn load_resolved(
        &self,
        task: &Arc<Task>,
        wanted: &Arc<Wanted>,
        resolved: &Arc<Resolved>,
        (seqs, room): (bool, &QuestionMemory),
    ) -> Result<(Loaded, Vec<Chunk>, Took), EventStoreError> {
        let (loaded, mut took) = self.load(task, wanted, seqs, room).await?;
        took.bytes_held = loaded.bytes();
        room.take(took.bytes_held)?;
        let moved = resolved.moved(task.file.object(), task.group, &loaded.persons);
        if moved.is_empty() || !loaded.runs.iter().any(|run| Chunk::has_any(run, &moved)) {
            return Ok((loaded, Vec::new(), took));
        }
        // Rows that move come among rows that they were never compared with, so their order of arrival is needed.
        let (mut loaded, again) =
            if seqs { (loaded, Took::default()) } else { self.load(task, wanted, true, room).await? };
        let memory = room.clone();
        let split = tokio::task::spawn_blocking(move || {
            memory.measured(|| {
                let chunks =
                    loaded.runs.iter_mut().filter_map(|run| Chunk::split(run, &moved)).collect::<Vec<_>>();
                loaded.runs.retain(|run| !run.core.codes.is_empty());
                (loaded, chunks)
            })
        });
        let (loaded, chunks) = split.await??;
        Ok((loaded, chunks, took.and(again)))
    }

    /// The partitions of what was loaded.
    async fn put_together(
        &self,
        planned: Planned,
        loaded: AllLoaded,
        wanted: &Arc<Wanted>,
        resolved: &Arc<Resolved>,
        room: &QuestionMemory,
        stats: &mut ScanStats,
    ) -> Result<Vec<Partition>, EventStoreError> {
        let mut shares = Shares::of(&planned, loaded.ranges, loaded.side);
        let keeping = Keeping::of(&shares.of_number, shares.bits, &planned.tasks, &loaded.touched, wanted);
        let mut partitions = keeping.take(&self.inner.pieces, &mut shares.of_number);
        if wanted.request.arrivals {
            shares.by_seq = shares.of_number.keys().copied().collect();
        } else if shares.of_number.values().any(|share| share.len() > 1) {
            shares = tokio::task::spawn_blocking(move || {
                shares.find_meetings();
                shares
            })
            .await?;
            // Where two sources meet, both are read again with the order of arrival.
            for at in shares.to_read_again() {
                let task = &planned.tasks[at];
                let (loaded, _, took) = self.load_resolved(task, wanted, resolved, (true, room)).await?;
                stats.add(took);
                shares.replace(at, task, loaded);
            }
        }
        let names = Arc::new(planned.names);
        let keys: Arc<Vec<ColumnKey>> = Arc::new(wanted.columns.iter().map(|(key, _)| key.clone()).collect());
        let Shares { of_number, by_seq, .. } = shares;
        let numbers = of_number.keys().copied().collect::<Vec<_>>();
        let made = of_number.into_iter().map(|(number, share)| {
            partition(share, by_seq.contains(&number), names.clone(), keys.clone(), room)
        });
        let made = futures::stream::iter(made.collect::<Vec<_>>()).buffered(cores());
        for (number, partition) in numbers.into_iter().zip(made.try_collect::<Vec<_>>().await?) {
            keeping.put(&self.inner.pieces, number, &partition);
            partitions.insert(number, partition);
        }
        Ok(partitions.into_values().collect())
    }
}

/// What was loaded.
#[derive(Debug, Default)]
struct AllLoaded {
    /// One for each task.
    ranges: Vec<Loaded>,
    side: Vec<Chunk>,
    /// The tasks of which side rows were taken out.
    touched: BTreeSet<usize>,
}

/// The partition of the sources of a share.
async fn partition(
    share: Vec<(Option<usize>, Source)>,
    by_seq: bool,
    names: Arc<Vec<String>>,
    keys: Arc<Vec<ColumnKey>>,
    memory: &QuestionMemory,
) -> Result<Partition, EventStoreError> {
    let sources = share.into_iter().map(|(_, source)| source).collect::<Vec<_>>();
    if let [source] = sources.as_slice()
        && source.is_whole()
    {
        // Nothing is copied, so it need not leave the thread.
        return Ok(merge::partition(&sources, &names, &keys, by_seq));
    }
    let memory = memory.clone();
    let merged = tokio::task::spawn_blocking(move || {
        // The sources go within it, so that only what is new is added to what they have reserved.
        memory.measured(|| {
            let merged = merge::partition(&sources, &names, &keys, by_seq);
            drop(sources);
            merged
        })
    });
    merged.await?
}

/// The sources of each share of the persons, by its number among `2^bits`.
#[derive(Debug)]
struct Shares {
    bits: u32,
    /// Each source with the index of the task that it was loaded for; side rows have none.
    of_number: ByNumber,
    /// Shares whose rows are told apart by their order of arrival.
    by_seq: BTreeSet<u64>,
}

impl Shares {
    fn of(planned: &Planned, ranges: Vec<Loaded>, side: Vec<Chunk>) -> Shares {
        let side_rows = side.iter().map(|chunk| chunk.events.len()).sum::<usize>();
        let bits = match planned.tasks.iter().map(|task| task.file.footer.bits).max() {
            Some(bits) => bits,
            None => range_bits(side_rows, PARTITION_ROWS).min(PARTITION_BITS),
        };
        let mut of_number = ByNumber::new();
        for (at, (task, loaded)) in planned.tasks.iter().zip(ranges).enumerate() {
            for (number, source) in Source::cut(loaded, task.place(), bits, task.times()) {
                of_number.entry(number).or_default().push((Some(at), source));
            }
        }
        for (number, source) in delta::sources(&side, bits) {
            of_number.entry(number).or_default().push((None, source));
        }
        Shares { bits, of_number, by_seq: BTreeSet::new() }
    }

    fn find_meetings(&mut self) {
        let met = self.of_number.iter().filter(|(_, share)| {
            merge::may_meet(&share.iter().map(|(_, source)| source).collect::<Vec<_>>())
        });
        self.by_seq = met.map(|(number, _)| *number).collect();
    }

    fn to_read_again(&self) -> BTreeSet<usize> {
        let met = self.by_seq.iter().filter_map(|number| self.of_number.get(number));
        met.flatten().filter(|(_, source)| !source.has_seqs()).filter_map(|(at, _)| *at).collect()
    }

    /// Puts what was loaded again for a task into the place of what was. Shares that are kept from another question are not
    /// among these, and stay as they are.
    fn replace(&mut self, at: usize, task: &Task, loaded: Loaded) {
        for (number, source) in Source::cut(loaded, task.place(), self.bits, task.times()) {
            let share = self.of_number.get_mut(&number);
            if let Some(place) = share.and_then(|share| share.iter_mut().find(|(of, _)| *of == Some(at))) {
                place.1 = source;
            }
        }
    }
}

impl ScanStats {
    fn add(&mut self, took: Took) {
        self.bytes_held += took.bytes_held;
        self.cache_hits += took.hits;
        self.cache_misses += took.misses;
        self.bytes_read += took.bytes_read;
        self.rows_decoded += took.rows_decoded;
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}
