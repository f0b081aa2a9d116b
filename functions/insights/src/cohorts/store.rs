//! Cohorts as records with summary rows.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use pennon_core::store::keys::{Counter, ProjectId, RecordKind};
use pennon_core::store::{Item, StoreError, Write};
use serde_json::{Value, json};

use super::list_cleanup::cleanup_of_replaced;
use super::record::CohortRecord;
use crate::resource::{ListedResource, Resource, SummaryRow, row_of};

impl Resource for CohortRecord {
    const KIND: RecordKind = RecordKind::Cohort;
    const COUNTER: Counter = Counter::Cohort;
    const SCOPE: &'static str = "Cohort";

    fn id(&self) -> u64 {
        self.id
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn is_deleted(&self) -> bool {
        self.deleted
    }

    fn row_write(&self, project: ProjectId, _record: &Item) -> Result<Write, StoreError> {
        row_of(project, self)
    }

    fn logged_fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("deleted", json!(self.deleted)),
            ("name", json!(self.name)),
            ("description", json!(self.description)),
            ("filters", self.filters.clone()),
            ("groups", self.groups.clone()),
            ("is_static", json!(self.is_static)),
        ]
    }

    fn activity(_before: &CohortRecord, _after: &CohortRecord) -> &'static str {
        // Deletion and restoration are in the changes.
        "updated"
    }
}

impl ListedResource for CohortRecord {
    const ROWS: RecordKind = RecordKind::CohortRow;

    fn row(&self) -> SummaryRow {
        let reference = self.reference();
        SummaryRow {
            name: self.name.clone(),
            created_by: self.created_by.as_ref().map(|user| user.id),
            is_static: self.is_static,
            behavioral: reference.has_event_criterion,
            cohorts: reference.cohorts.iter().filter_map(|id| u64::try_from(*id).ok()).collect(),
            ..SummaryRow::new(self.id, self.created_at)
        }
    }

    fn replacement_writes(
        &self,
        after: Option<&CohortRecord>,
        project: ProjectId,
        now: DateTime<Utc>,
    ) -> Result<Vec<Write>, StoreError> {
        cleanup_of_replaced(project, self, after, now)
    }

    fn declare(stored: &mut BTreeMap<String, Value>, _declared: &BTreeMap<String, Value>) {
        // The list comes from the file, and counts are of another list or other rules.
        for field in ["members", "person_ids", "count", "last_calculation", "errors_calculating"] {
            stored.remove(field);
        }
    }
}
