//! The list of blocks that a segment replaces: an object beside the segment.
//!
//! A compaction run replaces thousands of blocks, and every query reads the manifest. So the entry of a segment
//! stores only the range of the block ids; a reader fetches the list only if it holds a block in that range,
//! which happens between the commit of the segment and the deletion of the blocks. The object is a magic and
//! then seventeen bytes per block, ascending. Must stay true: a block that a listed segment replaces is never
//! counted, however long its deletion takes; the list is used until the grace period after the last block was
//! deleted, because a reader may hold blocks that it read before.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use pennon_core::store::keys::ProjectId;

use crate::blocks::block_log::{BlockLog, RawBlock};
use crate::error::EventStoreError;
use crate::formats;
use crate::keys::BlockId;
use crate::manifest::{Manifest, ReplacedBlocks};

/// Magic of a list; the last digit is the format.
const KIND: &[u8; 3] = b"PBL";
const FORMAT: u8 = b'1';
const MARK: [u8; 4] = [KIND[0], KIND[1], KIND[2], FORMAT];
const ENTRY_BYTES: usize = 17;

/// Builds the entry and the list object for `ids`; none if there are none.
pub(crate) fn list_of_replaced_blocks(ids: &[BlockId], object: String) -> Option<(ReplacedBlocks, Bytes)> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let (first, last) = (*ids.first()?, *ids.last()?);
    let entry =
        ReplacedBlocks { object, first, last, count: ids.len() as u64, removed_at: None, settled: false };
    Some((entry, encode(&ids)))
}

pub(super) fn encode(ids: &[BlockId]) -> Bytes {
    let mut bytes = MARK.to_vec();
    for id in ids {
        bytes.extend_from_slice(&id.micros.to_be_bytes());
        bytes.extend_from_slice(&id.tie.to_be_bytes());
        bytes.extend_from_slice(&id.random.to_be_bytes());
        bytes.push(id.layout());
    }
    bytes.into()
}

pub(super) fn decode(bytes: &[u8]) -> Option<Vec<BlockId>> {
    let entries = bytes.strip_prefix(&MARK)?;
    let (entries, []) = entries.as_chunks::<ENTRY_BYTES>() else { return None };
    let id = |entry: &[u8; ENTRY_BYTES]| {
        let (parts, partitions) = BlockId::of_layout(entry[16])?;
        Some(BlockId {
            micros: u64::from_be_bytes(entry[..8].try_into().ok()?),
            tie: u32::from_be_bytes(entry[8..12].try_into().ok()?),
            random: u32::from_be_bytes(entry[12..16].try_into().ok()?),
            parts,
            partitions,
        })
    };
    entries.iter().map(id).collect()
}

/// The error for a list of a newer format.
fn newer(object: &str, bytes: &[u8]) -> Option<EventStoreError> {
    match bytes.strip_prefix(KIND) {
        Some([format @ b'2'..=b'9', ..]) => {
            Some(formats::newer(object, u32::from(format - b'0'), u32::from(FORMAT - b'0')))
        }
        _ => None,
    }
}

impl BlockLog {
    /// Splits `blocks` into those that count and those that a segment of the manifest replaces.
    ///
    /// The blocks must have been read before the manifest.
    pub(crate) async fn split_replaced(
        &self,
        manifest: &Manifest,
        blocks: Vec<RawBlock>,
    ) -> Result<(Vec<RawBlock>, Vec<RawBlock>), EventStoreError> {
        let mut replaced: HashSet<BlockId> = HashSet::new();
        for entry in manifest.replaced_blocks() {
            let between = entry.first..=entry.last;
            if blocks.iter().any(|block| between.contains(&block.id) && !replaced.contains(&block.id)) {
                replaced.extend(self.replaced_ids(entry).await?.iter());
            }
        }
        Ok(blocks.into_iter().partition(|block| !replaced.contains(&block.id)))
    }

    /// Keeps the blocks that no segment of the manifest replaces.
    pub(crate) async fn not_replaced(
        &self,
        manifest: &Manifest,
        blocks: Vec<RawBlock>,
    ) -> Result<Vec<RawBlock>, EventStoreError> {
        Ok(self.split_replaced(manifest, blocks).await?.0)
    }

    /// Whether a segment of the manifest replaces one of these blocks.
    pub(crate) async fn is_any_replaced(
        &self,
        manifest: &Manifest,
        ids: &[BlockId],
    ) -> Result<bool, EventStoreError> {
        for entry in manifest.replaced_blocks() {
            let own = ids.iter().filter(|id| (entry.first..=entry.last).contains(*id)).collect::<Vec<_>>();
            if own.is_empty() {
                continue;
            }
            let replaced = self.replaced_ids(entry).await?;
            if own.into_iter().any(|id| replaced.binary_search(id).is_ok()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fetches the ids of a list, ascending.
    async fn replaced_ids(&self, entry: &ReplacedBlocks) -> Result<Arc<Vec<BlockId>>, EventStoreError> {
        if let Some(known) = self.replaced.get(&entry.object) {
            return Ok(known);
        }
        let bytes = self.objects.get(&entry.object).await?;
        if let Some(newer) = newer(&entry.object, &bytes) {
            return Err(newer);
        }
        let ids = decode(&bytes).filter(|ids| ids.len() as u64 == entry.count);
        let ids =
            ids.ok_or_else(|| EventStoreError::Corrupt(format!("{} is no list of blocks", entry.object)))?;
        let ids = Arc::new(ids);
        self.replaced.put(&entry.object, ids.clone());
        Ok(ids)
    }

    /// Deletes the blocks of a list.
    pub(crate) async fn remove_listed(
        &self,
        project: ProjectId,
        entry: &ReplacedBlocks,
    ) -> Result<(), EventStoreError> {
        let ids = self.replaced_ids(entry).await?;
        self.remove_blocks(project, &ids).await
    }

    /// Deletes blocks in batches, at the rate of the settings; missing ones are no error.
    pub(crate) async fn remove_blocks(
        &self,
        project: ProjectId,
        ids: &[BlockId],
    ) -> Result<(), EventStoreError> {
        let keys = ids.iter().flat_map(|id| id.keys(project)).collect::<Vec<_>>();
        match self.settings.deleted_units {
            Some(units) => self.blocks.sweep_at(keys, units).await?,
            None => self.blocks.sweep(keys).await?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::block_partitions::BlockPartitions;

    fn id(n: u32) -> BlockId {
        BlockId {
            micros: 1_700_000_000_000_000 + u64::from(n),
            tie: n,
            random: !n,
            parts: 1 + (n % 14) as u8,
            partitions: BlockPartitions::new(4 << (n % 5)).unwrap(),
        }
    }

    #[test]
    fn a_list_comes_back_ascending_and_once_each() {
        let ids = [id(7), id(3), id(7), id(u32::MAX)];
        let (entry, bytes) = list_of_replaced_blocks(&ids, "o".into()).unwrap();
        assert_eq!((entry.first, entry.last, entry.count), (id(3), id(u32::MAX), 3));
        assert_eq!(decode(&bytes).unwrap(), [id(3), id(7), id(u32::MAX)]);
        assert_eq!(bytes.len(), 4 + 3 * 17);
        assert!(list_of_replaced_blocks(&[], "o".into()).is_none());
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<ReplacedBlocks>(&text).unwrap(), entry);
    }

    #[test]
    fn a_list_of_a_newer_format_is_distinguished_from_a_damaged_one() {
        let (_, bytes) = list_of_replaced_blocks(&[id(1)], "o".into()).unwrap();
        assert!(newer("o", &bytes).is_none() && newer("o", b"PBLx").is_none() && newer("o", b"PB").is_none());
        let mut later = bytes.to_vec();
        later[3] = b'2';
        let refused = newer("o", &later).unwrap().to_string();
        assert!(refused.contains("format 2") && refused.contains("newer release"), "{refused}");
        assert_eq!(decode(&later), None);
    }

    #[test]
    fn what_is_no_list_is_noticed() {
        let (_, bytes) = list_of_replaced_blocks(&[id(1), id(2)], "o".into()).unwrap();
        for length in (0..bytes.len()).filter(|length| *length != 4 && *length != 21) {
            assert_eq!(decode(&bytes[..length]), None, "cut at {length}");
        }
    }
}
