//! A change of the member list of a cohort.

use pennon_core::store::Write;
use uuid::Uuid;

/// A change of the member list of a cohort.
#[derive(Debug, Clone, Default)]
pub struct MemberChange {
    /// Distinct ids to add.
    pub added_distinct_ids: Vec<String>,
    /// Persons to add.
    pub added_persons: Vec<Uuid>,
    /// The person to remove.
    pub removed_person: Option<Uuid>,
    /// The activity in the log of a change of the list alone.
    pub activity: Option<&'static str>,
    /// Whether a CSV file was sent.
    pub has_csv: bool,
    /// The write of the idempotency key of a creation.
    pub idempotency_write: Option<Write>,
}

impl MemberChange {
    /// Whether members are added or removed.
    pub fn is_change(&self) -> bool {
        !self.added_distinct_ids.is_empty() || !self.added_persons.is_empty() || self.removed_person.is_some()
    }
}
