//! Transactions, straight into the database's file.
//!
//! The database writes one transaction at a time, each with a wait for the disk of its own, and prepares every statement
//! anew. Here those that wait for each other share one commit: each is judged on what those before it leave behind, and
//! none is acknowledged before the disk has all of them.
//!
//! Must stay true: a row, and what the table's stream tells of it, is written as the database would write it; what this does not write the same way is left to it
//! (keys and items that it would refuse, two changes of one item, numbers that are not counters of ours). While a commit
//! is made here, the database makes none ([`Turn`]), so neither waits in SQLite for the other.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use dynoxide::storage::compute_hash_prefix;
use dynoxide::types::{AttributeValue as Value, MAX_ITEM_SIZE, item_size};
use pennon_core::store::local_backend::{from_json, to_json};
use pennon_core::store::{Action, Attributes, Change, Condition, Key, StoreError, keys};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};
use tokio::sync::{oneshot, watch};

use super::open_files::OpenFiles;
use super::reads::{STATEMENTS, item, stored};
use super::stream::{Event, Recorder, Trimmer};
use super::write_mark::WriteMark;

/// DynamoDB's limits on the bytes of keys.
const PK_BYTES_MAX: usize = 2048;
const SK_BYTES_MAX: usize = 1024;
/// Most transactions that share a commit.
const GROUP_MAX: usize = 64;
/// A write waits in SQLite for a process that recovers the file at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// The right to write to the file: one writer at a time. Whoever has written something that others may wait for says so.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    shared: Arc<(Mutex<()>, watch::Sender<()>)>,
    files: OpenFiles,
    mark: Arc<OnceLock<WriteMark>>,
}

impl Turn {
    /// The turn of those who write to `files`.
    pub fn of(files: OpenFiles) -> Turn {
        Turn { shared: Arc::default(), files, mark: Arc::default() }
    }

    /// The files that are written.
    pub fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// Waits for the turn.
    pub fn take(&self) -> MutexGuard<'_, ()> {
        lock(&self.shared.0)
    }

    /// Counts commits in `mark` from now on.
    pub fn count_in(&self, mark: WriteMark) {
        // A second mark would count the same.
        let _ = self.mark.set(mark);
    }

    /// Notes a commit in the mark, while the turn is held and before the write is acknowledged.
    pub fn committed(&self) {
        if let Some(mark) = self.mark.get() {
            mark.committed();
        }
    }

    /// Tells whoever waits that something was written.
    pub fn wrote(&self) {
        self.shared.1.send_replace(());
    }

    /// Learns of what was written.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.1.subscribe()
    }
}

/// What became of a transaction; none where the database has to make it.
pub type Outcome = Option<Result<i64, StoreError>>;

/// Writes to one file.
#[derive(Clone)]
pub struct Writes(Arc<Inner>);

struct Inner {
    file: PathBuf,
    turn: Turn,
    /// The table that has a stream.
    streamed: String,
    queue: Mutex<Queue>,
    connection: Mutex<Option<Open>>,
}

/// The connection that is kept.
struct Open {
    connection: Connection,
    trimmer: Trimmer,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Job>,
    /// Whether a thread is at work, which will look at the queue again.
    at_work: bool,
}

/// A transaction that waits for its commit.
struct Job {
    table: String,
    changes: Arc<Vec<Change>>,
    /// What becomes of each item, by place; none where that depends on what is there.
    rows: Vec<Option<Row>>,
    done: oneshot::Sender<Outcome>,
}

/// A row as the file keeps it.
struct Row {
    json: String,
    size: i64,
}

/// How a transaction was judged.
enum Judged {
    /// It can be made; these are the rows of the items that are counted on, by place, and the last counter.
    Fits(Vec<(usize, Row)>, i64),
    /// A condition does not hold.
    Refused(usize),
    /// The database has to make it.
    NotOurs,
}

impl Writes {
    /// Writes to `file`, when it is their `turn`; `streamed` is the table that has a stream.
    pub fn new(file: &Path, turn: Turn, streamed: String) -> Writes {
        let (file, queue, connection) = (file.to_owned(), Mutex::default(), Mutex::default());
        Writes(Arc::new(Inner { file, turn, streamed, queue, connection }))
    }

    /// Makes all of `changes` in `table` or none.
    pub async fn transact(&self, table: &str, changes: Arc<Vec<Change>>) -> Outcome {
        let rows = rows(&changes)?;
        let (done, outcome) = oneshot::channel();
        let job = Job { table: table.to_owned(), changes, rows, done };
        self.enqueue(job);
        let lost = |_| Some(Err(StoreError::Busy("the writer has stopped".to_owned())));
        outcome.await.unwrap_or_else(lost)
    }

    /// Leaves `job` to whoever is at work, or to a new thread.
    fn enqueue(&self, job: Job) {
        let mut queue = lock(&self.0.queue);
        queue.waiting.push(job);
        if !std::mem::replace(&mut queue.at_work, true) {
            let inner = self.0.clone();
            // SQLite blocks its thread, and other requests must go on meanwhile.
            tokio::task::spawn_blocking(move || inner.work());
        }
    }
}

/// Lets the next writer begin when this one has ended, however it did.
struct AtWork<'a>(&'a Inner);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.at_work = false;
        // There are some only where the work ended in a panic: their callers are told that they were not written.
        queue.waiting.clear();
    }
}

impl Inner {
    /// Makes the transactions that wait, until there are none.
    fn work(&self) {
        let at_work = AtWork(self);
        loop {
            let group = {
                let mut queue = lock(&self.queue);
                if queue.waiting.is_empty() {
                    queue.at_work = false;
                    // Whoever comes now begins anew.
                    std::mem::forget(at_work);
                    return;
                }
                let some = queue.waiting.len().min(GROUP_MAX);
                queue.waiting.drain(..some).collect::<Vec<Job>>()
            };
            let outcomes = self.turn.files().guarding(|| self.commit(&group));
            match outcomes {
                Ok(Ok(outcomes)) => {
                    for (job, outcome) in group.into_iter().zip(outcomes) {
                        // Whoever no longer waits does not want to know.
                        let _ = job.done.send(outcome);
                    }
                }
                Ok(Err(error)) => {
                    let text = error.to_string();
                    for job in group {
                        let _ = job.done.send(Some(Err(StoreError::Busy(text.clone()))));
                    }
                }
                Err(lost) => {
                    for job in group {
                        let _ = job.done.send(Some(Err(StoreError::Unavailable(lost.clone()))));
                    }
                }
            }
        }
    }

    /// One commit for all of `group`. After an error nothing of it was written.
    fn commit(&self, group: &[Job]) -> rusqlite::Result<Vec<Outcome>> {
        let _turn = self.turn.take();
        let mut kept = lock(&self.connection);
        let mut open = kept.take().map_or_else(|| self.open(), Ok)?;
        let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut outcomes = Vec::with_capacity(group.len());
        let mut stream = None;
        for job in group {
            outcomes.push(match judge(&transaction, job)? {
                Judged::Fits(counted, count) => {
                    let is_streamed = job.table == self.streamed;
                    if is_streamed && stream.is_none() {
                        stream = Some(Recorder::begin(&transaction, &self.streamed)?);
                    }
                    write(&transaction, job, counted, stream.as_mut().filter(|_| is_streamed))?;
                    Some(Ok(count))
                }
                Judged::Refused(index) => Some(Err(StoreError::Condition { index })),
                Judged::NotOurs => None,
            });
        }
        let recorded = stream.map_or(0, |stream| stream.recorded());
        open.trimmer.wrote(recorded, &transaction)?;
        transaction.commit()?;
        self.turn.committed();
        *kept = Some(open);
        if group.iter().zip(&outcomes).any(|(job, outcome)| matches!(outcome, Some(Ok(_))) && is_awaited(job))
        {
            self.turn.wrote();
        }
        Ok(outcomes)
    }

    fn open(&self) -> rusqlite::Result<Open> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // A commit is on the disk before it is acknowledged.
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(Open { connection, trimmer: Trimmer::default() })
    }
}

/// Whether somebody may wait for what `job` writes.
fn is_awaited(job: &Job) -> bool {
    job.changes
        .iter()
        .any(|change| matches!(change.action, Action::Put(_)) && change.key.pk.starts_with(keys::JOB_PREFIX))
}

/// The rows of what is put, by place; none where the database would refuse something, or has to be asked.
fn rows(changes: &[Change]) -> Option<Vec<Option<Row>>> {
    let mut keys = HashSet::new();
    let mut rows = Vec::with_capacity(changes.len());
    for change in changes {
        let Key { pk, sk } = &change.key;
        let fits = (1..=PK_BYTES_MAX).contains(&pk.len()) && (1..=SK_BYTES_MAX).contains(&sk.len());
        if !fits || !keys.insert(&change.key) {
            return None;
        }
        rows.push(match &change.action {
            Action::Put(item) => Some(row(item)?),
            _ => None,
        });
    }
    Some(rows)
}

fn row(item: &Attributes) -> Option<Row> {
    let value = |value: &AttributeValue| match value {
        AttributeValue::S(text) => Some(Value::S(text.clone())),
        AttributeValue::N(number) => Some(Value::N(number.clone())),
        AttributeValue::B(blob) => Some(Value::B(blob.as_ref().to_vec())),
        _ => None,
    };
    let counted = item.iter().map(|(name, it)| Some((name.clone(), value(it)?))).collect::<Option<_>>()?;
    let size = item_size(&counted);
    let fits = size <= MAX_ITEM_SIZE;
    Some(Row { json: to_json(item)?, size: i64::try_from(size).ok()? }).filter(|_| fits)
}

/// Whether the conditions of `job` hold, and what becomes of the items that it counts on.
fn judge(connection: &Connection, job: &Job) -> rusqlite::Result<Judged> {
    let (mut refused, mut counted, mut count) = (None, Vec::new(), 0);
    for (index, change) in job.changes.iter().enumerate() {
        let counts = matches!(change.action, Action::Count { .. });
        if change.when.is_empty() && !counts {
            continue;
        }
        let now = match item(connection, &job.table, &change.key)? {
            None => None,
            Some(text) => match from_json(&text) {
                Some(item) => Some(item),
                None => return Ok(Judged::NotOurs),
            },
        };
        match change.when.iter().map(|condition| holds(*condition, now.as_ref())).collect::<Option<Vec<_>>>()
        {
            None => return Ok(Judged::NotOurs),
            Some(held) if held.contains(&false) => {
                refused.get_or_insert(index);
                continue;
            }
            Some(_) => {}
        }
        if let Action::Count { add, set } = &change.action {
            match counted_on(&change.key, now, add, set) {
                Some((row, last)) => {
                    counted.push((index, row));
                    count = last;
                }
                None => return Ok(Judged::NotOurs),
            }
        }
    }
    Ok(refused.map_or(Judged::Fits(counted, count), Judged::Refused))
}

/// Whether `condition` holds of the item; none where that is for the database to say.
fn holds(condition: Condition, item: Option<&Attributes>) -> Option<bool> {
    let value = |name| match item.and_then(|item| item.get(name)) {
        None => Some(None),
        Some(AttributeValue::N(number)) => number.parse::<i64>().ok().map(Some),
        Some(_) => None,
    };
    Some(match condition {
        Condition::Absent => item.is_none(),
        Condition::Present => item.is_some(),
        Condition::Is(name, wanted) => value(name)? == Some(wanted),
        Condition::IsOrUnset(name, wanted) => value(name)?.is_none_or(|value| value == wanted),
        Condition::AtMostOrUnset(name, most) => value(name)?.is_none_or(|value| value <= most),
    })
}

/// The row of the item with its numbers raised, and what the first of them is then.
fn counted_on(
    key: &Key,
    now: Option<Attributes>,
    add: &[(&'static str, i64)],
    set: &[(&'static str, i64)],
) -> Option<(Row, i64)> {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let mut item =
        now.unwrap_or_else(|| Attributes::from([("pk".into(), text(&key.pk)), ("sk".into(), text(&key.sk))]));
    let mut first = None;
    for (name, by) in add {
        let before = match item.get(*name) {
            None => 0,
            Some(AttributeValue::N(number)) => number.parse::<i64>().ok()?,
            Some(_) => return None,
        };
        let after = before.checked_add(*by)?;
        first.get_or_insert(after);
        item.insert((*name).to_owned(), AttributeValue::N(after.to_string()));
    }
    for (name, value) in set {
        item.insert((*name).to_owned(), AttributeValue::N(value.to_string()));
    }
    Some((row(&item)?, first.unwrap_or(0)))
}

/// Writes the rows of `job`, those of the items that it counts on from `counted`, and what became of them into `stream`.
fn write(
    connection: &Connection,
    job: &Job,
    counted: Vec<(usize, Row)>,
    mut stream: Option<&mut Recorder>,
) -> rusqlite::Result<()> {
    let table = &job.table;
    let mut put = connection.prepare_cached(&format!(
        r#"INSERT INTO "{table}" (pk, sk, item_json, item_size, hash_prefix) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (pk, sk) DO UPDATE SET item_json = excluded.item_json, item_size = excluded.item_size"#
    ))?;
    let mut delete =
        connection.prepare_cached(&format!(r#"DELETE FROM "{table}" WHERE pk = ?1 AND sk = ?2"#))?;
    let mut there =
        connection.prepare_cached(&format!(r#"SELECT 1 FROM "{table}" WHERE pk = ?1 AND sk = ?2"#))?;
    let mut counted = counted.into_iter().peekable();
    for (index, (change, row)) in job.changes.iter().zip(&job.rows).enumerate() {
        let counted = counted.next_if(|(at, _)| *at == index).map(|(_, row)| row);
        let (pk, sk) = (stored(&change.key.pk), stored(&change.key.sk));
        let event = if let Some(row) = counted.as_ref().or(row.as_ref()) {
            let was_there = stream.is_some() && there.exists([&pk, &sk])?;
            let hash = compute_hash_prefix(&Value::S(change.key.pk.clone()));
            put.execute(params![pk, sk, row.json, row.size, hash])?;
            Some(if was_there { Event::Modify } else { Event::Insert })
        } else if matches!(change.action, Action::Delete) {
            (delete.execute([pk, sk])? > 0).then_some(Event::Remove)
        } else {
            None
        };
        if let (Some(stream), Some(event)) = (stream.as_deref_mut(), event) {
            stream.record(event, &change.key)?;
        }
    }
    Ok(())
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
