//! Checks the database file before anything opens it for writing.
//!
//! SQLite creates a missing database, deletes the log of an empty one, and ignores the part of a log that it cannot read.
//! Each is right for a new database and destroys an old one. Must stay true: nothing is changed here, so that a rejected
//! database can be repaired; the files that a killed process leaves pass.

use std::io::Read;
use std::path::Path;

use rusqlite::config::DbConfig;

use super::connection::{Mode, open};
use super::{FILE, wal, write_mark};

const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// How much of the database is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thoroughness {
    /// The file's header, the write-ahead log and the write mark.
    Quick,
    /// Every page too, by SQLite's `quick_check`.
    EveryPage,
}

/// Checks that the database in `directory` has all acknowledged writes and is not damaged, and that it exists if there are
/// files in `events`. The error names the problem and the next step.
pub fn check_database(directory: &Path, events: &Path, thoroughness: Thoroughness) -> Result<(), String> {
    let file = directory.join(FILE);
    let refused = |problem: String| Err(damage_message(&file, &problem));
    let log = directory.join(format!("{FILE}-wal"));
    let (mark, log_bytes) = (write_mark::read(directory), std::fs::metadata(&log).map_or(0, |log| log.len()));
    let size = match std::fs::metadata(&file) {
        Ok(metadata) => Some(metadata.len()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return refused(format!("it cannot be read: {error}")),
    };
    if size.unwrap_or(0) == 0 {
        let problem = if size.is_none() { "it is missing" } else { "it is empty" };
        return if mark.is_some_and(|mark| mark > 0) {
            refused(format!(
                "{problem}, and {} beside it counts {} writes",
                write_mark::MARK,
                mark.unwrap_or(0)
            ))
        } else if has_file(events) {
            refused(format!("{problem}, and {} holds stored events", events.display()))
        } else if log_bytes > 0 {
            refused(format!("{problem}, and its write-ahead log {} is there", log.display()))
        } else {
            Ok(())
        };
    }
    let mut magic = [0; 16];
    let read = std::fs::File::open(&file).and_then(|mut file| file.read_exact(&mut magic));
    if read.is_err() || &magic != MAGIC {
        return refused("it is not a database, or its beginning is damaged".to_owned());
    }
    match wal::find_damage(&log) {
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
    let stored = match inspect(&file, thoroughness) {
        Ok(Ok(stored)) => stored,
        Ok(Err(damage)) => return refused(format!("it is damaged: {damage}")),
        Err(error) => return refused(format!("it cannot be read: {error}")),
    };
    match write_mark::missing_writes(mark, stored) {
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

/// The write count that is stored in the database at `file`, or the damage that `quick_check` finds.
fn inspect(file: &Path, thoroughness: Thoroughness) -> rusqlite::Result<Result<Option<u64>, String>> {
    // Opened for writing, because SQLite has to rebuild the index of a log that a killed process left.
    let connection = open(file, Mode::ReadWrite)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let stored = write_mark::read_stored(&connection)?;
    if thoroughness == Thoroughness::EveryPage {
        let result: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if result != "ok" {
            return Ok(Err(result));
        }
    }
    Ok(Ok(stored))
}

/// The write count that is stored in the database at `file`, which no process may have open.
pub fn stored_write_count(file: &Path) -> Result<Option<u64>, String> {
    match inspect(file, Thoroughness::Quick) {
        Ok(stored) => stored,
        Err(error) => Err(error.to_string()),
    }
}

/// Whether `directory` has a file, at any depth.
pub fn has_file(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| if path.is_dir() { has_file(&path) } else { true })
}

/// The error message for a `problem` of the database `file`, with what to do.
pub fn damage_message(file: &Path, problem: &str) -> String {
    format!(
        "the database {}: {problem}. Nothing was changed. Put back the database that belongs here together with its \
         -wal file, restore a backup (`pennon restore BACKUP --data NEW_DIRECTORY`), or name another directory with --data. To go on \
         with the tables as they are, run `pennon adopt`: it keeps all event files that they do not know",
        file.display()
    )
}
