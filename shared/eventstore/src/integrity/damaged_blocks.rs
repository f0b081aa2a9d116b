//! Damaged blocks: detects, marks, reports and drops them.
//!
//! Every reader verifies the checksum of a block ([`crate::blocks::block`]) and fails if it does not match.
//! Must stay true: a damaged block stays in the table until an operator repairs or drops it; a repaired one is
//! used at once, and compaction or a check removes its marker; an intact block is never dropped.

use std::collections::BTreeMap;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;

use crate::blocks::VerifiedBlocks;
use crate::error::EventStoreError;
use crate::integrity::check::{CheckReport, DamagedSegment, IntegrityChecker};
use crate::keys::BlockId;
use crate::objects::Damage;

impl IntegrityChecker {
    /// Verifies all waiting blocks. With `lift`, removes the markers of intact or deleted blocks. `damage_markers` are
    /// the known markers of the project.
    pub(crate) async fn check_blocks(
        &self,
        project: ProjectId,
        damage_markers: &BTreeMap<String, Damage>,
        lift: bool,
        checked: &mut CheckReport,
    ) -> Result<(), EventStoreError> {
        let mut left =
            damage_markers.keys().filter(|id| id.parse::<BlockId>().is_ok()).cloned().collect::<Vec<_>>();
        let mut from = None;
        loop {
            let partitions = self.blocks.partitions(project);
            let (blocks, next) = self.blocks.oldest_blocks(project, partitions, from).await?;
            // After the blocks: the read order of every reader.
            let manifest = self.manifests.load(project).await?;
            if !self.blocks.has_read_all(project, partitions, &manifest) {
                continue;
            }
            let compared = VerifiedBlocks::of(self.blocks.not_replaced(&manifest, blocks).await?).await?;
            checked.blocks += compared.intact.len();
            checked.bytes += compared.intact.iter().map(|block| block.stored_len() as u64).sum::<u64>();
            for (block, error) in compared.damaged {
                let id = block.id.to_string();
                left.retain(|known| *known != id);
                self.quarantine.note_damaged_block(&error).await;
                checked.damaged.push(damaged_segment(block.id, &error));
            }
            if next.is_none() {
                break;
            }
            from = next;
        }
        for id in left {
            if lift {
                self.quarantine.lift(project, &id).await?;
                checked.lifted.push(id);
            } else {
                checked.restored.push(id);
            }
        }
        Ok(())
    }

    /// Deletes a damaged block with all its events. Returns false if the project has none with this id, or it
    /// is intact.
    pub(crate) async fn drop_block(&self, project: ProjectId, id: BlockId) -> Result<bool, EventStoreError> {
        let Some(block) = self.blocks.raw_block(project, id).await? else { return Ok(false) };
        let (bytes, error) = match block.verify() {
            Err(error @ EventStoreError::DamagedBlock { .. }) => (block.stored_len(), error),
            Err(error) => return Err(error),
            Ok(()) => return Ok(false),
        };
        self.blocks.remove_blocks(project, &[id]).await?;
        tracing::warn!(project, block = %id, bytes, %error, "a damaged block was dropped with all its events");
        self.quarantine.lift(project, &id.to_string()).await?;
        Ok(true)
    }
}

fn damaged_segment(id: BlockId, error: &EventStoreError) -> DamagedSegment {
    let arrived = Micros::try_from(id.micros).unwrap_or(Micros::MAX);
    let what = match error {
        EventStoreError::DamagedBlock { what, .. } => what.clone(),
        other => other.to_string(),
    };
    let damage = Damage { object: format!("block {id}"), what, at: chrono::Utc::now().timestamp_micros() };
    DamagedSegment {
        id: id.to_string(),
        kind: "block",
        events: 0,
        from: arrived,
        to: arrived,
        findings: vec![damage],
    }
}
