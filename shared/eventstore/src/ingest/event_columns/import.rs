//! Import: stores columns of events as a new segment.
//!
//! Must stay true: of duplicates the one that arrived first stays, and a stored one wins over new ones. A
//! segment is committed only on top of a manifest that its events were compared with. After a version conflict,
//! only the added segments are compared, and the segment is rebuilt only if they hold some of its events or a
//! person was erased; merges are applied by readers.

use std::collections::HashSet;
use std::sync::Arc;

use pennon_analytics::scan::{Micros, Seq};
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::segment_encoder::{SegmentRows, encode};
use super::{EventColumns, TEXT_BYTES_MAX};
use crate::error::EventStoreError;
use crate::event::Event;
use crate::ingest::limits::{EVENTS_PER_SEGMENT_MAX, IngestReport};
use crate::manifest::ProjectList;
use crate::objects::RetryBudget;
use crate::person_ids::derive_person_id;
use crate::persons::PersonMerges;
use crate::persons::profiles::file::encode_presence;
use crate::segments::uuids::uuid_index::{UuidQuery, hash};
use crate::segments::writer::ReplacedInputs;
use crate::segments::{DuplicateCheck, DuplicateFinder, NewSegment, SegmentStore};
use crate::settings::Settings;
use crate::snapshots::{SnapshotOutline, SnapshotReader};

/// Imports events as segments.
#[derive(Debug)]
pub(crate) struct EventImporter {
    projects: Arc<ProjectList>,
    snapshots: Arc<SnapshotReader>,
    segments: Arc<SegmentStore>,
    duplicates: Arc<DuplicateFinder>,
    settings: Settings,
}

impl EventImporter {
    pub(crate) fn new(
        projects: Arc<ProjectList>,
        snapshots: Arc<SnapshotReader>,
        segments: Arc<SegmentStore>,
        duplicates: Arc<DuplicateFinder>,
        settings: Settings,
    ) -> EventImporter {
        EventImporter { projects, snapshots, segments, duplicates, settings }
    }

    /// Imports events as a segment, each with its line number. `now` is the start of the import and the same
    /// for all its calls, so that line order is arrival order.
    ///
    /// [`EventStoreError::TooLarge`] above [`EVENTS_PER_SEGMENT_MAX`] events; nothing is stored then.
    pub(crate) async fn ingest(
        &self,
        project: ProjectId,
        events: Vec<(u64, Event)>,
        now: Micros,
    ) -> Result<IngestReport, EventStoreError> {
        let columns = tokio::task::spawn_blocking(move || {
            let mut columns = EventColumns::new(now);
            events.iter().for_each(|(line, event)| columns.push(*line, event));
            columns
        });
        self.ingest_columns(project, columns.await?).await
    }

    /// As [`EventImporter::ingest`], for events in columns.
    ///
    /// [`EventStoreError::Contended`] after repeated version conflicts; nothing is stored then.
    pub(crate) async fn ingest_columns(
        &self,
        project: ProjectId,
        events: EventColumns,
    ) -> Result<IngestReport, EventStoreError> {
        check(&events)?;
        let sent = events.len() as u64;
        if sent == 0 {
            return Ok(IngestReport::default());
        }
        let events = Arc::new(events);
        let single = events.clone();
        let single = Arc::new(tokio::task::spawn_blocking(move || UniqueEvents::of(&single)).await?);
        self.projects.start_project(project).await?;
        let mut retries = RetryBudget::for_command(&self.settings);
        let mut made: Option<(NewSegment, DuplicateCheck)> = None;
        let outcome = loop {
            let seen = self.duplicates(project, &single.requested, made.as_ref()).await;
            let (there, duplicates, is_same) = match retries.optimistic_read(seen).await {
                Ok(Some(seen)) => seen,
                Ok(None) => continue,
                Err(error) => break Err(error),
            };
            let new = match made.take() {
                Some((new, _)) if is_same => new,
                before => {
                    if let Some((old, _)) = before {
                        self.segments.drop_objects(&old).await?;
                    }
                    match self.made(project, &events, &single, &duplicates, &there).await? {
                        Some(new) => new,
                        None => break Ok(IngestReport { stored: 0, copies: sent }),
                    }
                }
            };
            let stored = new.entry.rows;
            if self.segments.list(project, &there.manifest, &new).await? {
                break Ok(IngestReport { stored, copies: sent - stored });
            }
            made = Some((new, duplicates));
            if let Err(error) = retries.after_conflict().await {
                break Err(error);
            }
        };
        // The manifest definitely rejected the entry.
        if let Some((new, _)) = made {
            self.segments.drop_objects(&new).await?;
        }
        outcome
    }

    /// Loads the manifest and checks the events for duplicates. Also returns whether the segment `made` earlier
    /// is still valid.
    async fn duplicates(
        &self,
        project: ProjectId,
        requested: &Arc<UuidQuery>,
        made: Option<&(NewSegment, DuplicateCheck)>,
    ) -> Result<(SnapshotOutline, DuplicateCheck, bool), EventStoreError> {
        let there = self.snapshots.outline(project).await?;
        let before = made.map(|(_, duplicates)| duplicates).filter(|it| !it.is_stale(&there.manifest));
        let mut duplicates = before.cloned().unwrap_or_else(|| DuplicateCheck::new(&there.manifest));
        let held = before.map(|before| before.held.len());
        // A stored event wins over a new one.
        duplicates.take_waiting(there.waiting_events.iter().map(|(uuid, _)| *uuid), requested);
        self.duplicates.check_duplicates(&mut duplicates, &there.manifest, requested).await?;
        let is_same = held == Some(duplicates.held.len());
        Ok((there, duplicates, is_same))
    }

    /// Builds the segment of the new events and stores its objects; none if all are duplicates.
    async fn made(
        &self,
        project: ProjectId,
        events: &Arc<EventColumns>,
        single: &Arc<UniqueEvents>,
        duplicates: &DuplicateCheck,
        there: &SnapshotOutline,
    ) -> Result<Option<NewSegment>, EventStoreError> {
        let (events, single, held) = (events.clone(), single.clone(), duplicates.held.clone());
        let (merge_state, range_rows) = (there.merge_state.clone(), self.segments.range_rows);
        let made = tokio::task::spawn_blocking(move || {
            segment(project, &events, &single, &held, &merge_state.person_merges, range_rows)
        });
        let Some(mut made) = made.await?? else { return Ok(None) };
        self.segments.write_objects(&made).await?;
        made.forget_content();
        Ok(Some(made))
    }
}

pub(super) fn check(events: &EventColumns) -> Result<(), EventStoreError> {
    if events.len() > EVENTS_PER_SEGMENT_MAX {
        let sent = events.len();
        return Err(EventStoreError::TooLarge(format!(
            "{sent} events at once, above {EVENTS_PER_SEGMENT_MAX}"
        )));
    }
    if events.text_bytes() > TEXT_BYTES_MAX {
        let megabytes = TEXT_BYTES_MAX >> 20;
        return Err(EventStoreError::TooLarge(format!(
            "events with more than {megabytes} MiB of texts at once"
        )));
    }
    Ok(())
}

/// The events, deduplicated among themselves.
struct UniqueEvents {
    /// For each uuid the row that arrived first.
    rows: Vec<u32>,
    /// The uuids, for a duplicate check.
    requested: Arc<UuidQuery>,
}

impl UniqueEvents {
    fn of(events: &EventColumns) -> UniqueEvents {
        let mut order =
            (0..).zip(events.uuids.iter()).map(|(row, uuid)| (hash(*uuid), row)).collect::<Vec<(u64, u32)>>();
        let uuid = |row: u32| events.uuids[row as usize];
        let seq = |row: u32| events.seqs[row as usize];
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| (uuid(a.1), seq(a.1), a.1).cmp(&(uuid(b.1), seq(b.1), b.1)))
        });
        order.dedup_by(|later, first| uuid(later.1) == uuid(first.1));
        let requested = Arc::new(UuidQuery::of(order.iter().map(|(_, row)| uuid(*row))));
        UniqueEvents { rows: order.into_iter().map(|(_, row)| row).collect(), requested }
    }
}

/// Encodes the rows that are not held by a segment; none if all are.
fn segment(
    project: ProjectId,
    events: &EventColumns,
    single: &UniqueEvents,
    held: &HashSet<Uuid>,
    person_merges: &PersonMerges,
    range_rows: usize,
) -> Result<Option<NewSegment>, EventStoreError> {
    let new = |row: &&u32| held.is_empty() || !held.contains(&events.uuids[**row as usize]);
    let rows = single.rows.iter().filter(new).copied().collect::<Vec<_>>();
    if rows.is_empty() {
        return Ok(None);
    }
    let distinct_id_codes = 0..events.distinct_ids.len() as u32;
    let own = distinct_id_codes
        .map(|who| derive_person_id(project, events.distinct_ids.text(who)))
        .collect::<Vec<_>>();
    let (ids, count) = presence(events, &rows, &own)?;
    let persons = own.iter().map(|person| person_merges.person(*person)).collect();
    let written = encode(events, SegmentRows { rows, persons }, range_rows, &ReplacedInputs::default())?;
    let mut new = NewSegment::new(project, events.now);
    new.calls = events.flag_calls();
    new.put_ids(ids, count as u64);
    new.put(written);
    Ok(Some(new))
}

/// The file of distinct ids: imported events change no persons.
fn presence(
    events: &EventColumns,
    rows: &[u32],
    own: &[Uuid],
) -> Result<(bytes::Bytes, usize), EventStoreError> {
    let mut first: Vec<Option<Seq>> = vec![None; own.len()];
    for row in rows {
        let seq = events.seqs[*row as usize];
        let first = &mut first[events.distinct_id_codes[*row as usize] as usize];
        *first = Some(first.map_or(seq, |before| before.min(seq)));
    }
    let there = (0..).zip(own).zip(first);
    let there = there.filter_map(|((who, id), first)| Some((*id, events.distinct_ids.text(who), first?)));
    let mut there = there.collect::<Vec<_>>();
    there.sort_unstable();
    Ok((encode_presence(&there)?, there.len()))
}
