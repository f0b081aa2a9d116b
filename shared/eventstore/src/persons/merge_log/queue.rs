//! Group commit of merges: processes that meet each other at the log queue their requests, and one of them commits for all.
//!
//! Every commit writes the next row of one log, so processes that commit at once conflict, and a process of a function has one
//! request at a time. So a process that met conflicts stores its requests in a row of the queue and reads the first row from
//! time to time. The one whose row is the first commits the first rows as one row of the log, in their order, and deletes them.
//! A process whose row is gone reads the markers of its persons: if nothing is left to decide, its requests are committed.
//!
//! Must stay true: the queue decides nothing. Who commits is not exclusive, because the log accepts one next row, and the
//! requests of a row may be decided any number of times ([`super::merge_rules`]). So a row may be lost, or come back after its
//! requests were committed. A process returns success only by the markers, never because its row is gone. A row of a process
//! that stopped is applied with the next ones within a minute, and then no more.

use std::time::Duration;

use pennon_analytics::scan::Micros;
use pennon_core::ids::random_below;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, PartitionQuery, StoreError, WriteCondition, back_off_after_conflict};
use tokio::time::Instant;
use uuid::Uuid;

use super::MergeLog;
use super::append::{BATCH_MAX, LogWriter};
use super::merge_rules::{MergeDecision, MergeFacts, TimedMergeRequest, decide_merges};
use crate::codec::{BinaryReader, write_signed, write_unsigned};
use crate::error::EventStoreError;
use crate::event::micros_u64;
use crate::keys;
use crate::person_ids::{MergeRequest, PersonLink};

/// Rows that the process that commits reads: more than one commit takes, as some may be abandoned.
const ROWS_READ: usize = 50;
/// A row at the head for this long is of a process that stopped: then others commit too.
const TAKEOVER_TIME: Duration = Duration::from_secs(1);
/// Rows of before this time are deleted and not applied: no process waits so long.
const ABANDONED_MICROS: u64 = 60_000_000;
/// Seconds after which the table deletes rows that no process deleted.
const EXPIRY_SECONDS: i64 = 3600;
/// Shortest pause between two reads of the queue.
const PAUSE_MIN: Duration = Duration::from_millis(3);

/// Prefix of a row; the digit is the format.
const ROW_MARK: &[u8; 4] = b"pnq1";

/// A row of the queue.
struct QueuedRow {
    sk: String,
    requests: Vec<TimedMergeRequest>,
}

/// The rows at the head of the queue, as one process sees them.
struct QueuePage {
    live: Vec<QueuedRow>,
    /// Keys of rows that no process waits for.
    abandoned: Vec<String>,
}

impl QueuePage {
    fn of(project: ProjectId, items: &[Item], now: Micros) -> QueuePage {
        let mut page = QueuePage { live: Vec::new(), abandoned: Vec::new() };
        for item in items {
            let sk = item.key.sk.clone();
            if is_abandoned(&sk, now) {
                page.abandoned.push(sk);
            } else if let Some(requests) = decode_requests(project, &sk, &item.bytes) {
                // Others cannot be read, and their processes commit on their own.
                page.live.push(QueuedRow { sk, requests });
            }
        }
        page
    }

    /// The requests of the first rows, as many as one commit takes, and the keys of these rows.
    fn batch(&self) -> (Vec<TimedMergeRequest>, Vec<String>) {
        let (mut requests, mut rows) = (Vec::new(), Vec::new());
        for row in &self.live {
            if requests.len() + row.requests.len() > BATCH_MAX {
                break;
            }
            requests.extend_from_slice(&row.requests);
            rows.push(row.sk.clone());
        }
        (requests, rows)
    }
}

/// Whether no process waits for the row `sk` any more.
fn is_abandoned(sk: &str, now: Micros) -> bool {
    let oldest = micros_u64(now).saturating_sub(ABANDONED_MICROS);
    keys::queued_at(sk).is_none_or(|at| at < oldest)
}

/// The requests of a process while they wait.
struct WaitingRequests<'a> {
    own: &'a [TimedMergeRequest],
    row: Item,
    is_queued: bool,
    /// The row at the head of the queue, and since when.
    head: Option<(String, Instant)>,
    conflicts: u32,
    /// How long the last read of the queue took.
    read_time: Duration,
}

impl WaitingRequests<'_> {
    /// Whether this process commits: its own row is at the head, or the same row has been there for long.
    fn may_commit(&mut self, head: &str, now: Instant) -> bool {
        match &self.head {
            _ if head == self.row.key.sk => true,
            Some((known, since)) if known == head => now.duration_since(*since) >= TAKEOVER_TIME,
            _ => {
                self.head = Some((head.to_owned(), now));
                false
            }
        }
    }
}

/// What a process does after it has read the queue.
enum NextStep {
    /// Its requests are committed.
    Done,
    /// It reads the queue again.
    ReadAgain,
    /// It reads the queue again after a pause.
    Pause,
    /// It was in the way of another process.
    BackOff,
}

impl MergeLog {
    /// Applies `own`, together with the requests of other processes, until `deadline`.
    pub(super) async fn merge_with_others(
        &self,
        project: ProjectId,
        own: &[TimedMergeRequest],
        writer: &mut LogWriter<'_>,
        deadline: Instant,
    ) -> Result<(), EventStoreError> {
        let row = queued_row(project, own, writer.now());
        let (head, read_time) = (None, Duration::ZERO);
        let mut waiting = WaitingRequests { own, row, is_queued: false, head, conflicts: 0, read_time };
        let mut failures = 0;
        loop {
            let failure = match self.read_queue(project, &mut waiting, writer).await {
                Ok(NextStep::Done) => return Ok(()),
                Ok(step) => {
                    match step {
                        NextStep::Pause => pause(waiting.read_time).await,
                        NextStep::BackOff => back_off_after_conflict(waiting.conflicts).await,
                        NextStep::Done | NextStep::ReadAgain => {}
                    }
                    None
                }
                // A call that was done without a response is as harmless as one that was not done.
                Err(EventStoreError::Store(error @ (StoreError::Busy(_) | StoreError::Conflict))) => {
                    failures += 1;
                    back_off_after_conflict(failures).await;
                    Some(error)
                }
                Err(error) => return Err(error),
            };
            if Instant::now() >= deadline {
                // It may stay there: others then apply it, or find it abandoned.
                let _ = self.records.sweep(vec![waiting.row.key]).await;
                let busy = format!("persons of project {project} are being merged by others");
                return Err(failure.unwrap_or(StoreError::Busy(busy)).into());
            }
        }
    }

    /// Reads the queue once, and commits its first rows if that is the turn of this process.
    async fn read_queue(
        &self,
        project: ProjectId,
        waiting: &mut WaitingRequests<'_>,
        writer: &mut LogWriter<'_>,
    ) -> Result<NextStep, EventStoreError> {
        if !waiting.is_queued {
            self.records.put(waiting.row.clone(), WriteCondition::None).await?;
            waiting.is_queued = true;
        }
        let queue = PartitionQuery::partition(keys::merge_queue_pk(project));
        let begin = Instant::now();
        let first = self.records.query(queue.clone().limit(1)).await?;
        waiting.read_time = begin.elapsed();
        let own_sk = waiting.row.key.sk.clone();
        let head = first.into_iter().map(|item| item.key.sk).find(|head| *head <= own_sk);
        if head.as_ref() != Some(&own_sk) {
            writer.note_contention();
        }
        let Some(head) = head else {
            let is_decided = self.is_decided(project, waiting.own, &writer.initial).await?;
            waiting.is_queued = is_decided;
            return Ok(if is_decided { NextStep::Done } else { NextStep::ReadAgain });
        };
        if !waiting.may_commit(&head, Instant::now()) && !is_abandoned(&head, writer.now()) {
            return Ok(NextStep::Pause);
        }
        let rows = async { Ok::<_, EventStoreError>(self.records.query(queue.limit(ROWS_READ)).await?) };
        let (rows, last) = futures::try_join!(rows, self.last_row(project))?;
        let page = QueuePage::of(project, &rows, writer.now());
        if page.live.len() > 1 {
            writer.note_contention();
        }
        let (batch, committed) = page.batch();
        writer.start_after(Some(last));
        if !batch.is_empty() && !self.try_commit(project, &batch, &batch, writer).await? {
            waiting.conflicts += 1;
            writer.note_contention();
            return Ok(NextStep::BackOff);
        }
        waiting.head = None;
        let is_done = committed.contains(&own_sk);
        let deleted = committed.into_iter().chain(page.abandoned);
        let deleted = deleted.map(|sk| Key::new(keys::merge_queue_pk(project), sk)).collect();
        if let Err(error) = self.records.sweep(deleted).await {
            // The next process applies them again, which changes nothing.
            tracing::warn!(project, %error, "committed merges could not be removed from their queue");
        }
        Ok(match (is_done, batch.is_empty()) {
            (true, _) => NextStep::Done,
            (false, false) => NextStep::ReadAgain,
            (false, true) => NextStep::Pause,
        })
    }

    /// Whether nothing of `requests` is left to decide. Of what was known before only the imports count, which have no markers,
    /// and persons that were identified already.
    async fn is_decided(
        &self,
        project: ProjectId,
        requests: &[TimedMergeRequest],
        before: &MergeFacts,
    ) -> Result<bool, EventStoreError> {
        let mut known = self.marked(project, requests).await?;
        known.identified.extend(&before.identified);
        known.forced.extend(&before.forced);
        Ok(decide_merges(requests, known) == MergeDecision::default())
    }

    /// Deletes all rows of the queue. Processes that wait store theirs again.
    pub(super) async fn clear_queue(&self, project: ProjectId) -> Result<(), EventStoreError> {
        let rows = self.records.query(PartitionQuery::partition(keys::merge_queue_pk(project))).await?;
        Ok(self.records.sweep(rows.into_iter().map(|item| item.key).collect()).await?)
    }
}

/// Waits between once and four times as long as a read takes: 32 processes read less than a partition key allows, and when reads
/// become slow, there are fewer of them.
async fn pause(read_time: Duration) {
    let shortest = read_time.max(PAUSE_MIN);
    let more = u64::try_from(3 * shortest.as_micros()).unwrap_or(u64::MAX);
    tokio::time::sleep(shortest + Duration::from_micros(random_below(more))).await;
}

/// A new row of the queue.
fn queued_row(project: ProjectId, requests: &[TimedMergeRequest], now: Micros) -> Item {
    let key = keys::queued_merges(project, micros_u64(now), random_below(u64::MAX));
    let bytes = encode_requests(project, &key.sk, requests);
    Item::binary(key, bytes).expiring(now / 1_000_000 + EXPIRY_SECONDS)
}

pub(super) fn encode_requests(project: ProjectId, sk: &str, requests: &[TimedMergeRequest]) -> Vec<u8> {
    let mut body = Vec::with_capacity(8 + 44 * requests.len());
    write_unsigned(&mut body, requests.len() as u64);
    for (MergeRequest { link, forced }, time) in requests {
        body.extend_from_slice(link.from.as_bytes());
        body.extend_from_slice(link.to.as_bytes());
        write_signed(&mut body, *time);
        body.push(u8::from(*forced));
    }
    [&ROW_MARK[..], &checksum(project, sk, &body).to_le_bytes(), &body].concat()
}

/// The requests of a row; none if it is damaged or in a newer format.
pub(super) fn decode_requests(project: ProjectId, sk: &str, bytes: &[u8]) -> Option<Vec<TimedMergeRequest>> {
    let (stored, body) = bytes.strip_prefix(ROW_MARK)?.split_first_chunk::<4>()?;
    if checksum(project, sk, body) != u32::from_le_bytes(*stored) {
        return None;
    }
    let mut reader = BinaryReader::new(body);
    let mut requests = Vec::new();
    for _ in 0..reader.count().ok()? {
        let from = Uuid::from_bytes(reader.array().ok()?);
        let to = Uuid::from_bytes(reader.array().ok()?);
        let time = reader.signed().ok()?;
        let [forced] = reader.array().ok()?;
        requests.push((MergeRequest { link: PersonLink { from, to }, forced: forced != 0 }, time));
    }
    Some(requests).filter(|_| reader.is_empty())
}

pub(super) fn checksum(project: ProjectId, sk: &str, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(format!("{project}/{sk}/").as_bytes());
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: Micros = 1_700_000_000_000_000;

    fn request(n: u128, forced: bool) -> TimedMergeRequest {
        let link = PersonLink { from: Uuid::from_u128(n), to: Uuid::from_u128(n << 64) };
        (MergeRequest { link, forced }, NOW - n as i64)
    }

    fn row(count: u128, at: Micros) -> Item {
        queued_row(7, &(0..count).map(|n| request(n, n.is_multiple_of(3))).collect::<Vec<_>>(), at)
    }

    #[test]
    fn a_row_comes_back_and_one_with_any_flipped_bit_is_not_read() {
        for count in [1, 2, 30] {
            let row = row(count, NOW);
            let expected = (0..count).map(|n| request(n, n.is_multiple_of(3))).collect::<Vec<_>>();
            assert_eq!(decode_requests(7, &row.key.sk, &row.bytes), Some(expected));
            assert!(decode_requests(8, &row.key.sk, &row.bytes).is_none());
            for bit in 0..row.bytes.len() * 8 {
                let mut flipped = row.bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(decode_requests(7, &row.key.sk, &flipped).is_none(), "{count} requests, bit {bit}");
            }
        }
    }

    #[test]
    fn a_commit_takes_the_first_rows_that_fit_and_leaves_abandoned_ones() {
        let minute = 60_000_000;
        let rows = [(1, -2 * minute), (10, -minute), (12, 0), (8, 1), (1, 2)].map(|(n, at)| row(n, NOW + at));
        let page = QueuePage::of(7, &rows, NOW);
        assert_eq!(page.abandoned, [rows[0].key.sk.clone()]);
        let (requests, taken) = page.batch();
        assert_eq!(requests.len(), 30);
        assert_eq!(taken, [1, 2, 3].map(|n: usize| rows[n].key.sk.clone()));
        assert!(is_abandoned(&rows[0].key.sk, NOW) && !is_abandoned(&rows[1].key.sk, NOW));
    }

    #[test]
    fn the_first_commits_and_others_only_when_it_has_stopped() {
        let row = row(1, NOW);
        let own = row.key.sk.clone();
        let (head, read_time) = (None, Duration::ZERO);
        let mut waiting = WaitingRequests { own: &[], row, is_queued: true, head, conflicts: 0, read_time };
        let begin = Instant::now();
        let halves = |count: u32| begin + TAKEOVER_TIME / 2 * count;
        assert!(waiting.may_commit(&own, begin));
        assert!(!waiting.may_commit("a", begin) && !waiting.may_commit("a", halves(1)));
        assert!(!waiting.may_commit("b", halves(1)), "another one since");
        assert!(!waiting.may_commit("b", halves(2)));
        assert!(waiting.may_commit("b", halves(3)));
    }
}
