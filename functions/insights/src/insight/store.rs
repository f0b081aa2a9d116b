//! Insights in the records table, as a [`Resource`] with checksum-verified summary rows.
//!
//! Must stay true: every write changes an insight's record, its summary row and the version of the project's rows in one
//! transaction.

use pennon_core::error::ApiResult;
use pennon_core::store::keys::{self, Counter, ProjectId, RecordKind};
use pennon_core::store::{Item, Key, StoreError, Table, Write, WriteCondition};
use serde_json::{Value, json};

use super::fields::logged_fields;
use super::record::Insight;
use super::row_checksums::RowsChecksumDelta;
use super::summary_row::InsightRow;
use crate::placement::pointers;
use crate::resource::{Resource, next_version, record_writes};

/// The key of an insight's record.
pub fn key(project: ProjectId, id: u64) -> Key {
    keys::record(project, RecordKind::Insight, id)
}

/// The key of an insight's summary row, which exists while the insight is not deleted.
pub fn row_key(project: ProjectId, id: u64) -> Key {
    keys::insight_row(project, id)
}

/// The insights with these ids, in their order; deleted ones are left out.
pub async fn fetch_insights(records: &Table, project: ProjectId, ids: &[u64]) -> ApiResult<Vec<Insight>> {
    let keys: Vec<Key> = ids.iter().map(|id| key(project, *id)).collect();
    let items = records.batch_get(&keys).await?;
    let insights = items.iter().flatten().map(Item::body).collect::<Result<Vec<Insight>, StoreError>>()?;
    Ok(insights.into_iter().filter(|insight| !insight.deleted).collect())
}

impl Resource for Insight {
    const KIND: RecordKind = RecordKind::Insight;
    const COUNTER: Counter = Counter::Insight;
    const SCOPE: &'static str = "Insight";
    const LOGS_UNNAMED: bool = false;
    const METHODS: &'static str = "GET, HEAD, OPTIONS, PATCH";

    fn id(&self) -> u64 {
        self.id
    }

    fn name(&self) -> Option<&str> {
        let named = |name: &&String| !name.is_empty();
        let name = self.name.as_ref().filter(named).or(self.derived_name.as_ref().filter(named));
        name.map(String::as_str)
    }

    fn is_deleted(&self) -> bool {
        self.deleted
    }

    fn short_id(&self) -> Option<&str> {
        Some(&self.short_id)
    }

    fn row_write(&self, project: ProjectId, record: &Item) -> Result<Write, StoreError> {
        let key = row_key(project, self.id);
        if self.deleted {
            return Ok(Write::Delete(key, WriteCondition::None));
        }
        let row = Item::new(key, &InsightRow::new(self, record.text.len()))?;
        Ok(Write::Put(row.with_version(record.version), WriteCondition::None))
    }

    fn set_row_version(&mut self, version: u64) {
        self.row_version = version;
    }

    /// The short id of a new insight, the pointers from its dashboards, and the version of the project's rows. The dashboards are
    /// not checked: if one is deleted or restricted concurrently, the stored rows are the same as if that had happened just after
    /// the write.
    fn linked_writes(
        project: ProjectId,
        before: Option<(&Insight, &Item)>,
        after: &Insight,
    ) -> Result<Vec<Write>, StoreError> {
        let mut writes = Vec::from_iter(short_id_write(project, before, after)?);
        let old_tiles = before.map_or(&[][..], |(before, _)| before.tiles.as_slice());
        writes.extend(pointers::writes(project, after.id, old_tiles, &after.tiles));
        writes.push(RowsChecksumDelta::of_write(before, after).version_write(project));
        Ok(writes)
    }

    fn logged_fields(&self) -> Vec<(&'static str, Value)> {
        logged_fields(self)
    }
}

impl RowsChecksumDelta {
    fn of_write(before: Option<(&Insight, &Item)>, after: &Insight) -> RowsChecksumDelta {
        let old = before.filter(|(before, _)| !before.deleted).map(|(before, _)| before.row_version);
        let new = (!after.deleted).then(|| next_version(before.map(|(_, item)| item)));
        RowsChecksumDelta::new(after.id, old, new)
    }
}

/// The write that claims the short id of a new insight.
fn short_id_write(
    project: ProjectId,
    before: Option<(&Insight, &Item)>,
    after: &Insight,
) -> Result<Option<Write>, StoreError> {
    if before.is_some() {
        return Ok(None);
    }
    let short_id = Item::new(keys::short_id(project, &after.short_id), &json!({"id": after.id}))?;
    Ok(Some(Write::Put(short_id, WriteCondition::Absent)))
}

/// The writes of one insight in a transaction of several: its record, its summary row and its short id, and their effect on the
/// version of the project's rows.
#[derive(Debug)]
pub struct InsightChange {
    writes: Vec<Write>,
    delta: RowsChecksumDelta,
}

/// The change of an insight to `after`. `before` is the insight and the item that was read; `None` for a new one.
pub fn change(
    project: ProjectId,
    before: Option<(&Insight, &Item)>,
    after: &Insight,
) -> Result<InsightChange, StoreError> {
    let mut writes = record_writes(project, before.map(|(_, item)| item), after)?;
    writes.extend(short_id_write(project, before, after)?);
    Ok(InsightChange { writes, delta: RowsChecksumDelta::of_write(before, after) })
}

/// The writes of several insights in one transaction, including that of the rows version.
pub fn changes(project: ProjectId, changed: Vec<InsightChange>) -> Vec<Write> {
    let delta = changed.iter().fold(RowsChecksumDelta::default(), |sum, one| sum.plus(one.delta));
    let raise = (!changed.is_empty()).then(|| delta.version_write(project));
    changed.into_iter().flat_map(|one| one.writes).chain(raise).collect()
}
