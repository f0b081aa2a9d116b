//! Rows into a new segment: imported history, and what compaction writes.
//!
//! Must stay true: the objects are safely stored before the manifest names them; a segment is added only on top of the
//! manifest that its rows were compared with, so that no event is in two segments.

use bytes::Bytes;
use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::event::Row;
use crate::intake::encode_rows;
use crate::keys::{self, BlockId};
use crate::manifest::{Manifest, SegmentEntry, new_id};
use crate::profile::file::{FileEntry, encode_groups, encode_ids};
use crate::profile::{Origin, Profile};
use crate::replaced::ReplacedBlocks;
use crate::segment::FORMAT;
use crate::segment::write::{Replaces, Written};

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
        tells: TellsOf,
        now: Micros,
    ) -> Result<(Vec<Row>, Option<SegmentEntry>), EventStoreError> {
        let range_rows = self.range_rows();
        let made = tokio::task::spawn_blocking(move || made(project, rows, replaces, tells, range_rows, now));
        let (rows, made) = made.await??;
        let added = self.add_made(project, manifest, made).await?;
        Ok((rows, added))
    }

    /// Stores the objects of a segment and lists it on top of `manifest`. None, and nothing stays, when the manifest has
    /// changed.
    pub(crate) async fn add_made(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        made: Made,
    ) -> Result<Option<SegmentEntry>, EventStoreError> {
        let Made { entry, files } = made;
        self.inner.objects.create_all(&files).await?;
        let added = manifest.add(&self.inner.store, project, keys::SEGMENT, &entry.id, &entry).await;
        // A failed call may have been carried out all the same: only a definite no lets the objects go.
        if let Ok(false) = &added {
            self.inner.objects.delete_all(files.into_iter().map(|(object, _)| object).collect()).await?;
        }
        Ok(added?.then_some(entry))
    }

    /// Rows of a person range, about.
    pub(crate) fn range_rows(&self) -> usize {
        self.inner.settings.range_rows
    }
}

/// What the events of a segment to be written tell of persons and groups.
pub(crate) enum TellsOf {
    /// What captured events do.
    Captured,
}

/// The files beside a segment, with their rows.
pub(crate) struct Beside {
    pub ids: (Bytes, usize),
    pub groups: Option<(Bytes, usize)>,
}

/// A segment that is not listed yet, and its objects.
pub(crate) struct Made {
    entry: SegmentEntry,
    files: Vec<(String, Bytes)>,
}

impl Made {
    /// A segment without events.
    fn empty(project: ProjectId, replaces: &Replaces, now: Micros) -> Result<Made, EventStoreError> {
        let mut entry = SegmentEntry {
            id: new_id(now),
            events: Some(Vec::new()),
            format: FORMAT,
            object: None,
            hashes: None,
            persons: None,
            rows: 0,
            bytes: 0,
            min_time: 0,
            max_time: 0,
            blocks: None,
            replaces_segments: replaces.segments.clone(),
            ids: None,
            groups: None,
            at: now,
            head: 0,
        };
        let mut files = Vec::new();
        let blocks = replaces.blocks.iter().map(|id| id.parse()).collect::<Result<Vec<BlockId>, _>>()?;
        if let Some((blocks, list)) =
            ReplacedBlocks::of(&blocks, format!("project={project}/events/{}.blocks", entry.id))
        {
            files.push((blocks.object.clone(), list));
            entry.blocks = Some(blocks);
        }
        Ok(Made { entry, files })
    }

    /// A segment with these files.
    pub(crate) fn new(
        project: ProjectId,
        written: Written,
        beside: Beside,
        replaces: &Replaces,
        now: Micros,
    ) -> Result<Made, EventStoreError> {
        let Made { mut entry, mut files } = Made::empty(project, replaces, now)?;
        let id = entry.id.clone();
        let mut add = |ending: &str, bytes: Bytes| {
            let object = format!("project={project}/events/{id}.{ending}");
            files.push((object.clone(), bytes));
            object
        };
        let mut profile = |ending: &str, (bytes, rows): (Bytes, usize)| {
            let size = bytes.len() as u64;
            FileEntry { object: add(ending, bytes), bytes: size, rows: rows as u64 }
        };
        entry.ids = Some(profile("ids.parquet", beside.ids));
        entry.groups = beside.groups.map(|groups| profile("groups.parquet", groups));
        (entry.rows, entry.events) = (written.rows, written.events);
        (entry.min_time, entry.max_time) = (written.min_time, written.max_time);
        entry.bytes = written.segment.len() as u64;
        entry.object = Some(add("parquet", written.segment));
        entry.hashes = Some(add("uuids", written.hashes));
        entry.persons = Some(add("persons", written.persons));
        Ok(Made { entry, files })
    }

    /// How many events it has.
    pub(crate) fn rows(&self) -> u64 {
        self.entry.rows
    }
}

fn made(
    project: ProjectId,
    rows: Vec<Row>,
    replaces: Replaces,
    tells: TellsOf,
    range_rows: usize,
    now: Micros,
) -> Result<(Vec<Row>, Made), EventStoreError> {
    if rows.is_empty() {
        let made = Made::empty(project, &replaces, now)?;
        return Ok((rows, made));
    }
    let profile = match tells {
        TellsOf::Captured => Profile::of_rows(project, &rows, Origin::Captured),
    };
    let groups = match profile.groups.len() {
        0 => None,
        count => Some((encode_groups(&profile)?, count)),
    };
    let beside = Beside { ids: (encode_ids(&profile)?, profile.ids.len()), groups };
    // The list of blocks lies beside the segment, and not in its footer too.
    let listed = Replaces { blocks: Vec::new(), segments: replaces.segments.clone() };
    let written = encode_rows(&rows, range_rows, &listed)?;
    Ok((rows, Made::new(project, written, beside, &replaces, now)?))
}
