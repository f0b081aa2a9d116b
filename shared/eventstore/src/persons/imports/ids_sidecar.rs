//! Sidecar file of an import of persons: the person ids derived from the distinct ids of each record.
//!
//! Per record, in order: 4 bytes, the number of its distinct ids (little-endian); then 16 bytes for each
//! derived person id. Must stay true: it matches the column `distinct_ids` of the records. With it, merges are
//! computed without Parquet, so the capture function does not link a Parquet reader.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use pennon_core::store::StoreError;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::ImportedRecords;
use crate::error::EventStoreError;
use crate::manifest::RecordsEntry;
use crate::person_ids::PersonLink;

/// Bytes of a count.
const COUNT: usize = 4;
/// Bytes of an id.
const ID: usize = 16;

/// Reads the ids from records without a sidecar, which an earlier release imported.
pub(crate) type LegacyIdsReader = for<'a> fn(
    &'a ImportedRecords,
    ProjectId,
    &'a RecordsEntry,
) -> BoxFuture<'a, Result<RecordIds, EventStoreError>>;

/// The person ids of the records of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RecordIds {
    /// Start of each record in `ids`.
    starts: Vec<u32>,
    ids: Vec<Uuid>,
}

impl RecordIds {
    /// Adds the next record.
    pub(crate) fn push(&mut self, ids: impl Iterator<Item = Uuid>) {
        self.starts.push(self.ids.len() as u32);
        self.ids.extend(ids);
    }

    /// The person ids of each record, in order of the records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &[Uuid]> {
        self.records_from(0)
    }

    /// The ids of the records from number `first` on.
    pub(crate) fn records_from(&self, first: usize) -> impl Iterator<Item = &[Uuid]> {
        let starts = self.starts.get(first..).unwrap_or_default();
        let ends = starts.iter().skip(1).copied().chain([self.ids.len() as u32]);
        starts.iter().zip(ends).map(|(start, end)| &self.ids[*start as usize..end as usize])
    }

    /// The ids of the records that stay.
    pub(crate) fn kept(&self, stays: &[bool]) -> RecordIds {
        let mut kept = RecordIds::default();
        let records = self.records().zip(stays).filter(|(_, stays)| **stays);
        records.for_each(|(ids, _)| kept.push(ids.iter().copied()));
        kept
    }

    /// Bytes in memory and in the object.
    pub(crate) fn bytes(&self) -> usize {
        self.starts.len() * COUNT + self.ids.len() * ID
    }

    /// Encodes the sidecar.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.bytes());
        for ids in self.records() {
            bytes.put_u32_le(ids.len() as u32);
            ids.iter().for_each(|id| bytes.put_slice(id.as_bytes()));
        }
        bytes.freeze()
    }

    /// Decodes the sidecar of `records` records.
    pub(crate) fn decode(mut bytes: &[u8], records: u64) -> Result<RecordIds, EventStoreError> {
        let mut read = RecordIds::default();
        while let Some((count, rest)) = bytes.split_first_chunk::<COUNT>() {
            let length = (u32::from_le_bytes(*count) as usize).checked_mul(ID);
            let split = length.and_then(|length| rest.split_at_checked(length));
            let (ids, rest) = split.ok_or_else(|| EventStoreError::corrupt("ids of records are cut off"))?;
            read.push(ids.as_chunks::<ID>().0.iter().map(|id| Uuid::from_bytes(*id)));
            bytes = rest;
        }
        if !bytes.is_empty() || read.starts.len() as u64 != records {
            return Err(EventStoreError::corrupt("ids are not those of the records"));
        }
        Ok(read)
    }
}

/// The links of the records of `imports`, oldest first: the ids of one record are one person.
pub(crate) fn links(imports: &[Arc<RecordIds>]) -> Vec<PersonLink> {
    let mut known = HashSet::new();
    let mut links = Vec::new();
    for ids in imports.iter().flat_map(|import| import.records()) {
        let Some(to) = ids.iter().find(|id| known.contains(*id)).or(ids.first()).copied() else { continue };
        links.extend(ids.iter().filter(|id| **id != to).map(|from| PersonLink { from: *from, to }));
        known.extend(ids.iter().copied());
    }
    links
}

impl ImportedRecords {
    /// Reads the person ids of an import, from the cache if possible.
    pub(crate) async fn record_ids(
        &self,
        project: ProjectId,
        entry: &RecordsEntry,
    ) -> Result<Arc<RecordIds>, EventStoreError> {
        if let Some(known) = self.record_ids.get(&entry.object) {
            return Ok(known);
        }
        let read = match (entry.ids(), self.read_legacy_ids) {
            (Some(name), _) => {
                let (bytes, records) = (self.objects.get(&name).await?, entry.rows);
                tokio::task::spawn_blocking(move || RecordIds::decode(&bytes, records)).await??
            }
            (None, Some(read_legacy_ids)) => read_legacy_ids(self, project, entry).await?,
            (None, None) => {
                let text = "persons that an earlier release imported wait for compaction: pennon compact";
                return Err(StoreError::Busy(text.to_owned()).into());
            }
        };
        let read = Arc::new(read);
        self.record_ids.put(&entry.object, read.clone());
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_come_back_and_bytes_of_others_do_not() {
        let mut ids = RecordIds::default();
        let one = |n| Uuid::from_u128(n);
        ids.push([one(1), one(2)].into_iter());
        ids.push([].into_iter());
        ids.push([one(3)].into_iter());
        let bytes = ids.encode();
        assert_eq!(bytes.len(), 3 * 4 + 3 * 16);
        assert_eq!((&bytes[..4], bytes[19], bytes[35]), (&[2, 0, 0, 0][..], 1, 2));
        assert_eq!(RecordIds::decode(&bytes, 3).unwrap(), ids);
        assert_eq!(ids.kept(&[true, true, false]).records().map(<[_]>::len).collect::<Vec<_>>(), [2, 0]);
        for end in 0..bytes.len() {
            assert!(RecordIds::decode(&bytes[..end], 3).is_err(), "{end}");
        }
        assert!(RecordIds::decode(&bytes, 2).is_err());
        assert!(RecordIds::decode(&[255; 64], 1).is_err());
        assert_eq!(RecordIds::decode(&[], 0).unwrap(), RecordIds::default());
    }
}
