//! Which events of whom are in the paths around a funnel.
//!
//! Must stay true: the funnel is calculated by the code of funnels, on actors of its own kind. Persons carry the bounds of
//! their own outcome; events of groups and distinct ids those of the actor that they belong to, whatever their person.

use std::collections::HashMap;
use std::rc::Rc;

use pennon_filters::dates::range::DateRange;
use pennon_filters::error::CalcResult;
use pennon_filters::text::text_of;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Value, json};

use super::ordered_events::{NEVER, RowTimes, TimeBounds};
use crate::compiler::Compiler;
use crate::kinds::funnels::CompiledFunnel;
use crate::kinds::insight::{CompiledInsight, InsightQuery};
use crate::kinds::paths::{FunnelPathType, FunnelPaths};
use crate::project::ProjectContext;
use crate::scan::{ActorKind, Column, ColumnRef, EventRun, JoinedColumnKey, MISSING, Micros, Partition};

/// The compiled restriction to a funnel step.
#[derive(Debug, Clone)]
pub(super) struct FunnelBounds {
    paths: FunnelPaths,
    funnel: CompiledFunnel,
    /// Whom the funnel counts.
    actors: ActorKind,
}

/// By row the bounds of its actor, where the funnel counts persons.
pub(super) type ActorBounds = Rc<Vec<TimeBounds>>;

impl FunnelBounds {
    /// Resolves the funnel's own dates, compiles it, and registers what it reads.
    pub(super) fn new(
        paths: &FunnelPaths,
        project: &ProjectContext,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let source = &paths.source;
        let range: DateRange =
            source.common.dates.resolve(source.rounding(), compiler.now, project.earliest_event)?;
        let funnel = CompiledFunnel::compile(source, project, range, compiler)?;
        Ok(Self { paths: paths.clone(), funnel, actors: project.actor_kind(source.group_type_index) })
    }

    /// Gives events of persons the bounds of their group or distinct id, and drops the partitions of these.
    pub(super) fn relate_partitions(
        &self,
        partitions: Vec<Partition>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Partition>> {
        let Some(key_column) = self.actors.column() else { return Ok(partitions) };
        let (of_actors, mut of_persons): (Vec<_>, Vec<_>) =
            partitions.into_iter().partition(|partition| partition.counted == self.actors);
        let mut bounds: HashMap<String, TimeBounds> = HashMap::new();
        for partition in of_actors {
            for (key, of_key) in partition.keys.iter().zip(self.of_partition(&partition, work)?.iter()) {
                if *of_key != NEVER {
                    bounds.insert(key.clone(), *of_key);
                }
            }
        }
        for run in of_persons.iter_mut().flat_map(|partition| &mut partition.runs) {
            work.consume(run.times.len())?;
            let column = run.columns.get(&key_column).map(|keys| bounds_column(keys, &bounds, work));
            run.joined_columns.insert(JoinedColumnKey::TimeBounds, column.transpose()?.unwrap_or_default());
        }
        Ok(of_persons)
    }

    /// The bounds of each person of a partition; `None` if the funnel counts other actors.
    pub(super) fn of_persons(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<ActorBounds>> {
        match self.actors {
            ActorKind::Persons => self.of_partition(partition, work).map(|bounds| Some(Rc::new(bounds))),
            ActorKind::DistinctIds | ActorKind::Groups(_) => Ok(None),
        }
    }

    /// By actor of the partition: which of its events are in the paths.
    fn of_partition(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Vec<TimeBounds>> {
        let mut bounds = vec![NEVER; partition.actors.len()];
        let step = self.paths.bounding_step();
        let missed = self.paths.missed_step();
        self.funnel.for_each_outcome(partition, work, |outcome| {
            let is_selected = match missed {
                Some(missed) => self.funnel.dropped_before(missed, outcome.steps),
                None => outcome.steps >> step & 1 != 0,
            };
            if is_selected
                && let Some(of_actor) = bounds.get_mut(outcome.actor as usize)
                && let Some(times) = self.bounds_of(step, outcome.times)
            {
                *of_actor = times;
            }
        })?;
        Ok(bounds)
    }

    /// The bounds of a path of the funnel.
    fn bounds_of(&self, step: usize, times: &[Micros]) -> Option<TimeBounds> {
        let time = |step: usize| times.get(self.paths.time_index(step)).copied();
        let at = time(step)?;
        Some(match (self.paths.path_type, self.paths.missed_step()) {
            (FunnelPathType::After, _) => (at, Micros::MAX),
            (FunnelPathType::Before, None) => (Micros::MIN, at),
            (FunnelPathType::Before, Some(_)) => {
                (Micros::MIN, at.saturating_add(self.paths.source.window.micros()))
            }
            (FunnelPathType::Between, _) => (time(step.checked_sub(1)?)?, at),
        })
    }
}

/// By row: the bounds of its key, as a list of two.
fn bounds_column(
    keys: &Column,
    bounds: &HashMap<String, TimeBounds>,
    work: &WorkBudget<'_>,
) -> CalcResult<Column> {
    let mut values = Vec::new();
    let mut table = Vec::with_capacity(keys.values.len());
    for key in keys.values.iter() {
        work.consume(1)?;
        let of_key = text_of(key).and_then(|key| bounds.get(key.as_ref()));
        table.push(of_key.map_or(MISSING, |(from, to)| {
            values.push(json!([from, to]));
            u32::try_from(values.len() - 1).unwrap_or(MISSING)
        }));
    }
    let code = |key: &u32| table.get(*key as usize).copied().unwrap_or(MISSING);
    Ok(Column::new(keys.codes.iter().map(code).collect(), values))
}

/// The instants within which the rows of a run count: those of the query, and those of a funnel.
pub(super) fn row_times(
    run: &EventRun,
    range: TimeBounds,
    funnel: Option<&FunnelBounds>,
    of_persons: Option<&ActorBounds>,
) -> RowTimes {
    match (funnel, of_persons) {
        (None, _) => RowTimes::Same(range),
        (Some(_), Some(bounds)) => RowTimes::OfActors(bounds.clone()),
        (Some(_), None) => {
            let column = run.column(&ColumnRef::Joined(JoinedColumnKey::TimeBounds));
            let table: Vec<TimeBounds> = column
                .map(|column| {
                    column.values.iter().map(|bounds| within(parse_bounds(bounds), range)).collect()
                })
                .unwrap_or_default();
            let codes = column.map_or(&[][..], |column| &column.codes);
            RowTimes::OfRows(
                codes.iter().map(|code| table.get(*code as usize).copied().unwrap_or(NEVER)).collect(),
            )
        }
    }
}

fn parse_bounds(value: &Value) -> TimeBounds {
    match (value[0].as_i64(), value[1].as_i64()) {
        (Some(from), Some(to)) => (from, to),
        _ => NEVER,
    }
}

/// The instants within both bounds.
pub(super) fn within(one: TimeBounds, other: TimeBounds) -> TimeBounds {
    (one.0.max(other.0), one.1.min(other.1))
}
