//! Finds damage in SQLite's write-ahead log before SQLite reads it.
//!
//! SQLite reads the log up to the first frame with a wrong checksum and ignores the rest. That is right after a power cut,
//! which cuts at most one unacknowledged transaction, and wrong if the log was damaged. Every commit waits for the disk
//! before the next one is written. So if a commit frame and any further frame follow the damage, an acknowledged transaction
//! is lost. (Format: <https://www.sqlite.org/fileformat2.html#walformat>)

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0x377f_0682;
const PAGE_BYTES_MAX: usize = 65_536;

/// The damage of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogDamage {
    /// The first frame that cannot be read, from 1.
    pub frame: u64,
    /// Frames of the same log from there on, which SQLite would ignore.
    pub lost: u64,
}

/// The damage of the log at `path` that has certainly lost acknowledged transactions, if any.
pub fn find_damage(path: &Path) -> std::io::Result<Option<LogDamage>> {
    match File::open(path) {
        Ok(file) => scan_log(std::io::BufReader::with_capacity(1 << 20, file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn scan_log(mut log: impl Read) -> std::io::Result<Option<LogDamage>> {
    let mut header = [0; HEADER_BYTES];
    if !read_full(&mut log, &mut header)? {
        return Ok(None);
    }
    let page = read_u32(&header, 8) as usize;
    let is_big_endian = read_u32(&header, 0) == MAGIC + 1;
    if read_u32(&header, 0) & !1 != MAGIC
        || !(512..=PAGE_BYTES_MAX).contains(&page)
        || !page.is_power_of_two()
    {
        return Ok(None);
    }
    let sum = checksum((0, 0), &header[..24], is_big_endian);
    let mut valid_sum = (sum == (read_u32(&header, 24), read_u32(&header, 28))).then_some(sum);
    let salts = (read_u32(&header, 16), read_u32(&header, 20));
    let mut frame = vec![0; FRAME_HEADER_BYTES + page];
    let (mut number, mut damaged, mut has_commit) = (0_u64, None, false);
    while read_full(&mut log, &mut frame)? {
        number += 1;
        let is_of_log = (read_u32(&frame, 8), read_u32(&frame, 12)) == salts;
        if let Some(before) = valid_sum {
            let now = checksum(
                checksum(before, &frame[..8], is_big_endian),
                &frame[FRAME_HEADER_BYTES..],
                is_big_endian,
            );
            valid_sum = (is_of_log && now == (read_u32(&frame, 16), read_u32(&frame, 20))).then_some(now);
            if valid_sum.is_some() {
                continue;
            }
        }
        // Frames of an earlier log, which this one has not overwritten yet, have other salts.
        let first = *damaged.get_or_insert(number);
        if is_of_log {
            // A commit that is followed by another frame had reached the disk before.
            if has_commit {
                return count_lost_frames(log, &mut frame, salts, first, number);
            }
            // The commit flag of the damaged frame itself is not reliable.
            has_commit = number > first && read_u32(&frame, 4) != 0;
        }
    }
    Ok(None)
}

/// The damage at frame `first`, with the number of lost frames; `at` is the number of frames that were read.
fn count_lost_frames(
    mut log: impl Read,
    frame: &mut [u8],
    salts: (u32, u32),
    first: u64,
    at: u64,
) -> std::io::Result<Option<LogDamage>> {
    let (mut number, mut last) = (at, at);
    while read_full(&mut log, frame)? {
        number += 1;
        if (read_u32(frame, 8), read_u32(frame, 12)) == salts {
            last = number;
        }
    }
    Ok(Some(LogDamage { frame: first, lost: last - first + 1 }))
}

/// Fills `bytes`; false if the log ends before.
fn read_full(log: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<bool> {
    match log.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_be_bytes(word.unwrap_or_default())
}

/// SQLite's cumulative checksum: that of `bytes`, a multiple of eight, after the checksum `before`.
fn checksum(before: (u32, u32), bytes: &[u8], is_big_endian: bool) -> (u32, u32) {
    let value =
        |word: [u8; 4]| if is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
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
        (bytes, page + FRAME_HEADER_BYTES)
    }

    fn damage_of(log: &[u8]) -> Option<LogDamage> {
        scan_log(log).unwrap()
    }

    #[test]
    fn an_intact_or_truncated_log_is_not_damaged() {
        let (log, frame) = log(5);
        assert!(log.len() > HEADER_BYTES + 5 * frame, "frames as expected");
        assert_eq!(damage_of(&log), None);
        for length in (0..=log.len()).step_by(97) {
            assert_eq!(damage_of(&log[..length]), None, "the write mark detects truncation");
        }
    }

    #[test]
    fn only_damage_before_the_last_commit_is_reported() {
        let (log, frame) = log(6);
        let frames = (log.len() - HEADER_BYTES) / frame;
        let commits =
            (0..frames).filter(|at| read_u32(&log, HEADER_BYTES + at * frame + 4) != 0).collect::<Vec<_>>();
        let before_last = commits[commits.len() - 2];
        for at in 0..frames {
            for inside in [4, 17, 30, frame - 1] {
                let mut damaged = log.clone();
                damaged[HEADER_BYTES + at * frame + inside] ^= 0x10;
                let expected = (at < before_last)
                    .then_some(LogDamage { frame: at as u64 + 1, lost: (frames - at) as u64 });
                assert_eq!(damage_of(&damaged), expected, "frame {at}, byte {inside}");
            }
        }
    }

    #[test]
    fn frames_of_an_earlier_log_are_no_damage() {
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
        assert_eq!(damage_of(&log), None);
    }
}
