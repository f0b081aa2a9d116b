//! Decodes listed events completely, from files and blocks.
//!
//! Must stay true: the result is in the order of the list; decoding runs on blocking threads within the shared
//! decode budget.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::RowSelection;

use super::candidates::{Candidate, Candidates, EventLocation};
use super::{EventKey, ListedEvent};
use crate::error::EventStoreError;
use crate::event::{Event, PersonEvent};
use crate::memory::{MemoryLease, properties_bytes};
use crate::segments::parquet_io::DecodedColumns;
use crate::segments::property_values;
use crate::segments::reader::SegmentFile;

/// Row groups that are decoded concurrently.
const GROUPS_AT_ONCE: usize = 4;
/// Approximate bytes of an event without properties.
const EVENT_BYTES: u64 = 256;

impl Candidates {
    /// Decodes these candidates, in order, except those excluded by uuid or distinct id. Their memory is added
    /// to `lease`.
    pub(super) async fn decode(
        &mut self,
        candidates: Vec<Candidate>,
        lease: &mut MemoryLease,
    ) -> Result<Vec<ListedEvent>, EventStoreError> {
        let mut of_blocks = BTreeSet::new();
        let mut of_groups: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for candidate in candidates {
            match candidate.place {
                EventLocation::Block(at) => {
                    let row = &self.waiting.rows[at];
                    of_blocks.insert((row.seq, row.event.uuid));
                }
                EventLocation::Segment(file, group, row) => {
                    of_groups.entry((file, group)).or_default().push(row)
                }
            }
        }
        let mut rows = Vec::new();
        if !of_blocks.is_empty() {
            rows = self.rows_of_blocks(of_blocks).await?;
            lease.add(rows.iter().map(bytes_of).sum())?;
        }
        let decoding = of_groups.into_iter().map(|((file, group), mut of_group)| {
            of_group.sort_unstable();
            self.rows_of_group(self.files[file].clone(), group, of_group)
        });
        let decoding = decoding.collect::<Vec<_>>();
        let mut decoding = futures::stream::iter(decoding).buffered(GROUPS_AT_ONCE);
        let mut bytes_read = 0;
        while let Some((decoded, bytes)) = decoding.try_next().await? {
            bytes_read += bytes;
            lease.add(decoded.iter().map(bytes_of).sum())?;
            rows.extend(decoded);
        }
        drop(decoding);
        self.bytes_read += bytes_read;
        let mut events = rows.into_iter().map(|row| self.listed(row)).collect::<Vec<_>>();
        let requested = &self.requested;
        events.retain(|listed| {
            requested.below.is_none_or(|below| listed.key < below)
                && requested.distinct_id.as_ref().is_none_or(|id| *id == listed.event.distinct_id)
        });
        events.sort_by_key(|listed| Reverse(listed.key));
        Ok(events)
    }

    fn listed(&self, row: PersonEvent) -> ListedEvent {
        let key = EventKey { time: row.event.timestamp, seq: row.seq, uuid: row.event.uuid };
        ListedEvent { key, person: self.person_merges.person(row.person), event: row.event }
    }

    async fn rows_of_blocks(
        &self,
        requested: BTreeSet<(pennon_analytics::scan::Seq, uuid::Uuid)>,
    ) -> Result<Vec<PersonEvent>, EventStoreError> {
        let persons = self.waiting.rows.iter().map(|row| ((row.seq, row.event.uuid), row.person));
        let persons: BTreeMap<_, _> = persons.filter(|(key, _)| requested.contains(key)).collect();
        let opener = self.waiting.opener();
        let read = tokio::task::spawn_blocking(move || {
            let mut rows = Vec::with_capacity(requested.len());
            opener.open_each(&requested, |seq, block, index| {
                let event: Event = block.event(index, &vec![true; block.keys.len()])?;
                if let Some(person) = persons.get(&(seq, event.uuid)) {
                    rows.push(PersonEvent { seq, person: *person, event });
                }
                Ok(())
            })?;
            Ok::<_, EventStoreError>(rows)
        });
        self.list.blocks.mark_damage(read.await?).await
    }

    /// Decodes these rows (ascending) of a row group. Returns the bytes read, too.
    async fn rows_of_group(
        &self,
        file: Arc<SegmentFile>,
        group: usize,
        rows: Vec<usize>,
    ) -> Result<(Vec<PersonEvent>, u64), EventStoreError> {
        let all = file.rows(group);
        let columns = file.columns();
        let _turn = self.list.decode_budget.acquire(file.decoding_bytes(group, &columns, rows.len())).await;
        let ranges = rows.iter().map(|row| *row..*row + 1);
        let selection = RowSelection::from_consecutive_ranges(ranges, all);
        let decoded = file.decode(group, Some(selection), &columns).await;
        let DecodedColumns { batches, bytes_read } = decoded.map_err(|error| file.named(error))?;
        let reading = file.clone();
        let read = tokio::task::spawn_blocking(move || {
            let read = batches.iter().map(|batch| property_values::rows(batch, &reading.footer));
            Ok::<_, EventStoreError>(read.collect::<Result<Vec<_>, _>>()?.concat())
        });
        Ok((read.await?.map_err(|error| file.named(error))?, bytes_read))
    }
}

/// Approximate bytes of a row.
fn bytes_of(row: &PersonEvent) -> u64 {
    EVENT_BYTES + properties_bytes(&row.event.properties)
}
