//! Functions for fuzzing of the index of uuids; [`crate::fuzzing`] calls them.

use super::line_uuids::{LineUuids, line_of};
use super::uuid_index::{entry, fences, has};

/// Most uuids and entries that are compared: lines of a few bytes can be billions.
const COMPARED_MAX: usize = 1_000;

/// Decoded lines are the same after they were encoded, and have themselves in common.
pub(crate) fn check_lines(bytes: &[u8]) {
    let Ok(lines) = LineUuids::of_bytes(bytes) else { return };
    assert_eq!(LineUuids::of_bytes(&lines.to_bytes()).ok().as_ref(), Some(&lines));
    for uuid in lines.both(&lines).take(COMPARED_MAX) {
        line_of(uuid);
    }
}

/// A bucket has exactly its entries, whatever their distribution; fences ascend.
pub(crate) fn check_buckets(bytes: &[u8]) {
    let (entries, _) = bytes.as_chunks::<4>();
    if let Some(fences) = fences(bytes, u64::from(u32::MAX)) {
        assert!(fences.is_sorted());
    }
    let mut bucket = entries[..entries.len().min(COMPARED_MAX)].to_vec();
    bucket.sort_unstable_by_key(|entry| u32::from_le_bytes(*entry));
    for at in 0..bucket.len() {
        let requested = entry(&bucket, at);
        assert!(has(&bucket, requested), "entry {requested} of {bucket:?}");
        let other = requested ^ 1;
        let is_there = bucket.iter().any(|entry| u64::from(u32::from_le_bytes(*entry)) == other);
        assert_eq!(has(&bucket, other), is_there, "{other} of {bucket:?}");
    }
}
