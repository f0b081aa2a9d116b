//! Exports all events of a project to a sink.
//!
//! Must stay true: every event acknowledged before the call is exported exactly once, waiting ones included;
//! memory holds some rows of one range and the waiting events; unreadable data is an error, never fewer events.
//! The order is unspecified; [`StoredEvent::place`] gives the order.

use std::sync::Arc;

use arrow_array::RecordBatch;
use pennon_analytics::scan::{Micros, Seq};
use pennon_core::store::keys::ProjectId;

use super::EventList;
use crate::error::EventStoreError;
use crate::event::{Event, PersonEvent, is_captured};
use crate::manifest::SegmentEntry;
use crate::segments::property_values;
use crate::segments::reader::SegmentFile;

/// Rows of a batch.
const ROWS_AT_ONCE: usize = 8192;

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    /// The event as sent.
    pub event: Event,
    /// Its arrival order.
    pub seq: Seq,
    /// Whether it was captured. Imported events change no persons and groups.
    pub is_captured: bool,
}

impl StoredEvent {
    /// Its sort key: queries order events by it.
    pub fn place(&self) -> (Micros, Seq) {
        (self.event.timestamp, self.seq)
    }

    fn of(row: PersonEvent) -> StoredEvent {
        StoredEvent { is_captured: is_captured(row.seq), seq: row.seq, event: row.event }
    }
}

/// A sink for exported events. Called on blocking threads.
pub trait EventSink: Send + 'static {
    /// The number of events that follow.
    fn expect(&mut self, events: u64);

    /// Takes an event.
    fn take(&mut self, event: StoredEvent);

    /// Whether the sink wants no more events.
    fn is_done(&self) -> bool;
}

impl EventList {
    /// Exports all events of a project to `to`.
    pub(crate) async fn each_event<T: EventSink>(
        &self,
        project: ProjectId,
        mut to: T,
    ) -> Result<T, EventStoreError> {
        let snapshot = self.snapshots.snapshot(project).await?;
        let waiting_events =
            self.duplicates.not_in_segments(&snapshot.manifest, snapshot.waiting_events).await?;
        let segments = snapshot.manifest.segments.iter().filter(|entry| entry.rows > 0);
        to.expect(segments.clone().map(|entry| entry.rows).sum::<u64>() + waiting_events.len() as u64);
        for entry in segments {
            to = self.each_event_of(entry, to).await?;
            if to.is_done() {
                return Ok(to);
            }
        }
        let taken = tokio::task::spawn_blocking(move || {
            waiting_events.into_iter().for_each(|row| to.take(StoredEvent::of(row)));
            to
        });
        Ok(taken.await?)
    }

    async fn each_event_of<T: EventSink>(
        &self,
        entry: &SegmentEntry,
        mut to: T,
    ) -> Result<T, EventStoreError> {
        let file = self.segments.open(entry).await?;
        let mut rows = 0;
        for group in 0..file.metadata().num_row_groups() {
            let taking = (to, file.clone(), rows);
            (to, _, rows) = file
                .rows_by(group, ROWS_AT_ONCE, taking, take::<T>)
                .await
                .map_err(|error| file.named(error))?;
            if to.is_done() {
                return Ok(to);
            }
        }
        if rows == entry.rows {
            return Ok(to);
        }
        let id = &entry.id;
        Err(EventStoreError::Corrupt(format!("segment {id} has {rows} of {} events", entry.rows)))
    }
}

/// Passes the rows of a batch to the sink, and counts them.
fn take<T: EventSink>(
    (to, file, rows): &mut (T, Arc<SegmentFile>, u64),
    batch: RecordBatch,
) -> Result<(), EventStoreError> {
    *rows += batch.num_rows() as u64;
    property_values::rows(&batch, &file.footer)?.into_iter().for_each(|row| to.take(StoredEvent::of(row)));
    Ok(())
}
