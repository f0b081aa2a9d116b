//! Rows into a new segment: imported history, and what compaction writes.
//!
//! Must stay true: the objects are safely stored before the manifest names them; a segment is added only on top of the
//! manifest that its rows were compared with, so that no event is in two segments.

use std::collections::HashSet;

use bytes::Bytes;
use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::event::{Event, Row, drop_copies, seq_of_line};
use crate::keys;
use crate::manifest::{Manifest, SegmentEntry, new_id};
use crate::person::derived;
use crate::profile::file::{FileEntry, encode_groups, encode_ids};
use crate::profile::{Origin, Profile};
use crate::segment::FORMAT;
use crate::segment::rows::encode;
use crate::segment::write::Replaces;
use crate::tail::resolve;

/// Most events of one call of [`EventStore::ingest`].
pub const EVENTS_PER_SEGMENT_MAX: usize = 500_000;
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
    /// Stores history straight as a segment, each event with the number of its line. `now` is the beginning of the
    /// import, the same for all its calls, so that line order is arrival order.
    ///
    /// [`EventStoreError::TooLarge`] above [`EVENTS_PER_SEGMENT_MAX`] events; nothing is stored then.
    pub async fn ingest(
        &self,
        project: ProjectId,
        events: Vec<(u64, Event)>,
        now: Micros,
    ) -> Result<Ingested, EventStoreError> {
        let sent = events.len();
        if sent > EVENTS_PER_SEGMENT_MAX {
            return Err(EventStoreError::TooLarge(format!(
                "{sent} events at once, above {EVENTS_PER_SEGMENT_MAX}"
            )));
        }
        if sent == 0 {
            return Ok(Ingested::default());
        }
        let rows = tokio::task::spawn_blocking(move || {
            let row = |(line, event): (u64, Event)| {
                let person = derived(project, &event.distinct_id);
                Row { seq: seq_of_line(now, line), person, event }
            };
            let mut rows = events.into_iter().map(row).collect::<Vec<_>>();
            drop_copies(&mut rows);
            rows
        });
        let mut rows = rows.await?;
        self.mark_project(project).await?;
        for _ in 0..TRIES {
            let snapshot = self.snapshot(project).await?;
            // An event that was captured before stays the one that counts.
            let hot = snapshot.hot.iter().map(|row| row.event.uuid).collect::<HashSet<_>>();
            rows.retain(|row| !hot.contains(&row.event.uuid));
            rows = self.not_in_segments(&snapshot.manifest, rows).await?;
            if rows.is_empty() {
                return Ok(Ingested { stored: 0, copies: sent as u64 });
            }
            resolve(&mut rows, &snapshot.resolution);
            let (back, added) = self
                .add_segment(project, &snapshot.manifest, rows, Replaces::default(), TellsOf::Imported, now)
                .await?;
            rows = back;
            if added.is_some() {
                let stored = rows.len() as u64;
                return Ok(Ingested { stored, copies: sent as u64 - stored });
            }
        }
        Err(EventStoreError::Contended)
    }

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
        let id = new_id(now);
        let (rows, files, entry) =
            tokio::task::spawn_blocking(move || files(project, id, rows, replaces, tells, now)).await??;
        self.inner.objects.create_all(&files).await?;
        let added = manifest.add(&self.inner.store, project, keys::SEGMENT, &entry.id, &entry).await;
        // A failed call may have been carried out all the same: only a definite no lets the objects go.
        if let Ok(false) = &added {
            self.inner.objects.delete_all(files.into_iter().map(|(object, _)| object).collect()).await?;
        }
        Ok((rows, added?.then_some(entry)))
    }
}

/// What the events of a segment to be written tell of persons and groups.
pub(crate) enum TellsOf {
    /// What captured events do.
    Captured,
    /// Nothing but who they are of.
    Imported,
    /// What is known of them already.
    Known(Profile),
}

type Files = Vec<(String, Bytes)>;

fn files(
    project: ProjectId,
    id: String,
    mut rows: Vec<Row>,
    replaces: Replaces,
    tells: TellsOf,
    now: Micros,
) -> Result<(Vec<Row>, Files, SegmentEntry), EventStoreError> {
    let mut entry = SegmentEntry {
        events: Some(Vec::new()),
        format: FORMAT,
        object: None,
        hashes: None,
        persons: None,
        rows: 0,
        bytes: 0,
        min_time: 0,
        max_time: 0,
        replaces_blocks: replaces.blocks.clone(),
        blocks_removed: false,
        replaces_segments: replaces.segments.clone(),
        ids: None,
        groups: None,
        at: now,
        id,
    };
    let mut files = Files::new();
    if !rows.is_empty() {
        let profile = match tells {
            TellsOf::Captured => Profile::of_rows(project, &rows, Origin::Captured),
            TellsOf::Imported => Profile::of_rows(project, &rows, Origin::Imported),
            TellsOf::Known(profile) => profile,
        };
        let mut add = |ending: &str, bytes: Bytes, rows: usize| {
            let object = format!("project={project}/events/{}.{ending}.parquet", entry.id);
            let file = FileEntry { object: object.clone(), bytes: bytes.len() as u64, rows: rows as u64 };
            files.push((object, bytes));
            Some(file)
        };
        let ids = add("ids", encode_ids(&profile)?, profile.ids.len());
        if !profile.groups.is_empty() {
            entry.groups = add("groups", encode_groups(&profile)?, profile.groups.len());
        }
        entry.ids = ids;
        let written = encode(&mut rows, &replaces)?;
        (entry.rows, entry.events) = (written.rows, written.events);
        (entry.min_time, entry.max_time) = (written.min_time, written.max_time);
        entry.bytes = written.segment.len() as u64;
        let name = |ending: &str| format!("project={project}/events/{}.{ending}", entry.id);
        let (object, hash_object) = (name("parquet"), name("uuids"));
        let persons_object = name("persons");
        files.extend([
            (object.clone(), written.segment),
            (hash_object.clone(), written.hashes),
            (persons_object.clone(), written.persons),
        ]);
        (entry.object, entry.hashes) = (Some(object), Some(hash_object));
        entry.persons = Some(persons_object);
    }
    Ok((rows, files, entry))
}
