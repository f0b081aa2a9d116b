//! From a question to its answer: resolve, scan, count in parts, merge, finish.
//!
//! Must stay true: parts over disjoint actors can be computed in any order, on any thread, and merged in any order; the
//! answer does not depend on how the actors were divided.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::Value;

use crate::dates::WeekStart;
use crate::definitions::Definitions;
use crate::error::{CalcError, CalcResult};
use crate::facts::{self, Facts, Needs};
use crate::filter::{Budget, Filter, Operator, Parser, Predicate, Test};
use crate::funnel::{Funnel, Rows};
use crate::people::{Matched, Selector};
use crate::query::{Common, Query};
use crate::regroup::{ActorKind, regroup};
use crate::scan::{ColumnKey, EventSelection, FactKey, Micros, Partition, RowKey, ScanRequest};
use crate::sql::{Aggregate, Aggregation, Expression, Program};
use crate::trends::{self, Trend};

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
    actors: ActorKind,
    task: Task,
}

#[derive(Debug, Clone)]
enum Task {
    Trend(Trend),
    Funnel(Funnel),
}

/// What a share of the actors adds to an answer. The default is the share of nobody.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partial {
    /// Trends: what was counted.
    pub(crate) trend: trends::Sum,
    /// Funnels.
    pub(crate) rows: Rows,
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
            Self::Trends(query) => Task::Trend(Trend::new(query, project, range, &mut compiler)?),
            Self::Funnels(query) => Task::Funnel(Funnel::new(query, project, range, &mut compiler)?),
        };
        let actors = compiler.actors;
        Ok(Plan { needs: compiler.finish()?, actors, task })
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

    /// Who is counted. What is no person has keys in joined partitions.
    pub fn actors(&self) -> ActorKind {
        self.actors
    }

    /// Joins what is known to the partitions of the scan, as [`Plan::partial`] wants them: of all its partitions at
    /// once, because other actors than persons are gathered from all of them.
    pub fn join(&self, mut partitions: Vec<Partition>, facts: &Facts) -> Vec<Partition> {
        let member =
            |cohort: u64, person| facts.rosters.get(&cohort).is_some_and(|list| list.contains(&person));
        for partition in &mut partitions {
            facts::join(partition, &self.needs.facts, facts, &member);
        }
        regroup(partitions, self.actors)
    }

    /// Counts one joined partition of that scan. `stop` is asked from time to time; true ends with a timeout.
    pub fn partial(&self, partition: &Partition, stop: &dyn Fn() -> bool) -> CalcResult<Partial> {
        match &self.task {
            Task::Trend(trend) => {
                Ok(Partial { trend: trend.partial(partition, stop)?, ..Partial::default() })
            }
            Task::Funnel(funnel) => {
                Ok(Partial { rows: funnel.partial(partition, stop)?, ..Partial::default() })
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
        match (&self.task, selector) {
            (Task::Funnel(funnel), Selector::Funnel(point)) => funnel.people(partition, point, stop),
            (Task::Trend(trend), Selector::Trend(point)) => trend.people(partition, point, stop),
            (Task::Trend(_), Selector::Funnel(_)) | (Task::Funnel(_), Selector::Trend(_)) => {
                Err(CalcError::invalid("insight", "The number is not one of this question."))
            }
        }
    }

    /// The answer from the sum of all parts; without any part it is the answer for no events.
    pub fn finish(&self, sum: Partial) -> CalcResult<Answer> {
        match &self.task {
            Task::Trend(trend) => trend.finish(sum.trend),
            Task::Funnel(funnel) => Ok(Answer { result: funnel.finish(sum.rows), has_more: None }),
        }
    }
}

impl Partial {
    /// The sum of two parts of one plan.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.trend = self.trend.merge(other.trend);
        self.rows = self.rows.merge(other.rows);
        self
    }
}

/// The filters on every event of a question: its own and, when asked for, the project's test account filters.
pub(crate) fn shared_filter(common: &Common, project: &ProjectContext) -> CalcResult<Filter> {
    let mut members = Vec::new();
    if common.filter_test_accounts {
        let filters = Value::Array(project.test_account_filters.clone());
        members.push(Parser::default().parse(Some(&filters), "filter_test_accounts")?);
    }
    members.push(common.properties.clone());
    Ok(Filter::All(members))
}

/// Compiles filters and gathers what they and their series read.
pub(crate) struct Compiler<'a> {
    /// The instant of the question, in the project's zone.
    pub(crate) now: DateTime<Tz>,
    /// What ids mean.
    pub(crate) definitions: &'a Definitions,
    actors: ActorKind,
    budget: Budget,
    /// Counts the filters of all definitions together.
    parser: Parser,
    needs: Needs,
}

impl<'a> Compiler<'a> {
    /// Starts with a scan of no event at all.
    pub(crate) fn new(project: &'a ProjectContext, now: DateTime<Utc>) -> Self {
        let events = EventSelection::Named(BTreeSet::new());
        let scan = ScanRequest { events, from: Micros::MAX, to: Micros::MIN, columns: BTreeSet::new() };
        let needs = Needs {
            scan,
            facts: BTreeSet::new(),
            persons: BTreeSet::new(),
            groups: BTreeMap::new(),
            rosters: BTreeSet::new(),
            sessions: None,
            behaviours: Vec::new(),
        };
        let now = now.with_timezone(&project.timezone);
        Self {
            now,
            definitions: &project.definitions,
            actors: ActorKind::Persons,
            budget: Budget::default(),
            parser: Parser::default(),
            needs,
        }
    }

    /// Makes the scan cover a time, both ends included.
    pub(crate) fn cover(&mut self, from: Micros, to: Micros) {
        self.needs.scan.from = self.needs.scan.from.min(from);
        self.needs.scan.to = self.needs.scan.to.max(to);
    }

    /// Says who is counted: partitions will be of these, and rows that name none will be left out.
    pub(crate) fn count(&mut self, actors: ActorKind) {
        self.actors = actors;
        if let Some(column) = actors.column() {
            self.column(column);
        }
    }

    /// Compiles a filter; what it reads will be in the rows.
    pub(crate) fn predicate(&mut self, filter: &Filter, attr: &str) -> CalcResult<Predicate> {
        let predicate = Predicate::new(filter, self.now, &mut self.budget, attr)?;
        self.ask(&predicate, attr)?;
        Ok(predicate)
    }

    /// Makes an expression over one event ready; what it reads will be in the rows.
    pub(crate) fn expression(&mut self, expression: &Expression, attr: &str) -> CalcResult<Program> {
        let program = expression.compile(self.now.timezone(), &mut self.budget, attr)?;
        let mut read = Vec::new();
        program.reads(&mut |key| read.push(key.clone()));
        read.iter().try_for_each(|key| self.read(key, attr))?;
        Ok(program)
    }

    #[allow(dead_code, reason = "series with aggregates are still refused")]
    /// Makes an expression over many events ready; what it reads will be in the rows.
    pub(crate) fn aggregate(&mut self, aggregate: &Aggregate, attr: &str) -> CalcResult<Aggregation> {
        let aggregation = aggregate.compile(self.now.timezone(), &mut self.budget, attr)?;
        let mut read = Vec::new();
        aggregation.reads(&mut |key| read.push(key.clone()));
        read.iter().try_for_each(|key| self.read(key, attr))?;
        Ok(aggregation)
    }

    /// Asks for every value that a predicate reads.
    pub(crate) fn ask(&mut self, predicate: &Predicate, attr: &str) -> CalcResult<()> {
        let mut read = Vec::new();
        predicate.reads(&mut |key| read.push(key.clone()));
        read.iter().try_for_each(|key| self.read(key, attr))
    }

    /// Compiles a test of one value, for a column that is asked for elsewhere.
    pub(crate) fn test(&mut self, operator: Operator, value: &Value, attr: &str) -> CalcResult<Test> {
        Test::new(operator, value, self.now, &mut self.budget, attr)
    }

    /// Reads the filters of a definition.
    pub(crate) fn parse(&mut self, filters: Option<&Value>, attr: &str) -> CalcResult<Filter> {
        self.parser.parse(filters, attr)
    }

    /// Asks for a value in every row.
    pub(crate) fn read(&mut self, key: &RowKey, attr: &str) -> CalcResult<()> {
        match key {
            RowKey::Event(key) => self.column(key.clone()),
            RowKey::Fact(key) => {
                self.needs.facts.insert(key.clone());
                match key {
                    FactKey::PersonId => {}
                    FactKey::Person(property) => {
                        self.needs.persons.insert(property.clone());
                    }
                    FactKey::Group(index, property) => {
                        self.needs.groups.entry(*index).or_default().insert(property.clone());
                        self.column(facts::group_column(*index));
                    }
                    FactKey::Session(_) => return Err(CalcError::unsupported(attr, "sessions")),
                    FactKey::Member(cohort) => match self.definitions.cohorts.get(cohort) {
                        Some(cohort_) if cohort_.is_static => {
                            self.needs.rosters.insert(*cohort);
                        }
                        Some(_) => return Err(CalcError::unsupported(attr, "cohorts by rules")),
                        None => {
                            return Err(CalcError::invalid(attr, format!("There is no cohort {cohort}.")));
                        }
                    },
                }
            }
        }
        Ok(())
    }

    fn column(&mut self, key: ColumnKey) {
        self.needs.scan.columns.insert(key);
    }

    /// Makes the scan cover events of a name, or of any.
    pub(crate) fn event(&mut self, event: Option<&String>) {
        match (event, &mut self.needs.scan.events) {
            (Some(name), EventSelection::Named(names)) => {
                names.insert(name.clone());
            }
            (Some(_), EventSelection::All) => {}
            (None, events) => *events = EventSelection::All,
        }
    }

    fn finish(self) -> CalcResult<Needs> {
        Ok(self.needs)
    }
}
