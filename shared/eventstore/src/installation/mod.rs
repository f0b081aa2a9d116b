//! Verifies that tables and objects belong to the same installation and the same state.
//!
//! The tables hold a row with the installation id (`EVENTS`/`INSTALLATION`) and, per project, the manifest
//! version (`HEAD`). The object store holds both as marks ([`crate::manifest::VersionMarks`]). Must stay true: nothing
//! compacts or sweeps before [`InstallationCheck::claim_installation`] has verified both; verifying writes nothing; a
//! process may be killed between any two steps, and the next claim completes them.
//! The public interface is [`InstallationCheck`].

mod adopt;
mod compatibility;

use std::collections::BTreeSet;
use std::sync::Arc;

use pennon_core::ids::new_random_uuid;
use pennon_core::store::keys::INSTALLATION;
use pennon_core::store::{Item, PartitionQuery, StoreError, Table, WriteCondition};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::keys;
use crate::manifest::{ManifestStore, ProjectList, StoredMarks, VersionMarks};
use crate::objects::Objects;
pub use adopt::AdoptionReport;
use compatibility::{Decision, Inventory, Tables, decide};

/// The row with the installation id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstallationRow {
    pub id: Uuid,
    /// Whether the id and the marks were written to the object store.
    pub complete: bool,
}

/// Compares the tables with the objects.
#[derive(Debug)]
pub(crate) struct InstallationCheck {
    records: Table,
    objects: Objects,
    manifests: Arc<ManifestStore>,
    marks: Arc<VersionMarks>,
    projects: Arc<ProjectList>,
}

impl InstallationCheck {
    pub(crate) fn new(
        records: Table,
        objects: Objects,
        manifests: Arc<ManifestStore>,
        marks: Arc<VersionMarks>,
        projects: Arc<ProjectList>,
    ) -> InstallationCheck {
        InstallationCheck { records, objects, manifests, marks, projects }
    }

    /// Verifies tables and objects, and assigns an id if they have none: a new installation, or one of an
    /// earlier release. Returns the id. [`EventStoreError::WrongInstallation`] if they do not belong together or the
    /// tables are older.
    pub(crate) async fn claim_installation(&self) -> Result<Uuid, EventStoreError> {
        if let Some(id) = self.marks.verified() {
            return Ok(id);
        }
        let (marks, decision) = self.compare_installation().await?;
        let id = match decision {
            Decision::Refuse(mismatch) => {
                return Err(EventStoreError::WrongInstallation(mismatch.to_string()));
            }
            Decision::Matches(id) => {
                self.tidy_marks(id, &marks).await;
                id
            }
            Decision::Complete(id) => id,
            // Of two concurrent claims the first row wins.
            Decision::Claim => {
                let row = InstallationRow { id: new_random_uuid(), complete: false };
                match self.put_installation(row, WriteCondition::Absent).await {
                    Err(EventStoreError::Store(error)) if error.is_condition(0) => {
                        self.installation_row().await?.map_or(row.id, |row| row.id)
                    }
                    put => put.map(|()| row.id)?,
                }
            }
        };
        if !matches!(decision, Decision::Matches(_)) {
            self.write_marks(id).await?;
            self.put_installation(InstallationRow { id, complete: true }, WriteCondition::None).await?;
        }
        Ok(self.marks.set_verified(id))
    }

    /// Verifies tables and objects without writing. Passes if they have no id and nothing contradicts.
    pub(crate) async fn verify_installation(&self) -> Result<(), EventStoreError> {
        match self.compare_installation().await?.1 {
            Decision::Refuse(mismatch) => Err(EventStoreError::WrongInstallation(mismatch.to_string())),
            Decision::Matches(id) => {
                self.marks.set_verified(id);
                Ok(())
            }
            Decision::Complete(_) | Decision::Claim => Ok(()),
        }
    }

    /// Writes the id and the marks to the objects of a new copy of an installation.
    pub(crate) async fn mark_copy(&self) -> Result<(), EventStoreError> {
        match self.installation_row().await? {
            Some(row) => self.write_marks(row.id).await,
            None => Ok(()),
        }
    }

    async fn compare_installation(&self) -> Result<(StoredMarks, Decision), EventStoreError> {
        // Marks are read first: the versions in the tables only increase meanwhile.
        let marks = self.marks.list().await?;
        let row = self.installation_row().await?;
        let projects = self.projects.projects().await?;
        let is_usual = row.is_some_and(|row| marks.ids.contains(&row.id));
        let mut known = projects.iter().copied().chain(marks.heads.keys().copied()).collect::<BTreeSet<_>>();
        if !is_usual {
            // A project with imported persons only is in no list of projects.
            known.extend(self.objects.event_projects().await?);
        }
        let heads = self.manifests.versions(&known.into_iter().collect::<Vec<_>>()).await?;
        let is_empty = projects.is_empty() && heads.is_empty() && self.has_no_workspace().await?;
        let tables = Tables { row, heads, is_empty };
        let inventory = if is_usual { Inventory::default() } else { self.inventory(&tables).await? };
        let decision = decide(&tables, &marks, inventory);
        Ok((marks, decision))
    }

    async fn installation_row(&self) -> Result<Option<InstallationRow>, EventStoreError> {
        let rows = self
            .records
            .query(PartitionQuery::partition(keys::PROJECTS_PK).prefix(keys::INSTALLATION_SK))
            .await?;
        Ok(rows.first().map(Item::body).transpose()?)
    }

    async fn put_installation(
        &self,
        row: InstallationRow,
        guard: WriteCondition,
    ) -> Result<(), EventStoreError> {
        Ok(self.records.put(Item::new(keys::installation(), &row)?, guard).await?)
    }

    async fn has_no_workspace(&self) -> Result<bool, EventStoreError> {
        let first = PartitionQuery::partition(INSTALLATION).limit(1);
        Ok(self.records.query(first).await?.is_empty())
    }

    async fn inventory(&self, tables: &Tables) -> Result<Inventory, EventStoreError> {
        let mut lists_objects = false;
        for project in tables.heads.keys() {
            lists_objects |= match self.manifests.load(*project).await {
                Ok(manifest) => manifest.object_names().next().is_some(),
                // A newer release or damage: a reader gets the error, and data exists.
                Err(EventStoreError::Corrupt(_) | EventStoreError::Store(StoreError::Corrupt(_))) => true,
                Err(error) => return Err(error),
            };
        }
        Ok(Inventory { lists_objects, has_objects: self.objects.has_event_objects().await? })
    }

    /// Writes the id and a mark for each manifest to the object store.
    async fn write_marks(&self, id: Uuid) -> Result<(), EventStoreError> {
        self.marks.claim(id).await?;
        for (project, head) in self.manifests.versions(&self.projects.projects().await?).await? {
            self.marks.put(id, project, head).await?;
        }
        Ok(())
    }

    /// Deletes superseded marks whose writer was stopped before it did.
    async fn tidy_marks(&self, id: Uuid, marks: &StoredMarks) {
        for (project, head) in &marks.overtaken {
            if let Err(error) = self.marks.remove(id, *project, *head).await {
                tracing::warn!(project, head, %error, "an old mark beside the events could not be removed");
            }
        }
    }
}
