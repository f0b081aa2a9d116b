//! Looking at the database before anything opens it to write.
//!
//! SQLite makes a database where there is none, removes the log beside an empty one, and passes over what it cannot read of
//! a log. Each is right for a new database and destroys an old one. Must stay true: nothing is changed here, so that what is
//! refused can be put in order; what a killed process leaves behind passes.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{FILE, wal, write_mark};

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const PATIENCE: Duration = Duration::from_secs(5);

/// How closely is looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thoroughness {
    /// At what costs nothing.
    Quick,
    /// At every page too.
    EveryPage,
}

/// A sentence where the database in `directory` is not what it was when it was last written, or is missing although there
/// are `events`.
pub fn examine(directory: &Path, events: &Path, how: Thoroughness) -> Result<(), String> {
    let file = directory.join(FILE);
    let refused = |what: String| Err(sentence(&file, &what));
    let log = directory.join(format!("{FILE}-wal"));
    let (mark, log_bytes) = (write_mark::read(directory), std::fs::metadata(&log).map_or(0, |log| log.len()));
    let size = match std::fs::metadata(&file) {
        Ok(found) => Some(found.len()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return refused(format!("it cannot be read: {error}")),
    };
    if size.unwrap_or(0) == 0 {
        let what = if size.is_none() { "it is missing" } else { "it is empty" };
        return if mark.is_some_and(|mark| mark > 0) {
            refused(format!("{what}, and {} beside it counts {} writes", write_mark::MARK, mark.unwrap_or(0)))
        } else if has_file(events) {
            refused(format!("{what}, and {} holds stored events", events.display()))
        } else if log_bytes > 0 {
            refused(format!("{what}, and its write-ahead log {} is there", log.display()))
        } else {
            Ok(())
        };
    }
    let mut magic = [0; 16];
    let read = std::fs::File::open(&file).and_then(|mut file| file.read_exact(&mut magic));
    if read.is_err() || &magic != MAGIC {
        return refused("it is not a database, or its beginning is damaged".to_owned());
    }
    match wal::damage(&log) {
        Ok(None) => {}
        Ok(Some(damage)) => {
            return refused(format!(
                "its write-ahead log {} is damaged at frame {}: {} frames from there on cannot be read, and with them writes \
                 that were acknowledged",
                log.display(),
                damage.frame,
                damage.lost
            ));
        }
        Err(error) => {
            return refused(format!("its write-ahead log {} cannot be read: {error}", log.display()));
        }
    }
    let stored = match look(&file, how) {
        Ok(Ok(stored)) => stored,
        Ok(Err(what)) => return refused(format!("it is damaged: {what}")),
        Err(error) => return refused(format!("it cannot be read: {error}")),
    };
    match write_mark::missing(mark, stored) {
        None => Ok(()),
        Some(missing) => refused(format!(
            "{missing} acknowledged writes are missing: {} beside it counts {} and the database holds {}. It is an older copy, \
             or its write-ahead log {} was removed, cut or damaged",
            write_mark::MARK,
            mark.unwrap_or(0),
            stored.unwrap_or(0),
            log.display()
        )),
    }
}

/// The number of writes that the database at `file` holds; or what is wrong with its pages.
fn look(file: &Path, how: Thoroughness) -> rusqlite::Result<Result<Option<u64>, String>> {
    // To write, because the index of a log that was left by a killed process has to be made anew.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let stored = write_mark::stored(&connection)?;
    if how == Thoroughness::EveryPage {
        let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            return Ok(Err(found));
        }
    }
    Ok(Ok(stored))
}

/// The number of writes that the database at `file`, which nothing has open, holds.
pub fn writes_in(file: &Path) -> Result<Option<u64>, String> {
    match look(file, Thoroughness::Quick) {
        Ok(stored) => stored,
        Err(error) => Err(error.to_string()),
    }
}

/// Whether there is any file below `directory`.
pub fn has_file(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| if path.is_dir() { has_file(&path) } else { true })
}

/// What is wrong with `file`, and what to do.
pub fn sentence(file: &Path, what: &str) -> String {
    format!(
        "the database {}: {what}. Nothing was changed. Put back the database that belongs here together with its \
         -wal file, restore a backup (`pennon restore BACKUP --data NEW_DIRECTORY`), or name another directory with --data. To go on \
         with the tables as they are, run `pennon adopt`: it keeps all event files that they do not know",
        file.display()
    )
}
