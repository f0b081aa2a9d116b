//! Merges the files of distinct ids of several segments into one (k-way merge by batches).
//!
//! Must stay true: memory holds a row group of each file and the encoded output; an id in several files is
//! written once, with the changes of all.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::changes::ProfileChanges;
use super::file::{self, ALL, IdRow, IdsWriter};
use crate::error::EventStoreError;
use crate::segments::parquet_io::ParquetFile;

/// A source file with its next rows.
struct ProfileSource {
    file: Arc<ParquetFile>,
    next_group: usize,
    rows: VecDeque<(Uuid, IdRow)>,
}

impl ProfileSource {
    /// Loads the next rows, if there are any.
    async fn fill(&mut self) -> Result<(), EventStoreError> {
        while self.rows.is_empty() && self.next_group < self.file.groups() {
            let decoded = self.file.decode(self.next_group, None, &ALL).await?;
            self.next_group += 1;
            let mut rows = std::mem::take(&mut self.rows);
            let taken = tokio::task::spawn_blocking(move || {
                for batch in &decoded.batches {
                    file::each_id(batch, None, |id, distinct_id, first, changes| {
                        let row = IdRow {
                            distinct_id: distinct_id.to_owned(),
                            first,
                            changes: changes.map(<[u8]>::to_vec),
                        };
                        rows.push_back((id, row));
                        Ok(())
                    })?;
                }
                Ok::<_, EventStoreError>(rows)
            });
            self.rows = taken.await??;
        }
        Ok(())
    }
}

/// Merges `files` except the ids `left_out`. Returns the file and its number of rows.
pub(crate) async fn merged_ids(
    files: Vec<Arc<ParquetFile>>,
    left_out: &BTreeSet<Uuid>,
) -> Result<(Bytes, u64), EventStoreError> {
    let source = |file| ProfileSource { file, next_group: 0, rows: VecDeque::new() };
    let mut sources = files.into_iter().map(source).collect::<Vec<_>>();
    let mut writer = IdsWriter::new()?;
    let mut rows = 0;
    loop {
        for source in &mut sources {
            source.fill().await?;
        }
        let next = sources.iter().filter_map(|source| source.rows.front()).map(|(id, _)| *id).min();
        let Some(next) = next else { break };
        // Rows up to the smallest last row of all sources can be merged without reading on.
        let until =
            sources.iter().filter_map(|source| source.rows.back()).map(|(id, _)| *id).min().unwrap_or(next);
        let ready = take(&mut sources, until, left_out)?;
        rows += ready.len() as u64;
        writer = written(writer, ready).await?;
    }
    Ok((writer.finish()?, rows))
}

/// Takes the rows of all sources up to `until`, ascending, each id once.
fn take(
    sources: &mut [ProfileSource],
    until: Uuid,
    left_out: &BTreeSet<Uuid>,
) -> Result<Vec<(Uuid, IdRow)>, EventStoreError> {
    let mut rows = Vec::new();
    for source in sources {
        while let Some(row) = source.rows.pop_front_if(|(id, _)| *id <= until) {
            if !left_out.contains(&row.0) {
                rows.push(row);
            }
        }
    }
    // Each source is sorted; the sort merges them.
    rows.sort_by_key(|(id, _)| *id);
    let mut merged: Vec<(Uuid, IdRow)> = Vec::with_capacity(rows.len());
    for (id, row) in rows {
        match merged.last_mut() {
            Some((last, known)) if *last == id => join(known, row)?,
            _ => merged.push((id, row)),
        }
    }
    Ok(merged)
}

/// Merges the data of the same id.
fn join(known: &mut IdRow, other: IdRow) -> Result<(), EventStoreError> {
    known.first = known.first.min(other.first);
    match (&known.changes, other.changes) {
        (_, None) => {}
        (None, changes) => known.changes = changes,
        (Some(own), Some(changes)) => {
            let mut all = ProfileChanges::decode(own)?;
            all.merge(ProfileChanges::decode(&changes)?);
            known.changes = Some(all.encode());
        }
    }
    Ok(())
}

async fn written(mut writer: IdsWriter, rows: Vec<(Uuid, IdRow)>) -> Result<IdsWriter, EventStoreError> {
    let write = move || {
        rows.into_iter().try_for_each(|(id, row)| writer.push(id, row))?;
        Ok(writer)
    };
    tokio::task::spawn_blocking(write).await?
}
