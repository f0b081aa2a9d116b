//! Orphans: objects that no manifest names, because their writer stopped before listing them or they could not
//! be deleted.
//!
//! They are first moved to `orphans`, under the date of the move, and deleted [`ORPHANS_KEPT_DAYS`] later, so
//! that an operator who used the wrong tables can restore them. Must stay true: no object is moved that a
//! manifest names or a writer may still list. So objects are listed before the manifest is read, only objects
//! older than any write takes are moved, and only if tables and objects belong to one installation.

use std::collections::HashSet;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;

use super::sweep::Sweeper;
use crate::error::EventStoreError;
use crate::keys::PROJECT_FOLDER;
use crate::objects::checksums::id_of;

/// Age from which no writer lists an object any more, in microseconds: one day.
pub const ORPHANED_MICROS: Micros = 24 * 3600 * 1_000_000;
/// Days that an orphan is kept after it was moved.
pub const ORPHANS_KEPT_DAYS: u64 = 30;

pub(super) const FOLDER: &str = "orphans";

/// An object that no manifest named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Orphan {
    /// Its current name.
    pub object: String,
    /// Its size.
    pub bytes: u64,
    /// It is deleted after this time.
    pub removed_after: DateTime<Utc>,
}

impl Sweeper {
    /// Moves objects of the project that the manifest does not name and that were written more than
    /// [`ORPHANED_MICROS`] before `now`, and deletes orphans that expired. Returns how many were moved.
    pub(crate) async fn sweep_orphans(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<usize, EventStoreError> {
        self.installation.verify_installation().await?;
        let now_utc = DateTime::from_timestamp_micros(now).unwrap_or(DateTime::<Utc>::MAX_UTC);
        let over = self.orphans(project).await?.into_iter().filter(|orphan| orphan.removed_after <= now_utc);
        let over = over.map(|orphan| orphan.object).collect::<Vec<_>>();
        if !over.is_empty() {
            tracing::info!(project, objects = over.len(), "deleting orphaned objects");
            self.objects.remove_standalone(&over).await?;
        }
        let mut listed = Vec::new();
        for folder in folders(project) {
            listed.extend(self.objects.list(&folder).await?);
        }
        let manifest = self.manifests.load(project).await?;
        let known = manifest.ids().collect::<HashSet<_>>();
        listed.retain(|object| object.at.saturating_add(ORPHANED_MICROS) <= now);
        let orphans = listed.into_iter().map(|object| object.name);
        let mut orphans = orphans.filter(|name| !known.contains(id_of(name))).collect::<Vec<_>>();
        orphans.sort_unstable();
        if !orphans.is_empty() {
            let (objects, first) = (orphans.len(), &orphans[0]);
            tracing::warn!(project, objects, first, "objects that no manifest names are moved to {FOLDER}");
        }
        let day = now_utc.date_naive();
        self.objects.move_all(&orphans, |name| orphaned_name(name, day)).await?;
        Ok(orphans.len())
    }

    /// The objects of the project that were moved because no manifest named them.
    pub(crate) async fn orphans(&self, project: ProjectId) -> Result<Vec<Orphan>, EventStoreError> {
        let mut orphans = Vec::new();
        for folder in folders(project) {
            let listed = self.objects.list(&format!("{FOLDER}/{folder}")).await?;
            orphans.extend(listed.into_iter().filter_map(|object| {
                let removed_after = removed_after(&object.name)?;
                Some(Orphan { object: object.name, bytes: object.bytes, removed_after })
            }));
        }
        orphans.sort_unstable();
        Ok(orphans)
    }
}

/// The folders that a project's objects lie in.
pub(super) fn folders(project: ProjectId) -> [String; 2] {
    [format!("{PROJECT_FOLDER}{project}"), format!("merges/{PROJECT_FOLDER}{project}")]
}

/// Where an object is moved on `day`: `a/b` to `orphans/a/{day}.b`.
fn orphaned_name(name: &str, day: NaiveDate) -> String {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    format!("{FOLDER}/{folder}/{}.{file}", day.format("%Y-%m-%d"))
}

/// When an orphan goes; none where its name has no time of the move, and it stays.
fn removed_after(name: &str) -> Option<DateTime<Utc>> {
    let file = name.rsplit_once('/').map_or(name, |(_, file)| file);
    let day: NaiveDate = file.split_once('.')?.0.parse().ok()?;
    // A day more, because it may have been moved late on that one.
    let last = day.checked_add_days(Days::new(ORPHANS_KEPT_DAYS + 1))?;
    Some(last.and_time(NaiveTime::MIN).and_utc())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_orphan_goes_thirty_whole_days_after_it_was_moved() {
        let day = NaiveDate::from_ymd_opt(2026, 1, 31).unwrap();
        let name = orphaned_name("merges/project=7/01-ab.bin", day);
        assert_eq!(name, "orphans/merges/project=7/2026-01-31.01-ab.bin");
        assert_eq!(removed_after(&name).unwrap().to_rfc3339(), "2026-03-03T00:00:00+00:00");
        for unknown in ["orphans/project=7/events/01-ab.parquet", "orphans/a", "orphans/2026-01-31/a.b"] {
            assert_eq!(removed_after(unknown), None, "{unknown}");
        }
    }
}
