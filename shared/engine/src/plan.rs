//! From a question to its answer: resolve, scan, count in parts, merge, finish.
//!
//! Must stay true: parts over disjoint actors can be computed in any order, on any thread, and merged in any order; the
//! answer does not depend on how the actors were divided.

use std::collections::{BTreeSet, HashSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::Value;

use crate::cohort::Cohorts;
pub(crate) use crate::compiler::Compiler;
use crate::correlation::{CompiledCorrelation, CorrelationCounts};
use crate::dates::WeekStart;
use crate::definitions::Definitions;
use crate::error::{CalcError, CalcResult};
use crate::facts::{Facts, Needs};
use crate::filter::{Filter, Parser};
use crate::funnel::{CompiledFunnel, FunnelRows};
use crate::people::{Matched, Selector};
use crate::query::{CommonFields, Query};
use crate::regroup::{ActorKind, regroup_by_kinds};
use crate::scan::{Micros, Partition, ScanRequest};
use crate::sessions;
use crate::trends::{self, CompiledTrend};
use crate::work::WorkBudget;

/// What a calculation needs to know of the project.
#[derive(Debug, Clone)]
pub struct ProjectContext {
    /// As it stands in paths: links in answers begin with it.
    pub project_id: String,
    /// Zone of all dates.
    pub timezone: Tz,
    /// First day of a week.
    pub week_start: WeekStart,
    /// Filters that `filter_test_accounts` adds.
    pub test_account_filters: Vec<Value>,
    /// Time of the earliest event; read only when [`Query::needs_earliest`] says so.
    pub earliest_event: Option<Micros>,
    /// The project counts distinct ids instead of persons.
    pub aggregate_by_distinct_id: bool,
    /// The actions and cohorts that the question refers to, see [`Query::mentions`].
    pub definitions: Definitions,
}

/// A question made ready: dates resolved, filters compiled.
#[derive(Debug, Clone)]
pub struct Plan {
    needs: Needs,
    actors: BTreeSet<ActorKind>,
    cohorts: Cohorts,
    task: Task,
}

#[derive(Debug, Clone)]
enum Task {
    Trend(Box<CompiledTrend>),
    Funnel(Box<CompiledFunnel>),
    Correlation(Box<CompiledCorrelation>),
}

/// What a share of the actors adds to an answer. The default is the share of nobody.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partial {
    /// Trends: what was counted.
    pub(crate) trend: trends::PartialResult,
    /// Funnels.
    pub(crate) funnel: FunnelRows,
    /// Correlations.
    pub(crate) correlation: CorrelationCounts,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// In the contract's `result` shape.
    pub result: Value,
    /// For trends whether breakdown values were cut off; none for funnels.
    pub has_more: Option<bool>,
}

impl Query {
    /// Resolves dates at an instant and compiles filters.
    pub fn plan(&self, project: &ProjectContext, now: DateTime<Utc>) -> CalcResult<Plan> {
        let range = self.range(project, now)?;
        let mut compiler = Compiler::new(project, now);
        let task = match self {
            Self::Trends(query) => {
                Task::Trend(Box::new(CompiledTrend::new(query, project, range, &mut compiler)?))
            }
            Self::Funnels(query) => {
                Task::Funnel(Box::new(CompiledFunnel::new(query, project, range, &mut compiler)?))
            }
            Self::Correlation(query) => {
                Task::Correlation(Box::new(CompiledCorrelation::new(query, project, range, &mut compiler)?))
            }
        };
        let Compiler { needs, actors, cohorts, .. } = compiler;
        Ok(Plan { needs, actors, cohorts, task })
    }
}

impl Plan {
    /// What has to be known before anything can be counted.
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// The events that the calculation reads.
    pub fn scan(&self) -> &ScanRequest {
        &self.needs.scan
    }

    /// The kind of actors that the number of `selector` counts, and that its joined partitions are of. Actors that are
    /// no persons have keys in joined partitions.
    pub fn actors(&self, selector: &Selector) -> ActorKind {
        match (&self.task, selector) {
            (Task::Trend(trend), Selector::Trend(point)) => trend.actor_kind(point.series),
            _ => self.actors.first().copied().unwrap_or_default(),
        }
    }

    /// Joins what is known to the partitions of the scan, as [`Plan::partial`] wants them: of all its partitions at
    /// once, because other actors than persons are gathered from all of them. `stop` is asked as in [`Plan::partial`].
    pub fn join(
        &self,
        mut partitions: Vec<Partition>,
        mut facts: Facts,
        stop: &dyn Fn() -> bool,
    ) -> CalcResult<Vec<Partition>> {
        let work = &WorkBudget::new(stop);
        complete(&self.needs, &self.cohorts, &mut facts, work)?;
        for partition in &mut partitions {
            self.cohorts.join(partition, &self.needs.facts, &facts, work)?;
        }
        regroup_by_kinds(partitions, &self.actors, work)
    }

    /// Counts one joined partition of that scan. `stop` is asked from time to time; true ends with a timeout.
    pub fn partial(&self, partition: &Partition, stop: &dyn Fn() -> bool) -> CalcResult<Partial> {
        let work = &WorkBudget::new(stop);
        match &self.task {
            Task::Trend(trend) => {
                Ok(Partial { trend: trend.partial(partition, work)?, ..Partial::default() })
            }
            Task::Funnel(funnel) => {
                Ok(Partial { funnel: funnel.partial(partition, work)?, ..Partial::default() })
            }
            Task::Correlation(correlation) => {
                Ok(Partial { correlation: correlation.partial(partition, work)?, ..Partial::default() })
            }
        }
    }

    /// Who of one joined partition of that scan counts into a number of the answer, in the order of their ids;
    /// [`crate::people::union`] puts partitions together. `stop` is asked as in [`Plan::partial`].
    pub fn people(
        &self,
        partition: &Partition,
        selector: &Selector,
        stop: &dyn Fn() -> bool,
    ) -> CalcResult<Vec<Matched>> {
        let work = &WorkBudget::new(stop);
        match (&self.task, selector) {
            (Task::Funnel(funnel), Selector::Funnel(point)) => funnel.people(partition, point, work),
            (Task::Trend(trend), Selector::Trend(point)) => trend.people(partition, point, work),
            (Task::Correlation(correlation), Selector::Correlation(point)) => {
                correlation.people(partition, point, work)
            }
            _ => Err(CalcError::invalid("insight", "The number is not one of this question.")),
        }
    }

    /// The answer from the sum of all parts; without any part it is the answer for no events. Many
    /// series take a while: `stop` is asked now and then, and a true one ends it as out of time.
    pub fn finish(&self, sum: Partial, stop: &dyn Fn() -> bool) -> CalcResult<Answer> {
        let work = &WorkBudget::new(stop);
        match &self.task {
            Task::Trend(trend) => trend.finish(sum.trend, work),
            Task::Funnel(funnel) => Ok(Answer { result: funnel.finish(sum.funnel, work)?, has_more: None }),
            Task::Correlation(correlation) => {
                Ok(Answer { result: correlation.finish(sum.correlation, work)?, has_more: None })
            }
        }
    }
}

impl Partial {
    /// The sum of two parts of one plan.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.trend = self.trend.merge(other.trend);
        self.funnel = self.funnel.merge(other.funnel);
        self.correlation = self.correlation.merge(other.correlation);
        self
    }
}

/// Finds out what only events tell: sessions, and who behaved as cohorts ask it.
pub(crate) fn complete(
    needs: &Needs,
    cohorts: &Cohorts,
    facts: &mut Facts,
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    let mut scans = std::mem::take(&mut facts.further).into_iter();
    if needs.sessions.is_some() {
        let partitions = scans.next().unwrap_or_default();
        facts.sessions = sessions::gather(&needs.session_fields, &partitions, work)?;
    }
    for (index, mut partitions) in scans.enumerate() {
        let mut shown = HashSet::new();
        for partition in &mut partitions {
            shown.extend(cohorts.behaved(index, partition, facts, work)?);
        }
        facts.behaviours.push(shown);
    }
    Ok(())
}

/// The filters on every event of a question: its own and, when asked for, the project's test account filters.
pub(crate) fn shared_filter(common: &CommonFields, project: &ProjectContext) -> CalcResult<Filter> {
    let mut members = Vec::new();
    if common.filter_test_accounts {
        let filters = Value::Array(project.test_account_filters.clone());
        members.push(Parser::default().parse(Some(&filters), "filter_test_accounts")?);
    }
    members.push(common.properties.clone());
    Ok(Filter::All(members))
}
