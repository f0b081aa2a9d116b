//! Dashboards and insights that other features create (flag usage dashboards), as writes of their transactions.
//!
//! Must stay true: such an insight is like any other: it has a record, a summary row, a short id and a tile; the dashboard's
//! record lists the generated insights by purpose, so that they are found after they were renamed.

use std::ops::Range;

use chrono::{DateTime, Utc};
use pennon_core::clock::never_before;
use pennon_core::error::ApiResult;
use pennon_core::ids;
use pennon_core::model::User;
use pennon_core::store::keys::{Counter, ProjectId};
use pennon_core::store::{Item, Key, StoreError, Table, Write, WriteCondition};
use serde::Serialize;
use serde_json::{Value, json};

use super::record::DashboardRecord;
use crate::insight::{self, Insight, InsightInput, id_of_count};
pub use crate::insight::{InsightChange, changes};
use crate::limits;
use crate::placement::{MEMBERS_EDIT, pointers, tiles};
use crate::resource::{self, reserve_ids, row_of};

/// Field of a dashboard's record with the ids of its generated insights by purpose.
const GENERATED: &str = "generated";

/// A dashboard that another feature creates. Every member of the project may edit it.
#[derive(Debug, Clone, Serialize)]
pub struct NewDashboard<'a> {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Filters that override those of its insights.
    pub filters: Value,
    /// The user it is created for.
    pub created_by: &'a User,
    /// When it is created.
    pub created_at: DateTime<Utc>,
}

impl NewDashboard<'_> {
    /// Its record.
    pub fn record(&self) -> Value {
        let mut record = json!(self);
        record["restriction_level"] = json!(MEMBERS_EDIT);
        record["creation_mode"] = json!("template");
        record["deleted"] = json!(false);
        record
    }
}

/// An insight to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewInsight {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Its query node.
    pub query: Value,
}

/// Reserved ids for insights and their tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    insights: Vec<u64>,
    tiles: Range<u64>,
}

impl Numbers {
    /// Reserves ids for `count` insights, each on one dashboard.
    pub async fn reserve(records: &Table, count: usize) -> ApiResult<Numbers> {
        let insights = reserve_ids(records, Counter::Insight, count);
        let (insights, tiles) = tokio::try_join!(insights, reserve_ids(records, Counter::Tile, count))?;
        Ok(Numbers { insights: insights.map(id_of_count).collect(), tiles })
    }

    /// The number of insights.
    pub fn count(&self) -> usize {
        self.insights.len()
    }

    /// Splits off the first `count`.
    pub fn split(&self, count: usize) -> (Numbers, Numbers) {
        let at = count.min(self.insights.len());
        let middle = self.tiles.start + at as u64;
        let (first, rest) = self.insights.split_at(at);
        (
            Numbers { insights: first.to_vec(), tiles: self.tiles.start..middle },
            Numbers { insights: rest.to_vec(), tiles: middle..self.tiles.end },
        )
    }
}

/// Reserves an id for a dashboard.
pub async fn reserve_dashboard(records: &Table) -> ApiResult<u64> {
    Ok(reserve_ids(records, Counter::Dashboard, 1).await?.start)
}

/// A dashboard and the writes of its generated insights.
#[derive(Debug)]
pub struct Generated {
    project: ProjectId,
    id: u64,
    record: Value,
    /// The version that was read; `None` for a new one.
    version: Option<u64>,
    changed: Vec<InsightChange>,
    pointers: Vec<Write>,
}

impl Generated {
    /// A new dashboard.
    pub fn create(project: ProjectId, dashboard: &NewDashboard<'_>) -> Generated {
        let record = dashboard.record();
        Generated {
            project,
            id: dashboard.id,
            record,
            version: None,
            changed: Vec::new(),
            pointers: Vec::new(),
        }
    }

    /// The dashboard `id`; `None` where it does not exist or is deleted.
    pub async fn read(records: &Table, project: ProjectId, id: u64) -> ApiResult<Option<Generated>> {
        let Some(item) = records.get(&resource::key::<DashboardRecord>(project, id)).await? else {
            return Ok(None);
        };
        let record: Value = item.body()?;
        if record["deleted"] == true {
            return Ok(None);
        }
        let version = Some(item.version);
        Ok(Some(Generated { project, id, record, version, changed: Vec::new(), pointers: Vec::new() }))
    }

    /// Creates insights for the purpose `what` on the dashboard.
    pub fn add(
        &mut self,
        what: &str,
        insights: impl IntoIterator<Item = NewInsight>,
        numbers: &Numbers,
        user: &User,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let mut created = Vec::new();
        for ((insight, id), tile) in insights.into_iter().zip(&numbers.insights).zip(numbers.tiles.clone()) {
            let input = InsightInput {
                name: Some(Some(insight.name)),
                description: Some(insight.description),
                query: Some(Some(insight.query)),
                ..InsightInput::default()
            };
            let short_id = ids::random_text(limits::SHORT_ID_CHARS);
            let mut insight = Insight::create(*id, short_id, &input, user, now);
            insight.tiles = tiles::with_dashboards(&[], &[self.id], tile..tile + 1);
            self.changed.push(insight::change(self.project, None, &insight)?);
            self.pointers.push(pointers::put(self.project, self.id, *id));
            created.push(*id);
        }
        self.record[GENERATED][what] = json!(created);
        Ok(())
    }

    /// The insights of the purpose `what` that still exist on the dashboard.
    pub async fn insights(&self, records: &Table, what: &str) -> ApiResult<Vec<GeneratedInsight>> {
        let ids = self.record[GENERATED][what].as_array().into_iter().flatten().filter_map(Value::as_u64);
        let keys: Vec<Key> = ids.map(|id| insight::key(self.project, id)).collect();
        let mut insights = Vec::new();
        for item in records.batch_get(&keys).await?.into_iter().flatten() {
            let insight: Insight = item.body()?;
            if !insight.deleted && tiles::current_dashboards(&insight.tiles).any(|id| id == self.id) {
                insights.push(GeneratedInsight { project: self.project, insight, item });
            }
        }
        Ok(insights)
    }

    /// All writes: the dashboard's record and its new insights, on the condition that the dashboard is unchanged.
    pub fn writes(self) -> Result<Vec<Write>, StoreError> {
        let guard = self.version.map_or(WriteCondition::Absent, WriteCondition::Version);
        let item = Item::new(resource::key::<DashboardRecord>(self.project, self.id), &self.record)?;
        let dashboard: DashboardRecord = item.body()?;
        let row = row_of(self.project, &dashboard)?;
        let mut writes = vec![Write::Put(item.with_version(self.version.unwrap_or(0) + 1), guard), row];
        writes.extend(changes(self.project, self.changed));
        writes.extend(self.pointers);
        Ok(writes)
    }
}

/// A generated insight.
#[derive(Debug)]
pub struct GeneratedInsight {
    project: ProjectId,
    insight: Insight,
    item: Item,
}

impl GeneratedInsight {
    /// Its current name.
    pub fn name(&self) -> Option<&str> {
        self.insight.name.as_deref()
    }

    /// Its current description.
    pub fn description(&self) -> Option<&str> {
        self.insight.description.as_deref()
    }

    /// Its current query.
    pub fn query(&self) -> Option<&Value> {
        self.insight.query.as_ref()
    }

    /// The change to another description and query, on the condition that the insight is unchanged.
    pub fn change(
        &self,
        description: String,
        query: Value,
        user: &User,
        now: DateTime<Utc>,
    ) -> Result<InsightChange, StoreError> {
        let input = InsightInput {
            description: Some(Some(description)),
            query: Some(Some(query)),
            ..InsightInput::default()
        };
        let after = self.insight.apply(&input, user, never_before(now, self.insight.updated_at));
        insight::change(self.project, Some((&self.insight, &self.item)), &after)
    }
}
