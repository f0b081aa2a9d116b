//! Duplicate detection: which new events are already in segments.
//!
//! Must stay true: an event is a duplicate only if its full uuid matches, and is new only if the uuid index of
//! every segment excludes it (or the uuids themselves, if the index is damaged). A segment that was checked is
//! not checked again: segments are immutable.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use pennon_analytics::scan::Micros;
use uuid::Uuid;

use super::SegmentStore;
use crate::error::EventStoreError;
use crate::event::PersonEvent;
use crate::manifest::{Manifest, SegmentEntry};
use crate::objects::Objects;
use crate::segments::uuids::uuid_index::{self, UuidIndexFile, UuidMatches, UuidQuery};

/// Progress and result of a duplicate check.
#[derive(Debug, Clone, Default)]
pub(crate) struct DuplicateCheck {
    /// Uuids in segments. Some may belong to other events.
    pub held: HashSet<Uuid>,
    /// Segments that were checked.
    checked_segments: HashSet<String>,
    /// Number of erasures of the project at the start.
    erasures: u64,
}

impl DuplicateCheck {
    /// Starts a check.
    pub(crate) fn new(manifest: &Manifest) -> DuplicateCheck {
        DuplicateCheck {
            held: HashSet::new(),
            checked_segments: HashSet::new(),
            erasures: manifest.erasures(),
        }
    }

    /// Whether persons were erased since, so that the check must be repeated.
    pub(crate) fn is_stale(&self, manifest: &Manifest) -> bool {
        self.erasures != manifest.erasures()
    }

    /// Adds those of `uuids`, from waiting events, whose hashes are in the query.
    pub(crate) fn take_waiting(&mut self, uuids: impl Iterator<Item = Uuid>, requested: &UuidQuery) {
        let own = uuids.filter(|uuid| requested.hashes().binary_search(&uuid_index::hash(*uuid)).is_ok());
        self.held.extend(own);
    }
}

/// Cached uuids of segments that match events waiting in blocks.
const UUIDS_CACHED: usize = 32_768;
/// Segments whose uuid index is read concurrently.
const AT_ONCE: usize = 2;
/// Most hashes per check whose uuids are cached: duplicates that queries meet until compaction drops them.
const REMEMBERED_AT_ONCE: usize = 1024;

/// Finds events that are in segments already.
#[derive(Debug)]
pub(crate) struct DuplicateFinder {
    objects: Objects,
    segments: Arc<SegmentStore>,
    /// Uuids by segment and hash: confirms hash matches of the uuid index.
    uuids: quick_cache::sync::Cache<(String, u64), Arc<[Uuid]>>,
}

impl DuplicateFinder {
    pub(crate) fn new(objects: Objects, segments: Arc<SegmentStore>) -> DuplicateFinder {
        DuplicateFinder { objects, segments, uuids: quick_cache::sync::Cache::new(UUIDS_CACHED) }
    }

    /// Keeps the rows whose uuids are in no segment of the manifest.
    pub(crate) async fn not_in_segments(
        &self,
        manifest: &Manifest,
        mut rows: Vec<PersonEvent>,
    ) -> Result<Vec<PersonEvent>, EventStoreError> {
        let held = self.held_uuids(manifest, rows.iter().map(|row| row.event.uuid)).await?;
        if !held.is_empty() {
            rows.retain(|row| !held.contains(&row.event.uuid));
        }
        Ok(rows)
    }

    /// Keeps the headers (uuid and time) whose uuids are in no segment of the manifest.
    pub(crate) async fn headers_not_in_segments(
        &self,
        manifest: &Manifest,
        mut headers: Vec<(Uuid, Micros)>,
    ) -> Result<Vec<(Uuid, Micros)>, EventStoreError> {
        let held = self.held_uuids(manifest, headers.iter().map(|(uuid, _)| *uuid)).await?;
        headers.retain(|(uuid, _)| !held.contains(uuid));
        Ok(headers)
    }

    /// Uuids in segments of the manifest whose hash matches one of `uuids`, including the duplicates.
    async fn held_uuids(
        &self,
        manifest: &Manifest,
        uuids: impl Iterator<Item = Uuid>,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        self.held(manifest, &Arc::new(UuidQuery::of(uuids))).await
    }

    /// Uuids in segments of the manifest whose hash is in the query.
    async fn held(
        &self,
        manifest: &Manifest,
        requested: &Arc<UuidQuery>,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        let mut duplicates = DuplicateCheck::new(manifest);
        self.check_duplicates(&mut duplicates, manifest, requested).await?;
        Ok(duplicates.held)
    }

    /// Checks the segments of the manifest that were not checked yet.
    pub(crate) async fn check_duplicates(
        &self,
        duplicates: &mut DuplicateCheck,
        manifest: &Manifest,
        requested: &Arc<UuidQuery>,
    ) -> Result<(), EventStoreError> {
        if requested.is_empty() {
            return Ok(());
        }
        let mut probes = Vec::new();
        for segment in
            manifest.segments.iter().filter(|segment| !duplicates.checked_segments.contains(&segment.id))
        {
            probes.push(Box::pin(self.duplicates_in_segment(segment.clone(), requested.clone())));
        }
        let held = futures::stream::iter(probes).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        duplicates.held.extend(held.into_iter().flatten());
        duplicates.checked_segments.extend(manifest.segments.iter().map(|segment| segment.id.clone()));
        Ok(())
    }

    async fn duplicates_in_segment(
        &self,
        segment: SegmentEntry,
        requested: Arc<UuidQuery>,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        let Some(file) = UuidIndexFile::of(&self.objects, &segment) else { return Ok(HashSet::new()) };
        let found = match file.probe(&requested).await {
            // The index is damaged; the segment has the uuids too.
            Err(EventStoreError::Damaged { .. }) => {
                UuidMatches { hashes: requested.hashes().to_vec(), uuids: Vec::new() }
            }
            other => other?,
        };
        let known = |hash: &u64| self.uuids.get(&(segment.id.clone(), *hash));
        let (mut held, mut open) = (found.uuids.into_iter().collect::<HashSet<_>>(), HashSet::new());
        for hash in found.hashes {
            match known(&hash) {
                Some(uuids) => held.extend(uuids.iter().copied()),
                None => drop(open.insert(hash)),
            }
        }
        if open.is_empty() {
            return Ok(held);
        }
        let read = self.segments.open(&segment).await?.uuids(&open).await?;
        if open.len() <= REMEMBERED_AT_ONCE {
            let mut by_hash = open.iter().map(|hash| (*hash, Vec::new())).collect::<HashMap<_, _>>();
            for uuid in &read {
                by_hash.entry(uuid_index::hash(*uuid)).or_default().push(*uuid);
            }
            for (hash, uuids) in by_hash {
                self.uuids.insert((segment.id.clone(), hash), uuids.into());
            }
        }
        held.extend(read);
        Ok(held)
    }
}
