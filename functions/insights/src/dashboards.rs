//! The dashboards that insights are on.
//!
//! Must stay true: a deleted dashboard is as good as none, whatever tiles still name it.

pub(crate) mod content;
pub mod handlers;
mod input;
mod record;
pub(crate) mod removal;
mod shown;

pub use record::DashboardRecord;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::model::User;
use pennon_core::store::keys::{Kind, ProjectId, record};
use pennon_core::store::{Item, Key, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Level of a dashboard, and of an insight on it, that everybody in the project may edit.
pub const EVERYBODY_EDITS: u8 = 21;
/// Level of one that only its creator and administrators may edit.
pub const COLLABORATORS_EDIT: u8 = 37;

/// A dashboard as far as insights are concerned.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Dashboard {
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Filters that its insights take over.
    #[serde(default)]
    filters: Value,
    /// Who may edit it: [`EVERYBODY_EDITS`] or [`COLLABORATORS_EDIT`].
    pub restriction_level: u8,
    #[serde(default)]
    created_by: Option<User>,
    #[serde(default)]
    deleted: bool,
}

impl Dashboard {
    /// Reads a dashboard; none where there is no item, or a deleted one.
    pub fn read(item: Option<&Item>) -> ApiResult<Option<Dashboard>> {
        let Some(item) = item else { return Ok(None) };
        let dashboard: Dashboard = item.body()?;
        Ok((!dashboard.deleted).then_some(dashboard))
    }

    /// Whether the caller may edit it.
    pub fn is_editable_by(&self, access: &Access) -> bool {
        let own = self.created_by.as_ref().is_some_and(|user| user.id == access.caller.user().id);
        self.restriction_level < COLLABORATORS_EDIT || own || access.level().is_admin()
    }

    /// Its filters; empty when it has none.
    pub fn filters(&self) -> Map<String, Value> {
        self.filters.as_object().cloned().unwrap_or_default()
    }
}

/// A dashboard that some part of the product makes, for everybody in the project to edit.
#[derive(Debug, Clone, Serialize)]
pub struct NewDashboard<'a> {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Free words.
    pub description: String,
    /// Filters that its insights take over.
    pub filters: Value,
    /// Who it is made for.
    pub created_by: &'a User,
    /// When.
    pub created_at: DateTime<Utc>,
}

impl NewDashboard<'_> {
    /// Its record.
    pub fn record(&self) -> Value {
        let mut record = json!(self);
        record["restriction_level"] = json!(EVERYBODY_EDITS);
        record["creation_mode"] = json!("template");
        record["deleted"] = json!(false);
        record
    }
}

/// Where a dashboard lies.
pub fn key(project: ProjectId, id: u64) -> Key {
    record(project, Kind::Dashboard, id)
}

/// Live dashboards by number.
#[derive(Debug, Clone, Default)]
pub struct Dashboards(BTreeMap<u64, Dashboard>);

impl Dashboards {
    /// Those of `ids` that are there and not deleted. Asks nobody when there are no ids.
    pub async fn load(
        records: &Table,
        project: ProjectId,
        ids: impl IntoIterator<Item = u64>,
    ) -> ApiResult<Dashboards> {
        let ids: Vec<u64> = ids.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        if ids.is_empty() {
            return Ok(Dashboards::default());
        }
        let keys: Vec<Key> = ids.iter().map(|id| key(project, *id)).collect();
        let mut live = BTreeMap::new();
        for (id, item) in ids.into_iter().zip(records.batch_get(&keys).await?) {
            live.extend(Dashboard::read(item.as_ref())?.map(|dashboard| (id, dashboard)));
        }
        Ok(Dashboards(live))
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Dashboards) -> Dashboards {
        self.0.extend(others.0);
        self
    }

    /// The live dashboard with this number.
    pub fn get(&self, id: u64) -> Option<&Dashboard> {
        self.0.get(&id)
    }

    /// Whether there is a live dashboard with this number.
    pub fn has(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }
}

#[cfg(test)]
impl FromIterator<(u64, Dashboard)> for Dashboards {
    fn from_iter<T: IntoIterator<Item = (u64, Dashboard)>>(dashboards: T) -> Self {
        Dashboards(dashboards.into_iter().collect())
    }
}
