//! The events of a partition that count towards a metric: those of actors that saw one variant, from their exposure on.
//!
//! Must stay true: the order of rows and the actors are those of the partition, so that kinds can calculate on the result.

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::exposures::Exposures;
use crate::scan::{ArrivalOrder, Column, EventRun, Micros, Partition};

/// The partition with only the events from the exposure of their actor until `window` after it.
pub(super) fn keep(
    partition: &Partition,
    exposures: &Exposures,
    window: Micros,
    work: &WorkBudget<'_>,
) -> CalcResult<Partition> {
    let mut runs = Vec::with_capacity(partition.runs.len());
    for run in &partition.runs {
        let mut rows = Vec::new();
        for (row, (actor, time)) in run.actors.iter().zip(&run.times).enumerate() {
            work.consume(1)?;
            let start = exposures.start(*actor);
            if start.is_some_and(|start| *time >= start && *time - start <= window) {
                rows.push(row);
            }
        }
        if rows.len() == run.actors.len() {
            runs.push(run.clone());
        } else if !rows.is_empty() {
            work.consume(rows.len() * (3 + run.columns.len() + run.joined_columns.len()))?;
            runs.push(gather(run, &rows));
        }
    }
    Ok(Partition {
        actors: partition.actors.clone(),
        keys: partition.keys.clone(),
        runs,
        counted: partition.counted,
        created: partition.created.clone(),
    })
}

/// Some rows of a run.
fn gather(run: &EventRun, rows: &[usize]) -> EventRun {
    let column = |column: &Column| {
        let codes: Vec<u32> = rows.iter().filter_map(|row| column.codes.get(*row).copied()).collect();
        Column { codes: codes.into(), values: column.values.clone() }
    };
    let order = match &run.order {
        ArrivalOrder::Untied => ArrivalOrder::Untied,
        ArrivalOrder::Ties(ties) => ArrivalOrder::Ties(rows.iter().map(|row| ties[*row]).collect()),
        ArrivalOrder::Seqs(_) => rows.iter().map(|row| run.order.at(*row)).collect(),
    };
    EventRun {
        event: run.event.clone(),
        actors: rows.iter().map(|row| run.actors[*row]).collect(),
        times: rows.iter().map(|row| run.times[*row]).collect(),
        order,
        columns: run.columns.iter().map(|(key, values)| (key.clone(), column(values))).collect(),
        joined_columns: run
            .joined_columns
            .iter()
            .map(|(key, values)| (key.clone(), column(values)))
            .collect(),
    }
}
