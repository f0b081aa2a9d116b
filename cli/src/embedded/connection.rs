//! Connections to the database's SQLite file that do not go through the database.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// A statement waits only for a process that recovers the file: this process has one writer at a time.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prepared statements cached for each connection: a few shapes of query for each table.
const STATEMENT_CACHE_SIZE: usize = 32;

/// Whether a connection may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    ReadOnly,
    ReadWrite,
}

/// Opens `file`, which exists, for one thread at a time.
pub fn open(file: &Path, mode: Mode) -> rusqlite::Result<Connection> {
    let mode = match mode {
        Mode::ReadOnly => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Mode::ReadWrite => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let connection = Connection::open_with_flags(file, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    Ok(connection)
}

/// Why no write can succeed until the user changes something, if `error` shows that; other errors are temporary.
pub fn unwritable_reason(error: &rusqlite::Error) -> Option<String> {
    let next = match error.sqlite_error_code()? {
        ErrorCode::DiskFull => "Free disk space",
        ErrorCode::ReadOnly | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen => {
            "Make the data directory and its disk writable for the server's user"
        }
        _ => return None,
    };
    Some(format!("The database cannot be written: {error}. {next}; the server recovers without a restart."))
}

/// Locks a connection or other state, also after a panic of its last holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_full_or_read_only_database_has_a_reason_and_other_errors_have_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("db");
        let database = Connection::open(&file).unwrap();
        database.execute_batch("CREATE TABLE t (a UNIQUE); PRAGMA max_page_count = 3").unwrap();
        let full = database.execute("INSERT INTO t VALUES (zeroblob(100000))", []).unwrap_err();
        assert!(unwritable_reason(&full).unwrap().contains("Free disk space"), "{full}");
        let insert = "INSERT INTO t VALUES (1)";
        database.execute(insert, []).unwrap();
        let twice = database.execute(insert, []).unwrap_err();
        assert_eq!(unwritable_reason(&twice), None, "{twice}");
        let read_only = open(&file, Mode::ReadOnly).unwrap().execute(insert, []).unwrap_err();
        assert!(unwritable_reason(&read_only).unwrap().contains("writable"), "{read_only}");
    }
}
