//! Old versions of replaced and deleted objects, which a bucket keeps for a restore.

use pennon_core::store::keys::ProjectId;

use super::orphans::{FOLDER, folders};
use super::sweep::Sweeper;
use crate::error::EventStoreError;
use crate::keys::PROJECT_FOLDER;
use crate::objects::VersionReport;

impl Sweeper {
    /// Counts the old versions of the objects of one project or of all, and with `removes` deletes them; `progress` gets the
    /// counts so far. `None` if the objects are in a directory, which keeps no versions.
    pub(crate) async fn remove_old_versions(
        &self,
        project: Option<ProjectId>,
        removes: bool,
        progress: &(dyn Fn(VersionReport) + Sync),
    ) -> Result<Option<VersionReport>, EventStoreError> {
        let prefixes = project.map_or_else(|| vec![String::new()], prefixes);
        self.objects.remove_old_versions(&prefixes, removes, progress).await
    }
}

/// What the names of a project's objects start with, those of its orphans, tables and results included.
fn prefixes(project: ProjectId) -> Vec<String> {
    let folders = folders(project).into_iter();
    let all = folders.flat_map(|folder| [format!("{folder}/"), format!("{FOLDER}/{folder}/")]);
    all.chain(["iceberg", "results"].map(|of| format!("{of}/{PROJECT_FOLDER}{project}/"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_of_one_project_alone() {
        let expected = [
            "project=1/",
            "orphans/project=1/",
            "merges/project=1/",
            "orphans/merges/project=1/",
            "iceberg/project=1/",
            "results/project=1/",
        ];
        assert_eq!(prefixes(1), expected);
        assert!(prefixes(1).iter().all(|prefix| !"project=12/events/a".starts_with(prefix.as_str())));
    }
}
