//! Pieces: what was decoded of one event in one person range of a segment, or put together of several segments, and the
//! cache that keeps it between scans.
//!
//! Must stay true: a piece depends on its key alone, because segments never change, so a cached piece is as good as a
//! fresh one; the cache is bounded by bytes.

use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use pennon_analytics::scan::{Column, Micros, Partition, Seq};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use uuid::Uuid;

use super::compiled_request::ColumnSource;
use super::partition_cache::PartitionSources;
use crate::memory::{EvictableCache, values_bytes};

/// Numeric columns of the rows of one event in one range, ordered by person, time and arrival.
#[derive(Debug, Clone)]
pub(crate) struct RunColumns {
    /// Indices into the persons of the range.
    pub codes: ScalarBuffer<u32>,
    pub times: ScalarBuffer<Micros>,
    /// None if the range has no two events of one person at one time.
    pub ties: Option<ScalarBuffer<u32>>,
}

/// A column with the bytes of its values.
#[derive(Debug, Clone)]
pub(crate) struct SizedColumn {
    pub column: Column,
    pub value_bytes: u64,
}

/// A cached value.
#[derive(Debug, Clone)]
pub(crate) enum CachedPiece {
    Persons(Arc<Vec<Uuid>>),
    RunColumns(RunColumns),
    Seqs(Arc<Vec<Seq>>),
    /// By person of the range: the time of its earliest event.
    FirstTimes(Arc<Vec<Micros>>),
    Column(SizedColumn),
    /// Marks that some times of the runs of the range were requested before.
    Requested,
    /// A merged partition of several segments, and its bytes.
    Share(Arc<Partition>, u64),
}

/// What a piece holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PieceKind {
    Persons,
    RunColumns,
    Seqs,
    FirstTimes,
    Column(Arc<ColumnSource>),
    Requested,
    Share(Arc<PartitionSources>),
}

/// First and last instant of the rows of a clipped piece.
pub(crate) type TimeBounds = (Micros, Micros);

/// Not clipped.
pub(crate) const WHOLE: TimeBounds = (Micros::MIN, Micros::MAX);

/// Cache key of a piece.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PieceKey {
    /// The segment's object.
    pub object: Arc<str>,
    pub range: u32,
    /// Index of the run in the range; 0 for pieces of the whole range.
    pub run: u32,
    pub part: PieceKind,
    pub clip: TimeBounds,
}

/// Overhead of a cached piece in bytes.
const ENTRY_BYTES: u64 = 256;
/// Independently locked shards of the cache. Few, because a piece has to fit into one.
const SHARDS: usize = 4;
/// Approximate size of pieces.
const PIECE_BYTES: u64 = 64 << 10;

impl RunColumns {
    /// Some of the rows, which share the memory of all.
    pub(crate) fn slice(&self, from: usize, rows: usize) -> RunColumns {
        RunColumns {
            codes: self.codes.slice(from, rows),
            times: self.times.slice(from, rows),
            ties: self.ties.as_ref().map(|ties| ties.slice(from, rows)),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        let row = size_of::<u32>() + size_of::<Micros>() + self.ties.as_ref().map_or(0, |_| size_of::<u32>());
        (self.codes.len() * row) as u64
    }
}

impl SizedColumn {
    pub(crate) fn new(column: Column) -> SizedColumn {
        let value_bytes = values_bytes(&column);
        SizedColumn { column, value_bytes }
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.column.codes.len() * size_of::<u32>()) as u64 + self.value_bytes
    }
}

impl CachedPiece {
    fn bytes(&self) -> u64 {
        match self {
            CachedPiece::Persons(persons) => (persons.len() * size_of::<Uuid>()) as u64,
            CachedPiece::RunColumns(core) => core.bytes(),
            CachedPiece::Seqs(seqs) => (seqs.len() * size_of::<Seq>()) as u64,
            CachedPiece::FirstTimes(times) => (times.len() * size_of::<Micros>()) as u64,
            CachedPiece::Column(column) => column.bytes(),
            CachedPiece::Requested => 0,
            CachedPiece::Share(_, bytes) => *bytes,
        }
    }
}

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<PieceKey, CachedPiece> for Bytes {
    fn weight(&self, _: &PieceKey, piece: &CachedPiece) -> u64 {
        ENTRY_BYTES + piece.bytes()
    }
}

/// The pieces that are kept.
pub(crate) struct PieceCache(Cache<PieceKey, CachedPiece, Bytes>);

impl std::fmt::Debug for PieceCache {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Pieces").field("bytes", &self.0.weight()).finish_non_exhaustive()
    }
}

impl PieceCache {
    /// A cache of at most so many bytes.
    pub(crate) fn new(bytes: u64) -> PieceCache {
        let items = usize::try_from(bytes / PIECE_BYTES).unwrap_or(usize::MAX).clamp(64, 1 << 16);
        let mut options = OptionsBuilder::new();
        options.shards(SHARDS).weight_capacity(bytes.max(1)).estimated_items_capacity(items);
        let cache = match options.build() {
            Ok(options) => Cache::with_options(
                options,
                Bytes,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            // Only missing options can be wrong.
            Err(_) => Cache::with_weighter(items, bytes.max(1), Bytes),
        };
        PieceCache(cache)
    }

    pub(crate) fn get(&self, key: &PieceKey) -> Option<CachedPiece> {
        self.0.get(key)
    }

    /// What is kept.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weight()
    }

    pub(crate) fn put(&self, key: PieceKey, piece: CachedPiece) {
        self.0.insert(key, piece);
    }
}

impl EvictableCache for PieceCache {
    fn set_limit(&self, bytes: u64) {
        self.0.set_capacity(bytes.max(1));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::memory::MemoryBudget;

    fn key(run: u32) -> PieceKey {
        PieceKey { object: "o".into(), range: 0, run, part: PieceKind::Seqs, clip: WHOLE }
    }

    #[test]
    fn the_cache_holds_no_more_bytes_than_it_may() {
        let pieces = PieceCache::new(1 << 20);
        for run in 0..1000 {
            pieces.put(key(run), CachedPiece::Seqs(Arc::new(vec![0; 1000])));
            assert!(pieces.0.weight() <= 1 << 20);
        }
        let kept = (0..1000).filter(|run| pieces.get(&key(*run)).is_some()).count();
        assert!((40..=64).contains(&kept), "{kept} pieces of 16,256 bytes in 1,048,576");
    }

    #[test]
    fn a_piece_that_is_larger_than_the_cache_is_not_kept() {
        let pieces = PieceCache::new(1000);
        pieces.put(key(0), CachedPiece::Seqs(Arc::new(vec![0; 1000])));
        assert!(pieces.get(&key(0)).is_none());
    }

    #[test]
    fn kept_pieces_make_way_for_queries_and_may_come_back() {
        let pieces = Arc::new(PieceCache::new(500_000));
        let budget = MemoryBudget::new(1_000_000, 500_000, pieces.clone());
        let fill =
            || (0..200).for_each(|run| pieces.put(key(run), CachedPiece::Seqs(Arc::new(vec![0; 1000]))));
        fill();
        assert!((300_000..=500_000).contains(&pieces.bytes()), "{}", pieces.bytes());
        let query = budget.start_query(1_000_000);
        for taken in [500_000, 300_000, 150_000, 50_000] {
            query.take(taken).unwrap();
            fill();
            assert!(pieces.bytes() + budget.reserved() <= 1_000_000, "{} kept", pieces.bytes());
        }
        drop(query);
        fill();
        assert!(pieces.bytes() > 300_000, "{}", pieces.bytes());
    }
}
