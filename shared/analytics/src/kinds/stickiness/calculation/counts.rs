//! The partial result of a stickiness query: how many actors are active in how many intervals.
//!
//! Must stay true: partial results merge in any order to the same result. An actor that is a value may occur in several
//! partitions, so the events of values are kept until the end, in bounded memory.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::activity::{IntervalEvents, is_active};
use crate::kinds::stickiness::limits;
use crate::kinds::stickiness::query::Criterion;

/// Approximate memory of a value beside its text and events, in bytes.
const VALUE_BYTES: usize = 80;

/// Counts by series and period.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StickinessCounts {
    /// By number of intervals: how many actors are active in so many.
    actors: BTreeMap<usize, Vec<u64>>,
    /// By value: its events in each interval.
    values: BTreeMap<usize, HashMap<String, IntervalEvents>>,
    value_bytes: usize,
    /// The memory limit was exceeded and the data dropped.
    pub(super) over_budget: bool,
}

impl StickinessCounts {
    /// Adds actors by the number of intervals in which they are active.
    pub(super) fn add_actors(&mut self, series: usize, active: impl Iterator<Item = u32>) {
        let counts = self.actors.entry(series).or_default();
        for intervals in active {
            let intervals = intervals as usize;
            if counts.len() <= intervals {
                counts.resize(intervals + 1, 0);
            }
            counts[intervals] += 1;
        }
    }

    /// Sets the bars of a series: bar i, from 0, holds the actors that are active in i + 1 intervals.
    pub(super) fn set_bars(&mut self, series: usize, bars: Vec<u64>) {
        self.actors.insert(series, std::iter::once(0).chain(bars).collect());
    }

    /// Adds the events of values.
    pub(super) fn add_values(&mut self, series: usize, values: HashMap<String, IntervalEvents>) {
        if self.over_budget {
            return;
        }
        let known = self.values.entry(series).or_default();
        for (text, events) in values {
            match known.entry(text) {
                std::collections::hash_map::Entry::Vacant(entry) => {
                    let event_bytes = events.len() * size_of::<(u32, u32)>();
                    self.value_bytes += VALUE_BYTES + entry.key().len() + event_bytes;
                    entry.insert(events);
                }
                std::collections::hash_map::Entry::Occupied(mut entry) => {
                    let before = entry.get().len();
                    let merged = merge_events(entry.get(), &events);
                    self.value_bytes += (merged.len() - before) * size_of::<(u32, u32)>();
                    entry.insert(merged);
                }
            }
            if self.value_bytes > limits::VALUES_MEMORY_BYTES {
                *self = Self { over_budget: true, ..Self::default() };
                return;
            }
        }
    }

    /// Merges two partial results.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        if self.over_budget || other.over_budget {
            return Self { over_budget: true, ..Self::default() };
        }
        for (series, more) in other.actors {
            let counts = self.actors.entry(series).or_default();
            if counts.len() < more.len() {
                counts.resize(more.len(), 0);
            }
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        for (series, values) in other.values {
            self.add_values(series, values);
        }
        self
    }

    /// The bars of a series: bar i, from 0, holds the actors that are active in i + 1 intervals.
    pub(super) fn take_bars(&mut self, series: usize, criterion: Option<Criterion>, bars: usize) -> Vec<u64> {
        if let Some(values) = self.values.remove(&series) {
            let active = |events: &IntervalEvents| {
                let active = events.iter().filter(|(_, events)| is_active(criterion, *events)).count();
                u32::try_from(active).unwrap_or(u32::MAX)
            };
            let active: Vec<u32> = values.values().map(active).collect();
            self.add_actors(series, active.into_iter());
        }
        let counts = self.actors.remove(&series).unwrap_or_default();
        let mut data = vec![0; bars];
        data.iter_mut().zip(counts.into_iter().skip(1)).for_each(|(bar, count)| *bar = count);
        data
    }
}

/// Adds the events of the same intervals; both lists ascend by interval.
fn merge_events(left: &IntervalEvents, right: &IntervalEvents) -> IntervalEvents {
    let mut merged: BTreeMap<u32, u32> = left.iter().copied().collect();
    for (interval, events) in right {
        let known = merged.entry(*interval).or_default();
        *known = known.saturating_add(*events);
    }
    merged.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part_format::decoded;

    fn values(text: &str, events: &[(u32, u32)]) -> HashMap<String, IntervalEvents> {
        [(text.to_owned(), events.to_vec())].into()
    }

    #[test]
    fn values_of_several_partitions_are_one_actor() {
        let mut parts = [StickinessCounts::default(), StickinessCounts::default()];
        parts[0].add_values(3, values("x", &[(0, 1), (4, 1)]));
        parts[1].add_values(3, values("x", &[(4, 1), (7, 1)]));
        let [left, right] = parts;
        let mut merged = left.clone().merge(right.clone());
        assert_eq!(merged, right.merge(left));
        let at_least_two =
            Criterion { comparison: crate::kinds::stickiness::query::CountComparison::AtLeast, value: 2 };
        assert_eq!(merged.clone().take_bars(3, Some(at_least_two), 3), [1, 0, 0]);
        assert_eq!(merged.take_bars(3, None, 3), [0, 0, 1]);
    }

    #[test]
    fn exceeding_the_memory_limit_drops_the_data() {
        let events: IntervalEvents = (0..1_000).map(|interval| (interval, 1)).collect();
        let bytes = VALUE_BYTES + 8 + events.len() * 8;
        let fits = limits::VALUES_MEMORY_BYTES / bytes;
        let mut counts = StickinessCounts::default();
        for value in 0..fits {
            counts.add_values(0, values(&format!("{value:08}"), &events));
        }
        assert!(!counts.over_budget);
        counts.add_values(0, values("one more", &events));
        assert_eq!(counts, StickinessCounts { over_budget: true, ..StickinessCounts::default() });
        assert_eq!(decoded(&counts), counts);
    }
}
