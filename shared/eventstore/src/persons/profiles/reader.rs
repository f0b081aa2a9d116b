//! Reads the profile files of segments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::Profile;
use super::changes::ProfileChanges;
use super::file::{self, decode_ids, each_group};
use crate::error::EventStoreError;
use crate::manifest::SegmentEntry;
use crate::segments::SegmentStore;

/// Reads what the events of segments change of persons and groups.
#[derive(Debug)]
pub(crate) struct ProfileReader {
    segments: Arc<SegmentStore>,
}

impl ProfileReader {
    pub(crate) fn new(segments: Arc<SegmentStore>) -> ProfileReader {
        ProfileReader { segments }
    }

    /// Reads the changes that the events of a segment made to the persons `ids`.
    pub(crate) async fn ids_in_segment(
        &self,
        entry: &SegmentEntry,
        ids: &BTreeSet<Uuid>,
    ) -> Result<Profile, EventStoreError> {
        let Some(file) = entry.id_file()? else { return Ok(Profile::default()) };
        let file = self.segments.open_profile_file(file).await?;
        let mut found = Profile::default();
        for group in 0..file.groups() {
            let Some(selection) = file.rows_with_ids(group, "id", ids) else { continue };
            let decoded = file.decode(group, Some(selection), &file::ALL).await?;
            for batch in &decoded.batches {
                decode_ids(batch, Some(ids), &mut found)?;
            }
        }
        Ok(found)
    }

    /// Reads the group changes of a segment.
    pub(crate) async fn groups_in_segment(
        &self,
        entry: &SegmentEntry,
    ) -> Result<BTreeMap<(String, String), ProfileChanges>, EventStoreError> {
        let Some(file) = &entry.groups else { return Ok(BTreeMap::new()) };
        let bytes = self.segments.read_profile_file(file).await?;
        let read = tokio::task::spawn_blocking(move || {
            let mut groups = BTreeMap::new();
            for batch in file::read_batches(bytes)? {
                each_group(&batch, |name, key, changes| {
                    groups.insert((name.to_owned(), key.to_owned()), ProfileChanges::decode(changes)?);
                    Ok(())
                })?;
            }
            Ok(groups)
        });
        read.await?
    }
}
