//! Flag impact: who was exposed to which variant, and what they did from then on.
//!
//! [`CompiledFlagImpact`] holds the compiled query. For each partition, `exposures` finds the first exposure of each actor,
//! and `actor_values` its number: funnels are calculated by the code of funnels on the events that count
//! (`counted_events`), numbers of trends are added up. `counts` has the partial result, `comparison` the statistics,
//! `result` the response, and `people` the actors behind its numbers.
//!
//! Must stay true: an actor counts under one variant, or under several; only events at or after its first exposure, within
//! the date range, count. Partial results over disjoint actors merge in any order.

mod actor_values;
mod comparison;
mod counted_events;
mod counts;
mod exposures;
mod people;
mod result;

use pennon_filters::dates::range::DateRange;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};

use super::limits;
use super::metric::{Metric, TrendValue};
use super::query::FlagImpactQuery;
use crate::compiler::matcher::Matcher;
use crate::compiler::{Compiler, common_filter};
use crate::filter::Predicate;
use crate::kinds::QueryOutput;
use crate::kinds::funnels::CompiledFunnel;
use crate::kinds::insight::CompiledInsight;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::NumberSource;
use crate::scan::{ColumnKey, ColumnRef, JoinedColumnKey, Micros, Partition};
use actor_values::ActorValue;
pub(super) use counts::FlagImpactCounts;
use exposures::{ExposureReader, Exposures};
pub use people::ImpactPoint;
use people::parse_point;

/// A flag impact query with resolved dates and compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledFlagImpact {
    query: FlagImpactQuery,
    project_id: String,
    range: DateRange,
    /// The first and the last instant that count.
    bounds: (Micros, Micros),
    /// The filters on every event: those of the metric, and of test accounts.
    shared: Predicate,
    exposures: ExposureReader,
    metric: CompiledMetric,
}

/// A compiled metric.
#[derive(Debug, Clone)]
enum CompiledMetric {
    Funnel {
        funnel: Box<CompiledFunnel>,
        /// The time from the exposure to the last step, at most.
        window: Micros,
        /// Index of the last step.
        last: usize,
    },
    Trend {
        /// `None` if the action does not exist.
        matcher: Option<Matcher>,
        value: TrendValue,
        /// The column of the numbers that are added up.
        number: Option<ColumnRef>,
    },
}

impl CompiledInsight for CompiledFlagImpact {
    type Query = FlagImpactQuery;
    type Partial = FlagImpactCounts;
    type DataPoint = ImpactPoint;

    fn compile(
        query: &FlagImpactQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let bounds = (range.from.timestamp_micros(), range.to.timestamp_micros());
        compiler.extend_time_range(bounds.0, bounds.1);
        compiler.add_actor_kind(project.actor_kind(query.flag.group_type_index));
        let common = query.metric.common();
        let shared = compiler.compile_filter(&common_filter(common, project)?, "properties")?;
        let exposures = ExposureReader::new(&query.exposure, &query.flag.key, compiler)?;
        let metric = match &query.metric {
            Metric::Funnel(funnel) => CompiledMetric::Funnel {
                window: funnel.window.micros(),
                last: funnel.series.len() - 1,
                funnel: Box::new(CompiledFunnel::compile(funnel, project, range, compiler)?),
            },
            Metric::Trend(metric) => {
                let number = match &metric.value {
                    TrendValue::Sum(source, _) => number_column(source),
                    TrendValue::HasEvent | TrendValue::EventCount => None,
                };
                if let Some(key) = &number {
                    compiler.require_value(key, "series")?;
                }
                let matcher = match metric.trend.series.first() {
                    Some(series) => {
                        Matcher::new(&series.event_or_action, &series.properties, compiler, "properties")?
                    }
                    None => None,
                };
                CompiledMetric::Trend { matcher, value: metric.value.clone(), number }
            }
        };
        let project_id = project.project_id.clone();
        Ok(Self { query: query.clone(), project_id, range, bounds, shared, exposures, metric })
    }

    fn parse_data_point(_query: &FlagImpactQuery, request: &Map<String, Value>) -> CalcResult<ImpactPoint> {
        parse_point(request)
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<FlagImpactCounts> {
        let (exposures, values) = self.read_actors(partition, work)?;
        work.consume(values.len())?;
        Ok(FlagImpactCounts::new(&exposures, &values))
    }

    fn merge(left: FlagImpactCounts, right: FlagImpactCounts) -> FlagImpactCounts {
        left.merge(right)
    }

    fn finish(&self, merged: FlagImpactCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        work.check()?;
        if merged.has_too_many_variants() {
            return Err(limits::too_many_variants());
        }
        Ok(QueryOutput { result: result::build(self, &merged, work)?, has_more: None })
    }

    fn people(
        &self,
        partition: &Partition,
        point: &ImpactPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}

impl CompiledFlagImpact {
    /// The exposures of a partition, and the value of each actor that saw one variant.
    fn read_actors(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<(Exposures, Vec<ActorValue>)> {
        let exposures = self.exposures.read(partition, &self.shared, self.bounds, work)?;
        let values = actor_values::calculate(self, partition, &exposures, work)?;
        Ok((exposures, values))
    }
}

fn number_column(source: &NumberSource) -> Option<ColumnRef> {
    match source {
        NumberSource::Event(key) => Some(ColumnRef::Event(ColumnKey::Property(key.clone()))),
        NumberSource::Person(key) => Some(ColumnRef::Joined(JoinedColumnKey::Person(key.clone()))),
        // The parser rejects it.
        NumberSource::SessionDuration => None,
    }
}
