//! Writing merges.
//!
//! Must stay true: what was judged is written only if it still holds: the row is the next one of the log, and nobody was
//! identified meanwhile whom a merge wants unidentified. The number of a row that was folded and removed is free again, so
//! that it is free proves nothing: the row before has to be there. Requests of one process take turns, so that they are in
//! each other's way only across processes; whoever loses judges again. What is known of those whom a request names is
//! read once for all of it, and again whenever somebody else has written a row since.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Guard, Item, Key, Query, StoreError, Write};

use super::merge_rules::{MergeDecision, MergeFacts, TimedMergeRequest, decide_merges};
use super::{PersonMerge, encode_row};
use crate::EventStore;
use crate::error::EventStoreError;
use crate::event::Event;
use crate::keys;
use crate::manifest::state::Manifest;
use crate::persons::person_ids::merge_of;

/// Most merges that one call of [`EventStore::append`] may ask for: some thirty transactions one after the other, which a
/// function has time for.
pub const MERGES_MAX: usize = 1000;
/// Most merges that are judged and written together: each takes three writes at most, of the hundred of a transaction.
const BATCH_MAX: usize = 30;
/// How often merges are judged again when others are faster.
const TRIES: usize = 60;

/// A project's last row, as far as this process knows; whoever holds it writes.
type LogTail = Arc<tokio::sync::Mutex<Option<u64>>>;

/// The last rows of the projects' logs.
#[derive(Debug, Default)]
pub(crate) struct LogTails(Mutex<HashMap<ProjectId, LogTail>>);

impl LogTails {
    fn of(&self, project: ProjectId) -> LogTail {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(project).or_default().clone()
    }
}

/// What a request in its turn goes by.
struct LogWriter<'a> {
    /// The last row, as far as this process knows.
    last: &'a mut Option<u64>,
    /// What was known of everybody whom the request names when that was the last row.
    known: Option<MergeFacts>,
}

impl EventStore {
    /// Makes the merges that `events` ask for, in their order.
    ///
    /// [`EventStoreError::TooLarge`] when they ask for more than [`MERGES_MAX`]; nothing happens then.
    pub(crate) async fn merge_persons(
        &self,
        project: ProjectId,
        events: &[Event],
    ) -> Result<(), EventStoreError> {
        let mut seen = HashSet::new();
        let requests = events.iter().filter_map(|event| Some((merge_of(project, event)?, event.timestamp)));
        let requests: Vec<TimedMergeRequest> = requests.filter(|(merge, _)| seen.insert(*merge)).collect();
        if requests.is_empty() {
            return Ok(());
        }
        if requests.len() > MERGES_MAX {
            return Err(EventStoreError::TooLarge(format!(
                "The events ask for {} merges of persons ($identify, $create_alias, $merge_dangerously); at most \
                 {MERGES_MAX} are taken at once.",
                requests.len()
            )));
        }
        let tail = self.inner.log_tails.of(project);
        let before = tail.try_lock().ok().and_then(|last| *last);
        let known = self.known(project, &requests).await?;
        // Most have been made already.
        if decide_merges(&requests, known.clone()) == MergeDecision::default() {
            return Ok(());
        }
        let mut last = tail.lock().await;
        let known = Some(known).filter(|_| before.is_some() && *last == before);
        let mut writer = LogWriter { last: &mut last, known };
        for start in (0..requests.len()).step_by(BATCH_MAX) {
            self.merge_batch(project, &requests[start..], &mut writer).await?;
        }
        Ok(())
    }

    /// Makes the first [`BATCH_MAX`] of `requests`.
    async fn merge_batch(
        &self,
        project: ProjectId,
        requests: &[TimedMergeRequest],
        writer: &mut LogWriter<'_>,
    ) -> Result<(), EventStoreError> {
        let some = &requests[..requests.len().min(BATCH_MAX)];
        for _ in 0..TRIES {
            let last = match *writer.last {
                Some(last) => last,
                // What came in between may be an erasure, after which somebody is no longer identified.
                None => {
                    writer.known = None;
                    *writer.last.insert(self.last_row(project).await?)
                }
            };
            let mut known = match writer.known.take() {
                Some(known) => known,
                None => self.known(project, requests).await?,
            };
            let decision = decide_merges(some, known.clone());
            // Marks are in nobody's way.
            let row = match decision.merges.as_slice() {
                [] => Vec::new(),
                merges => next_row(project, last + 1, merges).to_vec(),
            };
            let (rows, marks) = (row.len(), marks(project, &decision));
            let writes = row.into_iter().chain(marks).collect::<Vec<_>>();
            let written = match writes.is_empty() {
                true => Ok(()),
                false => self.inner.store.records.transact(writes).await,
            };
            match written {
                Ok(()) => {
                    *writer.last = Some(last + u64::from(rows > 0));
                    known.take(decision);
                    writer.known = Some(known);
                    return Ok(());
                }
                // The row is not the next one.
                Err(StoreError::Condition { index }) if index < rows => *writer.last = None,
                // What was judged no longer holds.
                Err(StoreError::Condition { .. }) => {}
                Err(error) => {
                    // It may have been written all the same.
                    *writer.last = None;
                    return Err(error.into());
                }
            }
        }
        Err(StoreError::Busy(format!("persons of project {project} are being merged by others")).into())
    }

    /// The number of the last row; 0 where there is none.
    async fn last_row(&self, project: ProjectId) -> Result<u64, EventStoreError> {
        let query = Query::partition(keys::override_pk(project)).prefix(keys::MERGE).descending().limit(1);
        let items = self.inner.store.records.query(query).await?;
        items.first().map_or(Ok(0), |item| keys::merge_number(&item.key.sk))
    }

    /// What rows say of those whom `requests` names.
    async fn known(
        &self,
        project: ProjectId,
        requests: &[TimedMergeRequest],
    ) -> Result<MergeFacts, EventStoreError> {
        let links = || requests.iter().map(|(merge, _)| merge.link);
        let persons = links().flat_map(|link| [link.from, link.to]).collect::<BTreeSet<_>>();
        let forced = requests.iter().filter(|(merge, _)| merge.forced).map(|(merge, _)| merge.link);
        let forced = forced.map(|link| (link.from, link.to)).collect::<BTreeSet<_>>();
        let rows = persons.iter().map(|person| keys::identified(project, *person));
        let rows = rows.chain(forced.iter().map(|(from, to)| keys::forced_merge(project, *from, *to)));
        let rows = rows.collect::<Vec<Key>>();
        let found = async { Ok(self.inner.store.records.batch_get(&rows).await?) };
        let imported_merges = async {
            let manifest = Manifest::load_persons(&self.inner.store, project).await?;
            self.imported_merges(project, &manifest).await
        };
        let (found, imported_merges) = futures::try_join!(found, imported_merges)?;
        let mut there = found.iter().map(Option::is_some);
        let mut known = MergeFacts::default();
        known.identified.extend(persons.iter().filter(|_| there.next() == Some(true)));
        // Who came with several ids was identified where it came from.
        known.identified.extend(persons.iter().filter(|person| imported_merges.is_linked(**person)));
        known.forced.extend(forced.iter().filter(|_| there.next() == Some(true)));
        Ok(known)
    }
}

/// Row `number` of the log, where it is the next one: the row before is there, or for the first there has never been one.
/// Rows go in their order and the last one never does, so no row after one that is there has been removed.
pub(super) fn next_row(project: ProjectId, number: u64, merges: &[PersonMerge]) -> [Write; 2] {
    let before = match number {
        ..=1 => Write::Put(Item::empty(keys::merges_begun(project)), Guard::Absent),
        _ => Write::Check(keys::merge(project, number - 1), Guard::Present),
    };
    let row = Item::binary(keys::merge(project, number), encode_row(project, number, merges));
    [Write::Put(row, Guard::Absent), before]
}

/// The rows that say who is identified and what was forced.
fn marks(project: ProjectId, decision: &MergeDecision) -> Vec<Write> {
    let identified = decision.identified.iter().map(|(person, must)| {
        let guard = if *must { Guard::Absent } else { Guard::None };
        Write::Put(Item::empty(keys::identified(project, *person)), guard)
    });
    let forced = decision.forced.iter();
    let forced = forced
        .map(|link| Write::Put(Item::empty(keys::forced_merge(project, link.from, link.to)), Guard::Absent));
    identified.chain(forced).collect()
}
