//! The write path that bypasses the embedded database: transactions with group commit, into its SQLite file.
//!
//! The database commits one transaction at a time, each with its own wait for the disk, and prepares every statement again.
//! Here concurrent transactions share one commit: the conditions of each are checked against the state that the earlier ones
//! leave, and none is acknowledged before all of them are on the disk.
//!
//! Must stay true: rows and stream records are those that the database would write. All else is left to the database: keys and
//! items that it would reject, two changes of one item, numbers that are not `i64`. The [`WriteLock`] keeps the
//! database from committing at the same time, so that neither polls SQLite's lock.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::AttributeValue;
use dynoxide::storage::compute_hash_prefix;
use dynoxide::types::{AttributeValue as Value, MAX_ITEM_SIZE, item_size};
use pennon_core::store::local_backend::{from_json, to_json};
use pennon_core::store::{Attributes, ItemAction, ItemChange, ItemCondition, Key, StoreError, keys};
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::connection::{self, Mode, lock};
use super::reader::{encode_key, get_item_json};
use super::stream::{StreamEvent, StreamTrimmer, StreamWriter};
use super::write_lock::WriteLock;

/// DynamoDB's limits on the bytes of keys.
const PK_BYTES_MAX: usize = 2048;
const SK_BYTES_MAX: usize = 1024;
/// Most transactions that share a commit.
const GROUP_COMMIT_MAX: usize = 64;

/// The result of a transaction, with its last counter; `None` leaves the transaction to the database.
pub type TransactionResult = Option<Result<i64, StoreError>>;

/// Writes transactions to one SQLite file.
#[derive(Clone)]
pub struct FileWriter(Arc<Inner>);

struct Inner {
    file: PathBuf,
    write_lock: WriteLock,
    /// The table that has a stream.
    stream_table: String,
    queue: Mutex<CommitQueue>,
    connection: Mutex<Option<WriteConnection>>,
}

/// The connection, which is reused.
struct WriteConnection {
    connection: Connection,
    trimmer: StreamTrimmer,
}

#[derive(Default)]
struct CommitQueue {
    waiting: Vec<PendingTransaction>,
    /// Whether a thread is running that will read the queue again.
    is_running: bool,
}

/// A transaction that waits for its commit.
struct PendingTransaction {
    table: String,
    changes: Arc<Vec<ItemChange>>,
    /// The new row of each change; `None` for a deletion, a check, and a counter, whose row depends on the current one.
    rows: Vec<Option<Row>>,
    done: oneshot::Sender<TransactionResult>,
}

/// The columns of an encoded item.
struct Row {
    json: String,
    size: i64,
}

/// The result of checking the conditions of a transaction.
enum ConditionCheck {
    /// All conditions are met. Has the new rows of counters, by the index of their change, and the value of the last counter.
    Met(Vec<(usize, Row)>, i64),
    /// The condition of the change at this index is not met.
    Failed(usize),
    /// The transaction has to be left to the database.
    Unsupported,
}

impl FileWriter {
    /// A writer of `file`. Commits hold `write_lock`; `stream_table` is the table that has a stream.
    pub fn new(file: &Path, write_lock: WriteLock, stream_table: String) -> FileWriter {
        let (file, queue, connection) = (file.to_owned(), Mutex::default(), Mutex::default());
        FileWriter(Arc::new(Inner { file, write_lock, stream_table, queue, connection }))
    }

    /// Applies all of `changes` to `table`, or none.
    pub async fn transact(&self, table: &str, changes: Arc<Vec<ItemChange>>) -> TransactionResult {
        let rows = encode_rows(&changes)?;
        let (done, result) = oneshot::channel();
        self.enqueue(PendingTransaction { table: table.to_owned(), changes, rows, done });
        let lost = |_| Some(Err(StoreError::Busy("the writer has stopped".to_owned())));
        result.await.unwrap_or_else(lost)
    }

    /// Adds a transaction to the queue, and starts the writer thread unless it is running.
    fn enqueue(&self, transaction: PendingTransaction) {
        let mut queue = lock(&self.0.queue);
        queue.waiting.push(transaction);
        if !std::mem::replace(&mut queue.is_running, true) {
            let inner = self.0.clone();
            // SQLite blocks its thread, and other requests must go on meanwhile.
            tokio::task::spawn_blocking(move || inner.drain_queue());
        }
    }
}

/// Resets the queue if the writer thread panics, so that the next transaction starts a new one.
struct PanicGuard<'a>(&'a Inner);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.is_running = false;
        // The waiting callers get an error, because their channels are dropped.
        queue.waiting.clear();
    }
}

impl Inner {
    /// Commits the waiting transactions until the queue is empty.
    fn drain_queue(&self) {
        let guard = PanicGuard(self);
        loop {
            let group = {
                let mut queue = lock(&self.queue);
                if queue.waiting.is_empty() {
                    queue.is_running = false;
                    // The state is set above, under the same lock as the check: a later transaction starts a new thread.
                    std::mem::forget(guard);
                    return;
                }
                let size = queue.waiting.len().min(GROUP_COMMIT_MAX);
                queue.waiting.drain(..size).collect::<Vec<PendingTransaction>>()
            };
            let results = self.write_lock.files().run_checked(|| self.commit(&group));
            match results {
                Ok(Ok(results)) => {
                    for (transaction, result) in group.into_iter().zip(results) {
                        // An error means that the caller no longer waits.
                        let _ = transaction.done.send(result);
                    }
                }
                Ok(Err(error)) => {
                    for transaction in group {
                        let failure = match connection::unwritable_reason(&error) {
                            Some(reason) => StoreError::Unavailable(reason),
                            None => StoreError::Busy(error.to_string()),
                        };
                        let _ = transaction.done.send(Some(Err(failure)));
                    }
                }
                Err(lost) => {
                    for transaction in group {
                        let _ = transaction.done.send(Some(Err(StoreError::Unavailable(lost.clone()))));
                    }
                }
            }
        }
    }

    /// Writes all of `group` in one commit. After an error nothing of it was written.
    fn commit(&self, group: &[PendingTransaction]) -> rusqlite::Result<Vec<TransactionResult>> {
        let _guard = self.write_lock.acquire();
        let mut cached = lock(&self.connection);
        let mut open = cached.take().map_or_else(|| self.open(), Ok)?;
        let sqlite = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut results = Vec::with_capacity(group.len());
        let mut stream = None;
        for transaction in group {
            results.push(match check_conditions(&sqlite, transaction)? {
                ConditionCheck::Met(counters, last_counter) => {
                    let has_stream = transaction.table == self.stream_table;
                    if has_stream && stream.is_none() {
                        stream = Some(StreamWriter::begin(&sqlite, &self.stream_table)?);
                    }
                    write(&sqlite, transaction, counters, stream.as_mut().filter(|_| has_stream))?;
                    Some(Ok(last_counter))
                }
                ConditionCheck::Failed(index) => Some(Err(StoreError::Condition { index })),
                ConditionCheck::Unsupported => None,
            });
        }
        let appended = stream.map_or(0, |stream| stream.appended());
        open.trimmer.add(appended, &sqlite)?;
        sqlite.commit()?;
        self.write_lock.record_commit();
        *cached = Some(open);
        let is_committed = |result: &TransactionResult| matches!(result, Some(Ok(_)));
        if group.iter().zip(&results).any(|(it, result)| is_committed(result) && writes_job(it)) {
            self.write_lock.notify_followers();
        }
        Ok(results)
    }

    fn open(&self) -> rusqlite::Result<WriteConnection> {
        let connection = connection::open(&self.file, Mode::ReadWrite)?;
        // A commit is on the disk before it is acknowledged.
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(WriteConnection { connection, trimmer: StreamTrimmer::default() })
    }
}

/// Whether `transaction` writes a job, which a follower of the stream may wait for.
fn writes_job(transaction: &PendingTransaction) -> bool {
    transaction.changes.iter().any(|change| {
        matches!(change.action, ItemAction::Put(_)) && change.key.pk.starts_with(keys::JOB_PREFIX)
    })
}

/// The rows of put items, by the index of their change. `None` if the database has to process or reject the transaction.
fn encode_rows(changes: &[ItemChange]) -> Option<Vec<Option<Row>>> {
    let mut keys = HashSet::new();
    let mut rows = Vec::with_capacity(changes.len());
    for change in changes {
        let Key { pk, sk } = &change.key;
        let is_valid = (1..=PK_BYTES_MAX).contains(&pk.len()) && (1..=SK_BYTES_MAX).contains(&sk.len());
        if !is_valid || !keys.insert(&change.key) {
            return None;
        }
        rows.push(match &change.action {
            ItemAction::Put(item) => Some(encode_row(item)?),
            _ => None,
        });
    }
    Some(rows)
}

fn encode_row(item: &Attributes) -> Option<Row> {
    let value = |value: &AttributeValue| match value {
        AttributeValue::S(text) => Some(Value::S(text.clone())),
        AttributeValue::N(number) => Some(Value::N(number.clone())),
        AttributeValue::B(blob) => Some(Value::B(blob.as_ref().to_vec())),
        _ => None,
    };
    let values = item.iter().map(|(name, it)| Some((name.clone(), value(it)?))).collect::<Option<_>>()?;
    let size = item_size(&values);
    let is_valid = size <= MAX_ITEM_SIZE;
    Some(Row { json: to_json(item)?, size: i64::try_from(size).ok()? }).filter(|_| is_valid)
}

/// Checks the conditions of `transaction`, and computes the rows of its counters.
fn check_conditions(
    connection: &Connection,
    transaction: &PendingTransaction,
) -> rusqlite::Result<ConditionCheck> {
    let (mut failed, mut counters, mut last_counter) = (None, Vec::new(), 0);
    for (index, change) in transaction.changes.iter().enumerate() {
        let is_counter = matches!(change.action, ItemAction::Count { .. });
        if change.when.is_empty() && !is_counter {
            continue;
        }
        let current = match get_item_json(connection, &transaction.table, &change.key)? {
            None => None,
            Some(text) => match from_json(&text) {
                Some(item) => Some(item),
                None => return Ok(ConditionCheck::Unsupported),
            },
        };
        let met = change.when.iter().map(|condition| is_met(*condition, current.as_ref()));
        match met.collect::<Option<Vec<_>>>() {
            None => return Ok(ConditionCheck::Unsupported),
            Some(met) if met.contains(&false) => {
                failed.get_or_insert(index);
                continue;
            }
            Some(_) => {}
        }
        if let ItemAction::Count { add, set } = &change.action {
            match update_counters(&change.key, current, add, set) {
                Some((row, counter)) => {
                    counters.push((index, row));
                    last_counter = counter;
                }
                None => return Ok(ConditionCheck::Unsupported),
            }
        }
    }
    Ok(failed.map_or(ConditionCheck::Met(counters, last_counter), ConditionCheck::Failed))
}

/// Whether `item` meets `condition`. `None` if only the database can evaluate that.
fn is_met(condition: ItemCondition, item: Option<&Attributes>) -> Option<bool> {
    let value = |name| match item.and_then(|item| item.get(name)) {
        None => Some(None),
        Some(AttributeValue::N(number)) => number.parse::<i64>().ok().map(Some),
        Some(_) => None,
    };
    Some(match condition {
        ItemCondition::Absent => item.is_none(),
        ItemCondition::Present => item.is_some(),
        ItemCondition::Is(name, expected) => value(name)? == Some(expected),
        ItemCondition::IsOrUnset(name, expected) => value(name)?.is_none_or(|value| value == expected),
        ItemCondition::AtMostOrUnset(name, most) => value(name)?.is_none_or(|value| value <= most),
    })
}

/// The row of the item after `add` and `set`, and the new value of the first attribute of `add`. `None` if an attribute is not
/// an `i64`, or overflows.
fn update_counters(
    key: &Key,
    current: Option<Attributes>,
    add: &[(&'static str, i64)],
    set: &[(&'static str, i64)],
) -> Option<(Row, i64)> {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let new_item = || Attributes::from([("pk".into(), text(&key.pk)), ("sk".into(), text(&key.sk))]);
    let mut item = current.unwrap_or_else(new_item);
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
    Some((encode_row(&item)?, first.unwrap_or(0)))
}

/// Writes the rows of `transaction`, with those of its counters from `counters`, and appends its changes to `stream`.
fn write(
    connection: &Connection,
    transaction: &PendingTransaction,
    counters: Vec<(usize, Row)>,
    mut stream: Option<&mut StreamWriter>,
) -> rusqlite::Result<()> {
    let table = &transaction.table;
    let mut put = connection.prepare_cached(&format!(
        r#"INSERT INTO "{table}" (pk, sk, item_json, item_size, hash_prefix) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (pk, sk) DO UPDATE SET item_json = excluded.item_json, item_size = excluded.item_size"#
    ))?;
    let mut delete =
        connection.prepare_cached(&format!(r#"DELETE FROM "{table}" WHERE pk = ?1 AND sk = ?2"#))?;
    let mut exists =
        connection.prepare_cached(&format!(r#"SELECT 1 FROM "{table}" WHERE pk = ?1 AND sk = ?2"#))?;
    let mut counters = counters.into_iter().peekable();
    for (index, (change, row)) in transaction.changes.iter().zip(&transaction.rows).enumerate() {
        let counter = counters.next_if(|(at, _)| *at == index).map(|(_, row)| row);
        let (pk, sk) = (encode_key(&change.key.pk), encode_key(&change.key.sk));
        let event = if let Some(row) = counter.as_ref().or(row.as_ref()) {
            let existed = stream.is_some() && exists.exists([&pk, &sk])?;
            let hash = compute_hash_prefix(&Value::S(change.key.pk.clone()));
            put.execute(params![pk, sk, row.json, row.size, hash])?;
            Some(if existed { StreamEvent::Modify } else { StreamEvent::Insert })
        } else if matches!(change.action, ItemAction::Delete) {
            (delete.execute([pk, sk])? > 0).then_some(StreamEvent::Remove)
        } else {
            None
        };
        if let (Some(stream), Some(event)) = (stream.as_deref_mut(), event) {
            stream.append(event, &change.key)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
