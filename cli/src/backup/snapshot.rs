//! A consistent copy of the tables: SQLite copies the view of one read transaction, while others read and write.
//!
//! Must stay true: the final copy is one file without a write-ahead log, and has passed SQLite's integrity check.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

/// A copy waits only for a process that recovers the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Copies the tables in `from` into a new file at `to`: all earlier commits, and a concurrent transaction completely or not at
/// all.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // A read-only connection could not recover a file that a killed process left.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copied = Connection::open_with_flags(from, flags).and_then(|connection| {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Do not checkpoint: a damaged log stays as it is for analysis.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.execute("VACUUM INTO ?1", [to.to_string_lossy()]).map(|_| ())
    });
    copied.map_err(|e| format!("{} cannot be copied: {e}", from.display()))
}

/// Moves the write-ahead log into `file`, which no process may have open, and checks the integrity of the whole file.
pub(super) fn finalize(file: &Path) -> Result<(), String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let result = Connection::open_with_flags(file, flags).and_then(|connection| {
        // Both fail while another connection has the file open.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0))
    });
    match result.map_err(|e| format!("{} cannot be read: {e}", file.display()))?.as_str() {
        "ok" => Ok(()),
        damage => Err(format!("{} is damaged: {damage}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_copy_has_all_commits_and_a_damaged_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        let writer = Connection::open(&from).unwrap();
        let made = "PRAGMA journal_mode = WAL; CREATE TABLE t (v TEXT UNIQUE);
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
            INSERT INTO t SELECT 'value ' || i FROM n; BEGIN; INSERT INTO t VALUES ('not committed')";
        writer.execute_batch(made).unwrap();
        copy(&from, &to).unwrap();
        finalize(&to).unwrap();
        let count = |file: &Path| -> i64 {
            Connection::open(file).unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
        };
        assert_eq!(count(&to), 2000);
        assert!(copy(&from, &to).is_err(), "nothing is written over");
        let mut bytes = std::fs::read(&to).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 4096].fill(0x55);
        std::fs::write(&to, bytes).unwrap();
        assert!(finalize(&to).is_err());
    }
}
