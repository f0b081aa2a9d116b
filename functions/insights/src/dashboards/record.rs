//! The record of a dashboard.

use chrono::{DateTime, Utc};
use pennon_core::auth::Access;
use pennon_core::model::User;
use pennon_core::store::keys::{self, Counter, ProjectId, RecordKind};
use pennon_core::store::{Item, Key, StoreError, Write, WriteCondition};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::input::DashboardInput;
use crate::placement::{COLLABORATORS_EDIT, MEMBERS_EDIT};
use crate::resource::{ListedResource, Resource, SummaryRow, row_of};

/// A dashboard. A workspace file writes its id, name, filters, level, creator and `deleted` only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DashboardRecord {
    /// Its id.
    pub id: u64,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its description.
    #[serde(default)]
    pub description: String,
    /// Whether it is listed first.
    #[serde(default)]
    pub pinned: bool,
    /// Sorted, lower case.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Filters that override those of its insights.
    #[serde(default)]
    pub filters: Value,
    /// Who may edit it: [`MEMBERS_EDIT`] or [`COLLABORATORS_EDIT`].
    #[serde(default = "default_restriction")]
    pub restriction_level: u8,
    /// Who created it, if known.
    #[serde(default)]
    pub created_by: Option<User>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Whether it is soft-deleted.
    #[serde(default)]
    pub deleted: bool,
    /// How it was created: `default`, `template`.
    #[serde(default = "default_mode")]
    pub creation_mode: String,
    /// Ids of its generated insights by purpose.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub generated: Value,
    /// Whether its sharing token gives access. Written together with the sharing configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
    /// When its tiles are removed, while it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept_from: Option<DateTime<Utc>>,
}

fn default_restriction() -> u8 {
    MEMBERS_EDIT
}

fn default_mode() -> String {
    "default".to_owned()
}

impl DashboardRecord {
    /// A new dashboard.
    pub fn create(id: u64, input: &DashboardInput, user: &User, now: DateTime<Utc>) -> DashboardRecord {
        let blank = DashboardRecord {
            id,
            name: None,
            description: String::new(),
            pinned: false,
            tags: Vec::new(),
            filters: json!({}),
            restriction_level: MEMBERS_EDIT,
            created_by: Some(user.clone()),
            created_at: now,
            deleted: false,
            creation_mode: default_mode(),
            generated: Value::Null,
            is_shared: false,
            swept_from: None,
        };
        blank.apply(input)
    }

    /// The dashboard after a write, except for its tiles.
    #[must_use]
    pub fn apply(&self, input: &DashboardInput) -> DashboardRecord {
        fn sent<T: Clone>(new: &Option<T>, old: &T) -> T {
            new.as_ref().unwrap_or(old).clone()
        }
        DashboardRecord {
            name: sent(&input.name, &self.name),
            description: sent(&input.description, &self.description),
            pinned: sent(&input.pinned, &self.pinned),
            tags: sent(&input.tags, &self.tags),
            filters: input.filters.clone().map_or_else(|| self.filters.clone(), Value::Object),
            restriction_level: sent(&input.restriction_level, &self.restriction_level),
            deleted: sent(&input.deleted, &self.deleted),
            ..self.clone()
        }
    }

    /// Whether the caller may edit it.
    pub fn is_editable_by(&self, access: &Access) -> bool {
        self.restriction_level < COLLABORATORS_EDIT || self.is_restrictable_by(access)
    }

    /// Whether the caller may change its restriction level.
    pub fn is_restrictable_by(&self, access: &Access) -> bool {
        let own = self.created_by.as_ref().is_some_and(|user| user.id == access.caller.user().id);
        own || access.level().is_admin()
    }

    /// Its filters; empty when it has none.
    pub fn filters(&self) -> Map<String, Value> {
        self.filters.as_object().cloned().unwrap_or_default()
    }

    /// The key of the scheduled removal of its tiles.
    pub fn tile_removal_key(&self, project: ProjectId) -> Option<Key> {
        self.swept_from.map(|at| keys::dashboard_tiles_task(at, project, self.id))
    }
}

impl Resource for DashboardRecord {
    const KIND: RecordKind = RecordKind::Dashboard;
    const COUNTER: Counter = Counter::Dashboard;
    const SCOPE: &'static str = "Dashboard";
    const LOGGED_TYPE: Option<&'static str> = Some("dashboard");

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
            ("pinned", json!(self.pinned)),
            ("filters", self.filters.clone()),
            ("restriction_level", json!(self.restriction_level)),
            ("tags", json!(self.tags)),
        ]
    }
}

impl ListedResource for DashboardRecord {
    const ROWS: RecordKind = RecordKind::DashboardRow;

    fn sharing_configuration(&self, project: ProjectId) -> Option<Key> {
        Some(keys::dashboard_sharing(project, self.id))
    }

    fn replacement_writes(
        &self,
        after: Option<&DashboardRecord>,
        project: ProjectId,
        now: DateTime<Utc>,
    ) -> Result<Vec<Write>, StoreError> {
        if after.is_some() {
            return Ok(Vec::new());
        }
        // The worker removes its tiles.
        let task = keys::dashboard_tiles_task(now, project, self.id);
        let earlier = self.tile_removal_key(project).filter(|earlier| *earlier != task);
        let earlier = earlier.map(|earlier| Write::Delete(earlier, WriteCondition::None));
        Ok(earlier.into_iter().chain([Write::Put(Item::empty(task), WriteCondition::None)]).collect())
    }

    fn row(&self) -> SummaryRow {
        SummaryRow {
            name: self.name.clone(),
            tags: self.tags.clone(),
            created_by: self.created_by.as_ref().map(|user| user.id),
            pinned: self.pinned,
            creation_mode: Some(self.creation_mode.clone()).filter(|mode| *mode != default_mode()),
            ..SummaryRow::new(self.id, self.created_at)
        }
    }
}
