//! Paths: from the events of each person to passages, and from all passages to edges.
//!
//! [`CompiledPaths`] holds the compiled query. For each partition, [`items`] turns names into codes, [`ordered_events`] brings
//! the events of each person into their order, and [`session_steps`] cuts the steps of each session. [`passages`] counts
//! which step follows which, [`edges`] builds the result.
//!
//! Must stay true: only events that are in the paths hold a session together. Counts and people lists are folds over the
//! same steps. The result does not depend on how persons were partitioned.

mod edges;
mod event_naming;
mod funnel_bounds;
mod item_rules;
mod items;
mod ordered_events;
mod passages;
mod people;
mod session_steps;

use std::borrow::Cow;
use std::rc::Rc;

use pennon_filters::dates::Interval;
use pennon_filters::dates::range::{DateRange, floor};
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};

use crate::actor_blocks::ActorBlocks;
use crate::compiler::{Compiler, common_filter};
use crate::filter::Predicate;
use crate::kinds::QueryOutput;
use crate::kinds::insight::CompiledInsight;
use crate::kinds::paths::PathsQuery;
use crate::mask::Mask;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::scan::{ActorKind, Micros, Partition};
use event_naming::EventNaming;
use funnel_bounds::{FunnelBounds, row_times, within};
use item_rules::ItemRules;
pub(super) use item_rules::validate_cleaning_filters;
use items::{ItemDictionary, ItemReader};
use ordered_events::{BLOCK_ROWS, ItemRun, OrderedEvents, TimeBounds};
pub use passages::PassageCounts;
use passages::PassageTable;
pub use people::PathPoint;
use session_steps::{SessionSteps, Step, StepRules};

/// A gap of this length between two events begins a new session.
const SESSION_GAP: Micros = 30 * 60 * 1_000_000;
/// The item that stands for the steps that are skipped between start and end point.
const SKIPPED_STEPS: &str = "...";

/// A paths query with resolved dates and compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledPaths {
    query: PathsQuery,
    /// The first and the last instant of the range.
    bounds: TimeBounds,
    filter: Predicate,
    naming: EventNaming,
    rules: ItemRules,
    funnel: Option<FunnelBounds>,
    session_gap: Micros,
}

impl CompiledInsight for CompiledPaths {
    type Query = PathsQuery;
    type Partial = PassageCounts;
    type DataPoint = PathPoint;

    fn compile(
        query: &PathsQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        compiler.add_actor_kind(ActorKind::Persons);
        let bounds = range_bounds(&range);
        compiler.extend_time_range(bounds.0, bounds.1);
        let filter = compiler.compile_filter(&common_filter(&query.common, project)?, "properties")?;
        let naming = EventNaming::new(query, compiler)?;
        let rules = ItemRules::new(query, project, compiler)?;
        let funnel = query.funnel.as_ref().map(|funnel| FunnelBounds::new(funnel, project, compiler));
        let session_gap = query.funnel.as_ref().map_or(SESSION_GAP, |funnel| funnel.source.window.micros());
        let (query, funnel) = (query.clone(), funnel.transpose()?);
        Ok(Self { query, bounds, filter, naming, rules, funnel, session_gap })
    }

    fn parse_data_point(query: &PathsQuery, request: &Map<String, Value>) -> CalcResult<PathPoint> {
        people::parse_point(query, request)
    }

    fn actor_kind(&self, _point: &PathPoint) -> Option<ActorKind> {
        Some(ActorKind::Persons)
    }

    fn relate_partitions(
        &self,
        partitions: Vec<Partition>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Partition>> {
        match &self.funnel {
            Some(funnel) => funnel.relate_partitions(partitions, work),
            None => Ok(partitions),
        }
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<PassageCounts> {
        let mut dictionary = ItemDictionary::default();
        let mut passages = PassageTable::default();
        self.for_each_session(partition, &mut dictionary, work, |_, _, steps| passages.add_session(steps))?;
        PassageCounts::new(&passages, &dictionary.into_names())
    }

    fn merge(left: PassageCounts, right: PassageCounts) -> PassageCounts {
        left.merge(right)
    }

    fn finish(&self, counts: PassageCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        work.check()?;
        Ok(edges::build_edges(&self.query, &counts, work)?.into())
    }

    fn people(
        &self,
        partition: &Partition,
        point: &PathPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}

impl CompiledPaths {
    /// Calls back for every session with its person and its steps, and with the items of the partition.
    fn for_each_session<'p>(
        &self,
        partition: &'p Partition,
        dictionary: &mut ItemDictionary<'p>,
        work: &WorkBudget<'_>,
        mut callback: impl FnMut(&ItemDictionary<'p>, u32, &[Step]) -> CalcResult<()>,
    ) -> CalcResult<()> {
        let runs = self.item_runs(partition, dictionary, work)?;
        let mut steps = SessionSteps::new(self.step_rules(dictionary));
        let mut events = OrderedEvents::new(self.bounds);
        let mut blocks =
            ActorBlocks::of_rows(runs.iter().map(|run| run.run), partition.actors.len(), BLOCK_ROWS)
                .at_most(events.actors_per_block());
        while let Some(block) = blocks.next_block(work)? {
            events.read_block(&runs, block, work)?;
            work.consume(events.iter().len())?;
            let mut last: Option<(u32, Micros)> = None;
            for event in events.iter() {
                match last {
                    Some((actor, time)) if actor == event.actor && event.time - time < self.session_gap => {}
                    _ => {
                        if let Some((actor, _)) = last {
                            callback(dictionary, actor, steps.finish())?;
                        }
                        steps.begin();
                    }
                }
                steps.add(event.item, event.time);
                last = Some((event.actor, event.time));
            }
            if let Some((actor, _)) = last {
                callback(dictionary, actor, steps.finish())?;
            }
        }
        Ok(())
    }

    /// The runs with events that are in the paths, and the items of these.
    fn item_runs<'p>(
        &self,
        partition: &'p Partition,
        dictionary: &mut ItemDictionary<'p>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<ItemRun<'p>>> {
        let of_persons = match &self.funnel {
            Some(funnel) => funnel.of_persons(partition, work)?.map(|bounds| {
                Rc::new(bounds.iter().map(|bounds| within(*bounds, self.bounds)).collect::<Vec<_>>())
            }),
            None => None,
        };
        let mut reader = ItemReader { naming: &self.naming, rules: &self.rules, dictionary };
        let mut runs = Vec::new();
        for run in &partition.runs {
            work.check()?;
            if self.naming.source(&run.event).is_none() {
                continue;
            }
            let mask = self.filter.mask(run, work)?;
            if mask == Mask::Nothing {
                continue;
            }
            let times = row_times(run, self.bounds, self.funnel.as_ref(), of_persons.as_ref());
            let is_counted = |row: usize| {
                let (actor, time) = (run.actors.get(row).copied(), run.times.get(row).copied());
                times.contains(row, actor.unwrap_or(0), time.unwrap_or(Micros::MAX)) && mask.has(row)
            };
            if let Some(items) = reader.row_items(run, is_counted, work)? {
                runs.push(ItemRun { run, items, mask, times });
            }
        }
        Ok(runs)
    }

    /// The rules for steps, by the codes of a partition's items.
    fn step_rules(&self, dictionary: &mut ItemDictionary<'_>) -> StepRules {
        let point = |dictionary: &mut ItemDictionary<'_>, point: &Option<String>| {
            point.as_ref().map(|point| dictionary.code(Cow::Owned(point.clone())))
        };
        StepRules {
            start: point(dictionary, &self.query.start_point),
            end: point(dictionary, &self.query.end_point),
            limit: self.query.step_limit,
            empty: dictionary.code(Cow::Borrowed("")),
            skipped: dictionary.code(Cow::Borrowed(SKIPPED_STEPS)),
        }
    }
}

/// The start of the range's first day, and its end. Times are compared in whole seconds, so all of the last second counts.
fn range_bounds(range: &DateRange) -> TimeBounds {
    const SECOND: Micros = 1_000_000;
    let from = floor(range.from, Interval::Day).timestamp_micros();
    let last_second = range.to.timestamp_micros().div_euclid(SECOND);
    (from, last_second.saturating_mul(SECOND).saturating_add(SECOND - 1))
}
