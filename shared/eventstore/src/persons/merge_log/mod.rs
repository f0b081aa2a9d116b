//! Merges of persons that captured events ask for: a log, in the order in which they happened.
//!
//! A row of the log holds what one batch merged and is numbered; a row is written only if it is the next one, so there
//! are no gaps and who has read up to a number needs nothing but the rows after it ([`EventStore::merges_after`]): that
//! is the one small read by which a warm process proves what it remembers. Compaction folds the rows into one object
//! ([`fold`]), so that who remembers nothing reads that and the few rows since. Must stay true: a merge that was
//! acknowledged is in the log, once, until somebody whom it names is erased with all that is known of them ([`erase_merges_of`]);
//! but for that, merges only bring persons together, so rows of segments that were written under a person stay right.
//! What happens is decided in [`decide_merges`] alone.
//!
//! A row begins with `pnm1` and a CRC-32 (lowest byte first) of the project, its number and the merges behind it. Rows of
//! the releases before are the merges alone: they begin with their number, at most 30, which no flipped bit makes of a `p`.

mod append;
mod erasure;
pub(crate) mod folding;
mod merge_rules;

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Query};
use pennon_engine::scan::Micros;
use uuid::Uuid;

use crate::EventStore;
use crate::codec::{Reader, write_signed, write_unsigned};
use crate::error::EventStoreError;
use crate::keys;
use crate::persons::person_ids::Link;

pub(crate) use append::LogTails;
pub use append::MERGES_MAX;

/// A merge that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PersonMerge {
    pub link: Link,
    /// When the event that asked for it happened.
    pub time: Micros,
}

/// A row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergeLogRow {
    /// Its number; the first is 1.
    pub number: u64,
    pub merges: Vec<PersonMerge>,
}

/// The bytes of some merges.
fn encode(merges: &[PersonMerge]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + 40 * merges.len());
    write_unsigned(&mut out, merges.len() as u64);
    for PersonMerge { link, time } in merges {
        out.extend_from_slice(link.from.as_bytes());
        out.extend_from_slice(link.to.as_bytes());
        write_signed(&mut out, *time);
    }
    out
}

/// What [`encode`] wrote.
fn decode(bytes: &[u8]) -> Result<Vec<PersonMerge>, EventStoreError> {
    let mut reader = Reader::new(bytes);
    let mut merges = Vec::new();
    for _ in 0..reader.count()? {
        let from = Uuid::from_bytes(reader.array()?);
        let to = Uuid::from_bytes(reader.array()?);
        merges.push(PersonMerge { link: Link { from, to }, time: reader.signed()? });
    }
    if !reader.is_empty() {
        return Err(EventStoreError::corrupt("merges with something behind them"));
    }
    Ok(merges)
}

/// What a row with a checksum begins with; the digit is its format.
const ROW_MARK: &[u8; 4] = b"pnm1";

/// The bytes of row `number` of the log.
fn encode_row(project: ProjectId, number: u64, merges: &[PersonMerge]) -> Vec<u8> {
    let merges = encode(merges);
    let checksum = row_checksum(project, number, &merges).to_le_bytes();
    [&ROW_MARK[..], &checksum, &merges].concat()
}

/// What [`encode_row`] wrote, or a release before it.
fn decode_row(project: ProjectId, number: u64, bytes: &[u8]) -> Result<Vec<PersonMerge>, String> {
    let Some(rest) = bytes.strip_prefix(ROW_MARK) else {
        return decode(bytes).map_err(|error| error.to_string());
    };
    let (checksum, merges) = rest.split_first_chunk::<4>().ok_or("it is cut")?;
    if row_checksum(project, number, merges) != u32::from_le_bytes(*checksum) {
        return Err("its checksum does not fit".to_owned());
    }
    decode(merges).map_err(|error| error.to_string())
}

fn row_checksum(project: ProjectId, number: u64, merges: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(format!("{project}/{number}/").as_bytes());
    hasher.update(merges);
    hasher.finalize()
}

impl MergeLogRow {
    fn of(project: ProjectId, item: &Item) -> Result<MergeLogRow, EventStoreError> {
        let number = keys::merge_number(&item.key.sk)?;
        let merges = decode_row(project, number, &item.bytes).map_err(|what| EventStoreError::Damaged {
            object: format!("row {number} of the log of merged persons of project {project}"),
            what,
        })?;
        Ok(MergeLogRow { number, merges })
    }
}

impl EventStore {
    /// The rows of the log after the one with number `after`, in order. The first ones may be missing, because they
    /// have been folded: then they do not begin with `after + 1`.
    pub(crate) async fn merges_after(
        &self,
        project: ProjectId,
        after: u64,
    ) -> Result<Vec<MergeLogRow>, EventStoreError> {
        let mut query = Query::partition(keys::override_pk(project)).prefix(keys::MERGE);
        if after > 0 {
            query = query.after(keys::merge(project, after).sk);
        }
        let items = self.inner.store.records.query(query).await?;
        items.iter().map(|item| MergeLogRow::of(project, item)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_row_comes_back_and_every_flipped_bit_is_noticed() {
        let merged = |n: u128| PersonMerge {
            link: Link { from: Uuid::from_u128(n << 64), to: Uuid::from_u128(n + 1) },
            time: 1_700_000_000_000_000 + n as i64,
        };
        for count in [0, 1, 2, 15, 16, 17, 30] {
            let merges = (0..count).map(merged).collect::<Vec<_>>();
            let row = encode_row(7, 12, &merges);
            assert_eq!(decode_row(7, 12, &row).unwrap(), merges);
            assert_eq!(decode_row(7, 12, &encode(&merges)).unwrap(), merges, "of a release before");
            assert!(decode_row(7, 13, &row).is_err() && decode_row(8, 12, &row).is_err());
            for bit in 0..row.len() * 8 {
                let mut flipped = row.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(decode_row(7, 12, &flipped).is_err(), "{count} merges, bit {bit}");
            }
        }
    }

    #[test]
    fn merges_come_back_and_no_bytes_make_the_reader_panic() {
        let merged = |n: u128| PersonMerge {
            link: Link { from: Uuid::from_u128(n), to: Uuid::from_u128(n + 1) },
            time: if n == 0 { i64::MIN } else { n as i64 },
        };
        let merges = (0..5).map(merged).collect::<Vec<_>>();
        let bytes = encode(&merges);
        assert_eq!(decode(&bytes).unwrap(), merges);
        assert_eq!(decode(&encode(&[])).unwrap(), []);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err());
        }
        assert!(decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x55;
            let _ = decode(&changed);
        }
    }
}
