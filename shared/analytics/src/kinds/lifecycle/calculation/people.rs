//! Lists the actors behind a number of a lifecycle.
//!
//! Must stay true: the list has as many actors as the number counts.

use pennon_filters::dates::grammar::DateText;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CompiledLifecycle, statuses};
use crate::kinds::lifecycle::query::LifecycleStatus;
use crate::people::{MatchedActor, list_selected};
use crate::query::Field;
use crate::scan::Partition;

/// The parameter with an instant or day of the period.
pub(super) const DATE: &str = "target_date";
/// The parameter with the status.
pub(super) const STATUS: &str = "lifecycle_type";

/// The actors of a status in a period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifecyclePoint {
    /// An instant or day of the period, as sent.
    pub date: String,
    /// The status.
    pub status: LifecycleStatus,
}

/// Parses the parameters of a people link.
pub(super) fn parse_point(request: &Map<String, Value>) -> CalcResult<LifecyclePoint> {
    let required = |attr: &'static str| CalcError::coded("required", Some(attr), "This field is required.");
    let (date, status) = (Field::of(request, DATE, DATE), Field::of(request, STATUS, STATUS));
    let date = date.text()?.ok_or_else(|| required(DATE))?.to_owned();
    parse_date(&date)?;
    let status = status.text()?.ok_or_else(|| required(STATUS))?;
    let unknown = || {
        let names = LifecycleStatus::NAMES.join(", ");
        CalcError::invalid(STATUS, format!("\"{status}\" is not a status. It must be one of {names}."))
    };
    Ok(LifecyclePoint { date, status: LifecycleStatus::from_name(status).ok_or_else(unknown)? })
}

fn parse_date(text: &str) -> CalcResult<DateText> {
    let date = DateText::parse_parameter(text, DATE)?;
    if !date.is_absolute() {
        let detail = "Must be an instant or a day of the period, such as 2024-01-31 or 2024-01-31T12:00:00Z.";
        return Err(CalcError::invalid(DATE, detail));
    }
    Ok(date)
}

impl CompiledLifecycle {
    /// The selected actors of a partition with the times of their events in the period, sorted by id. There are none where the
    /// period is not shown.
    pub(super) fn list_people(
        &self,
        partition: &Partition,
        point: &LifecyclePoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        let date = parse_date(&point.date)?.instant(self.now).map(|date| date.timestamp_micros());
        let Some(finder) = self.periods.finder() else { return Ok(Vec::new()) };
        let Some(selected) = date.and_then(|date| finder.period_of(date)).filter(|period| *period > 0) else {
            return Ok(Vec::new());
        };
        let rows = self.matching_rows(partition, work)?;
        let mut has_status = vec![false; partition.actors.len()];
        statuses::for_each_status(&rows, &partition.created, &self.periods, work, |one| {
            if one.period == selected
                && one.status == point.status
                && let Some(has_status) = has_status.get_mut(one.actor)
            {
                *has_status = true;
            }
        })?;
        let is_in_period = |time| finder.period_of(time) == Some(selected);
        list_selected(partition, &rows, &has_status, is_in_period, work)
    }
}
