//! The merge state of a project, and the cache of it.
//!
//! Must stay true: a state depends only on the import objects, the rows of the log and the erasures that it names.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use crate::cache::Cache;
use crate::manifest::Manifest;
use crate::persons::merge_log::{MergeLogRow, PersonMerge};
use crate::persons::person_merges::PersonMerges;
use crate::persons::profiles::changes::OrderedMerge;

/// Most unsorted merges; with more they are sorted in.
const SINCE_MAX: usize = 4096;
/// Cached lookups of merged persons, by range of a segment.
const RANGES_REMEMBERED: usize = 16_384;

/// Projects whose person merges are cached.
const STATES_CACHED: usize = 16;

/// The cached states of all projects.
#[derive(Debug)]
pub(crate) struct PersonMergeStates(Cache<Arc<PersonMergeState>>);

impl PersonMergeStates {
    pub(crate) fn new() -> PersonMergeStates {
        PersonMergeStates(Cache::new(STATES_CACHED))
    }

    pub(crate) fn get(&self, project: ProjectId) -> Option<Arc<PersonMergeState>> {
        self.0.get(&project.to_string())
    }

    pub(super) fn put(&self, project: ProjectId, state: Arc<PersonMergeState>) {
        self.0.put(&project.to_string(), state);
    }
}

/// The merges of a project, and the inputs that they were made from. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct PersonMergeState {
    /// Objects of the imports that it was made from.
    objects: Arc<[String]>,
    /// Number of erasures of the log.
    pub(super) erasures: u64,
    /// Number of the last row of the log that is included.
    pub through: u64,
    merges: Arc<MergeList>,
    /// Later merges, in order.
    since: Arc<Vec<PersonMerge>>,
    /// Merges of the imports alone.
    pub imported_merges: PersonMerges,
    /// All merges.
    pub person_merges: PersonMerges,
    /// Cached merged persons of ranges, valid for `person_merges`.
    moved: Arc<Mutex<MergedIdCache>>,
}

/// Merged persons of a range: their codes, ascending, and canonical ids.
pub(crate) type MergedIds = Arc<Vec<(u32, Uuid)>>;

/// By segment object and range index.
type MergedIdCache = HashMap<(Arc<str>, usize), MergedIds>;

/// Captured merges in order.
#[derive(Debug, Default)]
struct MergeList {
    all: Vec<PersonMerge>,
    /// Indices into `all`, sorted by merged person.
    by_from: Vec<u32>,
}

impl MergeList {
    fn of(all: Vec<PersonMerge>) -> MergeList {
        let mut by_from = (0..all.len() as u32).collect::<Vec<_>>();
        by_from.sort_by_key(|place| all[*place as usize].link.from);
        MergeList { all, by_from }
    }

    /// Indices of the merges of `from`.
    fn from(&self, from: Uuid) -> impl Iterator<Item = usize> {
        let of = |place: &u32| self.all[*place as usize].link.from;
        let start = self.by_from.partition_point(|place| of(place) < from);
        self.by_from[start..].iter().take_while(move |place| of(place) == from).map(|place| *place as usize)
    }
}

impl PersonMergeState {
    /// A state without captured merges.
    pub(super) fn of_imports(
        objects: Arc<[String]>,
        erasures: u64,
        imported_merges: PersonMerges,
    ) -> PersonMergeState {
        let person_merges = imported_merges.clone();
        PersonMergeState { objects, erasures, imported_merges, person_merges, ..PersonMergeState::default() }
    }

    /// A state of merges alone, whatever they were made from.
    pub(crate) fn of_merges(person_merges: PersonMerges) -> PersonMergeState {
        PersonMergeState { person_merges, ..PersonMergeState::default() }
    }

    /// Whether no merge was captured.
    pub(crate) fn is_unmerged(&self) -> bool {
        self.merges.all.is_empty() && self.since.is_empty()
    }

    /// The merged persons among the sorted persons of a range.
    pub(crate) fn moved(&self, object: &Arc<str>, range: usize, persons: &[Uuid]) -> MergedIds {
        if self.person_merges.is_empty() {
            return MergedIds::default();
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
    pub(super) fn with(&self, rows: Vec<MergeLogRow>) -> PersonMergeState {
        let through = rows.last().map_or(self.through, |row| row.number);
        let new = rows.into_iter().flat_map(|row| row.merges).collect::<Vec<_>>();
        self.with_merges(new, through)
    }

    pub(super) fn with_merges(&self, new: Vec<PersonMerge>, through: u64) -> PersonMergeState {
        let person_merges = self.person_merges.with(new.iter().map(|merged| merged.link));
        let since = self.since.iter().copied().chain(new);
        let (merges, since) = if since.size_hint().0 > SINCE_MAX {
            (Arc::new(MergeList::of(self.merges.all.iter().copied().chain(since).collect())), Arc::default())
        } else {
            (self.merges.clone(), Arc::new(since.collect()))
        };
        // The cached ranges are invalid for the new merges.
        PersonMergeState { through, merges, since, person_merges, moved: Arc::default(), ..self.clone() }
    }
}

impl PersonMergeState {
    /// Whether it matches the imports and the erasures of `manifest`.
    pub(super) fn is_of(&self, manifest: &Manifest) -> bool {
        self.erasures == manifest.erasures() && self.has_objects_of(manifest)
    }

    /// Whether it matches the imports of `manifest`.
    pub(crate) fn has_objects_of(&self, manifest: &Manifest) -> bool {
        manifest.persons.iter().map(|entry| &entry.object).eq(self.objects.iter())
    }
}
