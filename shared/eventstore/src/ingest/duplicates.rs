//! Which events are copies of events that segments hold.
//!
//! Must stay true: an event is told to be a copy only by its full uuid, and to be none only by the file of uuids of
//! every segment, or by its uuids themselves where that file is damaged. A segment that is left out was gone through
//! already: it is not changed ever.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use pennon_engine::scan::Micros;
use uuid::Uuid;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::event::Row;
use crate::manifest::state::{Manifest, SegmentEntry};
use crate::segments::uuids::uuid_index::{self, UuidIndexFile, UuidMatches, UuidQuery};

/// Which of some events are copies, as far as segments have been compared with them.
#[derive(Debug, Clone, Default)]
pub(crate) struct DuplicateCheck {
    /// Uuids that are held. Some may be of other events.
    pub held: HashSet<Uuid>,
    /// Segments that need not be gone through any more.
    checked_segments: HashSet<String>,
    /// How many erasures the project had been through.
    erasures: u64,
}

impl DuplicateCheck {
    /// Nothing is compared yet.
    pub(crate) fn new(manifest: &Manifest) -> DuplicateCheck {
        DuplicateCheck {
            held: HashSet::new(),
            checked_segments: HashSet::new(),
            erasures: manifest.erasures(),
        }
    }

    /// Whether somebody was erased since, so that persons and copies have to be looked at anew.
    pub(crate) fn is_stale(&self, manifest: &Manifest) -> bool {
        self.erasures != manifest.erasures()
    }

    /// Notes which of `uuids`, of events that wait, may be among those that are `wanted`.
    pub(crate) fn take_waiting(&mut self, uuids: impl Iterator<Item = Uuid>, wanted: &UuidQuery) {
        let own = uuids.filter(|uuid| wanted.hashes().binary_search(&uuid_index::hash(*uuid)).is_ok());
        self.held.extend(own);
    }
}

/// Segments whose files of hashes are gone through at the same time.
const AT_ONCE: usize = 2;
/// Hashes whose uuids are remembered at most at once: those of copies that questions meet until compaction drops them.
const REMEMBERED_AT_ONCE: usize = 1024;

impl EventStore {
    /// Those of `rows` whose uuids no segment of the manifest holds.
    pub(crate) async fn not_in_segments(
        &self,
        manifest: &Manifest,
        mut rows: Vec<Row>,
    ) -> Result<Vec<Row>, EventStoreError> {
        let held = self.held_uuids(manifest, rows.iter().map(|row| row.event.uuid)).await?;
        if !held.is_empty() {
            rows.retain(|row| !held.contains(&row.event.uuid));
        }
        Ok(rows)
    }

    /// Those of `headers`, uuids and times, whose uuids no segment of the manifest holds.
    pub(crate) async fn headers_not_in_segments(
        &self,
        manifest: &Manifest,
        mut headers: Vec<(Uuid, Micros)>,
    ) -> Result<Vec<(Uuid, Micros)>, EventStoreError> {
        let held = self.held_uuids(manifest, headers.iter().map(|(uuid, _)| *uuid)).await?;
        headers.retain(|(uuid, _)| !held.contains(uuid));
        Ok(headers)
    }

    /// Uuids of segments of the manifest that have a hash with one of `uuids`, these included where they are held.
    async fn held_uuids(
        &self,
        manifest: &Manifest,
        uuids: impl Iterator<Item = Uuid>,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        self.held(manifest, &Arc::new(UuidQuery::of(uuids))).await
    }

    /// Uuids of segments of the manifest that are `wanted`, or have a hash with one that is.
    async fn held(
        &self,
        manifest: &Manifest,
        wanted: &Arc<UuidQuery>,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        let mut duplicates = DuplicateCheck::new(manifest);
        self.check_duplicates(&mut duplicates, manifest, wanted).await?;
        Ok(duplicates.held)
    }

    /// Goes through those segments of the manifest that are not done, for what is `wanted`.
    pub(crate) async fn check_duplicates(
        &self,
        duplicates: &mut DuplicateCheck,
        manifest: &Manifest,
        wanted: &Arc<UuidQuery>,
    ) -> Result<(), EventStoreError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let mut probes = Vec::new();
        for segment in
            manifest.segments.iter().filter(|segment| !duplicates.checked_segments.contains(&segment.id))
        {
            probes.push(Box::pin(self.duplicates_in_segment(segment.clone(), wanted.clone())));
        }
        let held = futures::stream::iter(probes).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        duplicates.held.extend(held.into_iter().flatten());
        duplicates.checked_segments.extend(manifest.segments.iter().map(|segment| segment.id.clone()));
        Ok(())
    }

    async fn duplicates_in_segment(
        &self,
        segment: SegmentEntry,
        wanted: Arc<UuidQuery>,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        let Some(file) = UuidIndexFile::of(&self.inner.objects, &segment) else { return Ok(HashSet::new()) };
        let found = match file.probe(&wanted).await {
            // The segment itself has the uuids too.
            Err(EventStoreError::Damaged { .. }) => {
                UuidMatches { hashes: wanted.hashes().to_vec(), uuids: Vec::new() }
            }
            other => other?,
        };
        let known = |hash: &u64| self.inner.uuids.get(&(segment.id.clone(), *hash));
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
        let read = self.segment(&segment).await?.uuids(&self.inner.objects, &open).await?;
        if open.len() <= REMEMBERED_AT_ONCE {
            let mut by_hash = open.iter().map(|hash| (*hash, Vec::new())).collect::<HashMap<_, _>>();
            for uuid in &read {
                by_hash.entry(uuid_index::hash(*uuid)).or_default().push(*uuid);
            }
            for (hash, uuids) in by_hash {
                self.inner.uuids.insert((segment.id.clone(), hash), uuids.into());
            }
        }
        held.extend(read);
        Ok(held)
    }
}
