//! Decodes the events of waiting blocks that pass a filter.
//!
//! Must stay true: duplicates are dropped before filtering, so the event that arrived first is the event, whether it passes or
//! not; the memory of a query is reserved before it is used.

use std::collections::HashSet;
use std::sync::Arc;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use crate::blocks::block_log::RawBlock;
use crate::error::EventStoreError;
use crate::event::{PersonEvent, seq};
use crate::memory::{MemoryLease, Purpose, QueryMemory, properties_bytes};
use crate::person_ids::derive_person_id;

/// Approximate bytes of a uuid in the set of seen ones.
const SEEN_BYTES: usize = 24;
/// Allocator overhead of the two texts of a row.
const TEXTS_BYTES: usize = 32;

/// Which events of blocks to decode, and which of their properties. The predicates are called once per name,
/// not per event.
#[derive(Clone)]
pub(crate) struct BlockFilter {
    /// Selects events by name.
    pub event: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Earliest timestamp.
    pub from: Micros,
    /// Latest timestamp.
    pub to: Micros,
    /// Selects properties by name.
    pub property: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// The query whose memory the decoded events reserve, if it is limited.
    pub memory: Option<QueryMemory>,
}

impl BlockFilter {
    /// All events with all properties.
    pub(crate) fn all() -> BlockFilter {
        BlockFilter::properties(|_| true)
    }

    /// All events, with the selected properties.
    pub(crate) fn properties(requested: impl Fn(&str) -> bool + Send + Sync + 'static) -> BlockFilter {
        let (from, to) = (Micros::MIN, Micros::MAX);
        BlockFilter { event: Arc::new(|_| true), from, to, property: Arc::new(requested), memory: None }
    }
}

/// The events of blocks that passed a filter.
#[derive(Debug, Default)]
pub(crate) struct WaitingRows {
    /// The events, deduplicated, in order of arrival.
    pub rows: Vec<PersonEvent>,
    /// Number of events before filtering, duplicates included.
    pub events: u64,
    /// Memory that the events and their properties reserve.
    pub taken: Option<[MemoryLease; 2]>,
}

/// Decodes the events of `blocks` that pass the filter. Duplicates are dropped before filtering: the one that
/// arrived first is the event, whether it passes or not.
pub(crate) async fn filter_rows(
    project: ProjectId,
    blocks: Vec<RawBlock>,
    requested: BlockFilter,
) -> Result<WaitingRows, EventStoreError> {
    if blocks.is_empty() {
        return Ok(WaitingRows::default());
    }
    tokio::task::spawn_blocking(move || decode_rows(project, &blocks, &requested)).await?
}

/// Decodes all events of `blocks`, deduplicated, in order of arrival, with the selected properties only.
pub(crate) async fn rows_with_properties(
    project: ProjectId,
    blocks: Vec<RawBlock>,
    requested: fn(&str) -> bool,
) -> Result<Vec<PersonEvent>, EventStoreError> {
    Ok(filter_rows(project, blocks, BlockFilter::properties(requested)).await?.rows)
}

/// Decompresses one block at a time. `blocks` are in order of arrival.
pub(crate) fn decode_rows(
    project: ProjectId,
    blocks: &[RawBlock],
    requested: &BlockFilter,
) -> Result<WaitingRows, EventStoreError> {
    let mut found = WaitingRows::default();
    let mut seen = HashSet::new();
    let lease = |purpose| requested.memory.as_ref().map(|memory| memory.lease(purpose));
    let (mut properties, mut others) = (lease(Purpose::Scan), lease(Purpose::Known));
    let compressed = blocks.iter().map(|raw| raw.stored_len()).sum::<usize>();
    let mut held = compressed;
    for raw in blocks {
        reserve(&mut others, held + raw.inflated_len())?;
        let (id, block) = (&raw.id, raw.open()?);
        let micros = i64::try_from(id.micros).unwrap_or(Micros::MAX);
        let names = block.names.iter().map(|name| (requested.event)(name)).collect::<Vec<_>>();
        let keys = block.keys.iter().map(|key| (requested.property)(key)).collect::<Vec<_>>();
        found.events += block.headers.len() as u64;
        for (index, header) in block.headers.iter().enumerate() {
            let is_new = seen.insert(header.uuid);
            held += SEEN_BYTES;
            if is_new && names[header.name] && (requested.from..=requested.to).contains(&header.timestamp) {
                let event = block.event(index, &keys).map_err(|error| raw.block_error(error.into()))?;
                if let Some(properties) = &mut properties {
                    properties.add(properties_bytes(&event.properties))?;
                }
                held += size_of::<PersonEvent>() + event.event.len() + event.distinct_id.len() + TEXTS_BYTES;
                let person = derive_person_id(project, &event.distinct_id);
                found.rows.push(PersonEvent { seq: seq(micros, id.tie, index as u32), person, event });
            }
        }
    }
    // The blocks and the uuids are freed on return.
    drop(seen);
    reserve(&mut others, held - compressed)?;
    Ok(WaitingRows { taken: properties.zip(others).map(<[MemoryLease; 2]>::from), ..found })
}

fn reserve(lease: &mut Option<MemoryLease>, bytes: usize) -> Result<(), EventStoreError> {
    lease.as_mut().map_or(Ok(()), |lease| lease.set(bytes as u64))
}

/// Uuid and time of the events of `blocks`, deduplicated, in order of arrival. Decodes nothing else.
pub(crate) async fn event_headers(blocks: Vec<RawBlock>) -> Result<Vec<(Uuid, Micros)>, EventStoreError> {
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let read = tokio::task::spawn_blocking(move || {
        let (mut headers, mut seen) = (Vec::new(), HashSet::new());
        for raw in &blocks {
            let block = raw.open()?;
            let new = block.headers.iter().filter(|header| seen.insert(header.uuid));
            headers.extend(new.map(|header| (header.uuid, header.timestamp)));
        }
        Ok(headers)
    });
    read.await?
}
