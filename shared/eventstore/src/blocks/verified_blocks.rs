//! Verifies blocks before compaction and in a check.

use pennon_core::store::keys::ProjectId;

use crate::blocks::block_log::{BlockLog, RawBlock};
use crate::error::EventStoreError;
use crate::manifest::Manifest;

/// Blocks after verification.
#[derive(Default)]
pub(crate) struct VerifiedBlocks {
    /// Intact blocks.
    pub intact: Vec<RawBlock>,
    /// Damaged blocks with their errors.
    pub damaged: Vec<(RawBlock, EventStoreError)>,
}

impl VerifiedBlocks {
    /// Verifies `blocks`.
    pub(crate) async fn of(blocks: Vec<RawBlock>) -> Result<VerifiedBlocks, EventStoreError> {
        let compare = move || {
            let mut compared = VerifiedBlocks::default();
            for block in blocks {
                match block.verify() {
                    Ok(()) => compared.intact.push(block),
                    Err(error @ EventStoreError::DamagedBlock { .. }) => {
                        compared.damaged.push((block, error))
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(compared)
        };
        tokio::task::spawn_blocking(compare).await?
    }
}

impl BlockLog {
    /// Verifies `blocks`, marks damaged ones, and removes the markers in `manifest` of repaired ones.
    pub(crate) async fn verify_blocks(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        blocks: Vec<RawBlock>,
    ) -> Result<VerifiedBlocks, EventStoreError> {
        let compared = VerifiedBlocks::of(blocks).await?;
        for id in compared.intact.iter().map(|block| block.id.to_string()) {
            if manifest.damaged.contains(&id) {
                self.quarantine.lift(project, &id).await?;
            }
        }
        for (block, error) in &compared.damaged {
            if !manifest.damaged.contains(&block.id.to_string()) {
                self.quarantine.note_damaged_block(error).await;
            }
        }
        Ok(compared)
    }
}
