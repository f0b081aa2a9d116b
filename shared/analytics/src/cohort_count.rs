//! Counts the members of a cohort.
//!
//! Must stay true: a person counts if and only if a filter on the cohort matches them at the same instant.

use chrono::{DateTime, Utc};
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use uuid::Uuid;

use crate::compiler::Compiler;
use crate::compiler::cohort::{self, CohortRules};
use crate::join::{DataRequirements, JoinData};
use crate::join_derived::derive_join_data;
use crate::project::ProjectContext;

/// A compiled member count.
#[derive(Debug, Clone)]
pub struct CohortCount {
    id: u64,
    needs: DataRequirements,
    cohorts: CohortRules,
}

impl ProjectContext {
    /// Compiles a count of the members of cohort `id` at `now`. An error if the cohort is missing or invalid.
    pub fn membership(&self, id: u64, now: DateTime<Utc>) -> CalcResult<CohortCount> {
        let mut compiler = Compiler::new(self, now);
        cohort::compile(id, &mut compiler, "cohort")?;
        let Compiler { needs, cohorts, .. } = compiler;
        Ok(CohortCount { id, needs, cohorts })
    }
}

impl CohortCount {
    /// The data that the count reads. Its main scan is empty; only the further scans read events.
    pub fn needs(&self) -> &DataRequirements {
        &self.needs
    }

    /// Counts how many of `persons` are members. `is_cancelled` is called periodically; `true` ends with a timeout error.
    pub fn count(
        &self,
        persons: &[Uuid],
        mut join_data: JoinData,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<usize> {
        let work = &WorkBudget::new(is_cancelled);
        derive_join_data(&self.needs, &self.cohorts, &mut join_data, work)?;
        self.cohorts.count(self.id, persons, &join_data, work)
    }
}
