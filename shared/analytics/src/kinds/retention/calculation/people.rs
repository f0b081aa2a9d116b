//! Lists the actors of a row of a retention result.
//!
//! Must stay true: the columns in which listed actors appear add up to the counts of the row.

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::layers::PartitionRows;
use super::{CompiledRetention, RetentionPoint};
use crate::people::MatchedActor;
use crate::scan::Partition;

impl CompiledRetention {
    /// The actors of a row, with the columns in which they count and the time of their first starting event.
    pub(super) fn list_people(
        &self,
        partition: &Partition,
        point: &RetentionPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        let rows = PartitionRows::new(self, partition, work)?;
        let value = rows.values.texts.iter().position(|text| *text == point.value);
        let value = value.and_then(|value| u32::try_from(value).ok());
        let column = point.column.map(usize::try_from);
        let mut people = Vec::new();
        self.for_each_start(rows, work, |actor, start| {
            if (Some(start.value), Some(start.period)) != (value, point.period) {
                return Ok(());
            }
            let mut appearances = vec![false; self.columns.count()];
            for column in std::iter::once(0).chain(start.columns.iter().map(|column| *column as usize)) {
                if let Some(appears) = appearances.get_mut(column) {
                    *appears = true;
                }
            }
            let is_listed = match column {
                None => true,
                Some(Ok(column)) => appearances.get(column) == Some(&true),
                Some(Err(_)) => false,
            };
            let at = actor as usize;
            if let Some(id) = partition.actors.get(at).filter(|_| is_listed) {
                let (key, times) = (partition.keys.get(at).cloned(), vec![start.time]);
                people.push(MatchedActor { actor: *id, key, times, appearances });
            }
            Ok(())
        })?;
        people.sort_unstable_by_key(|one| one.actor);
        Ok(people)
    }
}
