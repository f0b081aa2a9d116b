//! Erases persons from the merge log.
//!
//! Rows of the log have consecutive numbers and are cached by processes, so single rows are not removed.
//! Instead, an object with all remaining merges replaces the whole log, in the transaction of the erasure,
//! together with an empty next row. Must stay true: no concurrent merge is lost (the row would not be the next
//! one), and no erased merge returns (the entry counts erasures; a cached state with a lower count is
//! discarded). The older rows are deleted as after any folding. Identified markers are separate rows, deleted
//! in the same transaction as far as they fit, and right after it beyond; so an id that appears again is a new
//! person. Rows of the queue ([`super::queue`]) are deleted after it.

use std::collections::BTreeSet;

use bytes::Bytes;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Key, PartitionQuery, Write, WriteCondition};

use super::append::next_row;
use super::{MergeLog, PersonMerge, encode};
use crate::error::EventStoreError;
use crate::formats;
use crate::keys;
use crate::manifest::{ChangeOutcome, FoldedMergesEntry, Manifest, ManifestChange, new_id};
use crate::persons::ErasureFilter;
use crate::persons::person_merge_state::PersonMergeState;

/// Most writes of the transaction, besides the head, the entry, and the log row with its precondition.
const WRITES_MAX: usize = 96;
/// Attempts while the log grows.
const TRIES: usize = 20;

/// The replacement of the log.
struct ReplacementLog<'a> {
    left: &'a [PersonMerge],
    /// Number of the last row of the old log.
    through: u64,
    /// Marker rows to delete.
    marks: Vec<Key>,
}

impl MergeLog {
    /// Applies `change`, and removes the persons of `erase` from the log in the same transaction. Returns
    /// false, and changes nothing, on a version conflict, or if a person of `erase` was merged since
    /// `merge_state`.
    pub(crate) async fn erase_merges_of(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        merge_state: &PersonMergeState,
        erase: &ErasureFilter,
        change: &ManifestChange<'_>,
        now: Micros,
    ) -> Result<bool, EventStoreError> {
        for _ in 0..TRIES {
            let rows = self.merges_after(project, merge_state.through).await?;
            let through = rows.last().map_or(merge_state.through, |row| row.number);
            let is_next = rows.first().is_none_or(|row| row.number == merge_state.through + 1);
            let later = rows.into_iter().flat_map(|row| row.merges).collect::<Vec<_>>();
            if !is_next || later.iter().any(|merged| erase.names_merge(merged)) {
                return Ok(false);
            }
            let (left, gone): (Vec<PersonMerge>, Vec<PersonMerge>) =
                merge_state.log().chain(&later).partition(|merged| !erase.names_merge(merged));
            let marks = Self::marks_of(project, erase, &gone);
            let log = ReplacementLog { left: &left, through, marks };
            match self.swap_log(project, manifest, log, change, now).await? {
                ChangeOutcome::Applied => return Ok(true),
                ChangeOutcome::VersionConflict => return Ok(false),
                ChangeOutcome::PreconditionFailed => {}
            }
        }
        Ok(false)
    }

    /// Applies `change`, and empties the log in the same transaction. Returns false, and changes nothing, on a
    /// version conflict.
    pub(crate) async fn erase_all_merges(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        change: &ManifestChange<'_>,
        now: Micros,
    ) -> Result<bool, EventStoreError> {
        let records = &self.records;
        let all = |prefix| PartitionQuery::partition(keys::override_pk(project)).prefix(prefix);
        for _ in 0..TRIES {
            // The last row is never deleted.
            let last = records.query(all(keys::MERGE).descending().limit(1)).await?;
            let last = last.first().map(|item| keys::merge_number(&item.key.sk)).transpose()?;
            let of_partition = |n| records.query(PartitionQuery::partition(keys::identified_pk(project, n)));
            let identified = (0..keys::IDENTIFIED_PARTITIONS).map(of_partition);
            let (identified, forced) = futures::try_join!(
                futures::future::try_join_all(identified),
                records.query(all(keys::FORCED))
            )?;
            let marks = identified.into_iter().flatten().chain(forced);
            let marks = marks.map(|item| item.key).collect();
            let log = ReplacementLog { left: &[], through: last.unwrap_or(0), marks };
            match self.swap_log(project, manifest, log, change, now).await? {
                ChangeOutcome::Applied => return Ok(true),
                ChangeOutcome::VersionConflict => return Ok(false),
                ChangeOutcome::PreconditionFailed => {}
            }
        }
        Ok(false)
    }

    /// Applies `change`, and replaces the log by `log`, in one transaction.
    async fn swap_log(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        log: ReplacementLog<'_>,
        change: &ManifestChange<'_>,
        now: Micros,
    ) -> Result<ChangeOutcome, EventStoreError> {
        let ReplacementLog { left, through, mut marks } = log;
        let remaining = WRITES_MAX.saturating_sub(change.segments.len() + change.records.len());
        let after = marks.split_off(marks.len().min(remaining));
        let entry = self.store_log(project, manifest, left, through + 1, now).await?;
        let marks = marks.into_iter().map(|key| Write::Delete(key, WriteCondition::None));
        let extra_writes = next_row(project, through + 1, &[]).into_iter().chain(marks).collect();
        let all = ManifestChange { merges: Some(&entry), extra_writes, ..change.clone() };
        let swapped = self.manifests.apply(project, manifest, &all).await?;
        match swapped {
            ChangeOutcome::Applied => {
                self.records.sweep(after).await?;
                self.clear_queue(project).await?;
            }
            _ => self.objects.delete_all(vec![entry.object]).await?,
        }
        Ok(swapped)
    }

    /// The identified and forced markers of the erased persons.
    fn marks_of(project: ProjectId, erase: &ErasureFilter, gone: &[PersonMerge]) -> Vec<Key> {
        let pairs = gone.iter().map(|merged| (merged.link.from, merged.link.to)).collect::<BTreeSet<_>>();
        let identified = erase.persons.iter().map(|person| keys::identified(project, *person));
        let forced = pairs.into_iter().map(|(from, to)| keys::forced_merge(project, from, to));
        identified.chain(forced).collect()
    }

    /// Stores an object with `merges` that replaces the log up to row `through`.
    async fn store_log(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        merges: &[PersonMerge],
        through: u64,
        now: Micros,
    ) -> Result<FoldedMergesEntry, EventStoreError> {
        let id = new_id(now);
        let entry = FoldedMergesEntry {
            format: formats::MERGES,
            object: format!("merges/project={project}/{id}.bin"),
            through,
            merges: merges.len() as u64,
            erasures: manifest.erasures() + 1,
            at: now,
            head: 0,
            id,
        };
        self.objects.create_all(&[(entry.object.clone(), Bytes::from(encode(merges)))]).await?;
        Ok(entry)
    }
}
