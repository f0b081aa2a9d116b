//! Which uuids a segment holds: a file of sorted 64-bit hashes beside it.
//!
//! The file is the hashes, eight bytes each, lowest byte first, ascending. They are spread evenly over all numbers, so
//! the place of one is known to within a few pages before anything is read. Must stay true: a hash that is not in the
//! file proves that the uuid is not in the segment; one that is proves nothing, and the full uuid is compared.

use std::collections::HashSet;
use std::ops::Range;

use bytes::Bytes;
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::manifest::SegmentEntry;
use crate::objects::Objects;

const ENTRY: u64 = 8;

/// The hash of a uuid: time-ordered and derived uuids come out spread alike.
pub(crate) fn hash(uuid: Uuid) -> u64 {
    let (high, low) = uuid.as_u64_pair();
    mixed(high ^ mixed(low))
}

/// The finishing step of the splitmix64 generator: every input bit changes about half of the output bits.
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// The file for a segment whose uuids have these hashes.
pub(crate) fn file(mut hashes: Vec<u64>) -> Bytes {
    hashes.sort_unstable();
    hashes.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>().into()
}

/// Those of `hashes` (ascending) that the segment's file has.
pub(crate) async fn probe(
    objects: &Objects,
    segment: &SegmentEntry,
    hashes: &[u64],
) -> Result<HashSet<u64>, EventStoreError> {
    let Some(object) = segment.hashes.as_deref().filter(|_| segment.rows > 0) else {
        return Ok(HashSet::new());
    };
    let windows = windows(hashes, segment.rows);
    let read = windows.iter().map(|(range, _)| range.end - range.start).sum::<u64>();
    if read * 2 < segment.rows {
        let ranges =
            windows.iter().map(|(range, _)| range.start * ENTRY..range.end * ENTRY).collect::<Vec<_>>();
        let parts = objects.ranges(object, &ranges).await?;
        let found =
            windows.iter().zip(&parts).try_fold(HashSet::new(), |mut found, ((range, wanted), bytes)| {
                found.extend(in_window(bytes, range, segment.rows, &hashes[wanted.clone()])?);
                Some(found)
            });
        if let Some(found) = found {
            return Ok(found);
        }
    }
    let whole = objects.get(object).await?;
    if whole.len() as u64 != segment.rows * ENTRY {
        return Err(EventStoreError::Corrupt(format!(
            "{object} has {} bytes for {} events",
            whole.len(),
            segment.rows
        )));
    }
    let found = in_window(&whole, &(0..segment.rows), segment.rows, hashes);
    Ok(found.unwrap_or_default().into_iter().collect())
}

/// Entries to read, each with the positions in `hashes` that it answers; windows that meet are one.
fn windows(hashes: &[u64], rows: u64) -> Vec<(Range<u64>, Range<usize>)> {
    // Positions scatter around the expected one by half the square root of the number: eight times that is never left.
    let radius = 8 * (rows as f64).sqrt() as u64 + 16;
    let mut windows: Vec<(Range<u64>, Range<usize>)> = Vec::new();
    for (index, hash) in hashes.iter().enumerate() {
        let expected = ((u128::from(*hash) * u128::from(rows)) >> 64) as u64;
        let range = expected.saturating_sub(radius)..(expected + radius).min(rows);
        match windows.last_mut() {
            Some((last, wanted)) if range.start <= last.end => {
                last.end = range.end;
                wanted.end = index + 1;
            }
            _ => windows.push((range, index..index + 1)),
        }
    }
    windows
}

/// Those of `wanted` that are in the window; none when the window turns out not to cover one of them.
fn in_window(bytes: &[u8], range: &Range<u64>, rows: u64, wanted: &[u64]) -> Option<Vec<u64>> {
    let entries = bytes.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry)).collect::<Vec<_>>();
    let (first, last) = (*entries.first()?, *entries.last()?);
    let covers = |hash: u64| (range.start == 0 || first < hash) && (range.end == rows || last > hash);
    if !wanted.iter().all(|hash| covers(*hash)) {
        return None;
    }
    Some(wanted.iter().copied().filter(|hash| entries.binary_search(hash).is_ok()).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn uuid(n: u128) -> Uuid {
        // Time-ordered uuids: the upper half hardly changes.
        Uuid::from_u128((0x0190_0000_0000_7000_8000_0000_0000_0000_u128) + n)
    }

    async fn found(held: Range<u128>, asked: &[u128]) -> Vec<u128> {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::open(&format!("file://{}", directory.path().display())).unwrap();
        let rows = (held.end - held.start) as u64;
        objects.create("h", file(held.map(uuid).map(hash).collect())).await.unwrap();
        let segment = crate::segment::tests::entry("h", rows);
        let mut hashes = asked.iter().map(|n| hash(uuid(*n))).collect::<Vec<_>>();
        hashes.sort_unstable();
        let hits = probe(&objects, &segment, &hashes).await.unwrap();
        asked.iter().copied().filter(|n| hits.contains(&hash(uuid(*n)))).collect()
    }

    #[tokio::test]
    async fn held_uuids_are_found_and_others_not() {
        assert_eq!(found(0..100_000, &[0, 5, 99_999, 100_000, 1 << 40]).await, [0, 5, 99_999]);
        let all = (0..3000).collect::<Vec<_>>();
        assert_eq!(found(1000..2000, &all).await, (1000..2000).collect::<Vec<_>>());
        assert_eq!(found(7..8, &[6, 7, 8]).await, [7]);
    }

    #[test]
    fn a_few_uuids_are_looked_up_without_reading_the_file() {
        let hashes = [0, 1 << 62, u64::MAX];
        let read = windows(&hashes, 10_000_000).iter().map(|(range, _)| range.end - range.start).sum::<u64>();
        assert!(read < 200_000, "{read} entries of ten million");
    }

    #[test]
    fn a_window_that_misses_is_noticed() {
        let bytes = [5_u64, 6, 7].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>();
        assert_eq!(in_window(&bytes, &(10..13), 100, &[6]), Some(vec![6]));
        assert_eq!(in_window(&bytes, &(10..13), 100, &[9]), None);
        assert_eq!(in_window(&bytes, &(97..100), 100, &[9]), Some(vec![]));
    }
}
