//! Queries on the persons and groups of a project: imported records combined with captured changes.
//!
//! The persons of a project are those of records and of events, after merges. The properties of a person are
//! those of its latest record that has any, updated by captured events by the rules of
//! [`crate::persons::profiles::changes`]; likewise for groups, which come from records and `$groupidentify`.
//! Must stay true: results do not depend on what was compacted; memory is bounded by the limits below, and
//! larger queries are refused.

mod by_id;
mod creations;
mod groups;
mod json_members;
mod newest_first;
mod pages;
mod scan_all;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use pennon_core::store::StoreError;
use pennon_core::store::keys::ProjectId;
use serde_json::{Map, Value};
use uuid::Uuid;

pub use by_id::PersonDetails;
pub use groups::{GROUPS_MAX, Group, GroupType};
pub use newest_first::PeoplePage;
pub use pages::PersonScan;
pub use scan_all::{PEOPLE_MAX, People, VALUES_BYTES_MAX};

use crate::block_partitions::BlockPartitions;
use crate::blocks::{BlockLog, RawBlock, rows_with_properties};
use crate::error::EventStoreError;
use crate::event::PersonEvent;
use crate::manifest::Manifest;
use crate::person_ids::{derive_person_id, merge_of};
use crate::persons::person_merge_state::PersonMergeState;
use crate::persons::profiles::changes::{ProfilePart, merged_properties};
use crate::persons::profiles::{Profile, ProfileReader, is_profile_property};
use crate::persons::{ImportedRecords, MergeLog, PersonIndex};
use crate::segments::{DuplicateFinder, SegmentStore};

/// Most waiting events while persons are queried.
const WAITING_EVENTS_MAX: usize = 500_000;
/// Files that are read concurrently.
const FILES_AT_ONCE: usize = 16;

/// A person.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Person {
    /// The derived person ids of all its distinct ids ([`derive_person_id`]); membership of static cohorts is by these.
    pub ids: BTreeSet<Uuid>,
    /// Its properties.
    pub properties: Map<String, Value>,
}

/// A person with groups, for flag evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EvaluationSubject {
    /// The person; an unknown one has no properties.
    pub person: Person,
    /// Properties of the requested groups, in order.
    pub groups: Vec<Map<String, Value>>,
}

/// Prefetched waiting blocks.
#[derive(Debug)]
pub struct WaitingBlocks {
    blocks: Vec<RawBlock>,
    /// The partitions that were read.
    partitions: BlockPartitions,
}

/// A consistent view of the persons and groups of a project.
pub(crate) struct PersonsSnapshot {
    manifest: Manifest,
    merge_state: Arc<PersonMergeState>,
    /// Waiting events, with the properties of [`is_profile_property`] only. Some may duplicate events in
    /// segments.
    waiting_events: Vec<PersonEvent>,
}

/// All ids of the person that the id `own` belongs to.
async fn ids_of(merge_state: Arc<PersonMergeState>, own: Uuid) -> Result<BTreeSet<Uuid>, EventStoreError> {
    if merge_state.person_merges.is_empty() {
        return Ok(BTreeSet::from([own]));
    }
    let members = tokio::task::spawn_blocking(move || {
        let mut ids = merge_state.person_merges.members(merge_state.person_merges.person(own));
        ids.insert(own);
        ids
    });
    Ok(members.await?)
}

/// Queries persons and groups.
#[derive(Debug)]
pub(crate) struct PersonLookup {
    index: Arc<PersonIndex>,
    imports: Arc<ImportedRecords>,
    log: Arc<MergeLog>,
    blocks: Arc<BlockLog>,
    duplicates: Arc<DuplicateFinder>,
    segments: Arc<SegmentStore>,
    profiles: Arc<ProfileReader>,
}

impl PersonLookup {
    pub(crate) fn new(
        index: Arc<PersonIndex>,
        imports: Arc<ImportedRecords>,
        log: Arc<MergeLog>,
        blocks: Arc<BlockLog>,
        duplicates: Arc<DuplicateFinder>,
        profiles: Arc<ProfileReader>,
        segments: Arc<SegmentStore>,
    ) -> PersonLookup {
        PersonLookup { index, imports, log, blocks, duplicates, segments, profiles }
    }

    /// Prefetches the waiting blocks if they are few, before it is known whether they are needed.
    pub(crate) async fn waiting_blocks_if_few(
        &self,
        project: ProjectId,
    ) -> Result<Option<WaitingBlocks>, EventStoreError> {
        let partitions = self.blocks.partitions(project);
        let few = self.blocks.raw_blocks_if_few(project, partitions).await?;
        Ok(few.map(|blocks| WaitingBlocks { blocks, partitions }))
    }

    /// The ids of the person of `distinct_id` from the cache alone. A prefetch by these ids is valid if
    /// [`PersonLookup::subject`] returns no others.
    pub(crate) async fn cached_person_ids(
        &self,
        project: ProjectId,
        distinct_id: &str,
    ) -> Result<BTreeSet<Uuid>, EventStoreError> {
        let own = derive_person_id(project, distinct_id);
        match self.index.cached_state(project) {
            Some(merge_state) => ids_of(merge_state, own).await,
            None => Ok(BTreeSet::from([own])),
        }
    }

    /// The person of `distinct_id` and the groups with these keys. `waiting_blocks` is the result of
    /// [`PersonLookup::waiting_blocks_if_few`].
    pub(crate) async fn subject(
        &self,
        project: ProjectId,
        distinct_id: &str,
        groups: &[(GroupType, String)],
        waiting_blocks: Option<WaitingBlocks>,
    ) -> Result<EvaluationSubject, EventStoreError> {
        self.subject_parts(project, distinct_id, true, groups, waiting_blocks).await
    }

    /// As [`PersonLookup::subject`]; without `with_properties` only the ids of the person are read.
    pub(crate) async fn subject_parts(
        &self,
        project: ProjectId,
        distinct_id: &str,
        with_properties: bool,
        groups: &[(GroupType, String)],
        waiting_blocks: Option<WaitingBlocks>,
    ) -> Result<EvaluationSubject, EventStoreError> {
        let own = derive_person_id(project, distinct_id);
        if !with_properties && groups.is_empty() {
            // Merges are stored before the events that request them, so no event has to be read.
            let (_, merge_state) = self.index.manifest_and_persons(project).await?;
            let ids = ids_of(merge_state, own).await?;
            return Ok(EvaluationSubject { person: Person { ids, ..Person::default() }, groups: Vec::new() });
        }
        let now = self.now(project, waiting_blocks).await?;
        let ids = ids_of(now.merge_state.clone(), own).await?;
        if !with_properties {
            let groups = self.groups_with_keys(project, &now, groups).await?;
            return Ok(EvaluationSubject { person: Person { ids, ..Person::default() }, groups });
        }
        let of_events = self.profile_of(project, &now, &ids);
        let of_records = self.records_of(project, &now, &ids);
        let of_groups = self.groups_with_keys(project, &now, groups);
        let (profile, mut parts, groups) = futures::try_join!(of_events, of_records, of_groups)?;
        for (id, found) in profile.ids {
            parts.entry(now.merge_state.imported_merges.person(id)).or_default().changes.merge(found.changes);
        }
        let properties = merged_properties(&parts, &now.merge_state.joined_of(&ids));
        Ok(EvaluationSubject { person: Person { ids, properties }, groups })
    }

    async fn now(
        &self,
        project: ProjectId,
        mut waiting_blocks: Option<WaitingBlocks>,
    ) -> Result<PersonsSnapshot, EventStoreError> {
        let (blocks, manifest, merge_state) = loop {
            let WaitingBlocks { blocks, partitions } = match waiting_blocks.take() {
                Some(waiting_blocks) => waiting_blocks,
                None => {
                    let partitions = self.blocks.partitions(project);
                    let blocks = self.blocks.raw_blocks(project, partitions).await?;
                    WaitingBlocks { blocks, partitions }
                }
            };
            let (manifest, merge_state) = self.index.manifest_and_persons(project).await?;
            if self.blocks.has_read_all(project, partitions, &manifest) {
                break (blocks, manifest, merge_state);
            }
        };
        let blocks = self.blocks.not_replaced(&manifest, blocks).await?;
        let waiting_events =
            self.blocks.mark_damage(rows_with_properties(project, blocks, is_profile_property).await).await?;
        if waiting_events.len() > WAITING_EVENTS_MAX {
            let waiting = format!("{} events of project {project} wait for compaction", waiting_events.len());
            return Err(StoreError::Busy(waiting).into());
        }
        Ok(PersonsSnapshot { manifest, merge_state, waiting_events })
    }

    /// Reads the changes that events made to the persons `ids`.
    async fn profile_of(
        &self,
        project: ProjectId,
        now: &PersonsSnapshot,
        ids: &BTreeSet<Uuid>,
    ) -> Result<Profile, EventStoreError> {
        let other = |row: &PersonEvent| merge_of(project, &row.event).map(|merge| merge.link.from);
        let names_person = |row: &&PersonEvent| {
            ids.contains(&row.person) || other(row).is_some_and(|other| ids.contains(&other))
        };
        let own = now.waiting_events.iter().filter(names_person).cloned().collect();
        let own = self.duplicates.not_in_segments(&now.manifest, own).await?;
        let mut profile = Profile::of_rows(project, &own);
        profile.ids.retain(|id, _| ids.contains(id));
        let segments = now.manifest.segments.iter().filter(|entry| entry.has_profiles());
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let found = segments.map(|entry| self.profiles.ids_in_segment(entry, ids)).collect::<Vec<_>>();
        let found = futures::stream::iter(found).buffer_unordered(FILES_AT_ONCE);
        for part in found.try_collect::<Vec<_>>().await? {
            profile.merge(part);
        }
        Ok(profile)
    }

    /// Reads the imported records of each id of the person.
    async fn records_of(
        &self,
        project: ProjectId,
        now: &PersonsSnapshot,
        ids: &BTreeSet<Uuid>,
    ) -> Result<BTreeMap<Uuid, ProfilePart>, EventStoreError> {
        let mut parts: BTreeMap<Uuid, ProfilePart> = BTreeMap::new();
        for object in self.imports.persons_objects(project, &now.manifest).await? {
            let (requested, searched) = (ids.clone(), object.clone());
            let found = tokio::task::spawn_blocking(move || {
                let records = searched.records().enumerate();
                let own = records
                    .filter_map(|(row, of)| Some((row, *of.iter().find(|id| requested.contains(id))?)));
                own.collect::<Vec<_>>()
            });
            let (rows, own): (Vec<usize>, Vec<Uuid>) = found.await?.into_iter().unzip();
            let recorded = self.imports.properties_of_records(&object, &rows).await?;
            // The last record with properties wins.
            for (id, base) in own.into_iter().zip(recorded).filter(|(_, base)| !base.is_empty()) {
                parts.entry(now.merge_state.imported_merges.person(id)).or_default().base = base;
            }
        }
        Ok(parts)
    }
}
