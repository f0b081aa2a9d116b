//! Adopts tables that do not match the objects, at the request of an operator.
//!
//! Must stay true: nothing is deleted; every object that the tables do not list is moved to `kept`, which no
//! sweep touches, before tables and objects are marked as belonging together; the id is new, so the former
//! tables are refused if they return.

use std::collections::HashSet;

use pennon_analytics::scan::Micros;
use pennon_core::ids::new_random_uuid;
use pennon_core::store::WriteCondition;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::{InstallationCheck, InstallationRow};
use crate::error::EventStoreError;
use crate::keys;
use crate::objects::checksums::id_of;

/// The folder that no sweep touches.
const KEPT: &str = "kept";

/// Result of an adoption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptionReport {
    /// The new id.
    pub id: Uuid,
    /// The folder with the objects that the tables do not list.
    pub folder: String,
    /// Number of these objects.
    pub kept: usize,
    /// Number of missing objects that the tables list.
    pub missing: usize,
}

impl InstallationCheck {
    /// Makes tables and objects one installation, whatever they were before.
    pub(crate) async fn adopt_installation(&self, now: Micros) -> Result<AdoptionReport, EventStoreError> {
        let objects = &self.objects;
        let folder = format!("{KEPT}/{now}");
        let listed = objects.list_event_objects().await?;
        let mut projects = self.projects.projects().await?;
        projects.extend(listed.iter().filter_map(|name| project_of(name)));
        projects.sort_unstable();
        projects.dedup();
        let (mut known, mut named) = (HashSet::new(), HashSet::new());
        for project in projects {
            let manifest = self.manifests.load(project).await?;
            known.extend(manifest.ids().map(str::to_owned));
            named.extend(manifest.object_names().map(str::to_owned));
        }
        let there = listed.iter().collect::<HashSet<_>>();
        let missing = named.iter().filter(|name| !there.contains(name)).count();
        let unknown = listed.iter().filter(|name| !known.contains(id_of(name))).cloned().collect::<Vec<_>>();
        objects.move_all(&unknown, |name| format!("{folder}/{name}")).await?;
        self.marks.move_to(&folder).await?;
        let id = new_random_uuid();
        self.put_installation(InstallationRow { id, complete: false }, WriteCondition::None).await?;
        self.write_marks(id).await?;
        self.put_installation(InstallationRow { id, complete: true }, WriteCondition::None).await?;
        Ok(AdoptionReport { id, folder, kept: unknown.len(), missing })
    }
}

/// Parses the project from an object's folder.
fn project_of(name: &str) -> Option<ProjectId> {
    name.split('/').find_map(|folder| folder.strip_prefix(keys::PROJECT_FOLDER))?.parse().ok()
}
