//! The write mark: the number of acknowledged writes, in the database and in a sidecar file.
//!
//! Triggers count the writes of both tables in the transaction of the write (`pennon_writes`), for every writer. After the
//! commit, and before the write is acknowledged, the number is written to `dynamodb.mark`. So the file is never ahead of the
//! database, and a database that is behind the file has lost acknowledged writes: it is an older copy, or its write-ahead
//! log was removed, truncated or damaged, which SQLite does not report.
//!
//! The file is written without fsync and synced every 10 seconds of writing: after `kill -9` it is exact; after a power cut it
//! may be 10 seconds behind, which only makes the check weaker. Must stay true: a mark that cannot be written or read
//! does not prevent a start.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pennon_core::config::StoreConfig;
use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use super::FILE;
use super::connection::{Mode, open};

/// The sidecar file's name, in the directory of the database.
pub const MARK: &str = "dynamodb.mark";
const SYNC_INTERVAL: Duration = Duration::from_secs(10);
const SELECT_NUMBER: &str = "SELECT number FROM pennon_writes";
const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS pennon_writes (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL);
    INSERT OR IGNORE INTO pennon_writes VALUES (1, 0);";

/// Writes the sidecar file after each commit.
#[derive(Debug)]
pub struct WriteMark {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    connection: Connection,
    /// The number in the file.
    written: u64,
    synced_at: Instant,
}

impl WriteMark {
    /// Installs the counters in the database of `directory`, and writes its current number to the file.
    pub fn start(directory: &Path) -> Result<WriteMark, String> {
        let path = directory.join(MARK);
        let database = directory.join(FILE);
        let unusable = |e: rusqlite::Error| format!("{} cannot be used: {e}", database.display());
        let connection = open(&database, Mode::ReadWrite).map_err(unusable)?;
        create_counter(&connection).map_err(unusable)?;
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let file = file.map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        let state = State { file, connection, written: u64::MAX, synced_at: Instant::now() };
        let mark = WriteMark { path, state: Mutex::new(state) };
        mark.update(true);
        Ok(mark)
    }

    /// Updates the file after a commit. The caller holds the write lock.
    pub fn record_commit(&self) {
        self.update(false);
    }

    fn update(&self, sync: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = state.update(sync) {
            tracing::warn!(%error, file = %self.path.display(), "the write mark could not be written");
        }
    }
}

impl State {
    fn update(&mut self, sync: bool) -> Result<(), String> {
        let number = self
            .connection
            .prepare_cached(SELECT_NUMBER)
            .and_then(|mut number| number.query_row([], |row| row.get(0)));
        let number: u64 = number.map_err(|e| e.to_string())?;
        if number == self.written {
            return Ok(());
        }
        self.file.write_all_at(encode(number).as_bytes(), 0).map_err(|e| e.to_string())?;
        self.written = number;
        if sync || self.synced_at.elapsed() >= SYNC_INTERVAL {
            self.file.sync_data().map_err(|e| e.to_string())?;
            self.synced_at = Instant::now();
        }
        Ok(())
    }
}

/// Creates the table of the number, and the triggers that increment it.
fn create_counter(connection: &Connection) -> rusqlite::Result<()> {
    let names = StoreConfig::local();
    let mut sql = format!("BEGIN IMMEDIATE; {CREATE_TABLE}");
    for (short, table) in [("records", names.records_table), ("blocks", names.blocks_table)] {
        for action in ["INSERT", "UPDATE", "DELETE"] {
            sql += &format!(
                "CREATE TRIGGER IF NOT EXISTS pennon_writes_{short}_{} AFTER {action} ON \"{table}\"
                 BEGIN UPDATE pennon_writes SET number = number + 1 WHERE one = 1; END;",
                action.to_lowercase()
            );
        }
    }
    connection.execute_batch(&(sql + "COMMIT;"))
}

/// The number in the database; `None` if no server has opened it yet.
pub(super) fn read_stored(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'pennon_writes'";
    if connection.query_row(sql, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    connection.query_row(SELECT_NUMBER, [], |row| row.get(0)).optional()
}

/// The number in the sidecar file of `directory`; `None` if the file is missing or incomplete, as after a power cut.
pub fn read(directory: &Path) -> Option<u64> {
    decode(&std::fs::read_to_string(directory.join(MARK)).ok()?)
}

/// How many acknowledged writes are missing from the database: `mark` is the file's number, `stored` the database's.
pub fn missing_writes(mark: Option<u64>, stored: Option<u64>) -> Option<u64> {
    mark?.checked_sub(stored.unwrap_or(0)).filter(|missing| *missing > 0)
}

fn encode(number: u64) -> String {
    let text = format!("pennon writes 1 {number:020}");
    let digest = Sha256::digest(&text);
    let digest = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{text} {digest}\n")
}

fn decode(text: &str) -> Option<u64> {
    let number = text.split(' ').nth(3)?.parse().ok()?;
    (encode(number) == text).then_some(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::embedded::Embedded;
    use pennon_core::store::round_trips::RoundTrips;
    use pennon_core::store::{Item, Key, Write, WriteCondition};

    #[test]
    fn a_mark_round_trips_and_a_truncated_or_changed_one_is_rejected() {
        for number in [0, 1, 987_654_321, u64::MAX] {
            let text = encode(number);
            assert_eq!(decode(&text), Some(number));
            for cut in 0..text.len() {
                assert_eq!(decode(&text[..cut]), None);
            }
        }
        assert_eq!(decode(&encode(12).replace("12", "13")), None);
    }

    #[test]
    fn only_a_database_that_is_behind_its_mark_has_lost_writes() {
        for (mark, stored, lost) in [
            (None, None, None),
            (None, Some(7), None),
            (Some(0), None, None),
            (Some(7), Some(7), None),
            (Some(7), Some(9), None),
            (Some(7), Some(4), Some(3)),
            (Some(7), None, Some(7)),
        ] {
            assert_eq!(missing_writes(mark, stored), lost, "{mark:?} {stored:?}");
        }
    }

    #[tokio::test]
    async fn writes_of_both_paths_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path()).await.unwrap();
        embedded.count_writes(directory.path()).unwrap();
        let item = |sk: &str| Item::empty(Key::new("P", sk));
        // Directly into the file, and through the database.
        for store in [embedded.store(None), embedded.store(Some(RoundTrips::new()))] {
            for table in [&store.records, &store.blocks] {
                let before = read(directory.path()).unwrap();
                table.put(item("a"), WriteCondition::None).await.unwrap();
                let after = read(directory.path()).unwrap();
                assert!(after > before);
                table.transact(vec![Write::Delete(item("a").key, WriteCondition::None)]).await.unwrap();
                let last = read(directory.path()).unwrap();
                assert!(last > after);
                let connection = open(&directory.path().join(FILE), Mode::ReadOnly).unwrap();
                assert_eq!(read_stored(&connection).unwrap(), Some(last));
            }
        }
    }
}
