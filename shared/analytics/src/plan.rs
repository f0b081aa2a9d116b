//! The stages of a calculation: compile the query, scan, join, compute partial results, merge them, finalize.
//!
//! Must stay true: partial results over disjoint actors can be computed in any order, on any thread, and merged in any
//! order; the final result does not depend on how the actors were partitioned.

use std::collections::{BTreeSet, HashSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use pennon_filters::dates::WeekStart;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::WorkBudget;
use serde_json::Value;

use crate::cohort::Cohorts;
pub(crate) use crate::compiler::Compiler;
use crate::correlation::{CompiledCorrelation, CorrelationCounts};
use crate::definitions::Definitions;
use crate::filter::{Filter, Parser};
use crate::funnel::{CompiledFunnel, FunnelRows};
use crate::join::{DataRequirements, JoinData};
use crate::people::{MatchedActor, Selector};
use crate::query::{CommonFields, Query};
use crate::repartition::{ActorKind, repartition_by_actor_kind};
use crate::scan::{Micros, Partition, ScanRequest};
use crate::sessions;
use crate::trends::{self, CompiledTrend};

/// Project settings that a calculation depends on.
#[derive(Debug, Clone)]
pub struct ProjectContext {
    /// The project id as used in URL paths; links in results begin with it.
    pub project_id: String,
    /// Time zone of all dates.
    pub timezone: Tz,
    /// First day of a week.
    pub week_start: WeekStart,
    /// Filters that are added when a query sets `filter_test_accounts`.
    pub test_account_filters: Vec<Value>,
    /// Time of the earliest event; read only if [`Query::needs_earliest`] is true.
    pub earliest_event: Option<Micros>,
    /// Count distinct ids instead of persons.
    pub aggregate_by_distinct_id: bool,
    /// The actions and cohorts that the query references, see [`Query::mentions`].
    pub definitions: Definitions,
}

/// A compiled query: dates are resolved, filters are compiled.
#[derive(Debug, Clone)]
pub struct Plan {
    needs: DataRequirements,
    actors: BTreeSet<ActorKind>,
    cohorts: Cohorts,
    query: CompiledQuery,
}

#[derive(Debug, Clone)]
enum CompiledQuery {
    Trend(Box<CompiledTrend>),
    Funnel(Box<CompiledFunnel>),
    Correlation(Box<CompiledCorrelation>),
}

/// The mergeable result of one partition. The default is the result for no actors.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartitionResult {
    /// Trends.
    pub(crate) trend: trends::PartialResult,
    /// Funnels.
    pub(crate) funnel: FunnelRows,
    /// Correlations.
    pub(crate) correlation: CorrelationCounts,
}

/// The final result of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The `result` field of the response.
    pub result: Value,
    /// Trends: whether breakdown values were cut off by the limit. `None` for funnels and correlations.
    pub has_more: Option<bool>,
}

impl Query {
    /// Resolves relative dates against `now` and compiles filters.
    pub fn plan(&self, project: &ProjectContext, now: DateTime<Utc>) -> CalcResult<Plan> {
        let range = self.range(project, now)?;
        let mut compiler = Compiler::new(project, now);
        let query = match self {
            Self::Trends(query) => {
                CompiledQuery::Trend(Box::new(CompiledTrend::new(query, project, range, &mut compiler)?))
            }
            Self::Funnels(query) => {
                CompiledQuery::Funnel(Box::new(CompiledFunnel::new(query, project, range, &mut compiler)?))
            }
            Self::Correlation(query) => CompiledQuery::Correlation(Box::new(CompiledCorrelation::new(
                query,
                project,
                range,
                &mut compiler,
            )?)),
        };
        let Compiler { needs, actors, cohorts, .. } = compiler;
        Ok(Plan { needs, actors, cohorts, query })
    }
}

impl Plan {
    /// The data that the calculation reads: events, and what is joined to them.
    pub fn needs(&self) -> &DataRequirements {
        &self.needs
    }

    /// The events that the calculation reads.
    pub fn scan(&self) -> &ScanRequest {
        &self.needs.scan
    }

    /// The actor kind that the data point of `selector` counts; its joined partitions contain actors of this kind.
    /// Groups and distinct ids have keys in joined partitions.
    pub fn actors(&self, selector: &Selector) -> ActorKind {
        match (&self.query, selector) {
            (CompiledQuery::Trend(trend), Selector::Trend(point)) => trend.actor_kind(point.series),
            _ => self.actors.first().copied().unwrap_or_default(),
        }
    }

    /// Joins `facts` to the scanned partitions and repartitions them by actor kind, as [`Plan::partial`] expects them.
    /// Takes all partitions at once, because the events of one group or distinct id may lie in all of them.
    /// `is_cancelled` is called as in [`Plan::partial`].
    pub fn join(
        &self,
        mut partitions: Vec<Partition>,
        mut facts: JoinData,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<Vec<Partition>> {
        let work = &WorkBudget::new(is_cancelled);
        derive_join_data(&self.needs, &self.cohorts, &mut facts, work)?;
        for partition in &mut partitions {
            self.cohorts.join(partition, &self.needs.facts, &facts, work)?;
        }
        repartition_by_actor_kind(partitions, &self.actors, work)
    }

    /// Computes the partial result of one joined partition. `is_cancelled` is called
    /// periodically; `true` ends the calculation with a timeout error.
    pub fn partial(
        &self,
        partition: &Partition,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<PartitionResult> {
        let work = &WorkBudget::new(is_cancelled);
        match &self.query {
            CompiledQuery::Trend(trend) => {
                Ok(PartitionResult { trend: trend.partial(partition, work)?, ..PartitionResult::default() })
            }
            CompiledQuery::Funnel(funnel) => {
                Ok(PartitionResult { funnel: funnel.partial(partition, work)?, ..PartitionResult::default() })
            }
            CompiledQuery::Correlation(correlation) => Ok(PartitionResult {
                correlation: correlation.partial(partition, work)?,
                ..PartitionResult::default()
            }),
        }
    }

    /// Lists the actors of one joined partition that count towards a data point, ordered by id;
    /// [`crate::people::union`] merges the lists of all partitions. `is_cancelled` is called as in [`Plan::partial`].
    pub fn people(
        &self,
        partition: &Partition,
        selector: &Selector,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<Vec<MatchedActor>> {
        let work = &WorkBudget::new(is_cancelled);
        match (&self.query, selector) {
            (CompiledQuery::Funnel(funnel), Selector::Funnel(point)) => funnel.people(partition, point, work),
            (CompiledQuery::Trend(trend), Selector::Trend(point)) => trend.people(partition, point, work),
            (CompiledQuery::Correlation(correlation), Selector::Correlation(point)) => {
                correlation.people(partition, point, work)
            }
            _ => Err(CalcError::invalid("insight", "The number is not one of this question.")),
        }
    }

    /// Builds the final result from the merged partial results. `PartitionResult::default()` gives the result for no events.
    /// Many series take a while, so this is cancellable as [`Plan::partial`] is.
    pub fn finish(&self, sum: PartitionResult, is_cancelled: &dyn Fn() -> bool) -> CalcResult<Answer> {
        let work = &WorkBudget::new(is_cancelled);
        match &self.query {
            CompiledQuery::Trend(trend) => trend.finish(sum.trend, work),
            CompiledQuery::Funnel(funnel) => {
                Ok(Answer { result: funnel.finish(sum.funnel, work)?, has_more: None })
            }
            CompiledQuery::Correlation(correlation) => {
                Ok(Answer { result: correlation.finish(sum.correlation, work)?, has_more: None })
            }
        }
    }
}

impl PartitionResult {
    /// Merges two partial results of the same plan.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.trend = self.trend.merge(other.trend);
        self.funnel = self.funnel.merge(other.funnel);
        self.correlation = self.correlation.merge(other.correlation);
        self
    }
}

/// Computes the join data that is derived from events: sessions, and the persons that match behavioural criteria.
pub(crate) fn derive_join_data(
    needs: &DataRequirements,
    cohorts: &Cohorts,
    facts: &mut JoinData,
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    let mut scans = std::mem::take(&mut facts.further).into_iter();
    if needs.sessions.is_some() {
        let partitions = scans.next().unwrap_or_default();
        facts.sessions = sessions::build_sessions(&needs.session_fields, &partitions, work)?;
    }
    for (index, mut partitions) in scans.enumerate() {
        let mut persons = HashSet::new();
        for partition in &mut partitions {
            persons.extend(cohorts.matching_persons(index, partition, facts, work)?);
        }
        facts.behaviours.push(persons);
    }
    Ok(())
}

/// The filters on every event of a query: its own and, with `filter_test_accounts`, the project's test account filters.
pub(crate) fn common_filter(common: &CommonFields, project: &ProjectContext) -> CalcResult<Filter> {
    let mut members = Vec::new();
    if common.filter_test_accounts {
        let filters = Value::Array(project.test_account_filters.clone());
        members.push(Parser::default().parse(Some(&filters), "filter_test_accounts")?);
    }
    members.push(common.properties.clone());
    Ok(Filter::All(members))
}
