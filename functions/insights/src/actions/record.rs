//! The record of an action.

use chrono::{DateTime, Utc};
use pennon_analytics::Action;
use pennon_core::model::User;
use pennon_core::store::keys::{self, Counter, ProjectId, RecordKind};
use pennon_core::store::{Item, Key, StoreError, Write};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::input::ActionInput;
use crate::resource::{ListedResource, Resource, SummaryRow, row_of};

/// An action. A workspace file writes its id, name and steps only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionRecord {
    /// Its id.
    pub id: u64,
    /// Its name; unique as far as it was set over HTTP.
    #[serde(default)]
    pub name: Option<String>,
    /// Its description.
    #[serde(default)]
    pub description: String,
    /// Sorted, lower case.
    #[serde(default)]
    pub tags: Vec<String>,
    /// An event matches if one of these matches, or if there are none.
    #[serde(default)]
    pub steps: Vec<Value>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Who created it; `None` for a workspace file.
    #[serde(default)]
    pub created_by: Option<User>,
    /// Whether it is soft-deleted.
    #[serde(default)]
    pub deleted: bool,
    /// When it was pinned.
    #[serde(default)]
    pub pinned_at: Option<DateTime<Utc>>,
    /// Stored for clients; no message is sent.
    #[serde(default)]
    pub post_to_slack: bool,
    /// Format of the message.
    #[serde(default)]
    pub slack_message_format: String,
}

impl ActionRecord {
    /// A new action.
    pub fn create(id: u64, input: &ActionInput, user: &User, now: DateTime<Utc>) -> ActionRecord {
        let blank = ActionRecord {
            id,
            name: None,
            description: String::new(),
            tags: Vec::new(),
            steps: Vec::new(),
            created_at: now,
            created_by: Some(user.clone()),
            deleted: false,
            pinned_at: None,
            post_to_slack: false,
            slack_message_format: String::new(),
        };
        blank.apply(input, now)
    }

    /// The action after a write. Pinning it again keeps the first `pinned_at`.
    #[must_use]
    pub fn apply(&self, input: &ActionInput, now: DateTime<Utc>) -> ActionRecord {
        fn sent<T: Clone>(new: &Option<T>, old: &T) -> T {
            new.as_ref().unwrap_or(old).clone()
        }
        ActionRecord {
            name: sent(&input.name, &self.name),
            description: sent(&input.description, &self.description),
            tags: sent(&input.tags, &self.tags),
            steps: sent(&input.steps, &self.steps),
            deleted: sent(&input.deleted, &self.deleted),
            pinned_at: match input.pinned {
                None => self.pinned_at,
                Some(true) => self.pinned_at.or(Some(now)),
                Some(false) => None,
            },
            post_to_slack: sent(&input.post_to_slack, &self.post_to_slack),
            slack_message_format: sent(&input.slack_message_format, &self.slack_message_format),
            ..self.clone()
        }
    }

    /// Its definition for queries.
    pub fn definition(&self) -> Action {
        Action { name: self.name.clone().unwrap_or_default(), steps: self.steps.clone() }
    }
}

impl Resource for ActionRecord {
    const KIND: RecordKind = RecordKind::Action;
    const COUNTER: Counter = Counter::Action;
    const SCOPE: &'static str = "Action";

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
            ("steps", json!(self.steps)),
            ("pinned_at", json!(self.pinned_at)),
            ("post_to_slack", json!(self.post_to_slack)),
            ("slack_message_format", json!(self.slack_message_format)),
            ("tags", json!(self.tags)),
        ]
    }

    fn activity(before: &ActionRecord, after: &ActionRecord) -> &'static str {
        // A restoration is logged as an update.
        if !before.deleted && after.deleted { "deleted" } else { "updated" }
    }
}

impl ListedResource for ActionRecord {
    const ROWS: RecordKind = RecordKind::ActionRow;

    fn row(&self) -> SummaryRow {
        SummaryRow {
            name: self.name.clone(),
            tags: self.tags.clone(),
            created_by: self.created_by.as_ref().map(|user| user.id),
            ..SummaryRow::new(self.id, self.created_at)
        }
    }

    fn unique_names(&self, project: ProjectId) -> Vec<Key> {
        let name = self.name.iter().filter(|name| !name.is_empty());
        name.map(|name| keys::action_name(project, name)).collect()
    }
}
