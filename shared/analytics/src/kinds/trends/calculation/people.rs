//! Lists the actors behind a number of a trend: all with a counted event in the query's date range.
//!
//! Must stay true: the link of a bucket sets the date range to exactly what the bucket counts, including its rolling
//! window, so there is no rolling window here.

use std::collections::BTreeMap;

use pennon_filters::error::CalcResult;
use pennon_filters::text::{numeric, text_of};
use pennon_filters::work_budget::WorkBudget;
use uuid::Uuid;

use super::breakdown_values::{BreakdownLayer, BreakdownValue, BreakdownValues, TrendBreakdown};
use super::rows::{NULL, parse_bin_label};
use super::{CompiledTrend, TrendPoint};
use crate::dictionary::text_hash;
use crate::people::MatchedActor;
use crate::query::{BreakdownBy, BreakdownDimension, CohortChoice, Math, UniqueBy};
use crate::scan::group_column;
use crate::scan::{EventRun, Partition};

impl CompiledTrend {
    /// The actors that a number counts, with the times of the counted events, sorted by id.
    pub(super) fn list_people(
        &self,
        partition: &Partition,
        point: &TrendPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        let (Some(Some(counter)), Some(period)) = (self.counters.get(point.series), self.periods.first())
        else {
            return Ok(Vec::new());
        };
        if self.series_actor_kind(point.series) != partition.counted {
            return Ok(Vec::new());
        }
        // Without a value the point selects every value.
        let all = TrendBreakdown::None;
        let breakdown = if point.value.is_some() { &self.breakdown } else { &all };
        let mut values = BreakdownValues::default();
        let layers = partition.runs.iter().map(|run| values.layers(breakdown, run, work));
        let layers: Vec<Vec<BreakdownLayer>> = layers.collect::<CalcResult<_>>()?;
        let selected: Vec<bool> = values.list.iter().map(|key| self.selects(point, key)).collect();
        let shared = self.shared_masks(partition, work)?;
        let rows = self.series_rows(counter, partition, (&shared, &layers), work)?;
        let mut people: BTreeMap<Uuid, MatchedActor> = BTreeMap::new();
        counter.for_each_counted(&rows, &period.whole_range(), work, |(place, row), key| {
            let Some((run, ..)) = rows.list.get(place) else { return };
            let selects = usize::try_from(key).ok().and_then(|key| selected.get(key)).copied();
            let (Some(true), Some((actor, key))) =
                (selects, counted_actor(&counter.math, partition, run, row))
            else {
                return;
            };
            let one = people.entry(actor).or_insert_with(|| MatchedActor {
                actor,
                key,
                times: Vec::new(),
                appearances: Vec::new(),
            });
            one.times.extend(run.times.get(row));
        })?;
        work.check()?;
        let mut people: Vec<MatchedActor> = people.into_values().collect();
        people.iter_mut().for_each(|one| one.times.sort_unstable());
        Ok(people)
    }

    fn selects(&self, point: &TrendPoint, key: &BreakdownValue) -> bool {
        let Some(value) = &point.value else { return true };
        match &point.kept_values {
            Some(kept_values) => !kept_values.iter().any(|value| self.matches_texts(value, key)),
            None => self.matches_texts(value, key),
        }
    }

    /// Whether these texts of a result row mean this breakdown value.
    fn matches_texts(&self, texts: &[String], key: &BreakdownValue) -> bool {
        match key {
            BreakdownValue::NoBreakdown => true,
            BreakdownValue::Cohort(CohortChoice::All) => texts == ["all"],
            BreakdownValue::Cohort(CohortChoice::Cohort(id)) => texts == [id.to_string()],
            BreakdownValue::Texts(values) => {
                let Some(BreakdownBy::Dimensions { dimensions: parts, .. }) =
                    self.query.common.breakdown.as_ref().map(|breakdown| &breakdown.by)
                else {
                    return false;
                };
                texts.len() == values.len()
                    && parts
                        .iter()
                        .zip(texts)
                        .zip(values.iter())
                        .all(|((part, text), value)| matches_text(part, text, value))
            }
        }
    }
}

fn matches_text(part: &BreakdownDimension, text: &str, value: &Option<String>) -> bool {
    match part.bins {
        None => value.as_deref().unwrap_or(NULL) == text,
        Some(_) => match (value.as_deref().and_then(numeric), parse_bin_label(text)) {
            (Some(number), Some((from, until))) => from <= number && number < until,
            (None, None) => text == NULL,
            _ => false,
        },
    }
}

/// The actor that a row counts: the group if groups are counted, else the partition's actor.
fn counted_actor(
    math: &Math,
    partition: &Partition,
    run: &EventRun,
    row: usize,
) -> Option<(Uuid, Option<String>)> {
    match math {
        Math::Unique(UniqueBy::Group(index)) | Math::Rolling(_, UniqueBy::Group(index)) => {
            let key = run.columns.get(&group_column(*index))?.value(row).and_then(text_of)?;
            Some((Uuid::from_u128(text_hash(&key)), Some(key.into_owned())))
        }
        _ => {
            let actor = usize::try_from(*run.actors.get(row)?).ok()?;
            Some((*partition.actors.get(actor)?, partition.keys.get(actor).cloned()))
        }
    }
}
