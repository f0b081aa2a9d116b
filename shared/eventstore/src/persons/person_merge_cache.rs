//! Who is who by now: imported persons first, then merges, remembered by a process.
//!
//! Must stay true: what is remembered is used only with the imported objects that it was made from, with all rows of the
//! log since, and until somebody is erased from the log; whoever remembers nothing comes to the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::manifest::state::Manifest;
use crate::persons::merge_log::{MergeLogRow, PersonMerge};
use crate::persons::person_merges::PersonMerges;
use crate::persons::profiles::changes::OrderedMerge;

/// Most merges behind the sorted ones; with more they are sorted in.
const SINCE_MAX: usize = 4096;
/// How often a reader begins anew when merges are being folded.
const TRIES: usize = 5;
/// Ranges of segments of a project of which it is remembered who is somebody else by now.
const RANGES_REMEMBERED: usize = 16_384;

/// Who is who, and what it was made from. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct PersonMergeState {
    objects: Arc<[String]>,
    /// How many erasures the log had been through.
    erasures: u64,
    /// Number of the last row of the log that is in it.
    pub through: u64,
    merges: Arc<Merges>,
    /// Later merges, in order.
    since: Arc<Vec<PersonMerge>>,
    /// Who is who by what was imported alone.
    pub imported_merges: PersonMerges,
    /// Who is who in the end.
    pub person_merges: PersonMerges,
    /// What was found out of ranges of segments by this resolution.
    moved: Arc<Mutex<MovedOfRanges>>,
}

/// Persons of a range who are others by now: their places in it, ascending, and who they are.
pub(crate) type Moved = Arc<Vec<(u32, Uuid)>>;

/// By object of the segment and index of the range.
type MovedOfRanges = HashMap<(Arc<str>, usize), Moved>;

/// Merges in their order.
#[derive(Debug, Default)]
struct Merges {
    all: Vec<PersonMerge>,
    /// Places in `all`, by who was merged.
    by_from: Vec<u32>,
}

impl Merges {
    fn of(all: Vec<PersonMerge>) -> Merges {
        let mut by_from = (0..all.len() as u32).collect::<Vec<_>>();
        by_from.sort_by_key(|place| all[*place as usize].link.from);
        Merges { all, by_from }
    }

    /// The places of the merges of `from`.
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

    /// Who of the persons of a range of a segment, which ascend, is somebody else by now.
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
        // Of segments that are gone by now nobody asks any more.
        if known.len() >= RANGES_REMEMBERED {
            known.clear();
        }
        known.insert((object.clone(), range), moved.clone());
        moved
    }

    /// A captured merge, between what was imported as one person each.
    fn joined(&self, place: usize, merged: &PersonMerge) -> OrderedMerge {
        let (from, to) =
            (self.imported_merges.person(merged.link.from), self.imported_merges.person(merged.link.to));
        OrderedMerge { place, time: merged.time, from, to }
    }

    /// All captured merges, in their order.
    pub(crate) fn all_joined(&self) -> impl Iterator<Item = OrderedMerge> {
        self.log().enumerate().map(|(place, merged)| self.joined(place, merged))
    }

    /// All captured merges as they are in the log, in their order.
    pub(crate) fn log(&self) -> impl Iterator<Item = &PersonMerge> {
        self.merges.all.iter().chain(self.since.iter())
    }

    /// The captured merges among those who `ids` are.
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

    /// The same with more rows of the log, which follow it.
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
        // Another resolution finds other persons moved.
        PersonMergeState { through, merges, since, person_merges, moved: Arc::default(), ..self.clone() }
    }
}

/// Whether `rows` follow the row with number `after`, one by one: rows that are removed while they are read are missing
/// anywhere among them.
fn follow(rows: &[MergeLogRow], after: u64) -> bool {
    (after + 1..).zip(rows).all(|(number, row)| row.number == number)
}

impl EventStore {
    /// The manifest, and who is who. Whoever reads blocks too reads them before.
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

    /// Who is who by now, for whoever has the manifest.
    pub(crate) async fn person_merges(&self, project: ProjectId) -> Result<PersonMerges, EventStoreError> {
        Ok(self.manifest_and_persons(project).await?.1.person_merges.clone())
    }

    /// Who is who: what `known` says and `rows` after it. None when rows are missing because they were folded into
    /// an object that `manifest` does not list yet.
    async fn merge_state(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        known: Option<Arc<PersonMergeState>>,
        mut rows: Vec<MergeLogRow>,
    ) -> Result<Option<Arc<PersonMergeState>>, EventStoreError> {
        let mut base = known.unwrap_or_default();
        let read_after = base.through;
        let is_current = base.is_of(manifest);
        if is_current && rows.is_empty() {
            return Ok(Some(base));
        }
        let mut damage = None;
        if !follow(&rows, base.through) || !is_current {
            let (rebuild, damaged) = match self.rebuild(project, manifest, &base).await {
                // An object was replaced and removed meanwhile.
                Err(EventStoreError::Contended) => return Ok(None),
                made => made?,
            };
            (base, damage) = (Arc::new(rebuild), damaged);
        }
        rows.retain(|row| row.number > base.through);
        // Rows up to where they were read from may be missing too, where an object that ends before has taken the place
        // of what was remembered.
        let last = rows.last().map_or(base.through, |row| row.number);
        let is_short = damage.is_some() && manifest.merges.last().is_some_and(|newest| newest.through > last);
        if !follow(&rows, base.through) || base.through < read_after || is_short {
            return damage.filter(|_| read_after == 0).map_or(Ok(None), Err);
        }
        let made = tokio::task::spawn_blocking(move || Arc::new(base.with(rows)));
        let merge_state = made.await?;
        self.inner.person_merge_cache.put(&project.to_string(), merge_state.clone());
        Ok(Some(merge_state))
    }

    /// Who is who by what `manifest` lists, and by the merges of `known` if they are more than it lists and none of them
    /// has been erased. With the damage of an object, it is who they were before that one, if the rows since are there.
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

    /// The merges of the newest object that is whole, or those of `known` where it has more and none of them has been
    /// erased; up to which row that is; and the damage of a newer object.
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
            // The rows before an erasure would bring back who was erased.
            Some(error) if erasures > 0 => Err(error),
            // A manifest from before the first erasure, and somebody who knows of it.
            damage => Ok((Vec::new(), 0, damage)),
        }
    }
}

impl PersonMergeState {
    /// Whether it was made from the imported persons that `manifest` lists, and since the last erasure.
    fn is_of(&self, manifest: &Manifest) -> bool {
        self.erasures == manifest.erasures() && self.has_objects_of(manifest)
    }

    /// Whether it was made from the imported persons that `manifest` lists.
    pub(crate) fn has_objects_of(&self, manifest: &Manifest) -> bool {
        manifest.persons.iter().map(|entry| &entry.object).eq(self.objects.iter())
    }
}
