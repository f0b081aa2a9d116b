//! Builds a segment from waiting blocks.
//!
//! Blocks are decompressed and searched for new uuids; properties of new events are copied from the block into
//! columns. Must stay true: nothing is kept per event besides the decompressed blocks of one run and the
//! columns; of duplicates the one that arrived first counts; only stored events change persons and groups, not
//! duplicates.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use pennon_analytics::scan::{Micros, Seq};
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::EventColumns;
use super::segment_encoder::{SegmentRows, encode};
use crate::blocks::RawBlock;
use crate::blocks::block::Block;
use crate::error::EventStoreError;
use crate::event::seq;
use crate::keys::BlockId;
use crate::person_ids::derive_person_id;
use crate::persons::PersonMerges;
use crate::persons::profiles::changes::{ChangeOrder, ProfileChanges};
use crate::persons::profiles::file::{encode_groups, encode_ids};
use crate::persons::profiles::{IdProfile, Profile, is_profile_property, named_by, take_group};
use crate::segments::NewSegment;
use crate::segments::uuids::uuid_index::UuidQuery;
use crate::segments::writer::ReplacedInputs;

/// The decompressed blocks of one run.
pub(crate) struct InflatedBlocks {
    blocks: Vec<(BlockId, Block)>,
    /// Block and index of the first occurrence of each event, in order of arrival.
    first: Vec<(u32, u32)>,
    /// Number of events, duplicates included.
    pub events: u64,
}

/// Changes of persons and groups, which are not in the columns.
#[derive(Default)]
struct BlockProfileChanges {
    /// First arrival, by distinct id code.
    seen: Vec<Seq>,
    changes: HashMap<u32, ProfileChanges>,
    groups: BTreeMap<(String, String), ProfileChanges>,
    /// Distinct ids that events name besides their own.
    named: Vec<(String, Seq)>,
}

impl InflatedBlocks {
    /// Decompresses `blocks`, which are in order of arrival.
    pub(crate) fn of(blocks: Vec<RawBlock>) -> Result<InflatedBlocks, EventStoreError> {
        let mut inflated_blocks =
            InflatedBlocks { blocks: Vec::with_capacity(blocks.len()), first: Vec::new(), events: 0 };
        let mut seen = HashSet::new();
        for raw in blocks {
            let block = raw.open()?;
            let at = inflated_blocks.blocks.len() as u32;
            inflated_blocks.events += block.headers.len() as u64;
            let new = (0..).zip(&block.headers).filter(|(_, header)| seen.insert(header.uuid));
            inflated_blocks.first.extend(new.map(|(index, _)| (at, index)));
            inflated_blocks.blocks.push((raw.id, block));
        }
        Ok(inflated_blocks)
    }

    /// The uuids of all events, for a duplicate check.
    pub(crate) fn requested(&self) -> Arc<UuidQuery> {
        Arc::new(UuidQuery::of(self.first.iter().map(|place| self.uuid(*place))))
    }

    fn uuid(&self, (block, index): (u32, u32)) -> Uuid {
        self.blocks[block as usize].1.headers[index as usize].uuid
    }

    /// Builds the segment with the events that are not `held` by others. The list of blocks is an object beside
    /// it, not in its footer.
    pub(crate) fn segment(
        &self,
        project: ProjectId,
        held: &HashSet<Uuid>,
        person_merges: &PersonMerges,
        range_rows: usize,
        now: Micros,
    ) -> Result<NewSegment, EventStoreError> {
        let mut new = NewSegment::new(project, now);
        let blocks = self.blocks.iter().map(|(id, _)| id.to_string()).collect();
        new.replace(&ReplacedInputs { blocks, segments: Vec::new() })?;
        let mut columns = EventColumns::new(now);
        let mut profile_changes = BlockProfileChanges::default();
        let profile_keys = self.blocks.iter().map(|(_, block)| profile_keys(block)).collect::<Vec<_>>();
        for place in self.first.iter().filter(|place| !held.contains(&self.uuid(**place))) {
            let (id, block) = &self.blocks[place.0 as usize];
            let corrupt = |error| EventStoreError::Corrupt(format!("block {id}: {error}"));
            let profile_keys = profile_keys[place.0 as usize].as_deref();
            take(&mut columns, &mut profile_changes, (id, block), place.1 as usize, profile_keys)
                .map_err(corrupt)?;
        }
        if columns.is_empty() {
            return Ok(new);
        }
        new.calls = columns.flag_calls();
        new.newest_block = self.blocks.iter().map(|(id, _)| *id).max();
        let distinct_id_codes = 0..columns.distinct_ids.len() as u32;
        let own = distinct_id_codes
            .map(|who| derive_person_id(project, columns.distinct_ids.text(who)))
            .collect::<Vec<_>>();
        let profile = profile_changes.profile(project, &columns, &own);
        new.put_ids(encode_ids(&profile)?, profile.ids.len() as u64);
        if !profile.groups.is_empty() {
            new.put_groups(encode_groups(&profile)?, profile.groups.len() as u64);
        }
        drop(profile);
        let persons = own.iter().map(|person| person_merges.person(*person)).collect();
        let segment_rows = SegmentRows { rows: (0..columns.len() as u32).collect(), persons };
        new.put(encode(&columns, segment_rows, range_rows, &ReplacedInputs::default())?);
        Ok(new)
    }
}

/// Which properties of a block change persons and groups; none if there are none.
fn profile_keys(block: &Block) -> Option<Vec<bool>> {
    let profile_keys = block.keys.iter().map(|key| is_profile_property(key)).collect::<Vec<_>>();
    profile_keys.contains(&true).then_some(profile_keys)
}

/// Adds one event.
fn take(
    columns: &mut EventColumns,
    profile_changes: &mut BlockProfileChanges,
    (id, block): (&BlockId, &Block),
    index: usize,
    profile_keys: Option<&[bool]>,
) -> Result<(), EventStoreError> {
    let header = &block.headers[index];
    let seq = seq(i64::try_from(id.micros).unwrap_or(Micros::MAX), id.tie, index as u32);
    let name = &block.names[header.name];
    columns.begin(seq, header.uuid, name, block.distinct_id(index)?, header.timestamp);
    block.read_properties_into(index, columns)?;
    let who = columns.distinct_id_codes[columns.len() - 1];
    // Codes are assigned in order of arrival: the first one counts.
    if who as usize == profile_changes.seen.len() {
        profile_changes.seen.push(seq);
    }
    let Some(profile_keys) = profile_keys else { return Ok(()) };
    let event = block.event(index, profile_keys)?;
    if !event.properties.is_empty() {
        let at = ChangeOrder { time: event.timestamp, seq };
        profile_changes.changes.entry(who).or_default().take_event(&event.properties, at);
        take_group(&mut profile_changes.groups, &event, at);
        profile_changes.named.extend(named_by(&event, seq));
    }
    Ok(())
}

impl BlockProfileChanges {
    /// Builds the profile. `own` is the derived person id of each distinct id.
    fn profile(mut self, project: ProjectId, columns: &EventColumns, own: &[Uuid]) -> Profile {
        let ids = (0..).zip(own).zip(self.seen).map(|((who, id), first)| {
            let distinct_id = columns.distinct_ids.text(who).to_owned();
            (*id, IdProfile { distinct_id, first, changes: self.changes.remove(&who).unwrap_or_default() })
        });
        let mut profile = Profile { ids: ids.collect(), groups: self.groups };
        profile.name(project, self.named);
        profile
    }
}
