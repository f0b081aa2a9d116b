//! Dashboards with insights that other parts of the product make, as the writes of a transaction of theirs.
//!
//! Must stay true: such an insight is like any other: it has a record, a summary row, a short id and a tile; the
//! dashboard remembers which insights were made for what, so that they are found again whatever they are called by then.

use std::ops::Range;

use chrono::{DateTime, Utc};
use pennon_core::clock::never_before;
use pennon_core::error::ApiResult;
use pennon_core::ids;
use pennon_core::model::User;
use pennon_core::store::keys::{Counter, ProjectId};
use pennon_core::store::{Guard, Item, Key, StoreError, Table, Write};
use serde_json::{Value, json};

pub use crate::dashboards::NewDashboard;
use crate::dashboards::{self, DashboardRecord};
use crate::input::InsightInput;
use crate::limits;
use crate::record::{Insight, id_of_count};
use crate::resource::row_of;
pub use crate::store::{Changed, changes};
use crate::{store, tiles};

/// What the record of a dashboard calls the insights that were made with it.
const GENERATED: &str = "generated";

/// An insight to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewInsight {
    /// Its name.
    pub name: String,
    /// Free words.
    pub description: Option<String>,
    /// Its query node.
    pub query: Value,
}

/// Numbers that are kept for insights and their tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    insights: Vec<u64>,
    tiles: Range<u64>,
}

impl Numbers {
    /// Numbers for `count` insights, each on one dashboard.
    pub async fn reserve(records: &Table, count: usize) -> ApiResult<Numbers> {
        let insights = store::count(records, Counter::Insight, count);
        let (insights, tiles) = tokio::try_join!(insights, store::count(records, Counter::Tile, count))?;
        Ok(Numbers { insights: insights.map(id_of_count).collect(), tiles })
    }

    /// For how many insights they are.
    pub fn count(&self) -> usize {
        self.insights.len()
    }

    /// The first `count` of them, and the others.
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

/// A number for a dashboard.
pub async fn reserve_dashboard(records: &Table) -> ApiResult<u64> {
    Ok(store::count(records, Counter::Dashboard, 1).await?.start)
}

/// A dashboard and what is written with it.
#[derive(Debug)]
pub struct Generated {
    project: ProjectId,
    id: u64,
    record: Value,
    /// The version that was read; none of a new one.
    version: Option<u64>,
    changed: Vec<Changed>,
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

    /// The dashboard `id`; none where there is none, or a deleted one.
    pub async fn read(records: &Table, project: ProjectId, id: u64) -> ApiResult<Option<Generated>> {
        let Some(item) = records.get(&dashboards::key(project, id)).await? else { return Ok(None) };
        let record: Value = item.body()?;
        if record["deleted"] == true {
            return Ok(None);
        }
        let version = Some(item.version);
        Ok(Some(Generated { project, id, record, version, changed: Vec::new(), pointers: Vec::new() }))
    }

    /// Makes insights for the purpose `what` and puts them on the dashboard.
    pub fn add(
        &mut self,
        what: &str,
        insights: impl IntoIterator<Item = NewInsight>,
        numbers: &Numbers,
        user: &User,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let mut made = Vec::new();
        for ((insight, id), tile) in insights.into_iter().zip(&numbers.insights).zip(numbers.tiles.clone()) {
            let input = InsightInput {
                name: Some(Some(insight.name)),
                description: Some(insight.description),
                query: Some(Some(insight.query)),
                ..InsightInput::default()
            };
            let short_id = ids::random_text(limits::SHORT_ID_CHARS);
            let mut insight = Insight::create(*id, short_id, &input, user, now);
            insight.tiles = tiles::placed(&[], &[self.id], tile..tile + 1);
            self.changed.push(store::change(self.project, None, &insight)?);
            self.pointers.push(store::pointer(self.project, self.id, *id));
            made.push(*id);
        }
        self.record[GENERATED][what] = json!(made);
        Ok(())
    }

    /// The insights that were made for the purpose `what`, as far as they are still there and on the dashboard.
    pub async fn insights(&self, records: &Table, what: &str) -> ApiResult<Vec<Made>> {
        let ids = self.record[GENERATED][what].as_array().into_iter().flatten().filter_map(Value::as_u64);
        let keys: Vec<Key> = ids.map(|id| store::key(self.project, id)).collect();
        let mut found = Vec::new();
        for item in records.batch_get(&keys).await?.into_iter().flatten() {
            let insight: Insight = item.body()?;
            if !insight.deleted && tiles::kept_dashboards(&insight.tiles).any(|id| id == self.id) {
                found.push(Made { project: self.project, insight, item });
            }
        }
        Ok(found)
    }

    /// All writes: the dashboard's record and what was added to it. They ask that it is as it was read.
    pub fn writes(self) -> Result<Vec<Write>, StoreError> {
        let guard = self.version.map_or(Guard::Absent, Guard::Version);
        let item = Item::new(dashboards::key(self.project, self.id), &self.record)?;
        let dashboard: DashboardRecord = item.body()?;
        let row = row_of(self.project, &dashboard)?;
        let mut writes = vec![Write::Put(item.with_version(self.version.unwrap_or(0) + 1), guard), row];
        writes.extend(changes(self.project, self.changed));
        writes.extend(self.pointers);
        Ok(writes)
    }
}

/// An insight that was made with a dashboard.
#[derive(Debug)]
pub struct Made {
    project: ProjectId,
    insight: Insight,
    item: Item,
}

impl Made {
    /// Its name by now.
    pub fn name(&self) -> Option<&str> {
        self.insight.name.as_deref()
    }

    /// Its description by now.
    pub fn description(&self) -> Option<&str> {
        self.insight.description.as_deref()
    }

    /// Its query by now.
    pub fn query(&self) -> Option<&Value> {
        self.insight.query.as_ref()
    }

    /// What gives it another description and query. It asks that it is as it was read.
    pub fn change(
        &self,
        description: String,
        query: Value,
        user: &User,
        now: DateTime<Utc>,
    ) -> Result<Changed, StoreError> {
        let input = InsightInput {
            description: Some(Some(description)),
            query: Some(Some(query)),
            ..InsightInput::default()
        };
        let after = self.insight.apply(&input, user, never_before(now, self.insight.updated_at));
        store::change(self.project, Some((&self.insight, &self.item)), &after)
    }
}
