//! Lists the actors behind a number of a trend: all with a counted event in the query's date range.
//!
//! Must stay true: the link of a bucket sets the date range to exactly what the bucket counts, including its rolling
//! window, so there is no rolling window here.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::keys::{Key, Keys, Layer, Split};
use super::rows::{NULL, edges_of};
use super::{Trend, TrendPoint};
use crate::dictionary::text_id;
use crate::error::CalcResult;
use crate::facts::group_column;
use crate::people::Matched;
use crate::query::{BreakdownBy, BreakdownDimension, CohortChoice, Math, UniqueBy};
use crate::scan::{Partition, Run};
use crate::text::{numeric, text_of};
use crate::work::WorkBudget;

impl Trend {
    /// The actors that a number counts, with the times of the counted events, sorted by id.
    pub(crate) fn people(
        &self,
        partition: &Partition,
        point: &TrendPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Matched>> {
        let (Some(Some(counter)), Some(period)) = (self.counters.get(point.series), self.periods.first())
        else {
            return Ok(Vec::new());
        };
        if self.actors(point.series) != partition.counted {
            return Ok(Vec::new());
        }
        // Without a value the point selects every value.
        let all = Split::Whole;
        let split = if point.value.is_some() { &self.split } else { &all };
        let mut keys = Keys::default();
        let layers = partition.runs.iter().map(|run| keys.layers(split, run, work));
        let layers: Vec<Vec<Layer>> = layers.collect::<CalcResult<_>>()?;
        let wanted: Vec<bool> = keys.keys.iter().map(|key| self.is_wanted(point, key)).collect();
        let shared = self.shared_masks(partition, work)?;
        let rows = self.rows_of(counter, partition, (&shared, &layers), work)?;
        let mut people: BTreeMap<Uuid, Matched> = BTreeMap::new();
        counter.each_counted(&rows, &period.whole(), work, |(place, row), key| {
            let Some((run, ..)) = rows.list.get(place) else { return };
            let is_wanted = usize::try_from(key).ok().and_then(|key| wanted.get(key)).copied();
            let (Some(true), Some((actor, key))) = (is_wanted, who(&counter.math, partition, run, row))
            else {
                return;
            };
            let one = people.entry(actor).or_insert_with(|| Matched { actor, key, times: Vec::new() });
            one.times.extend(run.times.get(row));
        })?;
        work.check()?;
        let mut people: Vec<Matched> = people.into_values().collect();
        people.iter_mut().for_each(|one| one.times.sort_unstable());
        Ok(people)
    }

    fn is_wanted(&self, point: &TrendPoint, key: &Key) -> bool {
        let Some(value) = &point.value else { return true };
        match &point.kept {
            Some(kept) => !kept.iter().any(|value| self.is_value(value, key)),
            None => self.is_value(value, key),
        }
    }

    /// Whether these texts of a result row mean this breakdown value.
    fn is_value(&self, texts: &[String], key: &Key) -> bool {
        match key {
            Key::Whole => true,
            Key::Cohort(CohortChoice::All) => texts == ["all"],
            Key::Cohort(CohortChoice::Cohort(id)) => texts == [id.to_string()],
            Key::Texts(values) => {
                let Some(BreakdownBy::Dimensions { dimensions: parts, .. }) =
                    self.query.common.breakdown.as_ref().map(|breakdown| &breakdown.by)
                else {
                    return false;
                };
                texts.len() == values.len()
                    && parts
                        .iter()
                        .zip(texts)
                        .zip(values)
                        .all(|((part, text), value)| is_text(part, text, value))
            }
        }
    }
}

fn is_text(part: &BreakdownDimension, text: &str, value: &Option<String>) -> bool {
    match part.bins {
        None => value.as_deref().unwrap_or(NULL) == text,
        Some(_) => match (value.as_deref().and_then(numeric), edges_of(text)) {
            (Some(number), Some((from, until))) => from <= number && number < until,
            (None, None) => text == NULL,
            _ => false,
        },
    }
}

/// The actor that a row counts: the group if groups are counted, else the partition's actor.
fn who(math: &Math, partition: &Partition, run: &Run, row: usize) -> Option<(Uuid, Option<String>)> {
    match math {
        Math::Unique(UniqueBy::Group(index)) | Math::Rolling(_, UniqueBy::Group(index)) => {
            let key = run.columns.get(&group_column(*index))?.value(row).and_then(text_of)?;
            Some((Uuid::from_u128(text_id(&key)), Some(key.into_owned())))
        }
        _ => {
            let actor = usize::try_from(*run.actors.get(row)?).ok()?;
            Some((*partition.actors.get(actor)?, partition.keys.get(actor).cloned()))
        }
    }
}
