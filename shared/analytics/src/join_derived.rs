//! Computes the join data that is derived from events: sessions, the earliest events of groups, and the persons that match
//! behavioural criteria.

use std::collections::HashSet;

use pennon_filters::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use crate::compiler::cohort::CohortRules;
use crate::join::{DataRequirements, JoinData};
use crate::sessions;

/// Fills `join_data.sessions`, `join_data.first_group_events` and `join_data.behaviours` from the further scans, unless
/// that was done.
pub(crate) fn derive_join_data(
    needs: &DataRequirements,
    cohorts: &CohortRules,
    join_data: &mut JoinData,
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    if std::mem::replace(&mut join_data.is_derived, true) {
        return Ok(());
    }
    let mut scans = std::mem::take(&mut join_data.further).into_iter();
    if needs.sessions.is_some() {
        let partitions = scans.next().unwrap_or_default();
        join_data.sessions = sessions::build_sessions(&needs.session_fields, &partitions, work)?;
    }
    if let Some(request) = needs.creations.as_ref().filter(|request| request.events.is_some()) {
        let partitions = scans.next().unwrap_or_default();
        join_data.first_group_events = request.first_events_of_groups(&partitions, work)?;
    }
    for (index, mut partitions) in scans.enumerate() {
        let mut persons = HashSet::new();
        for partition in &mut partitions {
            persons.extend(cohorts.matching_persons(index, partition, join_data, work)?);
        }
        join_data.behaviours.push(persons);
    }
    Ok(())
}
