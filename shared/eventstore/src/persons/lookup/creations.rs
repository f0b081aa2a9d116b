//! The creation times of persons that imports recorded.
//!
//! Must stay true: of several records of a person, also of persons that were merged later, the earliest time counts.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, RecordBatch};
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::PersonLookup;
use super::scan_all::ROWS_MAX;
use crate::error::EventStoreError;
use crate::memory::{Purpose, QueryMemory};
use crate::persons::imports::records::PersonsObject;
use crate::persons::person_merges::PersonMerges;

impl PersonLookup {
    /// The recorded creation times by canonical person id, ascending. Their memory is reserved from `memory` until the query
    /// ends.
    pub(crate) async fn imported_creations(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<Vec<(Uuid, Micros)>, EventStoreError> {
        let (manifest, merge_state) = self.index.manifest_and_persons(project).await?;
        let rows = manifest.persons.iter().map(|entry| entry.rows).sum::<u64>();
        if rows > ROWS_MAX {
            return Err(EventStoreError::TooLarge(format!(
                "The project has {rows} imported records of persons; one query reads at most {ROWS_MAX}."
            )));
        }
        let mut lease = memory.lease(Purpose::Known);
        let mut creations = Vec::new();
        for object in self.imports.persons_objects(project, &manifest).await? {
            let mut first_row = 0;
            for group in 0..object.file.groups() {
                let rows = object.file.group_rows(group);
                // Imports of events store persons without these times.
                if object.file.is_null(group, "created_at") {
                    first_row += rows;
                    continue;
                }
                let decoded = object.file.decode(group, None, &["created_at"]).await?;
                lease.add((rows * size_of::<(Uuid, Micros)>()) as u64)?;
                let (object, merge_state) = (object.clone(), merge_state.clone());
                let read = tokio::task::spawn_blocking(move || {
                    let mut row = first_row;
                    for batch in &decoded.batches {
                        add_records(&mut creations, batch, &object, row, &merge_state.person_merges);
                        row += batch.num_rows();
                    }
                    creations
                });
                creations = read.await?;
                first_row += rows;
            }
        }
        let sorted = tokio::task::spawn_blocking(move || {
            creations.sort_unstable();
            creations.dedup_by_key(|(person, _)| *person);
            creations
        });
        let creations = sorted.await?;
        lease.keep();
        Ok(creations)
    }
}

/// Adds the records of a batch, which begins with record `first_row` of the object.
fn add_records(
    creations: &mut Vec<(Uuid, Micros)>,
    batch: &RecordBatch,
    object: &PersonsObject,
    first_row: usize,
    person_merges: &PersonMerges,
) {
    let created = batch.column_by_name("created_at");
    let Some(created) = created.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>())
    else {
        return;
    };
    let records = object.records_from(first_row).take(batch.num_rows()).enumerate();
    for (row, ids) in records.filter(|(row, _)| created.is_valid(*row)) {
        if let Some(id) = ids.first() {
            creations.push((person_merges.person(*id), created.value(row)));
        }
    }
}
