//! Connections to the database's SQLite file that do not go through the database.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

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

/// Locks a connection or other state, also after a panic of its last holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
