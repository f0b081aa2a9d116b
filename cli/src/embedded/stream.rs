//! The change stream of the records table (DynamoDB Streams, keys only): inserts, modifications and removals in order.
//!
//! The database looks up the highest sequence number of the table at each write; an index makes that fast. DynamoDB retains
//! records for a day; here at most [`RECORDS_MAX`] of them, so that the file does not grow with unread records.
//!
//! Must stay true: a record is written in the transaction of its change, as the database would write it, with increasing
//! sequence numbers; a follower gets every insert that it subscribed to, or is informed that it may have missed some.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dynoxide::streams::shard_id;
use pennon_core::store::{Key, StoreError};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::connection::{Mode, lock, open};
use super::write_lock::WriteLock;

/// Most records that are retained.
pub const RECORDS_MAX: i64 = 50_000;
/// How long a record is retained.
const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Old records are deleted after this number of new ones.
const TRIM_INTERVAL: usize = 256;
/// A follower polls at this interval if it gets no notification, as for a write of another process.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The index for the database's own queries, by table and sequence number.
const CREATE_INDEX: &str = "CREATE INDEX IF NOT EXISTS pennon_stream_numbers
    ON _stream_records (table_name, CAST(sequence_number AS INTEGER))";
const LAST_NUMBER: &str =
    "SELECT MAX(CAST(sequence_number AS INTEGER)) FROM _stream_records WHERE table_name = ?1";
const FIRST_NUMBER: &str =
    "SELECT MIN(CAST(sequence_number AS INTEGER)) FROM _stream_records WHERE table_name = ?1";
const INSERT_RECORD: &str = "INSERT INTO _stream_records
    (table_name, event_name, keys_json, sequence_number, shard_id, created_at, event_id, user_identity)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const SELECT_INSERTS: &str = "SELECT keys_json FROM _stream_records
    WHERE table_name = ?1 AND CAST(sequence_number AS INTEGER) > ?2 AND CAST(sequence_number AS INTEGER) <= ?3
    AND event_name = 'INSERT' AND instr(keys_json, ?4) > 0
    ORDER BY CAST(sequence_number AS INTEGER)";
const TRIM_BY_COUNT: &str =
    "DELETE FROM _stream_records WHERE id <= (SELECT MAX(id) FROM _stream_records) - ?1";
/// Deletes up to the first record that is young enough; record ids are in the order of time.
const TRIM_BY_AGE: &str = "DELETE FROM _stream_records WHERE id < COALESCE(
    (SELECT id FROM _stream_records WHERE created_at >= ?1 ORDER BY id LIMIT 1),
    (SELECT MAX(id) + 1 FROM _stream_records))";

/// Creates the stream's index in `file`, and trims the stream.
pub fn prepare(file: &Path) -> rusqlite::Result<()> {
    let connection = open(file, Mode::ReadWrite)?;
    connection.execute_batch(CREATE_INDEX)?;
    trim(&connection)
}

/// Deletes the records above [`RECORDS_MAX`], and those older than [`RETENTION`].
pub(super) fn trim(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached(TRIM_BY_COUNT)?.execute([RECORDS_MAX])?;
    let oldest = (now_micros() / 1_000_000).saturating_sub(RETENTION.as_secs().cast_signed());
    connection.prepare_cached(TRIM_BY_AGE)?.execute([oldest])?;
    Ok(())
}

pub(super) fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A change of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent {
    /// A new item was written.
    Insert,
    /// An existing item was written.
    Modify,
    /// An item was deleted by a request.
    Remove,
    /// An item was deleted because its time to live was over.
    Expire,
}

/// The user identity of a deletion by time to live.
const TTL_IDENTITY: &str = r#"{"type":"Service","principalId":"dynamodb.amazonaws.com"}"#;

impl StreamEvent {
    fn name(self) -> &'static str {
        match self {
            StreamEvent::Insert => "INSERT",
            StreamEvent::Modify => "MODIFY",
            StreamEvent::Remove | StreamEvent::Expire => "REMOVE",
        }
    }

    fn identity(self) -> Option<&'static str> {
        (self == StreamEvent::Expire).then_some(TTL_IDENTITY)
    }
}

/// Appends the records of one transaction.
pub struct StreamWriter<'a> {
    connection: &'a Connection,
    table: &'a str,
    shard: String,
    last_number: i64,
    /// The time of all records, in microseconds.
    now: i64,
    appended: usize,
}

impl<'a> StreamWriter<'a> {
    /// A writer of the stream of `table`, within the open transaction of `connection`.
    pub fn begin(connection: &'a Connection, table: &'a str) -> rusqlite::Result<StreamWriter<'a>> {
        let last: Option<i64> =
            connection.prepare_cached(LAST_NUMBER)?.query_row([table], |row| row.get(0))?;
        let (last_number, now) = (last.unwrap_or(0), now_micros());
        Ok(StreamWriter { connection, table, shard: shard_id(table), last_number, now, appended: 0 })
    }

    /// The number of appended records.
    pub fn appended(&self) -> usize {
        self.appended
    }

    /// Appends the record of a change of the item at `key`.
    pub fn append(&mut self, event: StreamEvent, key: &Key) -> rusqlite::Result<()> {
        self.last_number = (self.last_number + 1).max(self.now);
        let keys = json!({"pk": {"S": key.pk}, "sk": {"S": key.sk}}).to_string();
        let id = uuid::Uuid::new_v4().simple().to_string();
        let (number, seconds) = (self.last_number.to_string(), self.now / 1_000_000);
        let mut insert = self.connection.prepare_cached(INSERT_RECORD)?;
        let (name, identity) = (event.name(), event.identity());
        insert.execute(params![self.table, name, keys, number, self.shard, seconds, id, identity])?;
        self.appended += 1;
        Ok(())
    }
}

/// Trims the stream after every [`TRIM_INTERVAL`] new records.
#[derive(Debug, Default)]
pub struct StreamTrimmer {
    since_last_trim: usize,
}

impl StreamTrimmer {
    /// Counts `appended` records, and trims the stream if it is due.
    pub fn add(&mut self, appended: usize, connection: &Connection) -> rusqlite::Result<()> {
        self.since_last_trim += appended;
        if self.since_last_trim >= TRIM_INTERVAL {
            self.since_last_trim = 0;
            trim(connection)?;
        }
        Ok(())
    }
}

/// New inserts for a follower.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StreamInserts {
    /// The keys of the inserted items, in order.
    pub keys: Vec<Key>,
    /// Whether records were trimmed before they were read, so that inserts may be missing.
    pub has_gap: bool,
}

/// Follows the inserts in the stream of a table.
pub struct StreamFollower {
    connection: Arc<Mutex<Connection>>,
    changes: watch::Receiver<()>,
    table: String,
    prefix: String,
    /// The cursor: the sequence number of the last record that was read.
    last_read: i64,
}

impl std::fmt::Debug for StreamFollower {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("StreamFollower");
        debug.field("table", &self.table).field("last_read", &self.last_read).finish()
    }
}

impl StreamFollower {
    /// Follows, from now on, inserts into the partitions of `table` whose keys start with `prefix`.
    pub(super) fn new(
        file: &Path,
        write_lock: &WriteLock,
        table: &str,
        prefix: &str,
    ) -> Result<StreamFollower, StoreError> {
        let changes = write_lock.subscribe();
        let begin = || {
            let connection = open(file, Mode::ReadOnly)?;
            let last_read = query_number(&connection, LAST_NUMBER, table)?.unwrap_or(0);
            Ok((connection, last_read))
        };
        let (connection, last_read) = begin().map_err(read_error)?;
        let connection = Arc::new(Mutex::new(connection));
        let (table, prefix) = (table.to_owned(), prefix.to_owned());
        Ok(StreamFollower { connection, changes, table, prefix, last_read })
    }

    /// The inserts since the last call; waits until there are some.
    pub async fn next(&mut self) -> Result<StreamInserts, StoreError> {
        loop {
            // A change from here on ends the wait below.
            self.changes.mark_unchanged();
            let inserts = self.poll().await?;
            if inserts != StreamInserts::default() {
                return Ok(inserts);
            }
            // A timeout without a notification is not an error.
            let _ = tokio::time::timeout(POLL_INTERVAL, self.changes.changed()).await;
        }
    }

    /// The inserts since the last call; empty if there are none.
    pub async fn poll(&mut self) -> Result<StreamInserts, StoreError> {
        let (connection, table, prefix, last_read) =
            (self.connection.clone(), self.table.clone(), self.prefix.clone(), self.last_read);
        // SQLite blocks its thread.
        let task =
            tokio::task::spawn_blocking(move || read_inserts(&lock(&connection), &table, &prefix, last_read));
        let (last_read, inserts) =
            task.await.map_err(|e| StoreError::Failed(e.to_string()))?.map_err(read_error)?;
        self.last_read = last_read;
        Ok(inserts)
    }
}

fn read_error(error: rusqlite::Error) -> StoreError {
    StoreError::Busy(format!("the stream cannot be read: {error}"))
}

fn query_number(connection: &Connection, sql: &str, table: &str) -> rusqlite::Result<Option<i64>> {
    Ok(connection.prepare_cached(sql)?.query_row([table], |row| row.get(0)).optional()?.flatten())
}

/// The sequence number of the last record, and the inserts after the record numbered `last_read`.
fn read_inserts(
    connection: &Connection,
    table: &str,
    prefix: &str,
    last_read: i64,
) -> rusqlite::Result<(i64, StreamInserts)> {
    // One snapshot: a gap from trimming between two statements would not be noticed.
    let snapshot = connection.unchecked_transaction()?;
    let Some(last) = query_number(&snapshot, LAST_NUMBER, table)?.filter(|last| *last > last_read) else {
        return Ok((last_read, StreamInserts::default()));
    };
    let has_gap = query_number(&snapshot, FIRST_NUMBER, table)?.is_some_and(|first| first > last_read);
    let mut keys = Vec::new();
    let mut statement = snapshot.prepare_cached(SELECT_INSERTS)?;
    // The prefix in the record's JSON encoding, without the closing quote.
    let json_prefix = Value::from(prefix).to_string();
    let json_prefix = json_prefix.trim_end_matches('"');
    let mut rows = statement.query(params![table, last_read, last, json_prefix])?;
    while let Some(row) = rows.next()? {
        let record_keys: Value = serde_json::from_str(row.get_ref(0)?.as_str()?).unwrap_or_default();
        let text = |name: &str| record_keys[name]["S"].as_str();
        if let (Some(pk), Some(sk)) = (text("pk"), text("sk"))
            && pk.starts_with(prefix)
        {
            keys.push(Key::new(pk, sk));
        }
    }
    Ok((last, StreamInserts { keys, has_gap }))
}

#[cfg(test)]
mod tests;
