//! The stream of the records table: which items came, changed or went, in order, as DynamoDB tells of them.
//!
//! The database gives a record the number after the last, and looks that one up at each write; an index finds it at once.
//! DynamoDB keeps records for a day; here also no more than [`KEPT_MAX`] stay, so that the file does not grow with what
//! nobody will read.
//!
//! Must stay true: a record is written in the commit of its change and as the database would write it, numbers rising;
//! whoever follows learns of every insert that it asks for, or that it may have missed some.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dynoxide::streams::shard_id;
use pennon_core::store::{Key, StoreError};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::writes::{Turn, lock};

/// Most records that stay.
pub const KEPT_MAX: i64 = 50_000;
/// How long a record stays.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// After so many new ones, old ones go.
const TRIMMED_EVERY: usize = 256;
/// Somebody who follows looks again after this, should nobody have told of a change.
const LOOKED_EVERY: Duration = Duration::from_secs(5);
/// How long opening, and reading, wait in SQLite.
const PATIENCE: Duration = Duration::from_secs(5);

/// Names a table's records by number, as the database asks for them.
const INDEX: &str = "CREATE INDEX IF NOT EXISTS pennon_stream_numbers
    ON _stream_records (table_name, CAST(sequence_number AS INTEGER))";
const LAST: &str = "SELECT MAX(CAST(sequence_number AS INTEGER)) FROM _stream_records WHERE table_name = ?1";
const FIRST: &str = "SELECT MIN(CAST(sequence_number AS INTEGER)) FROM _stream_records WHERE table_name = ?1";
const INSERT: &str = "INSERT INTO _stream_records
    (table_name, event_name, keys_json, sequence_number, shard_id, created_at, event_id, user_identity)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const INSERTED: &str = "SELECT keys_json FROM _stream_records
    WHERE table_name = ?1 AND CAST(sequence_number AS INTEGER) > ?2 AND CAST(sequence_number AS INTEGER) <= ?3
    AND event_name = 'INSERT' AND instr(keys_json, ?4) > 0
    ORDER BY CAST(sequence_number AS INTEGER)";
const TRIM_MANY: &str = "DELETE FROM _stream_records WHERE id <= (SELECT MAX(id) FROM _stream_records) - ?1";
/// Up to the first record that is young enough; records lie in the order of their time.
const TRIM_OLD: &str = "DELETE FROM _stream_records WHERE id < COALESCE(
    (SELECT id FROM _stream_records WHERE created_at >= ?1 ORDER BY id LIMIT 1),
    (SELECT MAX(id) + 1 FROM _stream_records))";

/// Makes `file` ready for streams.
pub fn prepare(file: &Path) -> rusqlite::Result<()> {
    let connection = open(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.execute_batch(INDEX)?;
    trim(&connection)
}

pub(super) fn open(file: &Path, how: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(file, how | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

/// Removes the records that are too many, or too old.
pub(super) fn trim(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached(TRIM_MANY)?.execute([KEPT_MAX])?;
    let oldest = (now_micros() / 1_000_000).saturating_sub(KEPT.as_secs().cast_signed());
    connection.prepare_cached(TRIM_OLD)?.execute([oldest])?;
    Ok(())
}

pub(super) fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It was not there before.
    Insert,
    /// It was.
    Modify,
    /// It went.
    Remove,
    /// It went because its time was over.
    Expire,
}

/// Who removes what has expired.
const EXPIRED_BY: &str = r#"{"type":"Service","principalId":"dynamodb.amazonaws.com"}"#;

impl Event {
    fn name(self) -> &'static str {
        match self {
            Event::Insert => "INSERT",
            Event::Modify => "MODIFY",
            Event::Remove | Event::Expire => "REMOVE",
        }
    }

    fn identity(self) -> Option<&'static str> {
        (self == Event::Expire).then_some(EXPIRED_BY)
    }
}

/// Writes the records of one commit.
pub struct Recorder<'a> {
    connection: &'a Connection,
    table: &'a str,
    shard: String,
    last: i64,
    at: i64,
    recorded: usize,
}

impl<'a> Recorder<'a> {
    /// A recorder of changes of `table`, within the transaction that `connection` is in.
    pub fn begin(connection: &'a Connection, table: &'a str) -> rusqlite::Result<Recorder<'a>> {
        let last: Option<i64> = connection.prepare_cached(LAST)?.query_row([table], |row| row.get(0))?;
        let (last, at) = (last.unwrap_or(0), now_micros());
        Ok(Recorder { connection, table, shard: shard_id(table), last, at, recorded: 0 })
    }

    /// How many records it wrote.
    pub fn recorded(&self) -> usize {
        self.recorded
    }

    /// Says what became of the item at `key`.
    pub fn record(&mut self, event: Event, key: &Key) -> rusqlite::Result<()> {
        self.last = (self.last + 1).max(self.at);
        let keys = json!({"pk": {"S": key.pk}, "sk": {"S": key.sk}}).to_string();
        let id = uuid::Uuid::new_v4().simple().to_string();
        let (number, seconds) = (self.last.to_string(), self.at / 1_000_000);
        let mut insert = self.connection.prepare_cached(INSERT)?;
        let (name, who) = (event.name(), event.identity());
        insert.execute(params![self.table, name, keys, number, self.shard, seconds, id, who])?;
        self.recorded += 1;
        Ok(())
    }
}

/// Counts records until some have to go.
#[derive(Debug, Default)]
pub struct Trimmer {
    written: usize,
}

impl Trimmer {
    /// `more` were written: makes room for them now and then.
    pub fn wrote(&mut self, more: usize, connection: &Connection) -> rusqlite::Result<()> {
        self.written += more;
        if self.written >= TRIMMED_EVERY {
            self.written = 0;
            trim(connection)?;
        }
        Ok(())
    }
}

/// Inserts that somebody who follows the stream asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Where they lie, in the order in which they came.
    pub keys: Vec<Key>,
    /// Whether there may have been others, whose records are gone.
    pub missed: bool,
}

/// Follows the stream of a table.
pub struct Follower {
    reads: Arc<Mutex<Connection>>,
    changes: watch::Receiver<()>,
    table: String,
    prefix: String,
    /// The last number that was read.
    after: i64,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Follower").field("table", &self.table).field("after", &self.after).finish()
    }
}

impl Follower {
    /// Follows what is inserted into `table`, in partitions whose keys begin with `prefix`, from now on.
    pub(super) fn of(file: &Path, turn: &Turn, table: &str, prefix: &str) -> Result<Follower, StoreError> {
        let changes = turn.changes();
        let begin = || {
            let connection = open(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            let after = number(&connection, LAST, table)?.unwrap_or(0);
            Ok((connection, after))
        };
        let (connection, after) = begin().map_err(failed)?;
        let reads = Arc::new(Mutex::new(connection));
        Ok(Follower { reads, changes, table: table.to_owned(), prefix: prefix.to_owned(), after })
    }

    /// The inserts since the last call; waits until there are some.
    pub async fn next(&mut self) -> Result<Inserted, StoreError> {
        loop {
            // What changes from here on ends the wait below.
            self.changes.mark_unchanged();
            let found = self.look().await?;
            if found != Inserted::default() {
                return Ok(found);
            }
            // That nobody told of a change in time is no error.
            let _ = tokio::time::timeout(LOOKED_EVERY, self.changes.changed()).await;
        }
    }

    /// The inserts since the last call, if there are any.
    pub async fn look(&mut self) -> Result<Inserted, StoreError> {
        let (reads, table, prefix, after) =
            (self.reads.clone(), self.table.clone(), self.prefix.clone(), self.after);
        // SQLite blocks its thread.
        let read = tokio::task::spawn_blocking(move || inserted(&lock(&reads), &table, &prefix, after));
        let (last, found) = read.await.map_err(|e| StoreError::Failed(e.to_string()))?.map_err(failed)?;
        self.after = last;
        Ok(found)
    }
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Busy(format!("the stream cannot be read: {error}"))
}

fn number(connection: &Connection, sql: &str, table: &str) -> rusqlite::Result<Option<i64>> {
    Ok(connection.prepare_cached(sql)?.query_row([table], |row| row.get(0)).optional()?.flatten())
}

/// The number of the last record, and the inserts after the one numbered `after`.
fn inserted(
    connection: &Connection,
    table: &str,
    prefix: &str,
    after: i64,
) -> rusqlite::Result<(i64, Inserted)> {
    // Of one state: what is trimmed between two statements would be missed unnoticed.
    let snapshot = connection.unchecked_transaction()?;
    let Some(last) = number(&snapshot, LAST, table)?.filter(|last| *last > after) else {
        return Ok((after, Inserted::default()));
    };
    let missed = number(&snapshot, FIRST, table)?.is_some_and(|first| first > after);
    let mut keys = Vec::new();
    let mut statement = snapshot.prepare_cached(INSERTED)?;
    // As it stands in the record, but for the quote at its end.
    let looks_like = Value::from(prefix).to_string();
    let looks_like = looks_like.trim_end_matches('"');
    let mut rows = statement.query(params![table, after, last, looks_like])?;
    while let Some(row) = rows.next()? {
        let found: Value = serde_json::from_str(row.get_ref(0)?.as_str()?).unwrap_or_default();
        let text = |name: &str| found[name]["S"].as_str();
        if let (Some(pk), Some(sk)) = (text("pk"), text("sk"))
            && pk.starts_with(prefix)
        {
            keys.push(Key::new(pk, sk));
        }
    }
    Ok((last, Inserted { keys, missed }))
}

#[cfg(test)]
mod tests;
