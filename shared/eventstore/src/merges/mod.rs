//! Merges of persons that captured events ask for: a log, in the order in which they happened.
//!
//! A row of the log holds what one batch merged and is numbered; a row is written only if it is the next one, so there
//! are no gaps and who has read up to a number needs nothing but the rows after it ([`EventStore::merges_after`]): that
//! is the one small read by which a warm process proves what it remembers. Compaction folds the rows into one object
//! ([`fold`]), so that who remembers nothing reads that and the few rows since. Must stay true: a merge that was
//! acknowledged is in the log, once, until somebody whom it names is erased with all that is known of them ([`forget`]);
//! but for that, merges only bring persons together, so rows of segments that were written under a person stay right.
//! What happens is decided in [`judge`] alone.

pub(crate) mod fold;
mod forget;
mod judge;
mod write;

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Query};
use pennon_engine::scan::Micros;
use uuid::Uuid;

use crate::EventStore;
use crate::codec::{Reader, write_signed, write_unsigned};
use crate::error::EventStoreError;
use crate::keys;
use crate::person::Link;

pub use write::MERGES_MAX;
pub(crate) use write::Tails;

/// A merge that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merged {
    pub link: Link,
    /// When the event that asked for it happened.
    pub time: Micros,
}

/// A row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergeRow {
    /// Its number; the first is 1.
    pub number: u64,
    pub merges: Vec<Merged>,
}

/// The bytes of some merges.
fn encode(merges: &[Merged]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + 40 * merges.len());
    write_unsigned(&mut out, merges.len() as u64);
    for Merged { link, time } in merges {
        out.extend_from_slice(link.from.as_bytes());
        out.extend_from_slice(link.to.as_bytes());
        write_signed(&mut out, *time);
    }
    out
}

/// What [`encode`] wrote.
fn decode(bytes: &[u8]) -> Result<Vec<Merged>, EventStoreError> {
    let mut reader = Reader::new(bytes);
    let mut merges = Vec::new();
    for _ in 0..reader.count()? {
        let from = Uuid::from_bytes(reader.array()?);
        let to = Uuid::from_bytes(reader.array()?);
        merges.push(Merged { link: Link { from, to }, time: reader.signed()? });
    }
    if !reader.is_empty() {
        return Err(EventStoreError::corrupt("merges with something behind them"));
    }
    Ok(merges)
}

impl MergeRow {
    fn of(item: &Item) -> Result<MergeRow, EventStoreError> {
        Ok(MergeRow { number: keys::merge_number(&item.key.sk)?, merges: decode(&item.bytes)? })
    }
}

impl EventStore {
    /// The rows of the log after the one with number `after`, in order. The first ones may be missing, because they
    /// have been folded: then they do not begin with `after + 1`.
    pub(crate) async fn merges_after(
        &self,
        project: ProjectId,
        after: u64,
    ) -> Result<Vec<MergeRow>, EventStoreError> {
        let mut query = Query::partition(keys::override_pk(project)).prefix(keys::MERGE);
        if after > 0 {
            query = query.after(keys::merge(project, after).sk);
        }
        let items = self.inner.store.records.query(query).await?;
        items.iter().map(MergeRow::of).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn merges_come_back_and_no_bytes_make_the_reader_panic() {
        let merged = |n: u128| Merged {
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
