//! Reads partitions of the records table row by row, past rows that cannot be decoded.
//!
//! Must stay true: nothing is written; every read is strongly consistent; one damaged row hides no other.

use std::collections::BTreeMap;

use futures::StreamExt;
use pennon_core::store::{Item, Key, KeyRange, PartitionQuery, RangeEnd, StoreError, Table};

/// Partitions that are read at once.
const PARALLEL_READS: usize = 16;

/// A reader of the records table. Counts the rows, and keeps those that it could not decode.
#[derive(Debug)]
pub struct Reader<'a> {
    records: &'a Table,
    /// The number of rows that were read.
    pub rows: usize,
    /// The rows that could not be decoded, with the causes.
    pub unreadable: BTreeMap<Key, String>,
}

/// The rows of one partition.
#[derive(Debug, Default)]
struct Partition {
    items: Vec<Item>,
    unreadable: Vec<(Key, String)>,
}

impl<'a> Reader<'a> {
    /// A reader of `records`.
    pub fn new(records: &'a Table) -> Reader<'a> {
        Reader { records, rows: 0, unreadable: BTreeMap::new() }
    }

    /// Calls `visit` with every row of the partition `pk`. A row for which it returns an error is kept as one that cannot be
    /// decoded.
    pub async fn visit_partition(
        &mut self,
        pk: &str,
        mut visit: impl FnMut(&Item) -> Result<(), String>,
    ) -> Result<(), String> {
        let query = PartitionQuery::partition(pk);
        let mut start = None;
        loop {
            let page = match self.records.page(&query, start).await {
                Ok(page) => page,
                Err(StoreError::Corrupt(_) | StoreError::Busy(_)) => {
                    let partition = read_each(self.records, pk).await?;
                    self.visit(partition, &mut visit);
                    return Ok(());
                }
                Err(error) => return Err(error.to_string()),
            };
            self.visit(Partition { items: page.items, unreadable: Vec::new() }, &mut visit);
            start = page.next;
            if start.is_none() {
                return Ok(());
            }
        }
    }

    /// As [`Reader::visit_partition`], for many small partitions.
    pub async fn visit_partitions(
        &mut self,
        pks: Vec<String>,
        mut visit: impl FnMut(&Item) -> Result<(), String>,
    ) -> Result<(), String> {
        let records = self.records;
        let reads: Vec<_> = pks.into_iter().map(|pk| read_partition(records, pk)).collect();
        let mut reads = futures::stream::iter(reads).buffered(PARALLEL_READS);
        while let Some(partition) = reads.next().await {
            self.visit(partition?, &mut visit);
        }
        Ok(())
    }

    /// The rows at `keys` that exist and could be decoded.
    pub async fn get_all(&mut self, keys: Vec<Key>) -> Result<BTreeMap<Key, Item>, String> {
        let mut found = BTreeMap::new();
        for batch in keys.chunks(100) {
            let partition = match self.records.batch_get(batch).await {
                Ok(items) => {
                    Partition { items: items.into_iter().flatten().collect(), unreadable: Vec::new() }
                }
                Err(StoreError::Corrupt(_) | StoreError::Busy(_)) => {
                    get_each(self.records, batch.to_vec()).await?
                }
                Err(error) => return Err(error.to_string()),
            };
            self.visit(partition, &mut |item| {
                found.insert(item.key.clone(), item.clone());
                Ok(())
            });
        }
        Ok(found)
    }

    fn visit(&mut self, partition: Partition, visit: &mut dyn FnMut(&Item) -> Result<(), String>) {
        self.rows += partition.items.len() + partition.unreadable.len();
        self.unreadable.extend(partition.unreadable);
        for item in &partition.items {
            if let Err(cause) = visit(item) {
                self.unreadable.insert(item.key.clone(), cause);
            }
        }
    }
}

async fn read_partition(records: &Table, pk: String) -> Result<Partition, String> {
    match records.query(PartitionQuery::partition(pk.as_str())).await {
        Ok(items) => Ok(Partition { items, unreadable: Vec::new() }),
        Err(StoreError::Corrupt(_) | StoreError::Busy(_)) => read_each(records, &pk).await,
        Err(error) => Err(error.to_string()),
    }
}

/// Reads the rows of a partition one by one, because one of them is damaged.
async fn read_each(records: &Table, pk: &str) -> Result<Partition, String> {
    let range = KeyRange::partition(pk);
    let keys = records.keys(&range, RangeEnd::First, 0, usize::MAX).await.map_err(|e| e.to_string())?;
    get_each(records, keys).await
}

async fn get_each(records: &Table, keys: Vec<Key>) -> Result<Partition, String> {
    let mut partition = Partition::default();
    for key in keys {
        match records.get(&key).await {
            Ok(item) => partition.items.extend(item),
            Err(StoreError::Corrupt(cause)) => partition.unreadable.push((key, cause)),
            // A part of the body is missing, or the store is busy.
            Err(StoreError::Busy(cause)) if cause.starts_with(&key.pk) => {
                partition.unreadable.push((key, "a part of its body is missing".to_owned()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(partition)
}
