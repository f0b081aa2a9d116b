//! Appends merges to the log.
//!
//! Must stay true: a decision is written only if its preconditions still hold: the row is the next one of the
//! log, and no person that a merge needs unidentified was identified since. The number of a folded and removed
//! row is free again, so the precondition is that the row before exists. Requests of one process are serialized
//! by a lock, so conflicts occur only between processes; on a conflict the request waits with jittered backoff and writes the
//! row after those that were appended. Its facts about persons stay valid: a person once identified stays so, and that the
//! others are not is a precondition of the write. Only a row without merges, as that of an erasure, makes it read them again.
//! A decision that identifies persons without merging them appends such a row too: else it would not notice an erasure since its facts
//! were read, and the erasure would not notice its markers and leave them.
//! After [`CONFLICTS_MAX`] conflicts the requests of several processes are committed together ([`super::queue`]).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pennon_analytics::scan::Micros;
use pennon_core::clock::CacheInstant;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{
    Item, Key, PartitionQuery, StoreError, Write, WriteCondition, back_off_after_conflict,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::merge_rules::{MergeDecision, MergeFacts, TimedMergeRequest, decide_merges};
use super::{MergeLog, PersonMerge, encode_row};
use crate::error::EventStoreError;
use crate::event::Event;
use crate::keys;
use crate::person_ids::merge_of;

/// Most merges that one call of [`crate::EventStore::append`] may request: some thirty transactions in sequence,
/// within the time of a function.
pub const MERGES_MAX: usize = 1000;
/// Most merges per transaction: each takes at most three of its hundred writes.
pub(super) const BATCH_MAX: usize = 30;
/// How long a request retries: about half of the time of a function.
const RETRY_TIME: Duration = Duration::from_secs(8);
/// Conflicts after which a request is committed together with those of other processes. The first may be with a row that was
/// written since this process last wrote.
const CONFLICTS_MAX: u32 = 2;
/// How long after the last sign of other processes a process commits its requests with theirs at once.
const CONTENTION_TIME: Duration = Duration::from_secs(10);

/// What a process knows of a log; the lock holder writes.
#[derive(Debug, Default)]
struct LogTail {
    /// Number of the last row.
    last: Option<u64>,
    /// When another process last wrote merges at the same time.
    contended_at: Option<CacheInstant>,
}

/// The ends of the logs of all projects.
#[derive(Debug, Default)]
pub(crate) struct LogTails(Mutex<HashMap<ProjectId, Arc<tokio::sync::Mutex<LogTail>>>>);

impl LogTails {
    fn of(&self, project: ProjectId) -> Arc<tokio::sync::Mutex<LogTail>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(project).or_default().clone()
    }
}

/// State of a request that holds the lock.
pub(super) struct LogWriter<'a> {
    /// When the request arrived, by both clocks.
    arrived: (Micros, Instant),
    /// The facts about the persons of the request when it began.
    pub initial: MergeFacts,
    tail: &'a mut LogTail,
    /// The facts about the persons that are written next, valid as of the last row.
    known: Option<MergeFacts>,
}

impl LogWriter<'_> {
    /// The log ends with row `last`, or is read again if that is not known; the facts are read again.
    pub(super) fn start_after(&mut self, last: Option<u64>) {
        self.tail.last = last;
        self.known = None;
    }

    /// The time now: that of the arrival and how long ago it was.
    pub(super) fn now(&self) -> Micros {
        let (arrived, begin) = self.arrived;
        arrived.saturating_add(i64::try_from(begin.elapsed().as_micros()).unwrap_or(i64::MAX))
    }

    pub(super) fn note_contention(&mut self) {
        self.tail.contended_at = Some(CacheInstant::now());
    }

    fn is_contended(&self) -> bool {
        self.tail.contended_at.is_some_and(|at| at.is_younger_than(CONTENTION_TIME))
    }
}

impl MergeLog {
    /// Applies the merges that `events` request, in order. The request arrived at `now`.
    ///
    /// [`EventStoreError::TooLarge`] when they request more than [`MERGES_MAX`]; nothing is applied then.
    pub(crate) async fn merge_persons(
        &self,
        project: ProjectId,
        events: &[Event],
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let arrived = (now, Instant::now());
        let mut seen = HashSet::new();
        let requests = events.iter().filter_map(|event| Some((merge_of(project, event)?, event.timestamp)));
        let requests: Vec<TimedMergeRequest> = requests.filter(|(merge, _)| seen.insert(*merge)).collect();
        if requests.is_empty() {
            return Ok(());
        }
        if requests.len() > MERGES_MAX {
            return Err(EventStoreError::TooLarge(format!(
                "The events request {} merges of persons ($identify, $create_alias, $merge_dangerously); at most \
                 {MERGES_MAX} are accepted at once.",
                requests.len()
            )));
        }
        let tail = self.tails.of(project);
        let before = tail.try_lock().ok().and_then(|tail| tail.last);
        let last_row = async {
            match before {
                Some(last) => Ok(last),
                None => self.last_row(project).await,
            }
        };
        let (last_row, initial) = futures::try_join!(last_row, self.known(project, &requests))?;
        // Most requested merges were applied before.
        if decide_merges(&requests, initial.clone()) == MergeDecision::default() {
            return Ok(());
        }
        let mut tail = tail.lock().await;
        let known = Some(initial.clone()).filter(|_| before.is_some() && tail.last == before);
        tail.last.get_or_insert(last_row);
        let mut writer = LogWriter { arrived, initial, tail: &mut tail, known };
        for start in (0..requests.len()).step_by(BATCH_MAX) {
            self.merge_batch(project, &requests[start..], &mut writer).await?;
        }
        Ok(())
    }

    /// Applies the first [`BATCH_MAX`] of `requests`.
    async fn merge_batch(
        &self,
        project: ProjectId,
        requests: &[TimedMergeRequest],
        writer: &mut LogWriter<'_>,
    ) -> Result<(), EventStoreError> {
        let some = &requests[..requests.len().min(BATCH_MAX)];
        let deadline = Instant::now() + RETRY_TIME;
        let mut conflicts = 0;
        while conflicts < CONFLICTS_MAX && !writer.is_contended() {
            back_off_after_conflict(conflicts).await;
            match self.try_commit(project, some, requests, writer).await {
                Ok(true) => return Ok(()),
                // What was done without a response is decided again, and changes nothing.
                Ok(false) | Err(EventStoreError::Store(StoreError::Busy(_))) => conflicts += 1,
                Err(error) => return Err(error),
            }
        }
        if conflicts > 0 {
            writer.note_contention();
        }
        let merged = self.merge_with_others(project, some, writer, deadline).await;
        writer.start_after(None);
        merged
    }

    /// Decides `some` requests and writes the next row of the log. Returns false, and writes nothing, if other processes were
    /// faster. The facts that are read are about the persons of all `requests`.
    pub(super) async fn try_commit(
        &self,
        project: ProjectId,
        some: &[TimedMergeRequest],
        requests: &[TimedMergeRequest],
        writer: &mut LogWriter<'_>,
    ) -> Result<bool, EventStoreError> {
        let last = match writer.tail.last {
            Some(last) => last,
            // The unknown rows may include an erasure, after which a person is no longer identified.
            None => {
                writer.known = None;
                *writer.tail.last.insert(self.last_row(project).await?)
            }
        };
        let known = match writer.known.take() {
            Some(known) => known,
            None => self.known(project, requests).await?,
        };
        let decision = decide_merges(some, known.clone());
        if decision == MergeDecision::default() {
            writer.known = Some(known);
            return Ok(true);
        }
        let row = next_row(project, last + 1, &decision.merges);
        let rows = row.len();
        let writes = row.into_iter().chain(marks(project, &decision)).collect();
        match self.records.transact_once(writes).await {
            Ok(()) => {
                writer.tail.last = Some(last + 1);
                let mut known = known;
                known.take(decision);
                writer.known = Some(known);
                Ok(true)
            }
            // Conflict: the row is not the next one, or another process is writing it.
            Err(error) if is_row_conflict(&error, rows) => {
                let (next, is_erased) = self.skip_rows(project, last).await;
                // While the other process is still writing, the row before it is the last one.
                let next = next.or(matches!(error, StoreError::Conflict).then_some(last));
                writer.tail.last = next;
                writer.known = Some(known).filter(|_| next.is_some() && !is_erased);
                Ok(false)
            }
            // Conflict: the decision is outdated.
            Err(StoreError::Condition { .. }) => Ok(false),
            Err(error) => {
                // The write may have succeeded.
                writer.tail.last = None;
                Err(error.into())
            }
        }
    }

    /// The number of the last row after row `last`, none if rows between them were removed, and whether one of them has no merges, as
    /// that of an erasure.
    async fn skip_rows(&self, project: ProjectId, last: u64) -> (Option<u64>, bool) {
        // Of damaged rows only the number of the last one is needed.
        let Ok(rows) = self.merges_after(project, last).await else { return (None, true) };
        let is_gapless = (last + 1..).zip(&rows).all(|(number, row)| row.number == number);
        let next = rows.last().filter(|_| is_gapless).map(|row| row.number);
        (next, rows.iter().any(|row| row.merges.is_empty()))
    }

    /// The number of the last row; 0 where there is none.
    pub(super) async fn last_row(&self, project: ProjectId) -> Result<u64, EventStoreError> {
        let query =
            PartitionQuery::partition(keys::override_pk(project)).prefix(keys::MERGE).descending().limit(1);
        let items = self.records.query(query).await?;
        items.first().map_or(Ok(0), |item| keys::merge_number(&item.key.sk))
    }

    /// Reads the facts about the persons of `requests`.
    async fn known(
        &self,
        project: ProjectId,
        requests: &[TimedMergeRequest],
    ) -> Result<MergeFacts, EventStoreError> {
        let imported_merges = async {
            let manifest = self.manifests.load_persons(project).await?;
            self.imports.imported_merges(project, &manifest).await
        };
        let marked = self.marked(project, requests);
        let (mut known, imported_merges) = futures::try_join!(marked, imported_merges)?;
        // A person that was imported with several ids was identified in the source system.
        let persons = persons_of(requests);
        known.identified.extend(persons.iter().filter(|person| imported_merges.is_linked(**person)));
        Ok(known)
    }

    /// Reads the markers of the persons of `requests`.
    pub(super) async fn marked(
        &self,
        project: ProjectId,
        requests: &[TimedMergeRequest],
    ) -> Result<MergeFacts, EventStoreError> {
        let persons = persons_of(requests);
        let forced = requests.iter().filter(|(merge, _)| merge.forced).map(|(merge, _)| merge.link);
        let forced = forced.map(|link| (link.from, link.to)).collect::<BTreeSet<_>>();
        let rows = persons.iter().map(|person| keys::identified(project, *person));
        let rows = rows.chain(forced.iter().map(|(from, to)| keys::forced_merge(project, *from, *to)));
        let found = self.records.batch_get(&rows.collect::<Vec<Key>>()).await?;
        let (identified, was_forced) = found.split_at(persons.len());
        let identified = persons.iter().zip(identified).filter(|(_, marker)| marker.is_some());
        let was_forced = forced.iter().zip(was_forced).filter(|(_, marker)| marker.is_some());
        Ok(MergeFacts {
            identified: identified.map(|(person, _)| *person).collect(),
            forced: was_forced.map(|(link, _)| *link).collect(),
        })
    }
}

fn persons_of(requests: &[TimedMergeRequest]) -> BTreeSet<Uuid> {
    requests.iter().flat_map(|(merge, _)| [merge.link.from, merge.link.to]).collect()
}

/// Whether another process has written the row, or is writing it. A transaction on the same markers is retried like that too.
fn is_row_conflict(error: &StoreError, rows: usize) -> bool {
    match error {
        StoreError::Condition { index } => *index < rows,
        error => matches!(error, StoreError::Conflict),
    }
}

/// Row `number` of the log, where it is the next one: the row before is there, or for the first there has never been one.
/// Rows go in their order and the last one never does, so no row after one that is there has been removed.
pub(super) fn next_row(project: ProjectId, number: u64, merges: &[PersonMerge]) -> [Write; 2] {
    let before = match number {
        ..=1 => Write::Put(Item::empty(keys::merges_begun(project)), WriteCondition::Absent),
        _ => Write::Check(keys::merge(project, number - 1), WriteCondition::Present),
    };
    let row = Item::binary(keys::merge(project, number), encode_row(project, number, merges));
    [Write::Put(row, WriteCondition::Absent), before]
}

/// The markers of identified persons and of forced merges.
fn marks(project: ProjectId, decision: &MergeDecision) -> Vec<Write> {
    let identified = decision.identified.iter().map(|(person, must)| {
        let guard = if *must { WriteCondition::Absent } else { WriteCondition::None };
        Write::Put(Item::empty(keys::identified(project, *person)), guard)
    });
    let forced = decision.forced.iter();
    let forced = forced.map(|link| {
        Write::Put(Item::empty(keys::forced_merge(project, link.from, link.to)), WriteCondition::Absent)
    });
    identified.chain(forced).collect()
}
