//! Index of the uuids of a segment: a sidecar file of sorted hashes, and of lines.
//!
//! | bytes | content |
//! |---|---|
//! | 4 each | for each bucket the number of entries before it, and at the end the number of all entries |
//! | 4 each | entries: the 32 bits of each hash after its bucket bits, ascending within the bucket |
//! | the rest | uuids derived from lines of a file, which have no entries: see [`crate::segments::uuids::line_uuids`] |
//!
//! Numbers are little-endian. The leading bits of a hash select its bucket; a bucket has 32 to 64 entries on
//! average, because hashes are uniform. A few hashes are looked up by a page of each part; many by a sequential
//! scan in chunks of bounded memory. Must stay true: a missing hash proves that the uuid is not in the segment,
//! unless it is among the lines, which are exact; a matching hash proves nothing, and the full uuid is compared
//! (one in a hundred million is a false positive; a shorter entry would save a byte per event, but an import
//! would read the uuids of earlier segments again and again).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::manifest::SegmentEntry;
use crate::objects::Objects;
use crate::segments::uuids::line_uuids::{LineUuids, UuidSource, line_of, uuid_of};

/// Bytes of an entry.
const ENTRY: u64 = 4;
const ENTRY_BITS: u32 = 32;
/// Bytes of an entry count.
const FENCE: u64 = 4;
/// Average entries of a bucket, at least.
const BUCKET_ENTRIES: u64 = 32;
/// Bytes of one read of a sequential scan.
const PIECE_BYTES: u64 = 4 << 20;
/// Cost of a single lookup, in bytes of a sequential scan.
const LOOKUP_BYTES: u64 = 16 << 10;

/// Sources with fewer lines are hashed like other uuids.
const LINES_MIN: usize = 16;
/// Most bytes of lines: they are read in one go.
const LINES_BYTES_MAX: usize = 1 << 20;

/// Collects the uuids of a new segment.
#[derive(Debug, Default)]
pub(crate) struct UuidIndexBuilder {
    hashes: Vec<u64>,
    lines: HashMap<UuidSource, Vec<u64>>,
}

impl UuidIndexBuilder {
    pub(crate) fn add(&mut self, uuid: Uuid) {
        match line_of(uuid) {
            Some((source, line)) => self.lines.entry(source).or_default().push(line),
            None => self.hashes.push(hash(uuid)),
        }
    }

    /// Builds the file. Also returns its number of hashes.
    pub(crate) fn file(mut self) -> (Bytes, u64) {
        let mut sources = self.lines.into_iter().collect::<Vec<_>>();
        sources.sort_unstable_by_key(|(source, _)| *source);
        let mut bytes = Vec::new();
        for (source, lines) in sources {
            let mut of_source = LineUuids::default();
            of_source.insert(source, &lines);
            let packed = of_source.to_bytes();
            let is_short = packed.len() as u64 <= lines.len() as u64 * ENTRY;
            if lines.len() >= LINES_MIN && is_short && bytes.len() + packed.len() <= LINES_BYTES_MAX {
                bytes.extend(packed);
            } else {
                self.hashes.extend(lines.into_iter().map(|line| hash(uuid_of(&source, line))));
            }
        }
        let hashed = self.hashes.len() as u64;
        let mut file = file(self.hashes);
        file.extend(bytes);
        (file.into(), hashed)
    }
}

/// Uuids to look up in segments.
#[derive(Debug, Default)]
pub(crate) struct UuidQuery {
    /// The hashes of all of them, ascending.
    hashes: Vec<u64>,
    /// Those derived from lines of files.
    lines: LineUuids,
}

impl UuidQuery {
    pub(crate) fn of(uuids: impl Iterator<Item = Uuid>) -> UuidQuery {
        let (mut hashes, mut sources) = (Vec::new(), HashMap::<UuidSource, Vec<u64>>::new());
        for uuid in uuids {
            hashes.push(hash(uuid));
            if let Some((source, line)) = line_of(uuid) {
                sources.entry(source).or_default().push(line);
            }
        }
        hashes.sort_unstable();
        hashes.dedup();
        let mut lines = LineUuids::default();
        sources.into_iter().for_each(|(source, own)| lines.insert(source, &own));
        UuidQuery { hashes, lines }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The hashes of all of them, ascending.
    pub(crate) fn hashes(&self) -> &[u64] {
        &self.hashes
    }
}

/// Result of a lookup in the index of a segment.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct UuidMatches {
    /// Hashes of the query that the segment has; the full uuids must be compared.
    pub hashes: Vec<u64>,
    /// Uuids that the segment has for certain.
    pub uuids: Vec<Uuid>,
}

/// The hash of a uuid: uniform for time-ordered and derived uuids alike.
pub(crate) fn hash(uuid: Uuid) -> u64 {
    let (high, low) = uuid.as_u64_pair();
    mixed(high ^ mixed(low))
}

/// Finalizer of the splitmix64 generator: every input bit flips about half of the output bits.
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Layout of a file with so many entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexLayout {
    rows: u64,
    /// Number of leading hash bits that select the bucket.
    bits: u32,
}

impl IndexLayout {
    fn of(rows: u64) -> IndexLayout {
        // 32 bucket bits and the 32 of an entry use the whole hash.
        IndexLayout { rows, bits: (rows / BUCKET_ENTRIES).max(1).ilog2().min(64 - ENTRY_BITS) }
    }

    fn buckets(self) -> u64 {
        1 << self.bits
    }

    /// The bucket of a hash, and its entry.
    fn place(self, hash: u64) -> (u64, u64) {
        let bucket = hash.checked_shr(64 - self.bits).unwrap_or(0);
        (bucket, (hash << self.bits) >> (64 - ENTRY_BITS))
    }

    /// Byte range of the entry counts of `buckets`.
    fn fences(self, buckets: &Range<u64>) -> Range<u64> {
        buckets.start * FENCE..(buckets.end + 1) * FENCE
    }

    /// Byte range of entries.
    fn entries(self, entries: &Range<u64>) -> Range<u64> {
        let start = (self.buckets() + 1) * FENCE;
        start + entries.start * ENTRY..start + entries.end * ENTRY
    }

    fn size(self) -> u64 {
        self.entries(&(0..self.rows)).end
    }
}

/// Encodes the buckets and entries of these hashes.
fn file(mut hashes: Vec<u64>) -> Vec<u8> {
    hashes.sort_unstable();
    let layout = IndexLayout::of(hashes.len() as u64);
    let mut file = Vec::with_capacity(layout.size() as usize);
    let mut before = 0;
    for bucket in 0..=layout.buckets() {
        while hashes.get(before).is_some_and(|hash| layout.place(*hash).0 < bucket) {
            before += 1;
        }
        file.extend((before as u32).to_le_bytes());
    }
    for hash in hashes {
        file.extend(&layout.place(hash).1.to_le_bytes()[..ENTRY as usize]);
    }
    file
}

/// Decodes entry counts, which must ascend to at most `rows`.
pub(super) fn fences(bytes: &[u8], rows: u64) -> Option<Vec<u64>> {
    let fences = bytes.as_chunks::<4>().0.iter().map(|fence| u64::from(u32::from_le_bytes(*fence)));
    let fences = fences.collect::<Vec<_>>();
    (fences.is_sorted() && fences.last().is_some_and(|last| *last <= rows)).then_some(fences)
}

/// Entry `at` of `entries`.
pub(super) fn entry(entries: &[[u8; 4]], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(entries[at]))
}

/// Whether the entries of a bucket contain `requested`.
pub(super) fn has(bucket: &[[u8; 4]], requested: u64) -> bool {
    // Interpolation search: its position is close to where it would be in a uniform distribution, so a linear
    // search from there is cheaper than a binary search.
    let near = 64.min(bucket.len());
    let guess = ((u128::from(requested) * bucket.len() as u128) >> ENTRY_BITS) as usize;
    let from = guess.saturating_sub(near / 2);
    let to = (from + near).min(bucket.len());
    let surely = |at: usize| entry(bucket, at);
    let around = from < to
        && (from == 0 || surely(from) < requested)
        && (to == bucket.len() || surely(to - 1) > requested);
    if !around {
        return bucket
            .binary_search_by_key(&requested, |bytes| entry(std::slice::from_ref(bytes), 0))
            .is_ok();
    }
    let mut at = guess.clamp(from, to - 1);
    while at > from && surely(at) > requested {
        at -= 1;
    }
    while at + 1 < to && surely(at) < requested {
        at += 1;
    }
    surely(at) == requested
}

/// The index file of a segment.
#[derive(Debug, Clone)]
pub(crate) struct UuidIndexFile {
    objects: Objects,
    object: String,
    /// Number of hashes.
    layout: IndexLayout,
    /// Whether lines follow.
    has_lines: bool,
}

impl UuidIndexFile {
    /// The index of a segment; none when it holds no event.
    pub(crate) fn of(objects: &Objects, segment: &SegmentEntry) -> Option<UuidIndexFile> {
        let object = segment.hashes.clone().filter(|_| segment.rows > 0)?;
        let hashed = segment.hashed.unwrap_or(segment.rows);
        let has_lines = hashed < segment.rows;
        Some(UuidIndexFile { objects: objects.clone(), object, layout: IndexLayout::of(hashed), has_lines })
    }

    /// Looks up `requested`.
    pub(crate) async fn probe(&self, requested: &Arc<UuidQuery>) -> Result<UuidMatches, EventStoreError> {
        let size = self.objects.size(&self.object).await?;
        let lines = size.checked_sub(self.layout.size());
        let lines = lines.filter(|lines| (*lines > 0) == self.has_lines && *lines <= LINES_BYTES_MAX as u64);
        let Some(lines) = lines else {
            let what = format!("it has {size} bytes for {} events", self.layout.rows);
            return Err(self.objects.damaged(&self.object, &what).await);
        };
        let uuids = if self.has_lines && !requested.lines.is_empty() {
            let range = size - lines..size;
            let parts = self.objects.ranges(&self.object, std::slice::from_ref(&range)).await?;
            let lines = LineUuids::of_bytes(parts.first().map_or(&[], |part| part))?;
            requested.lines.both(&lines).collect()
        } else {
            Vec::new()
        };
        let hashes = if self.layout.rows == 0 {
            Vec::new()
        } else if requested.hashes.len() as u64 * LOOKUP_BYTES < size {
            self.probe_buckets(&requested.hashes).await?
        } else {
            self.scan_file(requested).await?
        };
        Ok(UuidMatches { hashes, uuids })
    }

    fn wrong(&self) -> EventStoreError {
        EventStoreError::Corrupt(format!("{}: its buckets do not ascend", self.object))
    }

    /// Reads only the buckets of `hashes`.
    async fn probe_buckets(&self, hashes: &[u64]) -> Result<Vec<u64>, EventStoreError> {
        let buckets = hashes.iter().map(|hash| self.layout.place(*hash).0).collect::<Vec<_>>();
        let requested = buckets.iter().map(|bucket| self.layout.fences(&(*bucket..*bucket + 1)));
        let parts = self.objects.ranges(&self.object, &requested.collect::<Vec<_>>()).await?;
        let fences = parts.iter().map(|part| fences(part, self.layout.rows)).collect::<Option<Vec<_>>>();
        let fences = fences.ok_or_else(|| self.wrong())?;
        let requested = fences.iter().map(|fences| self.layout.entries(&(fences[0]..fences[1])));
        let parts = self.objects.ranges(&self.object, &requested.collect::<Vec<_>>()).await?;
        let found = hashes.iter().zip(&parts);
        let found = found.filter(|(hash, part)| has(part.as_chunks().0, self.layout.place(**hash).1));
        Ok(found.map(|(hash, _)| *hash).collect())
    }

    /// Reads the whole file in chunks.
    async fn scan_file(&self, requested: &Arc<UuidQuery>) -> Result<Vec<u64>, EventStoreError> {
        let all = self.layout.fences(&(0..self.layout.buckets()));
        let parts = self.objects.ranges(&self.object, std::slice::from_ref(&all)).await?;
        let fences = parts.first().and_then(|part| fences(part, self.layout.rows));
        let fences = Arc::new(fences.ok_or_else(|| self.wrong())?);
        let mut found = Vec::new();
        let mut first = 0;
        while first + 1 < fences.len() {
            let begin = fences[first];
            let fits = fences.partition_point(|fence| (fence - begin.min(*fence)) * ENTRY <= PIECE_BYTES) - 1;
            let last = fits.max(first + 1);
            let range = self.layout.entries(&(begin..fences[last]));
            let part = self.objects.ranges(&self.object, std::slice::from_ref(&range)).await?;
            let part = part.into_iter().next().unwrap_or_default();
            let (layout, fences, requested) = (self.layout, fences.clone(), requested.clone());
            let piece = move || {
                let hashes = &requested.hashes;
                let bucket = |hash: &u64| layout.place(*hash).0 as usize;
                let from = hashes.partition_point(|hash| bucket(hash) < first);
                let to = hashes.partition_point(|hash| bucket(hash) < last);
                let entries = part.as_chunks::<4>().0;
                let is_in = |hash: &&u64| {
                    let (bucket, requested) = layout.place(**hash);
                    let at = |bucket: u64| (fences[bucket as usize] - begin) as usize;
                    entries.get(at(bucket)..at(bucket + 1)).is_some_and(|bucket| has(bucket, requested))
                };
                hashes[from..to].iter().filter(is_in).copied().collect::<Vec<_>>()
            };
            found.extend(tokio::task::spawn_blocking(piece).await?);
            first = last;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use pennon_core::store::TlsRoots;

    use super::*;

    fn uuid(n: u128) -> Uuid {
        // Time-ordered uuids: the upper half hardly changes.
        Uuid::from_u128((0x0190_0000_0000_7000_8000_0000_0000_0000_u128) + n)
    }

    struct IndexFixture {
        file: UuidIndexFile,
        _directory: tempfile::TempDir,
    }

    async fn held(hashes: Vec<u64>) -> IndexFixture {
        let rows = hashes.len() as u64;
        written(file(hashes).into(), rows, rows).await
    }

    async fn written(file: Bytes, rows: u64, hashed: u64) -> IndexFixture {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}", directory.path().display());
        let objects = Objects::open(&url, TlsRoots::Machine, None).unwrap();
        let segment = SegmentEntry { hashed: Some(hashed), ..crate::segments::tests::entry("h", rows) };
        objects.create("h", file).await.unwrap();
        IndexFixture { file: UuidIndexFile::of(&objects, &segment).unwrap(), _directory: directory }
    }

    /// Looks all of `looked_up` up in both ways.
    async fn found(held: &IndexFixture, mut looked_up: Vec<u64>) -> Vec<u64> {
        looked_up.sort_unstable();
        let looked_up = Arc::new(UuidQuery { hashes: looked_up, lines: LineUuids::default() });
        let found = held.file.scan_file(&looked_up).await.unwrap();
        assert_eq!(held.file.probe_buckets(&looked_up.hashes).await.unwrap(), found);
        assert_eq!(held.file.probe(&looked_up).await.unwrap().hashes, found);
        found
    }

    #[tokio::test]
    async fn held_uuids_are_found_and_others_not() {
        for rows in [1_u128, 2, 31, 33, 64, 65, 1000, 4097, 100_000] {
            let held = held((0..rows).map(|n| hash(uuid(n))).collect()).await;
            let looked_up = (rows.saturating_sub(3000)..rows + 3000)
                .chain(0..10.min(rows))
                .collect::<std::collections::BTreeSet<_>>();
            let mut want =
                looked_up.iter().filter(|n| **n < rows).map(|n| hash(uuid(*n))).collect::<Vec<_>>();
            want.sort_unstable();
            assert_eq!(
                found(&held, looked_up.iter().map(|n| hash(uuid(*n))).collect()).await,
                want,
                "{rows} rows"
            );
        }
    }

    #[tokio::test]
    async fn hashes_that_are_not_spread_at_all_are_found_too() {
        // All in one bucket, twice each, and the ends of all numbers.
        let mut hashes = (0..5000_u64).flat_map(|n| [n << 25; 2]).collect::<Vec<_>>();
        hashes.extend([u64::MAX, 1 << 63]);
        let held = held(hashes.clone()).await;
        let looked_up =
            (0..6000_u64).map(|n| n << 25).chain([u64::MAX, u64::MAX - (1 << 40), 1 << 63]).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(found(&held, looked_up).await, hashes);
    }

    #[tokio::test]
    async fn lines_of_a_file_are_stored_compactly_and_found_exactly() {
        let line = |source: u8, line: u64| {
            let mut bytes = [source; 16];
            bytes[10..].copy_from_slice(&line.to_be_bytes()[2..]);
            uuid::Builder::from_custom_bytes(bytes).into_uuid()
        };
        let mut uuids = UuidIndexBuilder::default();
        // All but every thousandth line of one file, too few lines of a second one to be recognised, and other uuids.
        let lines = (1..=50_000).filter(|n| n % 1000 != 0).map(|n| line(1, n)).collect::<Vec<_>>();
        let few = (1..=10).map(|n| line(2, n)).collect::<Vec<_>>();
        let others = (0..100).map(uuid).collect::<Vec<_>>();
        lines.iter().chain(&few).chain(&others).for_each(|uuid| uuids.add(*uuid));
        let (bytes, hashed) = uuids.file();
        assert_eq!(hashed, 110);
        assert!(bytes.len() < 1000, "{}", bytes.len());
        let rows = (lines.len() + 110) as u64;
        let held = written(bytes.clone(), rows, hashed).await;
        let looked_up = (1..=60_000).map(|n| line(1, n)).chain((1..=20).map(|n| line(2, n)));
        let looked_up = looked_up.chain((1..=10).map(|n| line(3, n))).chain((50..150).map(uuid));
        let found = held.file.probe(&Arc::new(UuidQuery::of(looked_up))).await.unwrap();
        assert_eq!(found.uuids, lines);
        let mut hashes = few.iter().chain(&others[50..]).map(|uuid| hash(*uuid)).collect::<Vec<_>>();
        hashes.sort_unstable();
        assert_eq!(found.hashes, hashes);
        // Uuids that are not in the file, and a file that is cut.
        let none = Arc::new(UuidQuery::of((200..210).map(uuid)));
        assert_eq!(held.file.probe(&none).await.unwrap(), UuidMatches::default());
        for cut in [bytes.slice(..bytes.len() - 1), bytes.slice(..600), Bytes::new()] {
            let held = written(cut, rows, hashed).await;
            let all = Arc::new(UuidQuery::of(lines.iter().copied()));
            assert!(held.file.probe(&all).await.is_err());
        }
    }

    #[test]
    fn the_file_has_four_bytes_an_event_and_a_little_more() {
        for rows in [1000, 10_000_000, 100_000_000, 4_000_000_000] {
            let layout = IndexLayout::of(rows);
            assert!(layout.size() < rows * 9 / 2, "{layout:?}");
        }
        assert_eq!(file(Vec::new()), vec![0; 8]);
        assert_eq!(file((0..1000).map(mixed).collect()).len() as u64, IndexLayout::of(1000).size());
    }
}
