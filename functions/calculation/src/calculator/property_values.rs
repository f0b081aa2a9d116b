//! The values that a property has, the most frequent first.
//!
//! For events, one column of the last seven days is scanned, and of the whole time only if that has no value. For persons,
//! the property of each person is read. Must stay true: each item of a list is counted, and null is not a value.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use pennon_analytics::scan::{ColumnKey, EventSelection, Partition, ScanRequest};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_filters::text::text_of;
use pennon_filters::{CalcError, CalcResult};
use serde_json::Value;
use tokio::time::Instant;

use super::execution::{CancellationGuard, ExecutionError, metered};
use super::{Calculator, with_deadline};
use crate::errors::{engine_error, event_store_error};

/// The time range of the first scan.
const RECENT_MICROS: i64 = 7 * 86_400 * 1_000_000;
/// Values that are counted between two checks for cancellation.
const CANCELLATION_CHECK_INTERVAL: usize = 4096;

/// The query of a list of values.
#[derive(Debug, Clone)]
pub struct ValuesQuery {
    /// The property.
    pub key: String,
    /// The text of a value contains this (case-insensitive).
    pub search: Option<String>,
    /// Only events with these names; all if empty.
    pub events: BTreeSet<String>,
    /// Most values.
    pub limit: usize,
}

/// A value and its number of occurrences.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueCount {
    /// The value; no list and no null.
    pub value: Value,
    /// Its number of occurrences.
    pub count: u64,
}

/// Occurrences of values, by their JSON text.
#[derive(Debug, Default)]
struct ValueCounts(HashMap<String, ValueCount>);

impl ValueCounts {
    /// Adds `times` occurrences of `value`; of each item if it is a list.
    fn add(&mut self, value: &Value, times: u64, search: Option<&str>) {
        match value {
            Value::Null => {}
            Value::Array(items) => items.iter().for_each(|item| self.add(item, times, search)),
            value => {
                let is_found =
                    |search: &str| text_of(value).is_some_and(|text| text.to_lowercase().contains(search));
                if search.is_none_or(is_found) {
                    let counted = self.0.entry(value.to_string());
                    counted.or_insert_with(|| ValueCount { value: value.clone(), count: 0 }).count += times;
                }
            }
        }
    }

    /// The most frequent values; equally frequent ones are sorted by their text.
    fn most_frequent(self, limit: usize) -> Vec<ValueCount> {
        let mut values = self.0.into_iter().collect::<Vec<_>>();
        values.sort_unstable_by(|(text, a), (other, b)| b.count.cmp(&a.count).then_with(|| text.cmp(other)));
        values.truncate(limit);
        values.into_iter().map(|(_, counted)| counted).collect()
    }
}

fn count_values(
    partitions: &[Partition],
    column: &ColumnKey,
    search: Option<&str>,
    is_cancelled: &dyn Fn() -> bool,
) -> CalcResult<ValueCounts> {
    let mut counts = ValueCounts::default();
    let columns = partitions.iter().flat_map(|partition| &partition.runs);
    for column in columns.filter_map(|run| run.columns.get(column)) {
        let mut times = vec![0_u64; column.values.len()];
        for code in column.codes.iter() {
            if let Some(times) = times.get_mut(*code as usize) {
                *times += 1;
            }
        }
        for (at, (value, times)) in column.values.iter().zip(times).enumerate() {
            if at % CANCELLATION_CHECK_INTERVAL == 0 && is_cancelled() {
                return Err(CalcError::timeout());
            }
            if times > 0 {
                counts.add(value, times, search);
            }
        }
    }
    Ok(counts)
}

impl Calculator {
    /// The values of a property of events, as of `now`.
    pub async fn event_property_values(
        &self,
        project: &Project,
        query: ValuesQuery,
        now: i64,
        deadline: Instant,
    ) -> ApiResult<Vec<ValueCount>> {
        let cancellation = CancellationGuard::until(deadline);
        let work = Box::pin(async {
            let recent = self.values_since(project, &query, now - RECENT_MICROS, &cancellation).await?;
            if recent.is_empty() {
                self.values_since(project, &query, i64::MIN, &cancellation).await
            } else {
                Ok(recent)
            }
        });
        with_deadline(project, deadline, work).await
    }

    async fn values_since(
        &self,
        project: &Project,
        query: &ValuesQuery,
        from: i64,
        cancellation: &CancellationGuard,
    ) -> ApiResult<Vec<ValueCount>> {
        let permit = self.acquire_shared_permit().await?;
        let column = match query.key.as_str() {
            "distinct_id" => ColumnKey::DistinctId,
            key => ColumnKey::Property(key.to_owned()),
        };
        let events = match query.events.is_empty() {
            true => EventSelection::All,
            false => EventSelection::Named(query.events.clone()),
        };
        let columns = BTreeSet::from([column.clone()]);
        let request = ScanRequest { events, from, to: i64::MAX, columns, arrivals: false };
        let memory = self.events.query_memory();
        let scan = self.events.scan_within(project.id, &project.group_types, &request, &memory).await;
        let partitions = scan.map_err(event_store_error)?.partitions;
        let (is_cancelled, limit) = (cancellation.cancellation_check(), query.limit);
        let search = query.search.as_ref().map(|search| search.to_lowercase());
        let counted = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            metered(&memory, &is_cancelled, |is_cancelled| {
                count_values(&partitions, &column, search.as_deref(), is_cancelled)
                    .map(|counts| counts.most_frequent(limit))
            })
        });
        Ok(counted.await.map_err(ExecutionError::from)??)
    }

    /// The values of a property of persons.
    pub async fn person_property_values(
        &self,
        project: &Project,
        query: ValuesQuery,
        deadline: Instant,
    ) -> ApiResult<Vec<ValueCount>> {
        let cancellation = CancellationGuard::until(deadline);
        let work = Box::pin(async {
            let permit = self.acquire_shared_permit().await?;
            let keys = BTreeSet::from([query.key.clone()]);
            let people = self.events.people(project.id, &keys).await.map_err(event_store_error)?;
            let is_cancelled = cancellation.cancellation_check();
            let search = query.search.as_ref().map(|search| search.to_lowercase());
            let counted = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                let (mut counts, mut was_cancelled) = (ValueCounts::default(), false);
                people.each(|_, _, properties| {
                    if let Some(value) = properties.get(&query.key) {
                        counts.add(value, 1, search.as_deref());
                    }
                    was_cancelled = is_cancelled();
                    if was_cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                if was_cancelled { Err(CalcError::timeout()) } else { Ok(counts.most_frequent(query.limit)) }
            });
            let counted = counted.await.map_err(|error| ApiError::internal(&error))?;
            counted.map_err(engine_error)
        });
        with_deadline(project, deadline, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_come_by_frequency_and_lists_by_their_items() {
        let mut counts = ValueCounts::default();
        for (value, times) in [
            (json!("Firefox"), 2),
            (json!(["Safari", "Firefox"]), 3),
            (json!(null), 9),
            (json!(7), 3),
            (json!({"a": 1}), 1),
        ] {
            counts.add(&value, times, None);
        }
        let values = counts.most_frequent(3).into_iter().map(|counted| (counted.value, counted.count));
        assert_eq!(values.collect::<Vec<_>>(), [(json!("Firefox"), 5), (json!("Safari"), 3), (json!(7), 3)]);
        let mut found = ValueCounts::default();
        found.add(&json!(["Safari", "Firefox", 15]), 1, Some("fi"));
        assert_eq!(found.most_frequent(9), [ValueCount { value: json!("Firefox"), count: 1 }]);
    }
}
