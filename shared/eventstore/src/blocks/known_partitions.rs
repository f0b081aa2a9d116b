//! The numbers of partitions that this process has read.
//!
//! Must stay true: a number only grows, like the setting, so an old manifest never hides a partition.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pennon_core::store::keys::ProjectId;

use crate::block_partitions::BlockPartitions;

/// Numbers of partitions above the default, by project.
#[derive(Debug, Default)]
pub(super) struct KnownPartitions(Mutex<HashMap<ProjectId, BlockPartitions>>);

impl KnownPartitions {
    /// The highest number that was read.
    pub(super) fn get(&self, project: ProjectId) -> BlockPartitions {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&project).copied().unwrap_or_default()
    }

    /// Remembers a number that was read.
    pub(super) fn learn(&self, project: ProjectId, partitions: BlockPartitions) {
        if partitions > BlockPartitions::DEFAULT {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let highest = known.entry(project).or_default();
            *highest = partitions.max(*highest);
        }
    }
}
