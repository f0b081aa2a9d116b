//! Cache of merged partitions: shares of the persons whose rows are in several segments.
//!
//! Must stay true: a cached partition depends only on its key, which names the runs of the segments, their
//! times and the columns. So it contains no waiting events, and no rows of a person who was merged since the
//! segment was written: such shares are merged again each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pennon_analytics::scan::{ArrivalOrder, ColumnKey, Partition, Seq};
use uuid::Uuid;

use super::compiled_request::{ColumnSource, CompiledRequest};
use super::load::Task;
use super::merge::ScanSource;
use super::piece::{CachedPiece, PieceCache, PieceKey, PieceKind, TimeBounds, WHOLE};
use crate::memory::values_bytes;

/// The sources of a merged partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PartitionSources {
    /// Number of the share among `2^bits`.
    number: u64,
    bits: u32,
    arrivals: bool,
    sources: Vec<SegmentRuns>,
    columns: Vec<(ColumnKey, Arc<ColumnSource>)>,
}

/// Some runs of a range of a segment, with their clips.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SegmentRuns {
    object: Arc<str>,
    range: usize,
    runs: Vec<(u32, TimeBounds)>,
}

/// Shares by number; each source with the index of its task.
pub(crate) type SourcesByShare = BTreeMap<u64, Vec<(Option<usize>, ScanSource)>>;

/// Cache keys of the shares that may be cached.
pub(crate) struct PartitionCacheKeys {
    keys: BTreeMap<u64, PieceKey>,
}

impl PartitionCacheKeys {
    /// Computes the keys of `shares`. Tasks without some of the rows of their runs are `touched`.
    pub(crate) fn of(
        shares: &SourcesByShare,
        bits: u32,
        tasks: &[Arc<Task>],
        touched: &BTreeSet<usize>,
        requested: &CompiledRequest,
    ) -> PartitionCacheKeys {
        let several = shares.iter().filter(|(_, share)| share.len() > 1);
        let keys = several.filter_map(|(number, share)| {
            let ingredient = |at: &Option<usize>| {
                let at = at.filter(|at| !touched.contains(at))?;
                let task = &tasks[at];
                let runs = task.runs.iter().map(|run| (run.run, run.clip.unwrap_or(WHOLE))).collect();
                Some(SegmentRuns { object: task.file.object().clone(), range: task.group, runs })
            };
            let sources = share.iter().map(|(at, _)| ingredient(at)).collect::<Option<Vec<_>>>()?;
            let (columns, arrivals) = (requested.columns.clone(), requested.request.arrivals);
            let of = PartitionSources { number: *number, bits, arrivals, sources, columns };
            let object = of.sources.first()?.object.clone();
            Some((
                *number,
                PieceKey { object, range: 0, run: 0, part: PieceKind::Share(Arc::new(of)), clip: WHOLE },
            ))
        });
        PartitionCacheKeys { keys: keys.collect() }
    }

    /// Removes the cached shares from `shares` and returns their partitions.
    pub(crate) fn take(&self, pieces: &PieceCache, shares: &mut SourcesByShare) -> BTreeMap<u64, Partition> {
        let mut kept = BTreeMap::new();
        for (number, key) in &self.keys {
            if let Some(CachedPiece::Share(partition, _)) = pieces.get(key) {
                shares.remove(number);
                kept.insert(*number, Partition::clone(&partition));
            }
        }
        kept
    }

    /// Caches a merged partition, if it has a key.
    pub(crate) fn put(&self, pieces: &PieceCache, number: u64, partition: &Partition) {
        if let Some(key) = self.keys.get(&number) {
            pieces.put(key.clone(), CachedPiece::Share(Arc::new(partition.clone()), bytes_of(partition)));
        }
    }
}

/// Approximate bytes of a partition.
fn bytes_of(partition: &Partition) -> u64 {
    let mut bytes = partition.actors.len() * size_of::<Uuid>();
    let mut values = 0;
    for run in &partition.runs {
        let order = match &run.order {
            ArrivalOrder::Untied => 0,
            ArrivalOrder::Ties(_) => size_of::<u32>(),
            ArrivalOrder::Seqs(_) => size_of::<Seq>(),
        };
        let row = size_of::<u32>() + size_of::<i64>() + order + run.columns.len() * size_of::<u32>();
        bytes += run.times.len() * row;
        values += run.columns.values().map(values_bytes).sum::<u64>();
    }
    bytes as u64 + values
}
