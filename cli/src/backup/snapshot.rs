//! The tables at one moment: SQLite copies what one read transaction sees, while others read and write.
//!
//! Must stay true: the copy is one file, with nothing of it in a log beside it, and SQLite has found it whole.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

/// A copy waits for nobody but a process that recovers the file.
const PATIENCE: Duration = Duration::from_secs(30);

/// Copies the tables in `from` into a new file at `to`: all that was committed before this is called, and of what is
/// committed later a transaction is there whole or not at all.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // Read-only, a file that a killed process left could not be recovered.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copied = Connection::open_with_flags(from, flags).and_then(|connection| {
        connection.busy_timeout(PATIENCE)?;
        // A log that is damaged stays as it is, for whoever is to look at it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.execute("VACUUM INTO ?1", [to.to_string_lossy()]).map(|_| ())
    });
    copied.map_err(|e| format!("{} cannot be copied: {e}", from.display()))
}

/// Makes `file`, which nobody has open any more, one file again, and has SQLite look through all of it.
pub(super) fn settle(file: &Path) -> Result<(), String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let told = Connection::open_with_flags(file, flags).and_then(|connection| {
        // Both refuse while somebody has the file open.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0))
    });
    match told.map_err(|e| format!("{} cannot be read: {e}", file.display()))?.as_str() {
        "ok" => Ok(()),
        what => Err(format!("{} is damaged: {what}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_copy_has_what_was_committed_and_a_damaged_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        let writer = Connection::open(&from).unwrap();
        let made = "PRAGMA journal_mode = WAL; CREATE TABLE t (v TEXT UNIQUE);
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
            INSERT INTO t SELECT 'value ' || i FROM n; BEGIN; INSERT INTO t VALUES ('not committed')";
        writer.execute_batch(made).unwrap();
        copy(&from, &to).unwrap();
        settle(&to).unwrap();
        let count = |file: &Path| -> i64 {
            Connection::open(file).unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
        };
        assert_eq!(count(&to), 2000);
        assert!(copy(&from, &to).is_err(), "nothing is written over");
        let mut bytes = std::fs::read(&to).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 4096].fill(0x55);
        std::fs::write(&to, bytes).unwrap();
        assert!(settle(&to).is_err());
    }
}
