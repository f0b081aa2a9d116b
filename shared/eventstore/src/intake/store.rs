//! Columns of events into the store: history as a segment of its own.
//!
//! Must stay true: of copies the one that arrived first stays, and one that is in the store before any that is sent; a
//! segment is added only on top of the manifest that its events were compared with.

use std::collections::HashSet;
use std::sync::Arc;

use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::{Micros, Seq};
use uuid::Uuid;

use super::encode::{Choice, encode};
use super::{EventColumns, TEXT_BYTES_MAX};
use crate::EventStore;
use crate::commit::NewSegment;
use crate::error::EventStoreError;
use crate::event::Event;
use crate::identity::{Wanted, hash};
use crate::ingest::{EVENTS_PER_SEGMENT_MAX, Ingested, TRIES};
use crate::person::derived;
use crate::profile::file::encode_presence;
use crate::resolution::Resolution;
use crate::segment::write::Replaces;

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
        let columns = tokio::task::spawn_blocking(move || {
            let mut columns = EventColumns::new(now);
            events.iter().for_each(|(line, event)| columns.push(*line, event));
            columns
        });
        self.ingest_columns(project, columns.await?).await
    }

    /// As [`EventStore::ingest`], for events that are columns already.
    pub async fn ingest_columns(
        &self,
        project: ProjectId,
        events: EventColumns,
    ) -> Result<Ingested, EventStoreError> {
        check(&events)?;
        let sent = events.len() as u64;
        if sent == 0 {
            return Ok(Ingested::default());
        }
        let events = Arc::new(events);
        let single = events.clone();
        let single = Arc::new(tokio::task::spawn_blocking(move || Single::of(&single)).await?);
        self.mark_project(project).await?;
        for _ in 0..TRIES {
            let there = self.outline(project).await?;
            // An event that is there already stays the one that counts.
            let mut held = self.held(&there.manifest, &single.wanted).await?;
            held.extend(there.hot.iter().map(|(uuid, _)| *uuid));
            let (of, single, resolved) = (events.clone(), single.clone(), there.resolved);
            let range_rows = self.range_rows();
            let made = tokio::task::spawn_blocking(move || {
                segment(project, &of, &single, &held, &resolved.resolution, range_rows)
            });
            let Some(made) = made.await?? else { return Ok(Ingested { stored: 0, copies: sent }) };
            let stored = made.entry.rows;
            if self.add_new(project, &there.manifest, made).await?.is_some() {
                return Ok(Ingested { stored, copies: sent - stored });
            }
        }
        Err(EventStoreError::Contended)
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

/// The events without copies of each other.
struct Single {
    /// Of each uuid the row that arrived first.
    rows: Vec<u32>,
    /// The uuids, to be looked for.
    wanted: Arc<Wanted>,
}

impl Single {
    fn of(events: &EventColumns) -> Single {
        let mut order =
            (0..).zip(events.uuids.iter()).map(|(row, uuid)| (hash(*uuid), row)).collect::<Vec<(u64, u32)>>();
        let uuid = |row: u32| events.uuids[row as usize];
        let seq = |row: u32| events.seqs[row as usize];
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| (uuid(a.1), seq(a.1), a.1).cmp(&(uuid(b.1), seq(b.1), b.1)))
        });
        order.dedup_by(|later, first| uuid(later.1) == uuid(first.1));
        let wanted = Arc::new(Wanted::of(order.iter().map(|(_, row)| uuid(*row))));
        Single { rows: order.into_iter().map(|(_, row)| row).collect(), wanted }
    }
}

/// The segment with the rows that are not held yet; none when all are.
fn segment(
    project: ProjectId,
    events: &EventColumns,
    single: &Single,
    held: &HashSet<Uuid>,
    resolution: &Resolution,
    range_rows: usize,
) -> Result<Option<NewSegment>, EventStoreError> {
    let new = |row: &&u32| held.is_empty() || !held.contains(&events.uuids[**row as usize]);
    let rows = single.rows.iter().filter(new).copied().collect::<Vec<_>>();
    if rows.is_empty() {
        return Ok(None);
    }
    let whos = 0..events.distinct_ids.len() as u32;
    let own = whos.map(|who| derived(project, events.distinct_ids.text(who))).collect::<Vec<_>>();
    let (ids, count) = presence(events, &rows, &own)?;
    let persons = own.iter().map(|person| resolution.person(*person)).collect();
    let written = encode(events, Choice { rows, persons }, range_rows, &Replaces::default())?;
    let mut new = NewSegment::new(project, events.now);
    new.put_ids(ids, count as u64);
    new.put(written);
    Ok(Some(new))
}

/// The file that says who there is: imported events change nothing of their persons.
fn presence(
    events: &EventColumns,
    rows: &[u32],
    own: &[Uuid],
) -> Result<(bytes::Bytes, usize), EventStoreError> {
    let mut first: Vec<Option<Seq>> = vec![None; own.len()];
    for row in rows {
        let seq = events.seqs[*row as usize];
        let first = &mut first[events.whos[*row as usize] as usize];
        *first = Some(first.map_or(seq, |before| before.min(seq)));
    }
    let there = (0..).zip(own).zip(first);
    let there = there.filter_map(|((who, id), first)| Some((*id, events.distinct_ids.text(who), first?)));
    let mut there = there.collect::<Vec<_>>();
    there.sort_unstable();
    Ok((encode_presence(&there)?, there.len()))
}
