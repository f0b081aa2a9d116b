//! The row that stores the number of block partitions of a project: in the partition of its manifest, so that every reader of the
//! manifest knows it.

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::block_partitions::BlockPartitions;
use crate::error::EventStoreError;
use crate::{formats, keys};

/// The body of the row.
#[derive(Debug, Serialize, Deserialize)]
struct PartitionsRow {
    block_partitions: u8,
    format: u32,
}

impl BlockPartitions {
    /// The row that stores the setting of a project.
    pub fn row(self, project: ProjectId) -> (Key, Value) {
        let body = serde_json::json!({"block_partitions": self.count(), "format": formats::PARTITIONS});
        (keys::block_partitions(project), body)
    }

    /// Whether `key` is the key of such a row.
    pub fn is_row(key: &Key) -> bool {
        key.sk == keys::PARTITIONS
    }

    /// Parses the row of a setting.
    pub fn of_row(item: &Item) -> Result<BlockPartitions, EventStoreError> {
        let row: PartitionsRow = item.body()?;
        if row.format > formats::PARTITIONS {
            return Err(formats::newer("the number of block partitions", row.format, formats::PARTITIONS));
        }
        let wrong = || EventStoreError::Corrupt(format!("{} block partitions", row.block_partitions));
        BlockPartitions::new(row.block_partitions).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_number_comes_back_from_its_row() {
        for partitions in [4, 8, 16, 32, 64].into_iter().filter_map(BlockPartitions::new) {
            let (key, body) = partitions.row(7);
            assert!(BlockPartitions::is_row(&key));
            assert_eq!(BlockPartitions::of_row(&Item::new(key, &body).unwrap()).unwrap(), partitions);
        }
        let odd =
            Item::new(keys::block_partitions(7), &serde_json::json!({"block_partitions": 6, "format": 2}));
        assert!(BlockPartitions::of_row(&odd.unwrap()).is_err());
    }
}
