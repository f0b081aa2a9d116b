//! The merge state of a project: imported merges first, then captured ones, cached by the process.
//!
//! Must stay true: a cached state is used only with the import objects that it was made from, with all later
//! rows of the log, and until the next erasure; a cold process computes the same state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::manifest::Manifest;
use crate::persons::merge_log::{MergeLogRow, PersonMerge};
use crate::persons::person_merges::PersonMerges;
use crate::persons::profiles::changes::OrderedMerge;

/// Most unsorted merges; with more they are sorted in.
const SINCE_MAX: usize = 4096;
/// Read attempts while merges are being folded.
const TRIES: usize = 5;
/// Cached lookups of merged persons, by range of a segment.
const RANGES_REMEMBERED: usize = 16_384;

/// The merges of a project, and the inputs that they were made from. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct PersonMergeState {
    objects: Arc<[String]>,
    /// Number of erasures of the log.
    erasures: u64,
    /// Number of the last row of the log that is included.
    pub through: u64,
    merges: Arc<Merges>,
    /// Later merges, in order.
    since: Arc<Vec<PersonMerge>>,
    /// Merges of the imports alone.
    pub imported_merges: PersonMerges,
    /// All merges.
    pub person_merges: PersonMerges,
    /// Cached merged persons of ranges, valid for `person_merges`.
    moved: Arc<Mutex<MovedOfRanges>>,
}

/// Merged persons of a range: their codes, ascending, and canonical ids.
pub(crate) type Moved = Arc<Vec<(u32, Uuid)>>;

/// By segment object and range index.
type MovedOfRanges = HashMap<(Arc<str>, usize), Moved>;

/// Captured merges in order.
#[derive(Debug, Default)]
struct Merges {
    all: Vec<PersonMerge>,
    /// Indices into `all`, sorted by merged person.
    by_from: Vec<u32>,
}

impl Merges {
    fn of(all: Vec<PersonMerge>) -> Merges {
        let mut by_from = (0..all.len() as u32).collect::<Vec<_>>();
        by_from.sort_by_key(|place| all[*place as usize].link.from);
        Merges { all, by_from }
    }

    /// Indices of the merges of `from`.
    fn from(&self, from: Uuid) -> impl Iterator<Item = usize> {
        let of = |place: &u32| self.all[*place as usize].link.from;
        let start = self.by_from.partition_point(|place| of(place) < from);
        self.by_from[start..].iter().take_while(move |place| of(place) == from).map(|place| *place as usize)
    }
}

impl PersonMergeState {
    /// Whether no merge was captured.
    pub(crate) fn is_unmerged(&self) -> bool {
        self.merges.all.is_empty() && self.since.is_empty()
    }

    /// The merged persons among the sorted persons of a range.
    pub(crate) fn moved(&self, object: &Arc<str>, range: usize, persons: &[Uuid]) -> Moved {
        if self.person_merges.is_empty() {
            return Moved::default();
        }
        let known = || self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(moved) = known().get(&(object.clone(), range)) {
            return moved.clone();
        }
        let moved = Arc::new(self.person_merges.moved(persons));
        let mut known = known();
        // Drops entries of segments that no longer exist, too.
        if known.len() >= RANGES_REMEMBERED {
            known.clear();
        }
        known.insert((object.clone(), range), moved.clone());
        moved
    }

    /// A captured merge between imported persons.
    fn joined(&self, place: usize, merged: &PersonMerge) -> OrderedMerge {
        let (from, to) =
            (self.imported_merges.person(merged.link.from), self.imported_merges.person(merged.link.to));
        OrderedMerge { place, time: merged.time, from, to }
    }

    /// All captured merges, in their order.
    pub(crate) fn all_joined(&self) -> impl Iterator<Item = OrderedMerge> {
        self.log().enumerate().map(|(place, merged)| self.joined(place, merged))
    }

    /// All captured merges as logged, in order.
    pub(crate) fn log(&self) -> impl Iterator<Item = &PersonMerge> {
        self.merges.all.iter().chain(self.since.iter())
    }

    /// The captured merges from one of `ids`.
    pub(crate) fn joined_of<'a>(&self, ids: impl IntoIterator<Item = &'a Uuid>) -> Vec<OrderedMerge> {
        let mut joined = Vec::new();
        let before = self.merges.all.len();
        for id in ids {
            joined.extend(self.merges.from(*id).map(|place| self.joined(place, &self.merges.all[place])));
            let since = self.since.iter().enumerate().filter(|(_, merged)| merged.link.from == *id);
            joined.extend(since.map(|(place, merged)| self.joined(before + place, merged)));
        }
        joined
    }

    /// A copy with more rows of the log, which follow it.
    fn with(&self, rows: Vec<MergeLogRow>) -> PersonMergeState {
        let through = rows.last().map_or(self.through, |row| row.number);
        let new = rows.into_iter().flat_map(|row| row.merges).collect::<Vec<_>>();
        self.with_merges(new, through)
    }

    fn with_merges(&self, new: Vec<PersonMerge>, through: u64) -> PersonMergeState {
        let person_merges = self.person_merges.with(new.iter().map(|merged| merged.link));
        let since = self.since.iter().copied().chain(new);
        let (merges, since) = if since.size_hint().0 > SINCE_MAX {
            (Arc::new(Merges::of(self.merges.all.iter().copied().chain(since).collect())), Arc::default())
        } else {
            (self.merges.clone(), Arc::new(since.collect()))
        };
        // The cached ranges are invalid for the new merges.
        PersonMergeState { through, merges, since, person_merges, moved: Arc::default(), ..self.clone() }
    }
}

/// Whether `rows` continue the log after row `after` without gaps: rows that are removed during the read may be
/// missing anywhere.
fn follow(rows: &[MergeLogRow], after: u64) -> bool {
    (after + 1..).zip(rows).all(|(number, row)| row.number == number)
}

impl EventStore {
    /// Loads the manifest and the merge state. A reader of blocks reads those first.
    pub(crate) async fn manifest_and_persons(
        &self,
        project: ProjectId,
    ) -> Result<(Manifest, Arc<PersonMergeState>), EventStoreError> {
        let mut known = self.inner.person_merge_cache.get(&project.to_string());
        for _ in 0..TRIES {
            let after = known.as_ref().map_or(0, |known| known.through);
            let manifest = Manifest::load(&self.inner.store, project);
            let (manifest, rows) = futures::try_join!(manifest, self.merges_after(project, after))?;
            if let Some(merge_state) = self.merge_state(project, &manifest, known.take(), rows).await? {
                return Ok((manifest, merge_state));
            }
        }
        Err(EventStoreError::Contended)
    }

    /// Loads the current person merges.
    pub(crate) async fn person_merges(&self, project: ProjectId) -> Result<PersonMerges, EventStoreError> {
        Ok(self.manifest_and_persons(project).await?.1.person_merges.clone())
    }

    /// Brings the cached state `known` up to date with `rows`. None when rows are missing because they were
    /// folded into an object that `manifest` does not list yet.
    async fn merge_state(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        known: Option<Arc<PersonMergeState>>,
        mut rows: Vec<MergeLogRow>,
    ) -> Result<Option<Arc<PersonMergeState>>, EventStoreError> {
        let mut base = known.unwrap_or_default();
        let complete_prefetch = base.through;
        let is_current = base.is_of(manifest);
        if is_current && rows.is_empty() {
            return Ok(Some(base));
        }
        let mut damage = None;
        if !follow(&rows, base.through) || !is_current {
            let (rebuild, damaged) = match self.rebuild(project, manifest, &base).await {
                // An object was replaced and removed during the read.
                Err(EventStoreError::Contended) => return Ok(None),
                made => made?,
            };
            (base, damage) = (Arc::new(rebuild), damaged);
        }
        rows.retain(|row| row.number > base.through);
        // Rows before the read position may be missing too, if an object that ends earlier replaced the cached
        // state.
        let last = rows.last().map_or(base.through, |row| row.number);
        let is_short = damage.is_some() && manifest.merges.last().is_some_and(|newest| newest.through > last);
        if !follow(&rows, base.through) || base.through < complete_prefetch || is_short {
            return damage.filter(|_| complete_prefetch == 0).map_or(Ok(None), Err);
        }
        let made = tokio::task::spawn_blocking(move || Arc::new(base.with(rows)));
        let merge_state = made.await?;
        self.inner.person_merge_cache.put(&project.to_string(), merge_state.clone());
        Ok(Some(merge_state))
    }

    /// Rebuilds the state from the manifest, and from the merges of `known` if these are newer and no erasure
    /// happened. If an object is damaged, returns the state before it and the error; it is valid if the rows
    /// since exist.
    async fn rebuild(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        known: &PersonMergeState,
    ) -> Result<(PersonMergeState, Option<EventStoreError>), EventStoreError> {
        let imported_merges = self.imported_merges(project, manifest).await?;
        let (merges, through, damage) = self.load_merge_log(manifest, known).await?;
        let objects = manifest.persons.iter().map(|entry| entry.object.clone()).collect();
        let (person_merges, erasures) = (imported_merges.clone(), manifest.erasures());
        let none = PersonMergeState {
            objects,
            erasures,
            imported_merges,
            person_merges,
            ..PersonMergeState::default()
        };
        Ok((tokio::task::spawn_blocking(move || none.with_merges(merges, through)).await?, damage))
    }

    /// The merges of the newest undamaged object, or those of `known` if newer and no erasure happened; the
    /// last row included; and the error of a damaged newer object.
    async fn load_merge_log(
        &self,
        manifest: &Manifest,
        known: &PersonMergeState,
    ) -> Result<(Vec<PersonMerge>, u64, Option<EventStoreError>), EventStoreError> {
        let erasures = manifest.erasures();
        let is_of_now = known.erasures == erasures;
        let after = if is_of_now { known.through } else { 0 };
        let entries = manifest.merges.iter().rev();
        let mut damage = None;
        for entry in entries.filter(|entry| entry.erasures == erasures && entry.through > after) {
            match self.folded(entry).await {
                Ok(merges) => return Ok((merges, entry.through, damage)),
                Err(error @ EventStoreError::Damaged { .. }) => drop(damage.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        match damage {
            damage if is_of_now => Ok((known.log().copied().collect(), after, damage)),
            // Rows from before an erasure would restore erased persons.
            Some(error) if erasures > 0 => Err(error),
            // The manifest predates the first erasure that `known` includes.
            damage => Ok((Vec::new(), 0, damage)),
        }
    }
}

impl PersonMergeState {
    /// Whether it matches the imports and the erasures of `manifest`.
    fn is_of(&self, manifest: &Manifest) -> bool {
        self.erasures == manifest.erasures() && self.has_objects_of(manifest)
    }

    /// Whether it matches the imports of `manifest`.
    pub(crate) fn has_objects_of(&self, manifest: &Manifest) -> bool {
        manifest.persons.iter().map(|entry| &entry.object).eq(self.objects.iter())
    }
}
