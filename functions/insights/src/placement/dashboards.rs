//! The dashboards that insights are on: what an insight needs of them.
//!
//! Must stay true: a deleted dashboard is treated as absent, even if tiles still refer to it.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::model::User;
use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::{Item, Key, Table};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Restriction level: every member of the project may edit the dashboard and its insights.
pub const MEMBERS_EDIT: u8 = 21;
/// Restriction level: only the creator and administrators may edit.
pub const COLLABORATORS_EDIT: u8 = 37;

/// The fields of a dashboard that insights need.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct DashboardFields {
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Filters that override those of its insights.
    #[serde(default)]
    filters: Value,
    /// Who may edit it: [`MEMBERS_EDIT`] or [`COLLABORATORS_EDIT`].
    pub restriction_level: u8,
    #[serde(default)]
    created_by: Option<User>,
    #[serde(default)]
    deleted: bool,
}

impl DashboardFields {
    /// Decodes a dashboard; `None` where there is no item, or it is deleted.
    pub fn from_item(item: Option<&Item>) -> ApiResult<Option<DashboardFields>> {
        let Some(item) = item else { return Ok(None) };
        let dashboard: DashboardFields = item.body()?;
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

/// The key of a dashboard.
pub fn key(project: ProjectId, id: u64) -> Key {
    keys::record(project, RecordKind::Dashboard, id)
}

/// Dashboards by id, without deleted ones.
#[derive(Debug, Clone, Default)]
pub struct Dashboards(BTreeMap<u64, DashboardFields>);

impl Dashboards {
    /// Those of `ids` that exist and are not deleted. No request without ids.
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
            live.extend(DashboardFields::from_item(item.as_ref())?.map(|dashboard| (id, dashboard)));
        }
        Ok(Dashboards(live))
    }

    /// Adds others.
    #[must_use]
    pub fn merge(mut self, others: Dashboards) -> Dashboards {
        self.0.extend(others.0);
        self
    }

    /// The dashboard with this id.
    pub fn get(&self, id: u64) -> Option<&DashboardFields> {
        self.0.get(&id)
    }

    /// Whether the dashboard exists and is not deleted.
    pub fn has(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }
}

#[cfg(test)]
impl FromIterator<(u64, DashboardFields)> for Dashboards {
    fn from_iter<T: IntoIterator<Item = (u64, DashboardFields)>>(dashboards: T) -> Self {
        Dashboards(dashboards.into_iter().collect())
    }
}
