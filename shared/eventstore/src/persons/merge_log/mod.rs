//! The log of captured person merges, in the order in which they happened.
//!
//! A row of the log holds the merges of one batch and a consecutive number. A row is written only if it is the
//! next one, so there are no gaps, and a process that has read up to a number needs only the later rows
//! ([`MergeLog::merges_after`]): that small read validates the cached state. Compaction folds rows into one
//! object ([`folding`]), which a cold process reads with the few later rows.
//!
//! Must stay true: an acknowledged merge is in the log, once, until one of its persons is erased ([`erasure`]);
//! otherwise merges are only added, so segments that were written under an older person stay valid. Which
//! merges are applied is decided in [`merge_rules`] alone.
//!
//! A row starts with `pnm1` and a CRC-32 (little-endian) of the project, the row number and the encoded merges.
//! Rows of earlier releases hold the encoded merges alone: their first byte is the number of merges, at most
//! 30, which no single flipped bit turns into a `p`.

mod append;
mod erasure;
mod folding;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod merge_rules;
mod queue;

use std::sync::Arc;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, PartitionQuery, Table};
use uuid::Uuid;

use crate::codec::{BinaryReader, write_signed, write_unsigned};
use crate::error::EventStoreError;
use crate::keys;
use crate::manifest::ManifestStore;
use crate::objects::Objects;
use crate::person_ids::PersonLink;
use crate::persons::imports::ImportedRecords;
use crate::settings::Settings;

use append::LogTails;
pub use append::MERGES_MAX;

/// An applied merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PersonMerge {
    pub link: PersonLink,
    /// Timestamp of the event that requested it.
    pub time: Micros,
}

/// A row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergeLogRow {
    /// Its number; the first is 1.
    pub number: u64,
    pub merges: Vec<PersonMerge>,
}

/// Encodes merges.
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

/// Decodes merges.
fn decode(bytes: &[u8]) -> Result<Vec<PersonMerge>, EventStoreError> {
    let mut reader = BinaryReader::new(bytes);
    let mut merges = Vec::new();
    for _ in 0..reader.count()? {
        let from = Uuid::from_bytes(reader.array()?);
        let to = Uuid::from_bytes(reader.array()?);
        merges.push(PersonMerge { link: PersonLink { from, to }, time: reader.signed()? });
    }
    if !reader.is_empty() {
        return Err(EventStoreError::corrupt("merges with something behind them"));
    }
    Ok(merges)
}

/// Prefix of a row with a checksum; the digit is the format.
const ROW_MARK: &[u8; 4] = b"pnm1";

/// Encodes row `number` of the log.
fn encode_row(project: ProjectId, number: u64, merges: &[PersonMerge]) -> Vec<u8> {
    let merges = encode(merges);
    let checksum = row_checksum(project, number, &merges).to_le_bytes();
    [&ROW_MARK[..], &checksum, &merges].concat()
}

/// Decodes a row of this or an earlier release.
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

/// The merge logs of all projects.
#[derive(Debug)]
pub(crate) struct MergeLog {
    records: Table,
    manifests: Arc<ManifestStore>,
    objects: Objects,
    imports: Arc<ImportedRecords>,
    /// [`Settings::merge_rows_left`].
    rows_left: usize,
    tails: LogTails,
}

impl MergeLog {
    pub(crate) fn new(
        records: Table,
        manifests: Arc<ManifestStore>,
        objects: Objects,
        imports: Arc<ImportedRecords>,
        settings: &Settings,
    ) -> MergeLog {
        let rows_left = settings.merge_rows_left;
        MergeLog { records, manifests, objects, imports, rows_left, tails: LogTails::default() }
    }

    /// Which of `persons` have an identified marker, in order.
    pub(crate) async fn are_identified(
        &self,
        project: ProjectId,
        persons: &[Uuid],
    ) -> Result<Vec<bool>, EventStoreError> {
        let rows = persons.iter().map(|person| keys::identified(project, *person)).collect::<Vec<_>>();
        let found = self.records.batch_get(&rows).await?;
        Ok(found.iter().map(Option::is_some).collect())
    }

    /// Reads the rows of the log after number `after`, in order. The first ones may be missing because they
    /// were folded; then the result does not start with `after + 1`.
    pub(crate) async fn merges_after(
        &self,
        project: ProjectId,
        after: u64,
    ) -> Result<Vec<MergeLogRow>, EventStoreError> {
        let mut query = PartitionQuery::partition(keys::override_pk(project)).prefix(keys::MERGE);
        if after > 0 {
            query = query.after(keys::merge(project, after).sk);
        }
        let items = self.records.query(query).await?;
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
            link: PersonLink { from: Uuid::from_u128(n << 64), to: Uuid::from_u128(n + 1) },
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
            link: PersonLink { from: Uuid::from_u128(n), to: Uuid::from_u128(n + 1) },
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
