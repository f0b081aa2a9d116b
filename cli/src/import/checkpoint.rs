//! How far an import has come: a row in the records table, by which an import that was interrupted continues where it stopped.
//!
//! A row is of one content with the same options, and exists only while such an import is incomplete. Without it the import
//! would read, compare and drop all events that are stored, which over a slow line takes longer than the line allows.
//!
//! Must stay true: a row never names a record that is not stored; erased and dropped events are imported again, because a row
//! from before an erasure of any project counts for nothing.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::store::{Item, StoreError, Table, WriteCondition, keys};
use pennon_eventstore::{EventStore, EventStoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{ImportOptions, Summary};

/// A row is kept for this long after the last record was stored, in seconds: 30 days.
const KEPT_SECONDS: i64 = 30 * 24 * 3600;

/// How far an import has come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// The records of the file, from its start, that are stored. The folded persons and groups of the file are stored too.
    pub records: u64,
    /// Their events, duplicates included.
    pub events: u64,
    /// The persons that are stored.
    pub persons: u64,
    /// The groups that are stored.
    pub groups: u64,
    /// The projects of what is stored.
    pub projects: BTreeSet<u64>,
    /// The number of erasures of each project when the import began.
    erasures: BTreeMap<u64, i64>,
}

impl Checkpoint {
    /// Counts in `summary` what an interrupted import has stored.
    pub(super) fn add_to(self, summary: &mut Summary) {
        summary.continued_after = self.records;
        summary.copies += self.events;
        summary.persons += self.persons;
        summary.groups += self.groups;
        summary.projects.extend(self.projects);
    }

    /// Adds what `summary` has counted as the result of the first `records` records.
    fn after(&self, records: u64, summary: &Summary) -> Checkpoint {
        Checkpoint {
            records,
            events: summary.events + summary.copies,
            persons: summary.persons,
            groups: summary.groups,
            projects: summary.projects.clone(),
            erasures: self.erasures.clone(),
        }
    }
}

/// The row of an import. Without a table nothing is stored.
pub(super) struct Checkpoints {
    table: Option<Table>,
    name: String,
    /// The beginning of this import; its erasures are in every checkpoint of it.
    begin: Checkpoint,
    is_stored: bool,
}

impl Checkpoints {
    /// The row of an import of content with this digest. Also returns the checkpoint of an interrupted import, if there is one.
    pub(super) async fn open(
        events: &EventStore,
        options: &ImportOptions,
        digest: &[u8; 32],
    ) -> Result<(Checkpoints, Option<Checkpoint>), EventStoreError> {
        let table = options.checkpoints.clone();
        let mut checkpoints = Checkpoints {
            table,
            name: name(options, digest),
            begin: Checkpoint::default(),
            is_stored: false,
        };
        let Some(table) = &checkpoints.table else { return Ok((checkpoints, None)) };
        let projects = events.projects().await?;
        let row = table.get(&keys::import_checkpoint(&checkpoints.name)).await?;
        // A row that a later release wrote is ignored, and replaced.
        let found = row.and_then(|row| row.body::<Checkpoint>().ok());
        let known = found.iter().flat_map(|found| found.erasures.keys().copied());
        let counted: Vec<u64> =
            projects.into_iter().chain(known).collect::<BTreeSet<_>>().into_iter().collect();
        let rows = counted.iter().map(|project| keys::erasures(*project)).collect::<Vec<_>>();
        let counts = table.batch_get(&rows).await?.into_iter().map(|row| row.map_or(0, |row| row.count));
        let erasures: BTreeMap<u64, i64> =
            counted.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
        checkpoints.begin.erasures = erasures;
        checkpoints.is_stored = found.is_some();
        let found = found.filter(|found| found.erasures == checkpoints.begin.erasures);
        Ok((checkpoints, found))
    }

    /// Stores that the first `records` records of the file are stored. `now` is the start of the import in microseconds since the
    /// epoch.
    pub(super) async fn store(
        &mut self,
        records: u64,
        summary: &Summary,
        now: i64,
    ) -> Result<(), StoreError> {
        let Some(table) = &self.table else { return Ok(()) };
        let row = Item::new(keys::import_checkpoint(&self.name), &self.begin.after(records, summary))?;
        self.is_stored = true;
        table.put(row.expiring(now / 1_000_000 + KEPT_SECONDS), WriteCondition::None).await
    }

    /// Deletes the row, because the import is complete.
    pub(super) async fn remove(self) -> Result<(), StoreError> {
        match self.table {
            Some(table) if self.is_stored => table.sweep(vec![keys::import_checkpoint(&self.name)]).await,
            _ => Ok(()),
        }
    }
}

/// The name of an import: the digest of the content and of all options that decide how its records are stored.
fn name(options: &ImportOptions, digest: &[u8; 32]) -> String {
    let ImportOptions { default_project, group_types, from, map, extra, group_type, checkpoints: _ } =
        options;
    let decisive = format!("{default_project:?} {group_types:?} {from:?} {map:?} {extra:?} {group_type:?}");
    let hash = Sha256::new().chain_update(digest).chain_update(decisive).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_with_other_content_or_options_has_another_row() {
        let options = ImportOptions::default();
        let usual = name(&options, &[1; 32]);
        assert_eq!(usual, name(&options.clone(), &[1; 32]));
        assert_eq!(usual.len(), 64);
        let other_project = ImportOptions { default_project: Some(2), ..options.clone() };
        let declared = BTreeMap::from([(1, vec!["company".to_owned()])]);
        let other_groups = ImportOptions { group_types: declared, ..options.clone() };
        for other in [name(&options, &[2; 32]), name(&other_project, &[1; 32]), name(&other_groups, &[1; 32])]
        {
            assert_ne!(other, usual);
        }
    }
}
