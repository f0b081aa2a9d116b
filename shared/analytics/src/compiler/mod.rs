//! Compiles the filters and expressions of a query, and records which data they read.
//!
//! Must stay true: everything that is compiled here has registered each value that it will read; all definitions of a query
//! share one budget of filters and regular expressions.

pub(crate) mod action;
pub(crate) mod cohort;
pub(crate) mod matcher;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use cohort::CohortRules;
use pennon_filters::CompileBudget;
use pennon_filters::error::CalcResult;
use pennon_filters::operator::{Operator, ValueTest};
use pennon_filters::re2;
use pennon_filters::regex_bounds::BoundedRegex;
use serde_json::Value;

use crate::creation::CreationRequest;
use crate::definitions::Definitions;
use crate::filter::{Filter, Parser, Predicate};
use crate::join::{DataRequirements, session_column};
use crate::project::ProjectContext;
use crate::query::CommonFields;
use crate::scan::{
    ActorKind, ColumnKey, ColumnRef, EventSelection, JoinedColumnKey, Micros, ScanRequest, group_column,
};
use crate::sessions;
use crate::sql::{Aggregate, CompiledAggregate, CompiledExpression, Expression};

/// Compiles filters and expressions, and collects the columns, events and actors that a plan reads.
pub struct Compiler<'a> {
    /// The current instant, in the project's time zone.
    pub(crate) now: DateTime<Tz>,
    /// Actions and cohorts by id.
    pub(crate) definitions: &'a Definitions,
    /// The actor kinds that are counted; empty if only events are counted.
    pub(crate) actors: BTreeSet<ActorKind>,
    budget: CompileBudget,
    /// Counts the filters of all definitions against one limit.
    parser: Parser,
    /// The data that the plan reads.
    pub(crate) needs: DataRequirements,
    /// The compiled cohorts.
    pub(crate) cohorts: CohortRules,
}

impl<'a> Compiler<'a> {
    /// Starts with a scan of no events.
    pub(crate) fn new(project: &'a ProjectContext, now: DateTime<Utc>) -> Self {
        let needs = DataRequirements {
            scan: empty_scan(),
            joined_columns: BTreeSet::new(),
            persons: BTreeSet::new(),
            groups: BTreeMap::new(),
            whole_persons: false,
            whole_groups: BTreeSet::new(),
            distinct_ids: BTreeSet::new(),
            cohort_lists: BTreeSet::new(),
            sessions: None,
            session_fields: BTreeSet::new(),
            creations: None,
            behaviours: Vec::new(),
        };
        let now = now.with_timezone(&project.timezone);
        Self {
            now,
            definitions: &project.definitions,
            actors: BTreeSet::new(),
            budget: CompileBudget::default(),
            parser: Parser::default(),
            needs,
            cohorts: CohortRules::default(),
        }
    }

    /// Extends the scan to a time range, both ends inclusive.
    pub(crate) fn extend_time_range(&mut self, from: Micros, to: Micros) {
        self.needs.scan.from = self.needs.scan.from.min(from);
        self.needs.scan.to = self.needs.scan.to.max(to);
    }

    /// Registers an actor kind: the plan will have partitions of these actors. Rows without such an actor are dropped.
    pub(crate) fn add_actor_kind(&mut self, actors: ActorKind) {
        self.actors.insert(actors);
        self.needs.scan.arrivals |= actors != ActorKind::Persons;
        if let Some(column) = actors.column() {
            self.require_event_column(column);
        }
    }

    /// Registers the creation times of actors with events until `to`.
    pub(crate) fn require_creations(&mut self, actors: ActorKind, to: Micros) {
        self.needs.creations = Some(CreationRequest::new(actors, to));
    }

    /// Compiles a filter and registers the values that it reads.
    pub(crate) fn compile_filter(&mut self, filter: &Filter, attr: &str) -> CalcResult<Predicate> {
        let predicate = Predicate::new(filter, self.now, &mut self.budget, attr)?;
        self.require_values_of(&predicate, attr)?;
        Ok(predicate)
    }

    /// Compiles an expression over one event and registers the values that it reads.
    pub(crate) fn compile_expression(
        &mut self,
        expression: &Expression,
        attr: &str,
    ) -> CalcResult<CompiledExpression> {
        let program = expression.compile(self.now.timezone(), &mut self.budget, attr)?;
        let mut read = Vec::new();
        program.for_each_column(&mut |key| read.push(key.clone()));
        read.iter().try_for_each(|key| self.require_value(key, attr))?;
        Ok(program)
    }

    /// Compiles an expression over many events and registers the values that it reads.
    pub(crate) fn compile_aggregate(
        &mut self,
        aggregate: &Aggregate,
        attr: &str,
    ) -> CalcResult<CompiledAggregate> {
        // `any()` takes the earliest event: events of equal time are ordered by arrival, also across actors.
        self.needs.scan.arrivals = true;
        let aggregation = aggregate.compile(self.now.timezone(), &mut self.budget, attr)?;
        let mut read = Vec::new();
        aggregation.for_each_column(&mut |key| read.push(key.clone()));
        read.iter().try_for_each(|key| self.require_value(key, attr))?;
        Ok(aggregation)
    }

    /// Registers every value that a predicate reads.
    pub(crate) fn require_values_of(&mut self, predicate: &Predicate, attr: &str) -> CalcResult<()> {
        let mut read = Vec::new();
        predicate.for_each_column(&mut |key| read.push(key.clone()));
        read.iter().try_for_each(|key| self.require_value(key, attr))
    }

    /// Compiles a test of one value; the caller registers the column.
    pub(crate) fn compile_test(
        &mut self,
        operator: Operator,
        value: &Value,
        attr: &str,
    ) -> CalcResult<ValueTest> {
        ValueTest::new(operator, value, self.now, &mut self.budget, attr)
    }

    /// Compiles a regular expression in RE2 syntax; `None` if it is invalid.
    pub(crate) fn compile_pattern(&mut self, pattern: &str, attr: &str) -> CalcResult<Option<BoundedRegex>> {
        re2::compile(pattern, &mut self.budget, attr)
    }

    /// Parses the filters of an action or cohort.
    pub(crate) fn parse_filter(&mut self, filters: Option<&Value>, attr: &str) -> CalcResult<Filter> {
        self.parser.parse(filters, attr)
    }

    /// Registers a value that is read in every row.
    pub(crate) fn require_value(&mut self, key: &ColumnRef, attr: &str) -> CalcResult<()> {
        match key {
            ColumnRef::Event(key) => self.require_event_column(key.clone()),
            ColumnRef::Joined(key) => {
                self.needs.joined_columns.insert(key.clone());
                match key {
                    JoinedColumnKey::PersonId | JoinedColumnKey::TimeBounds => {}
                    JoinedColumnKey::Person(property) => {
                        self.needs.persons.insert(property.clone());
                    }
                    JoinedColumnKey::HasDistinctId(ids) => {
                        self.needs.distinct_ids.extend(ids.iter().cloned())
                    }
                    JoinedColumnKey::PersonProperties => self.needs.whole_persons = true,
                    JoinedColumnKey::GroupProperties(index) => {
                        self.needs.whole_groups.insert(*index);
                        self.require_event_column(group_column(*index));
                    }
                    JoinedColumnKey::Group(index, property) => {
                        self.needs.groups.entry(*index).or_default().insert(property.clone());
                        self.require_event_column(group_column(*index));
                    }
                    JoinedColumnKey::Session(field) => self.require_session_field(field, attr)?,
                    JoinedColumnKey::InCohort(cohort) => cohort::compile(*cohort, self, attr)?,
                }
            }
        }
        Ok(())
    }

    fn require_session_field(&mut self, name: &str, attr: &str) -> CalcResult<()> {
        let columns = sessions::event_columns(name, attr)?;
        self.require_event_column(session_column());
        self.needs.session_fields.insert(name.to_owned());
        self.needs.sessions.get_or_insert_with(sessions::scan_request).columns.extend(columns);
        Ok(())
    }

    fn require_event_column(&mut self, key: ColumnKey) {
        self.needs.scan.columns.insert(key);
    }

    /// Adds an event name to the scan; `None` selects all events.
    pub(crate) fn include_event(&mut self, event: Option<&String>) {
        match (event, &mut self.needs.scan.events) {
            (Some(name), EventSelection::Named(names)) => {
                names.insert(name.clone());
            }
            (Some(_), EventSelection::All) => {}
            (None, events) => *events = EventSelection::All,
        }
    }

    /// Runs `compile` with an empty scan. Returns that scan, the columns joined to its rows, and the result of `compile`.
    pub(crate) fn in_separate_scan<T>(
        &mut self,
        compile: impl FnOnce(&mut Self) -> CalcResult<T>,
    ) -> CalcResult<(ScanRequest, BTreeSet<JoinedColumnKey>, T)> {
        let outer = (
            std::mem::replace(&mut self.needs.scan, empty_scan()),
            std::mem::take(&mut self.needs.joined_columns),
        );
        let compiled = compile(self)?;
        let scan = std::mem::replace(&mut self.needs.scan, outer.0);
        let joined_columns = std::mem::replace(&mut self.needs.joined_columns, outer.1);
        Ok((scan, joined_columns, compiled))
    }
}

/// A scan that reads no events.
fn empty_scan() -> ScanRequest {
    let events = EventSelection::Named(BTreeSet::new());
    ScanRequest { events, from: Micros::MAX, to: Micros::MIN, columns: BTreeSet::new(), arrivals: false }
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
