//! Verifies that tables and objects belong to the same installation and the same state.
//!
//! The tables hold a row with the installation id (`EVENTS`/`INSTALLATION`) and, per project, the manifest
//! version (`HEAD`). The object store holds the same, as empty objects with these names:
//!
//! | object | meaning |
//! |---|---|
//! | `installation/{id}` | the objects belong to this installation |
//! | `installation/project={p}/{head}-{id}` | the manifest of project `p` has reached version `head` |
//!
//! A mark is written after the transaction that raised `HEAD`, so it is never ahead of the tables: if it is,
//! the tables are an older copy. Must stay true: nothing compacts or sweeps before
//! [`EventStore::claim_installation`] has verified both; verifying writes nothing; a process may be killed
//! between any two steps, and the next claim completes them.

mod adopt;
mod compatibility;
mod version_marks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use pennon_core::store::keys::{INSTALLATION, ProjectId};
use pennon_core::store::{Item, Query, StoreError, WriteCondition};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::keys;
use crate::manifest::Manifest;
pub use adopt::AdoptionReport;
use compatibility::{Decision, Inventory, Tables, decide};
use version_marks::Marks;

/// Projects whose versions are read concurrently.
const HEADS_AT_ONCE: usize = 100;

/// The row with the installation id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstallationRow {
    pub id: Uuid,
    /// Whether the id and the marks were written to the object store.
    pub complete: bool,
}

/// The verified id; unset until tables and objects were compared.
#[derive(Debug, Default)]
pub(crate) struct KnownInstallation(OnceLock<Uuid>);

/// The name of the object that marks the objects as those of the installation `id`.
pub fn installation_marker(id: Uuid) -> String {
    version_marks::installation_name(id)
}

impl EventStore {
    /// Verifies tables and objects, and assigns an id if they have none: a new installation, or one of an
    /// earlier release. Returns the id. [`EventStoreError::WrongInstallation`] if they do not belong together or the
    /// tables are older.
    pub async fn claim_installation(&self) -> Result<Uuid, EventStoreError> {
        if let Some(id) = self.inner.installation.0.get() {
            return Ok(*id);
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
                let row = InstallationRow { id: Uuid::new_v4(), complete: false };
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
        // Another task of this process may have verified it too.
        Ok(*self.inner.installation.0.get_or_init(|| id))
    }

    /// Verifies tables and objects without writing. Passes if they have no id and nothing contradicts.
    pub async fn verify_installation(&self) -> Result<(), EventStoreError> {
        match self.compare_installation().await?.1 {
            Decision::Refuse(mismatch) => Err(EventStoreError::WrongInstallation(mismatch.to_string())),
            Decision::Matches(id) => {
                let _ = self.inner.installation.0.set(id);
                Ok(())
            }
            Decision::Complete(_) | Decision::Claim => Ok(()),
        }
    }

    /// Writes the id and the marks to the objects of a new copy of an installation.
    pub async fn mark_copy(&self) -> Result<(), EventStoreError> {
        match self.installation_row().await? {
            Some(row) => self.write_marks(row.id).await,
            None => Ok(()),
        }
    }

    /// Writes a mark that the manifest of `project` has reached version `head`. A failure is no error: the
    /// change is done, and the next mark supersedes it.
    pub(crate) async fn advance_mark(&self, project: ProjectId, head: u64) {
        let Some(id) = self.inner.installation.0.get() else { return };
        if let Err(error) = version_marks::advance(&self.inner.objects, *id, project, head).await {
            tracing::warn!(project, head, %error, "the mark beside the events could not be advanced");
        }
    }

    async fn compare_installation(&self) -> Result<(Marks, Decision), EventStoreError> {
        // Marks are read first: the versions in the tables only increase meanwhile.
        let marks = Marks::list(&self.inner.objects).await?;
        let row = self.installation_row().await?;
        let projects = self.projects().await?;
        let is_usual = row.is_some_and(|row| marks.ids.contains(&row.id));
        let mut known = projects.iter().copied().chain(marks.heads.keys().copied()).collect::<BTreeSet<_>>();
        if !is_usual {
            // A project with imported persons only is in no list of projects.
            known.extend(self.inner.objects.event_projects().await?);
        }
        let heads = self.heads(&known.into_iter().collect::<Vec<_>>()).await?;
        let is_empty = projects.is_empty() && heads.is_empty() && self.has_no_workspace().await?;
        let tables = Tables { row, heads, is_empty };
        let inventory = if is_usual { Inventory::default() } else { self.inventory(&tables).await? };
        let decision = decide(&tables, &marks, inventory);
        Ok((marks, decision))
    }

    async fn installation_row(&self) -> Result<Option<InstallationRow>, EventStoreError> {
        let rows = self
            .inner
            .store
            .records
            .query(Query::partition(keys::PROJECTS_PK).prefix(keys::INSTALLATION_SK))
            .await?;
        Ok(rows.first().map(Item::body).transpose()?)
    }

    async fn put_installation(
        &self,
        row: InstallationRow,
        guard: WriteCondition,
    ) -> Result<(), EventStoreError> {
        Ok(self.inner.store.records.put(Item::new(keys::installation(), &row)?, guard).await?)
    }

    /// The manifest versions of `projects`, where they have one.
    async fn heads(&self, projects: &[ProjectId]) -> Result<BTreeMap<ProjectId, u64>, EventStoreError> {
        let mut heads = BTreeMap::new();
        for some in projects.chunks(HEADS_AT_ONCE) {
            let keys = some.iter().map(|project| keys::head(*project)).collect::<Vec<_>>();
            let items = self.inner.store.records.batch_get(&keys).await?;
            let found = some.iter().zip(items).filter_map(|(project, item)| Some((*project, item?.version)));
            heads.extend(found);
        }
        Ok(heads)
    }

    async fn has_no_workspace(&self) -> Result<bool, EventStoreError> {
        let first = Query::partition(INSTALLATION).limit(1);
        Ok(self.inner.store.records.query(first).await?.is_empty())
    }

    async fn inventory(&self, tables: &Tables) -> Result<Inventory, EventStoreError> {
        let mut lists_objects = false;
        for project in tables.heads.keys() {
            lists_objects |= match Manifest::load(&self.inner.store, *project).await {
                Ok(manifest) => manifest.object_names().next().is_some(),
                // A newer release or damage: a reader gets the error, and data exists.
                Err(EventStoreError::Corrupt(_) | EventStoreError::Store(StoreError::Corrupt(_))) => true,
                Err(error) => return Err(error),
            };
        }
        Ok(Inventory { lists_objects, has_objects: self.inner.objects.has_event_objects().await? })
    }

    /// Writes the id and a mark for each manifest to the object store.
    async fn write_marks(&self, id: Uuid) -> Result<(), EventStoreError> {
        let objects = &self.inner.objects;
        version_marks::claim(objects, id).await?;
        for (project, head) in self.heads(&self.projects().await?).await? {
            version_marks::put(objects, id, project, head).await?;
        }
        Ok(())
    }

    /// Deletes superseded marks whose writer was stopped before it did.
    async fn tidy_marks(&self, id: Uuid, marks: &Marks) {
        for (project, head) in &marks.overtaken {
            if let Err(error) = version_marks::remove(&self.inner.objects, id, *project, *head).await {
                tracing::warn!(project, head, %error, "an old mark beside the events could not be removed");
            }
        }
    }
}
