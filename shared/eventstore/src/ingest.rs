//! Rows into a new segment: imported history, and what compaction writes.
//!
//! Must stay true: the objects are safely stored before the manifest names them; a segment is added only on top of the
//! manifest that its rows were compared with, so that no event is in two segments.

use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;

use crate::EventStore;
use crate::commit::NewSegment;
use crate::error::EventStoreError;
use crate::event::Row;
use crate::intake::encode_rows;
use crate::manifest::{Manifest, SegmentEntry};
use crate::profile::file::{encode_groups, encode_ids};
use crate::profile::{Origin, Profile};
use crate::segment::write::Replaces;

/// Most events of one call of [`EventStore::ingest`]: what fits into the memory of an import, twice.
pub const EVENTS_PER_SEGMENT_MAX: usize = 2_500_000;
/// How often a writer starts anew when others change the manifest meanwhile.
pub(crate) const TRIES: usize = 8;

/// What became of imported events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Events that are new.
    pub stored: u64,
    /// Events whose uuid was there already; they were left as they were.
    pub copies: u64,
}

impl EventStore {
    /// Writes `rows` as a segment on top of `manifest` and returns its entry; none, and nothing stays, when the manifest
    /// has changed. The rows come back, in another order.
    pub(crate) async fn add_segment(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        rows: Vec<Row>,
        replaces: Replaces,
        now: Micros,
    ) -> Result<(Vec<Row>, Option<SegmentEntry>), EventStoreError> {
        let range_rows = self.range_rows();
        let new = tokio::task::spawn_blocking(move || captured(project, rows, &replaces, range_rows, now));
        let (rows, new) = new.await??;
        let added = self.add_new(project, manifest, new).await?;
        Ok((rows, added))
    }

    /// Rows of a person range, about.
    pub(crate) fn range_rows(&self) -> usize {
        self.inner.settings.range_rows
    }
}

/// The segment with what was captured; its list of blocks lies beside it, and not in its footer too.
fn captured(
    project: ProjectId,
    rows: Vec<Row>,
    replaces: &Replaces,
    range_rows: usize,
    now: Micros,
) -> Result<(Vec<Row>, NewSegment), EventStoreError> {
    let mut new = NewSegment::new(project, now);
    new.replace(replaces)?;
    if rows.is_empty() {
        return Ok((rows, new));
    }
    let profile = Profile::of_rows(project, &rows, Origin::Captured);
    new.put_ids(encode_ids(&profile)?, profile.ids.len() as u64);
    if !profile.groups.is_empty() {
        new.put_groups(encode_groups(&profile)?, profile.groups.len() as u64);
    }
    let listed = Replaces { blocks: Vec::new(), segments: replaces.segments.clone() };
    new.put(encode_rows(&rows, range_rows, &listed)?);
    Ok((rows, new))
}
