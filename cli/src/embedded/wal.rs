//! SQLite's write-ahead log, looked at before SQLite does.
//!
//! SQLite reads the log up to the first frame whose checksum does not fit and passes over all that follows: right after a
//! power cut, which leaves at most the one transaction that nobody was told of, and wrong where the log was damaged. Every
//! commit waits for the disk before the next one is written. So where a second commit, or any frame behind a first one,
//! follows the damage, an acknowledged transaction is lost. (Format: <https://www.sqlite.org/fileformat2.html#walformat>)

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const MAGIC: u32 = 0x377f_0682;
const PAGE_BYTES_MAX: usize = 65_536;

/// Where a log is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The first frame that cannot be read, from 1.
    pub frame: u64,
    /// Frames of the same log that follow it, and that SQLite would pass over.
    pub lost: u64,
}

/// The damage of the log at `path` that has certainly lost acknowledged transactions, if any.
pub fn damage(path: &Path) -> std::io::Result<Option<Damage>> {
    match File::open(path) {
        Ok(file) => damage_in(std::io::BufReader::with_capacity(1 << 20, file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn damage_in(mut log: impl Read) -> std::io::Result<Option<Damage>> {
    let mut header = [0; HEADER];
    if !filled(&mut log, &mut header)? {
        return Ok(None);
    }
    let page = word(&header, 8) as usize;
    let is_big = word(&header, 0) == MAGIC + 1;
    if word(&header, 0) & !1 != MAGIC || !(512..=PAGE_BYTES_MAX).contains(&page) || !page.is_power_of_two() {
        return Ok(None);
    }
    let sum = checksum((0, 0), &header[..24], is_big);
    let mut sum = (sum == (word(&header, 24), word(&header, 28))).then_some(sum);
    let salts = (word(&header, 16), word(&header, 20));
    let mut frame = vec![0; FRAME_HEADER + page];
    let (mut number, mut damaged, mut has_commit) = (0_u64, None, false);
    while filled(&mut log, &mut frame)? {
        number += 1;
        let is_of_log = (word(&frame, 8), word(&frame, 12)) == salts;
        if let Some(before) = sum {
            let now = checksum(checksum(before, &frame[..8], is_big), &frame[FRAME_HEADER..], is_big);
            sum = (is_of_log && now == (word(&frame, 16), word(&frame, 20))).then_some(now);
            if sum.is_some() {
                continue;
            }
        }
        // The rest of an earlier log, which this one has not come to yet, has other salts.
        let first = *damaged.get_or_insert(number);
        if is_of_log {
            // A commit with something behind it was on the disk before that was written.
            if has_commit {
                return rest(log, &mut frame, salts, first, number);
            }
            // What the damaged frame itself says is not to be relied on.
            has_commit = number > first && word(&frame, 4) != 0;
        }
    }
    Ok(None)
}

/// The damage, with all frames of the log that follow it.
fn rest(
    mut log: impl Read,
    frame: &mut [u8],
    salts: (u32, u32),
    first: u64,
    at: u64,
) -> std::io::Result<Option<Damage>> {
    let (mut number, mut last) = (at, at);
    while filled(&mut log, frame)? {
        number += 1;
        if (word(frame, 8), word(frame, 12)) == salts {
            last = number;
        }
    }
    Ok(Some(Damage { frame: first, lost: last - first + 1 }))
}

/// Fills `bytes`; false where the log ends before.
fn filled(log: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<bool> {
    match log.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_be_bytes(word.unwrap_or_default())
}

/// SQLite's checksum of `bytes`, a multiple of eight, behind those of `before`.
fn checksum(before: (u32, u32), bytes: &[u8], is_big: bool) -> (u32, u32) {
    let value = |word: [u8; 4]| if is_big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
    bytes.as_chunks::<4>().0.as_chunks::<2>().0.iter().fold(before, |(first, second), [a, b]| {
        let first = first.wrapping_add(value(*a)).wrapping_add(second);
        (first, second.wrapping_add(value(*b)).wrapping_add(first))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rusqlite::Connection;

    /// A log that SQLite wrote, of `commits` transactions of one page or two.
    fn log(commits: u32) -> (Vec<u8>, usize) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (v)")
            .unwrap();
        for _ in 1..commits {
            connection.execute("INSERT INTO t VALUES (zeroblob(3000))", []).unwrap();
        }
        let page = connection.query_row("PRAGMA page_size", [], |row| row.get::<_, usize>(0)).unwrap();
        let bytes = std::fs::read(directory.path().join("a-wal")).unwrap();
        (bytes, page + FRAME_HEADER)
    }

    fn found(log: &[u8]) -> Option<Damage> {
        damage_in(log).unwrap()
    }

    #[test]
    fn a_log_that_sqlite_wrote_is_whole_and_so_is_each_that_was_cut() {
        let (log, frame) = log(5);
        assert!(log.len() > HEADER + 5 * frame, "frames as expected");
        assert_eq!(found(&log), None);
        for length in (0..=log.len()).step_by(97) {
            assert_eq!(found(&log[..length]), None, "what was cut is for the mark to notice");
        }
    }

    #[test]
    fn damage_before_the_last_commit_is_found_and_of_the_last_one_it_may_be_a_power_cut() {
        let (log, frame) = log(6);
        let frames = (log.len() - HEADER) / frame;
        let commits = (0..frames).filter(|at| word(&log, HEADER + at * frame + 4) != 0).collect::<Vec<_>>();
        let before_last = commits[commits.len() - 2];
        for at in 0..frames {
            for inside in [4, 17, 30, frame - 1] {
                let mut damaged = log.clone();
                damaged[HEADER + at * frame + inside] ^= 0x10;
                let expected =
                    (at < before_last).then_some(Damage { frame: at as u64 + 1, lost: (frames - at) as u64 });
                assert_eq!(found(&damaged), expected, "frame {at}, byte {inside}");
            }
        }
    }

    #[test]
    fn the_rest_of_an_earlier_log_is_no_damage() {
        let directory = tempfile::tempdir().unwrap();
        let connection = Connection::open(directory.path().join("a")).unwrap();
        let many = "PRAGMA journal_mode = WAL; CREATE TABLE t (v)";
        connection.execute_batch(many).unwrap();
        for _ in 0..20 {
            connection.execute("INSERT INTO t VALUES (zeroblob(3000))", []).unwrap();
        }
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
        let log = std::fs::read(directory.path().join("a-wal")).unwrap();
        assert_eq!(found(&log), None);
    }
}
