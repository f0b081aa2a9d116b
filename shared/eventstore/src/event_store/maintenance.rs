//! Background work and operation: compaction, erasure, verification, installation, result objects.

use std::collections::BTreeMap;

use bytes::Bytes;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::EventStore;
use crate::compaction::{CompactionReport, MergeMode, Orphan, SweepReport};
use crate::erasure::{ErasureReport, ErasureTarget};
use crate::error::EventStoreError;
use crate::installation::AdoptionReport;
use crate::integrity::{CheckProgress, CheckReport};
use crate::manifest::{CompactionLease, CompactionTask};
use crate::objects::{Damage, ResultObject, VersionReport};

impl EventStore {
    /// Waits until so many captured batches wait for compaction that it should begin at once. For one caller at a time.
    pub async fn wait_until_compaction_due(&self) {
        self.components.blocks.wait_until_filled().await;
    }

    /// Takes the lease of a part of compaction until `until`; none while another process holds it.
    pub async fn lease_compaction(
        &self,
        task: CompactionTask,
        now: Micros,
        until: Micros,
    ) -> Result<Option<CompactionLease>, EventStoreError> {
        Ok(task.lease(&self.components.records, now, until).await?)
    }

    /// Extends a lease. Returns false if it expired and another process took it.
    pub async fn renew_compaction(
        &self,
        lease: &CompactionLease,
        until: Micros,
    ) -> Result<bool, EventStoreError> {
        Ok(lease.renew(&self.components.records, until).await?)
    }

    /// Ends a lease.
    pub async fn release_compaction(&self, lease: CompactionLease) -> Result<(), EventStoreError> {
        Ok(lease.release(&self.components.records).await?)
    }

    /// Inserts a row that wakes a part of compaction, for work that is left.
    pub async fn wake_compaction(&self, task: CompactionTask, now: Micros) -> Result<(), EventStoreError> {
        Ok(task.wake_again(&self.components.records, now).await?)
    }

    /// As [`EventStore::compact_blocks`], if so many blocks wait, or some for so long, that they are worth a segment.
    pub async fn compact_due_blocks(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<CompactionReport, EventStoreError> {
        self.components.compactor.compact_due_blocks(project, now).await
    }

    /// Folds the merge log of a project if it is long, and returns whether segments are due to be merged.
    pub async fn is_merge_due(&self, project: ProjectId, now: Micros) -> Result<bool, EventStoreError> {
        self.components.compactor.is_merge_due(project, now).await
    }

    /// Runs compaction once: some blocks, and one merge. Cheap when there is nothing to do.
    pub async fn compact(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<CompactionReport, EventStoreError> {
        self.components.compactor.compact(project, now).await
    }

    /// Turns the oldest blocks of a project into a segment.
    pub async fn compact_blocks(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<CompactionReport, EventStoreError> {
        self.components.compactor.compact_blocks(project, now).await
    }

    /// Merges the segments that [`merge_policy`] selects, or else rewrites one segment with many merged
    /// persons. Cheap when there is nothing to do.
    pub async fn merge_segments(
        &self,
        project: ProjectId,
        now: Micros,
        effort: MergeMode,
    ) -> Result<CompactionReport, EventStoreError> {
        self.components.compactor.merge_segments(project, now, effort).await
    }

    /// Deletes replaced blocks, and segments that were replaced longer than the grace period ago.
    pub async fn sweep(&self, project: ProjectId, now: Micros) -> Result<SweepReport, EventStoreError> {
        self.components.sweeper.sweep(project, now).await
    }

    /// Moves objects of the project that the manifest does not name and that were written more than
    /// [`ORPHANED_MICROS`] before `now`, and deletes orphans that expired. Returns how many were moved.
    pub async fn sweep_orphans(&self, project: ProjectId, now: Micros) -> Result<usize, EventStoreError> {
        self.components.sweeper.sweep_orphans(project, now).await
    }

    /// The objects of the project that were moved because no manifest named them.
    pub async fn orphans(&self, project: ProjectId) -> Result<Vec<Orphan>, EventStoreError> {
        self.components.sweeper.orphans(project).await
    }

    /// Counts the old versions that a bucket keeps of replaced and deleted objects, of one project or of all, and with `removes`
    /// deletes them; `progress` gets the counts so far. No reader uses them. `None` if the objects are in a directory.
    pub async fn remove_old_versions(
        &self,
        project: Option<ProjectId>,
        removes: bool,
        progress: &(dyn Fn(VersionReport) + Sync),
    ) -> Result<Option<VersionReport>, EventStoreError> {
        self.components.sweeper.remove_old_versions(project, removes, progress).await
    }

    /// Erases data that was acknowledged before the call. When it returns, no read finds any of it.
    ///
    /// `now` returns the current time; it is called repeatedly, because an erasure may take longer than the
    /// grace period.
    ///
    /// [`EventStoreError::TooLarge`] when more segments have to be rewritten than fit into one transaction.
    pub async fn erase(
        &self,
        project: ProjectId,
        doomed: &ErasureTarget,
        now: &(dyn Fn() -> Micros + Sync),
    ) -> Result<ErasureReport, EventStoreError> {
        self.components.eraser.erase(project, doomed, now).await
    }

    /// Counts what [`EventStore::erase`] would erase now. Changes nothing.
    pub async fn preview_erasure(
        &self,
        project: ProjectId,
        doomed: &ErasureTarget,
    ) -> Result<ErasureReport, EventStoreError> {
        self.components.eraser.preview_erasure(project, doomed).await
    }

    /// Verifies all objects and waiting blocks of a project. Damage is marked as if a reader had found it; with
    /// `lift`, markers of intact data are removed.
    pub async fn check(
        &self,
        project: ProjectId,
        lift: bool,
        progress: &mut (dyn FnMut(CheckProgress) + Send),
    ) -> Result<CheckReport, EventStoreError> {
        self.components.checker.check(project, lift, progress).await
    }

    /// Removes a segment or an import from the manifest permanently; its objects are deleted like those of a
    /// replaced one. A block is removed only if it is damaged. Returns false when the project has none with
    /// this id.
    pub async fn drop_segment(
        &self,
        project: ProjectId,
        id: &str,
        now: Micros,
    ) -> Result<bool, EventStoreError> {
        self.components.checker.drop_segment(project, id, now).await
    }

    /// The damage markers of a project, by id.
    pub async fn damage(&self, project: ProjectId) -> Result<BTreeMap<String, Damage>, EventStoreError> {
        self.components.quarantine.damage(project).await
    }

    /// Verifies tables and objects, and assigns an id if they have none: a new installation, or one of an
    /// earlier release. [`EventStoreError::WrongInstallation`] if they do not belong together or the tables are
    /// older.
    pub async fn claim_installation(&self) -> Result<Uuid, EventStoreError> {
        self.components.installation.claim_installation().await
    }

    /// Verifies tables and objects without writing. Passes if they have no id and nothing contradicts.
    pub async fn verify_installation(&self) -> Result<(), EventStoreError> {
        self.components.installation.verify_installation().await
    }

    /// Writes the id and the marks to the objects of a new copy of an installation.
    pub async fn mark_copy(&self) -> Result<(), EventStoreError> {
        self.components.installation.mark_copy().await
    }

    /// Makes tables and objects one installation, whatever they were before.
    pub async fn adopt_installation(&self, now: Micros) -> Result<AdoptionReport, EventStoreError> {
        self.components.installation.adopt_installation(now).await
    }

    /// Names of all objects that the manifest of `project` needs, including checksum files, ascending. They
    /// exist for at least [`crate::GRACE_MICROS`] after the manifest was read, regardless of compaction.
    pub async fn list_live_objects(&self, project: ProjectId) -> Result<Vec<String>, EventStoreError> {
        Ok(self.components.manifests.load(project).await?.live_objects())
    }

    /// Names of the objects with calculation results. A missing one is recalculated.
    pub async fn list_result_objects(&self) -> Result<Vec<String>, EventStoreError> {
        Ok(self.list_results(None).await?.iter().map(|(object, _)| object.name()).collect())
    }

    /// Stores the content of `object`.
    pub async fn put_result(&self, object: &ResultObject, bytes: Bytes) -> Result<(), EventStoreError> {
        self.components.results.put_result(object, bytes).await
    }

    /// Reads `object`, if it exists. The content is not verified.
    pub async fn get_result(&self, object: &ResultObject) -> Result<Option<Bytes>, EventStoreError> {
        self.components.results.get_result(object).await
    }

    /// Lists the result objects of one project, or of all, unordered, each with its last modified time.
    pub async fn list_results(
        &self,
        project: Option<ProjectId>,
    ) -> Result<Vec<(ResultObject, Micros)>, EventStoreError> {
        self.components.results.list_results(project).await
    }

    /// Deletes result objects; missing ones are no error.
    pub async fn remove_results(&self, objects: &[ResultObject]) -> Result<(), EventStoreError> {
        self.components.results.remove_results(objects).await
    }
}
