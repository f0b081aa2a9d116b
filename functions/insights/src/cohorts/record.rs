//! The record of a cohort.

use chrono::{DateTime, Utc};
use pennon_analytics::Cohort;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::User;
use pennon_eventstore::cohort_lists::{CohortList, PartitionedList};
use pennon_flag_rules::CohortReference;
use pennon_flag_rules::relations::cohort::FlagCohort;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::input::CohortInput;

/// A cohort. A workspace file writes its id, name, rules and list only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CohortRecord {
    /// Its id.
    pub id: u64,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its description.
    #[serde(default)]
    pub description: String,
    /// The rules, `{"properties": ...}`; null if there are none.
    #[serde(default)]
    pub filters: Value,
    /// The older form of rules; null if there are none.
    #[serde(default)]
    pub groups: Value,
    /// Whether it is defined by a list of members.
    #[serde(default)]
    pub is_static: bool,
    /// Distinct ids of a short list.
    #[serde(default)]
    pub distinct_ids: Vec<String>,
    /// Person ids of a short list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub person_ids: Vec<uuid::Uuid>,
    /// A long list, stored in parts outside the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<PartitionedList>,
    /// The last count of members; `None` if they were never counted.
    #[serde(default)]
    pub count: Option<u64>,
    /// When they were counted.
    #[serde(default)]
    pub last_calculation: Option<DateTime<Utc>>,
    /// Consecutive failures to count them.
    #[serde(default)]
    pub errors_calculating: u64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Who created it; `None` for a workspace file.
    #[serde(default)]
    pub created_by: Option<User>,
    /// Whether it is soft-deleted.
    #[serde(default)]
    pub deleted: bool,
}

impl CohortRecord {
    /// A new cohort, without members yet.
    pub fn create(id: u64, input: &CohortInput, user: &User, now: DateTime<Utc>) -> CohortRecord {
        CohortRecord {
            id,
            name: input.name.clone().flatten(),
            description: input.description.clone().unwrap_or_default(),
            filters: input.filters.clone().unwrap_or(Value::Null),
            groups: input.groups.clone().unwrap_or(Value::Null),
            is_static: input.is_static.unwrap_or(false),
            distinct_ids: Vec::new(),
            person_ids: Vec::new(),
            members: None,
            count: None,
            last_calculation: None,
            errors_calculating: 0,
            created_at: now,
            created_by: Some(user.clone()),
            deleted: input.deleted.unwrap_or(false),
        }
    }

    /// The cohort after a write, except for its members.
    pub fn apply(&self, input: &CohortInput) -> ApiResult<CohortRecord> {
        fn sent<T: Clone>(new: &Option<T>, old: &T) -> T {
            new.as_ref().unwrap_or(old).clone()
        }
        if input.is_static.is_some_and(|is_static| is_static != self.is_static) {
            let detail = "Not supported yet: making a cohort static, or a static cohort one by rules.";
            return Err(ApiError::invalid("invalid_input", detail, Some("is_static")));
        }
        Ok(CohortRecord {
            name: sent(&input.name, &self.name),
            description: sent(&input.description, &self.description),
            filters: sent(&input.filters, &self.filters),
            groups: sent(&input.groups, &self.groups),
            deleted: sent(&input.deleted, &self.deleted),
            ..self.clone()
        })
    }

    /// 400 with `detail` for a dynamic cohort.
    pub fn require_static(&self, detail: &str) -> ApiResult<()> {
        if self.is_static { Ok(()) } else { Err(ApiError::invalid("invalid_input", detail, None)) }
    }

    /// Its definition for queries.
    pub fn definition(&self) -> Cohort {
        Cohort {
            name: self.name.clone().unwrap_or_default(),
            is_static: self.is_static,
            filters: self.filters.clone(),
            groups: self.groups.clone(),
        }
    }

    /// The summary of its rules for flags.
    pub fn reference(&self) -> CohortReference {
        CohortReference::from(&self.criteria())
    }

    /// Its rules in the newer form.
    pub fn criteria(&self) -> FlagCohort {
        let id = i64::try_from(self.id).unwrap_or(i64::MAX);
        let criteria = FlagCohort::read(&json!({
            "id": id, "name": self.name, "is_static": self.is_static, "deleted": self.deleted,
            "filters": self.filters, "groups": self.groups,
        }));
        // Parsing fails only without an id.
        criteria.unwrap_or(FlagCohort {
            id,
            name: String::new(),
            is_static: self.is_static,
            deleted: self.deleted,
            filters: Value::Null,
        })
    }

    /// Its member list.
    pub fn cohort_list(&self, project: u64) -> CohortList {
        match self.members {
            Some(packed) => CohortList::Partitioned(packed),
            None => CohortList::of_record(
                project,
                &json!({"distinct_ids": self.distinct_ids, "person_ids": self.person_ids}),
            ),
        }
    }
}
