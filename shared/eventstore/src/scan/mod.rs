//! Scans: read events for a query, from blocks and segments, as columns in the engine's order.
//!
//! A scan selects the event runs of a request from the footers of the segments (`plan`), loads them range by
//! range (`load`) from the cache (`piece`) or the files (`decode`), moves rows of merged persons and rows of
//! blocks into delta rows (`delta`), and merges the sources of each share of the persons into a partition
//! (`merge`). A scan can be split by person ranges into parts (`parts`). The times of the earliest events of persons are cached by themselves (`first_times`). The public interface is
//! [`Scanner`].
//!
//! Must stay true: the result does not depend on what was compacted, imported or cached; memory is bounded, and
//! larger queries are refused; nothing is decoded on an async worker thread.

mod columns;
mod compiled_request;
mod decode;
mod delta;
mod first_times;
mod load;
mod merge;
mod partition_cache;
mod parts;
mod piece;
mod plan;
mod property_objects;
mod row_selection;

pub use first_times::FirstEventTimes;
pub use parts::{MovedRows, PartScan, PinnedScan};
pub(crate) use piece::PieceCache;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use pennon_analytics::PersonRange;
use pennon_analytics::scan::{ColumnKey, Partition, ScanRequest};
use pennon_core::store::keys::ProjectId;

use crate::error::EventStoreError;
use crate::memory::{DecodeBudget, Purpose, QueryMemory};
use crate::persons::PersonMergeState;
use crate::segments::writer::range_bits;
use crate::segments::{DuplicateFinder, SegmentStore};
use crate::snapshots::SnapshotReader;
use crate::threads::cores;
use compiled_request::CompiledRequest;
use delta::DeltaRows;
use load::{LoadStats, LoadedRange, Task};
use merge::ScanSource;
use partition_cache::{PartitionCacheKeys, SourcesByShare};
use plan::{ScanBudget, ScanPlan};

/// Approximate rows of a partition when all events are in blocks.
const PARTITION_ROWS: usize = 65_536;
/// Most person id bits that select such a partition.
const PARTITION_BITS: u32 = 8;

/// Result of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// The events, partitioned by person.
    pub partitions: Vec<Partition>,
    /// Counters of the scan.
    pub stats: ScanStats,
}

/// Counters of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Events in the partitions.
    pub rows: u64,
    /// Rows of segments in the selected runs.
    pub rows_touched: u64,
    /// Rows of segments that were decoded because they were not cached.
    pub rows_decoded: u64,
    /// Bytes of column data read from the object store.
    pub bytes_read: u64,
    /// Bytes of memory of the rows, cached ones included.
    pub bytes_held: u64,
    /// Cache hits (pieces of columns).
    pub cache_hits: u64,
    /// Cache misses (pieces of columns).
    pub cache_misses: u64,
    /// Segments that were opened.
    pub segments: u64,
    /// Events in blocks that wait for compaction.
    pub waiting_rows: u64,
}

/// Scans events for queries. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Scanner {
    snapshots: Arc<SnapshotReader>,
    segments: Arc<SegmentStore>,
    duplicates: Arc<DuplicateFinder>,
    pieces: Arc<PieceCache>,
    /// Limits the memory of pages that are being decoded.
    decode_budget: Arc<DecodeBudget>,
}

impl Scanner {
    pub(crate) fn new(
        snapshots: Arc<SnapshotReader>,
        segments: Arc<SegmentStore>,
        duplicates: Arc<DuplicateFinder>,
        pieces: Arc<PieceCache>,
        decode_budget: Arc<DecodeBudget>,
    ) -> Scanner {
        Scanner { snapshots, segments, duplicates, pieces, decode_budget }
    }

    /// Scans the events that `request` selects, within `memory`. `group_types` are the names of the group types
    /// of the project, by index.
    pub(crate) async fn scan_within(
        &self,
        project: ProjectId,
        group_types: &[String],
        request: &ScanRequest,
        memory: &QueryMemory,
    ) -> Result<Scan, EventStoreError> {
        let pinned = self.pin_scan(project, group_types, request, memory).await?;
        self.scan_pinned(pinned, memory).await
    }

    /// Pins the events that `request` selects as of now. Reads waiting events and the footers of segments.
    pub(crate) async fn pin_scan(
        &self,
        project: ProjectId,
        group_types: &[String],
        request: &ScanRequest,
        memory: &QueryMemory,
    ) -> Result<PinnedScan, EventStoreError> {
        let requested = Arc::new(CompiledRequest::new(request, group_types));
        let snapshot =
            self.snapshots.snapshot_of(project, compiled_request::block_filter(&requested, memory)).await?;
        let events = self.duplicates.not_in_segments(&snapshot.manifest, snapshot.waiting_events).await?;
        let entries = plan::requested_segments(&snapshot.manifest, &requested);
        let files = self.open_segments(&entries).await?;
        let waiting = MovedRows::of_events(&events, &requested, &snapshot.person_merges);
        // The events were turned into these rows, so their reservation ends.
        drop((events, snapshot.waiting_memory));
        let mut waiting_memory = memory.lease(Purpose::Known);
        waiting_memory.add(ScanBudget::new(memory.clone(), &requested).bytes_of(&waiting.rows))?;
        let plan = plan::of(&files, waiting.names.iter().map(String::as_str), &requested, PersonRange::ALL);
        Ok(PinnedScan {
            requested,
            group_types: group_types.to_vec(),
            entries,
            plan,
            merge_state: snapshot.merge_state,
            waiting,
            waiting_memory,
            waiting_event_count: snapshot.waiting_event_count,
        })
    }

    /// Scans all pinned events.
    pub(crate) async fn scan_pinned(
        &self,
        pinned: PinnedScan,
        memory: &QueryMemory,
    ) -> Result<Scan, EventStoreError> {
        let stats = ScanStats {
            waiting_rows: pinned.waiting_event_count,
            segments: pinned.entries.len() as u64,
            ..ScanStats::default()
        };
        let PinnedScan { requested, plan, merge_state, waiting, waiting_memory, .. } = pinned;
        drop(waiting_memory);
        let sources = ScanSources {
            delta: vec![waiting.named(&plan.names)],
            requested,
            plan,
            merge_state,
            range: PersonRange::ALL,
        };
        self.scan_sources(sources, memory, stats).await
    }

    /// Loads the sources of a scan and merges them into partitions.
    async fn scan_sources(
        &self,
        sources: ScanSources,
        memory: &QueryMemory,
        mut stats: ScanStats,
    ) -> Result<Scan, EventStoreError> {
        let budget = ScanBudget::new(memory.clone(), &sources.requested);
        stats.rows_touched = sources.plan.rows();
        let others = sources.delta.iter().map(|rows| rows.events.len() as u64).sum::<u64>();
        budget.expect(stats.rows_touched + others)?;
        for rows in &sources.delta {
            let bytes = budget.bytes_of(rows);
            memory.take(bytes)?;
            stats.bytes_held += bytes;
        }
        let mut loaded = self.load_all(&sources, memory, &mut stats).await?;
        let ScanSources { requested, plan, delta, merge_state, range } = sources;
        loaded.delta.extend(delta.into_iter().filter(|rows| !rows.events.is_empty()));
        let partitions = self
            .build_partitions(plan, loaded, (&requested, range), &merge_state, memory, &mut stats)
            .await?;
        let runs = partitions.iter().flat_map(|partition| &partition.runs);
        stats.rows = runs.map(|run| run.times.len() as u64).sum();
        Ok(Scan { partitions, stats })
    }

    /// Loads every task, and splits off the rows of merged persons.
    async fn load_all(
        &self,
        sources: &ScanSources,
        memory: &QueryMemory,
        stats: &mut ScanStats,
    ) -> Result<LoadedRanges, EventStoreError> {
        let ScanSources { requested, merge_state, range, .. } = sources;
        let seqs = requested.request.arrivals;
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let loads = sources.plan.tasks.iter();
        let loads = loads.map(|task| self.load_final(task, (requested, *range), merge_state, (seqs, memory)));
        let mut loads =
            futures::stream::iter(loads.collect::<Vec<_>>()).buffered(self.segments.ranges_at_once());
        let mut all = LoadedRanges::default();
        while let Some((loaded, deltas, took)) = loads.try_next().await? {
            stats.add(took);
            let at = all.ranges.len();
            let (number, bits) = sources.plan.tasks[at].place();
            if !deltas.is_empty() || !range.covers(number, bits) {
                all.touched.insert(at);
            }
            all.ranges.push(loaded);
            all.delta.extend(deltas);
        }
        Ok(all)
    }

    async fn load_final(
        &self,
        task: &Arc<Task>,
        (requested, range): (&Arc<CompiledRequest>, PersonRange),
        merge_state: &Arc<PersonMergeState>,
        (seqs, memory): (bool, &QueryMemory),
    ) -> Result<(LoadedRange, Vec<DeltaRows>, LoadStats), EventStoreError> {
        let (loaded, mut took) = self.load(task, requested, seqs, memory).await?;
        let loaded = loaded.within(range);
        took.bytes_held = loaded.bytes();
        memory.take(took.bytes_held)?;
        let moved = merge_state.moved(task.file.object(), task.group, &loaded.persons);
        if moved.is_empty() || !loaded.runs.iter().any(|run| DeltaRows::has_any(run, &moved)) {
            return Ok((loaded, Vec::new(), took));
        }
        // Moved rows are merged with rows that they were not ordered against, so arrival order is needed.
        let (mut loaded, again) = if seqs {
            (loaded, LoadStats::default())
        } else {
            let (loaded, took) = self.load(task, requested, true, memory).await?;
            (loaded.within(range), took)
        };
        let memory = memory.clone();
        let split = tokio::task::spawn_blocking(move || {
            memory.measured(|| {
                let deltas = loaded
                    .runs
                    .iter_mut()
                    .filter_map(|run| DeltaRows::split(run, &moved))
                    // Rows of other persons are passed on to their part (see `parts`).
                    .map(|rows| if range.is_all() { rows } else { rows.filtered(|one| range.contains(one)) })
                    .collect::<Vec<_>>();
                loaded.runs.retain(|run| !run.core.codes.is_empty());
                (loaded, deltas)
            })
        });
        let (loaded, deltas) = split.await??;
        Ok((loaded, deltas, took.and(again)))
    }

    /// Builds the partitions from the loaded sources.
    async fn build_partitions(
        &self,
        scan_plan: ScanPlan,
        loaded: LoadedRanges,
        (requested, range): (&Arc<CompiledRequest>, PersonRange),
        merge_state: &Arc<PersonMergeState>,
        memory: &QueryMemory,
        stats: &mut ScanStats,
    ) -> Result<Vec<Partition>, EventStoreError> {
        let mut shares = PartitionedSources::of(&scan_plan, loaded.ranges, loaded.delta);
        let cache_keys = PartitionCacheKeys::of(
            &shares.by_share,
            shares.bits,
            &scan_plan.tasks,
            &loaded.touched,
            requested,
        );
        let mut partitions = cache_keys.take(&self.pieces, &mut shares.by_share);
        if requested.request.arrivals {
            shares.by_seq = shares.by_share.keys().copied().collect();
        } else if shares.by_share.values().any(|share| share.len() > 1) {
            shares = tokio::task::spawn_blocking(move || {
                shares.find_overlapping_shares();
                shares
            })
            .await?;
            // Sources that overlap are loaded again with arrival order.
            for at in shares.tasks_to_reload() {
                let task = &scan_plan.tasks[at];
                let reloaded = self.load_final(task, (requested, range), merge_state, (true, memory));
                let (loaded, _, took) = reloaded.await?;
                stats.add(took);
                shares.replace(at, task, loaded);
            }
        }
        let names = Arc::new(scan_plan.names);
        let keys: Arc<Vec<ColumnKey>> =
            Arc::new(requested.columns.iter().map(|(key, _)| key.clone()).collect());
        let PartitionedSources { by_share, by_seq, .. } = shares;
        let numbers = by_share.keys().copied().collect::<Vec<_>>();
        let made = by_share.into_iter().map(|(number, share)| {
            partition(share, by_seq.contains(&number), names.clone(), keys.clone(), memory)
        });
        let made = futures::stream::iter(made.collect::<Vec<_>>()).buffered(cores());
        for (number, partition) in numbers.into_iter().zip(made.try_collect::<Vec<_>>().await?) {
            cache_keys.put(&self.pieces, number, &partition);
            partitions.insert(number, partition);
        }
        Ok(partitions.into_values().collect())
    }
}

/// What a scan is made of: runs of segments, and rows that are not stored with the others of their person.
struct ScanSources {
    requested: Arc<CompiledRequest>,
    plan: ScanPlan,
    delta: Vec<DeltaRows>,
    merge_state: Arc<PersonMergeState>,
    /// The persons whose rows are read.
    range: PersonRange,
}

/// Everything that was loaded for a scan.
#[derive(Debug, Default)]
struct LoadedRanges {
    /// One for each task.
    ranges: Vec<LoadedRange>,
    delta: Vec<DeltaRows>,
    /// Tasks without some of the rows of their runs: those of moved rows, or of persons out of the range.
    touched: BTreeSet<usize>,
}

/// Merges the sources of a share into a partition.
async fn partition(
    share: Vec<(Option<usize>, ScanSource)>,
    by_seq: bool,
    names: Arc<Vec<String>>,
    keys: Arc<Vec<ColumnKey>>,
    memory: &QueryMemory,
) -> Result<Partition, EventStoreError> {
    let sources = share.into_iter().map(|(_, source)| source).collect::<Vec<_>>();
    if let [source] = sources.as_slice()
        && source.is_whole()
    {
        // A single source is not copied, so it needs no blocking thread.
        return Ok(merge::partition(&sources, &names, &keys, by_seq));
    }
    let memory = memory.clone();
    let merged = tokio::task::spawn_blocking(move || {
        // The sources are dropped inside, so that only the difference is reserved.
        memory.measured(|| {
            let merged = merge::partition(&sources, &names, &keys, by_seq);
            drop(sources);
            merged
        })
    });
    merged.await?
}

/// The sources of each share of the persons, by its number among `2^bits` shares.
#[derive(Debug)]
struct PartitionedSources {
    bits: u32,
    /// Each source with the index of its task; delta rows have none.
    by_share: SourcesByShare,
    /// Shares whose rows are ordered by arrival.
    by_seq: BTreeSet<u64>,
}

impl PartitionedSources {
    fn of(scan_plan: &ScanPlan, ranges: Vec<LoadedRange>, delta: Vec<DeltaRows>) -> PartitionedSources {
        let side_rows = delta.iter().map(|chunk| chunk.events.len()).sum::<usize>();
        let bits = match scan_plan.tasks.iter().map(|task| task.file.footer.bits).max() {
            Some(bits) => bits,
            None => range_bits(side_rows, PARTITION_ROWS).min(PARTITION_BITS),
        };
        let mut by_share = SourcesByShare::new();
        for (at, (task, loaded)) in scan_plan.tasks.iter().zip(ranges).enumerate() {
            for (number, source) in ScanSource::cut(loaded, task.place(), bits, task.times()) {
                by_share.entry(number).or_default().push((Some(at), source));
            }
        }
        for (number, source) in delta::sources(&delta, bits) {
            by_share.entry(number).or_default().push((None, source));
        }
        PartitionedSources { bits, by_share, by_seq: BTreeSet::new() }
    }

    fn find_overlapping_shares(&mut self) {
        let met = self.by_share.iter().filter(|(_, share)| {
            merge::share_person_and_time(&share.iter().map(|(_, source)| source).collect::<Vec<_>>())
        });
        self.by_seq = met.map(|(number, _)| *number).collect();
    }

    fn tasks_to_reload(&self) -> BTreeSet<usize> {
        let met = self.by_seq.iter().filter_map(|number| self.by_share.get(number));
        met.flatten().filter(|(_, source)| !source.has_seqs()).filter_map(|(at, _)| *at).collect()
    }

    /// Replaces the sources of a task by reloaded ones. Shares that came from the cache are not affected.
    fn replace(&mut self, at: usize, task: &Task, loaded: LoadedRange) {
        for (number, source) in ScanSource::cut(loaded, task.place(), self.bits, task.times()) {
            let share = self.by_share.get_mut(&number);
            if let Some(place) = share.and_then(|share| share.iter_mut().find(|(of, _)| *of == Some(at))) {
                place.1 = source;
            }
        }
    }
}

impl ScanStats {
    fn add(&mut self, took: LoadStats) {
        self.bytes_held += took.bytes_held;
        self.cache_hits += took.hits;
        self.cache_misses += took.misses;
        self.bytes_read += took.bytes_read;
        self.rows_decoded += took.rows_decoded;
    }
}
