//! Who belongs to a cohort, as a question of its own.
//!
//! Must stay true: the answer is the one that a filter on the cohort gives at the same instant.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::cohort::{self, Cohorts};
use crate::compiler::Compiler;
use crate::error::CalcResult;
use crate::join::{Facts, Needs};
use crate::plan::{ProjectContext, derive_join_data};
use crate::work::WorkBudget;

/// The question made ready.
#[derive(Debug, Clone)]
pub struct Membership {
    id: u64,
    needs: Needs,
    cohorts: Cohorts,
}

impl ProjectContext {
    /// Asks who belongs to the cohort `id` of the definitions at `now`.
    pub fn membership(&self, id: u64, now: DateTime<Utc>) -> CalcResult<Membership> {
        let mut compiler = Compiler::new(self, now);
        cohort::compile(id, &mut compiler, "cohort")?;
        let Compiler { needs, cohorts, .. } = compiler;
        Ok(Membership { id, needs, cohorts })
    }
}

impl Membership {
    /// What has to be known. There are no events to count, but those that further scans read.
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// How many of these persons belong to it. `stop` is asked from time to time; true ends with a timeout.
    pub fn count(&self, persons: &[Uuid], mut facts: Facts, stop: &dyn Fn() -> bool) -> CalcResult<usize> {
        let work = &WorkBudget::new(stop);
        derive_join_data(&self.needs, &self.cohorts, &mut facts, work)?;
        self.cohorts.count(self.id, persons, &facts, work)
    }
}
