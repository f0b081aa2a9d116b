//! Lists the actors behind a bar.
//!
//! Must stay true: the list has as many actors as the bar counts.

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CompiledStickiness, activity, matching_rows};
use crate::kinds::stickiness::StickinessQuery;
use crate::kinds::stickiness::query::CountComparison;
use crate::people::{MatchedActor, list_selected};
use crate::query::{Field, parse_integer};
use crate::scan::Partition;

/// The parameter with the bar.
pub(super) const BAR: &str = "stickiness_days";
/// The parameter with the series.
pub(super) const SERIES: &str = "entity_order";
/// The parameter that compares with the bar.
const OPERATOR: &str = "stickiness_operator";

/// The actors of a series by their number of active intervals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StickinessPoint {
    /// Index of the series.
    pub series: usize,
    /// The bar, from 1.
    pub intervals: u64,
    /// How the number of active intervals compares with the bar.
    pub comparison: CountComparison,
}

/// Parses the parameters of a people link.
pub(super) fn parse_point(
    query: &StickinessQuery,
    request: &Map<String, Value>,
) -> CalcResult<StickinessPoint> {
    let get_parameter = |key: &str| request.get(key).filter(|value| !value.is_null());
    let Some(bar) = get_parameter(BAR) else {
        return Err(CalcError::coded("required", Some(BAR), "This field is required."));
    };
    let intervals = parse_integer(bar).and_then(|bar| u64::try_from(bar).ok()).filter(|bar| *bar > 0);
    let intervals = intervals.ok_or_else(|| CalcError::invalid(BAR, "Must be a whole number from 1."))?;
    let series = match get_parameter(SERIES) {
        None => Some(0),
        Some(order) => parse_integer(order).and_then(|order| usize::try_from(order).ok()),
    };
    let series = series.filter(|series| *series < query.series.len());
    let series = series.ok_or_else(|| CalcError::invalid(SERIES, "There is no such series."))?;
    let operator = Field::of(request, OPERATOR, OPERATOR);
    let comparison = match operator.text()? {
        None => CountComparison::Exactly,
        Some(name) => CountComparison::from_name(name).ok_or_else(|| {
            let names = CountComparison::NAMES.join(", ");
            CalcError::invalid(OPERATOR, format!("\"{name}\" is not one of {names}."))
        })?,
    };
    let comparison = if query.is_cumulative { CountComparison::AtLeast } else { comparison };
    Ok(StickinessPoint { series, intervals, comparison })
}

impl CompiledStickiness {
    /// The selected actors of a partition with the times of their counted events, sorted by id. There are none where the
    /// series counts values.
    pub(super) fn list_people(
        &self,
        partition: &Partition,
        point: &StickinessPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        let counter = self.counters.get(point.series).and_then(Option::as_ref);
        let counter =
            counter.filter(|counter| counter.actor_kind == partition.counted && counter.value.is_none());
        let (Some(counter), Some(period)) = (counter, self.periods.first()) else { return Ok(Vec::new()) };
        let shared = self.shared_masks(partition, work)?;
        let rows = matching_rows(counter, partition, &shared, work)?;
        let actors = partition.actors.len();
        let active = activity::count_active_intervals(&rows, actors, period, self.query.criterion, work)?;
        let is_selected =
            |active: u32| active > 0 && point.comparison.accepts(active.into(), point.intervals);
        let selected: Vec<bool> = active.iter().map(|active| is_selected(*active)).collect();
        let Some(finder) = period.finder() else { return Ok(Vec::new()) };
        list_selected(partition, &rows, &selected, |time| finder.number_of(time).is_some(), work)
    }
}
