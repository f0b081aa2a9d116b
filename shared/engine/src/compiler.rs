//! Compiles what a question asks for, and gathers what has to be known and read for it.
//!
//! Must stay true: whatever is compiled has asked for every value that it will read; the definitions of a question share
//! one budget of filters and regular expressions.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::Value;

use crate::cohort::{self, Cohorts};
use crate::definitions::Definitions;
use crate::error::CalcResult;
use crate::filter::{CompileBudget, Filter, Operator, Parser, Predicate, ValueTest};
use crate::join::{self, Needs};
use crate::plan::ProjectContext;
use crate::repartition::ActorKind;
use crate::scan::{ColumnKey, ColumnRef, EventSelection, JoinedColumnKey, Micros, ScanRequest};
use crate::sessions;
use crate::sql::{Aggregate, CompiledAggregate, CompiledExpression, Expression};

/// Compiles filters and gathers what they and their series read.
pub(crate) struct Compiler<'a> {
    /// The instant of the question, in the project's zone.
    pub(crate) now: DateTime<Tz>,
    /// What ids mean.
    pub(crate) definitions: &'a Definitions,
    /// The kinds of actors that are counted; none where only events are.
    pub(crate) actors: BTreeSet<ActorKind>,
    budget: CompileBudget,
    /// Counts the filters of all definitions together.
    parser: Parser,
    /// What was asked for.
    pub(crate) needs: Needs,
    /// The cohorts that were asked about.
    pub(crate) cohorts: Cohorts,
}

impl<'a> Compiler<'a> {
    /// Starts with a scan of no event at all.
    pub(crate) fn new(project: &'a ProjectContext, now: DateTime<Utc>) -> Self {
        let needs = Needs {
            scan: empty_scan(),
            facts: BTreeSet::new(),
            persons: BTreeSet::new(),
            groups: BTreeMap::new(),
            whole_persons: false,
            whole_groups: BTreeSet::new(),
            distinct_ids: BTreeSet::new(),
            rosters: BTreeSet::new(),
            sessions: None,
            session_fields: BTreeSet::new(),
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
            cohorts: Cohorts::default(),
        }
    }

    /// Makes the scan cover a time, both ends included.
    pub(crate) fn extend_time_range(&mut self, from: Micros, to: Micros) {
        self.needs.scan.from = self.needs.scan.from.min(from);
        self.needs.scan.to = self.needs.scan.to.max(to);
    }

    /// Adds a kind of actors to count: there will be partitions of these, without the rows that name none.
    pub(crate) fn add_actor_kind(&mut self, actors: ActorKind) {
        self.actors.insert(actors);
        self.needs.scan.arrivals |= actors != ActorKind::Persons;
        if let Some(column) = actors.column() {
            self.require_event_column(column);
        }
    }

    /// Compiles a filter; what it reads will be in the rows.
    pub(crate) fn compile_filter(&mut self, filter: &Filter, attr: &str) -> CalcResult<Predicate> {
        let predicate = Predicate::new(filter, self.now, &mut self.budget, attr)?;
        self.require_values_of(&predicate, attr)?;
        Ok(predicate)
    }

    /// Makes an expression over one event ready; what it reads will be in the rows.
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

    /// Makes an expression over many events ready; what it reads will be in the rows.
    pub(crate) fn compile_aggregate(
        &mut self,
        aggregate: &Aggregate,
        attr: &str,
    ) -> CalcResult<CompiledAggregate> {
        // Of events of one time the first to arrive comes first, whoever did them.
        self.needs.scan.arrivals = true;
        let aggregation = aggregate.compile(self.now.timezone(), &mut self.budget, attr)?;
        let mut read = Vec::new();
        aggregation.for_each_column(&mut |key| read.push(key.clone()));
        read.iter().try_for_each(|key| self.require_value(key, attr))?;
        Ok(aggregation)
    }

    /// Asks for every value that a predicate reads.
    pub(crate) fn require_values_of(&mut self, predicate: &Predicate, attr: &str) -> CalcResult<()> {
        let mut read = Vec::new();
        predicate.for_each_column(&mut |key| read.push(key.clone()));
        read.iter().try_for_each(|key| self.require_value(key, attr))
    }

    /// Compiles a test of one value, for a column that is asked for elsewhere.
    pub(crate) fn compile_test(
        &mut self,
        operator: Operator,
        value: &Value,
        attr: &str,
    ) -> CalcResult<ValueTest> {
        ValueTest::new(operator, value, self.now, &mut self.budget, attr)
    }

    /// Reads the filters of a definition.
    pub(crate) fn parse_filter(&mut self, filters: Option<&Value>, attr: &str) -> CalcResult<Filter> {
        self.parser.parse(filters, attr)
    }

    /// Asks for a value in every row.
    pub(crate) fn require_value(&mut self, key: &ColumnRef, attr: &str) -> CalcResult<()> {
        match key {
            ColumnRef::Event(key) => self.require_event_column(key.clone()),
            ColumnRef::Joined(key) => {
                self.needs.facts.insert(key.clone());
                match key {
                    JoinedColumnKey::PersonId => {}
                    JoinedColumnKey::Person(property) => {
                        self.needs.persons.insert(property.clone());
                    }
                    JoinedColumnKey::HasDistinctId(ids) => {
                        self.needs.distinct_ids.extend(ids.iter().cloned())
                    }
                    JoinedColumnKey::PersonProperties => self.needs.whole_persons = true,
                    JoinedColumnKey::GroupProperties(index) => {
                        self.needs.whole_groups.insert(*index);
                        self.require_event_column(join::group_column(*index));
                    }
                    JoinedColumnKey::Group(index, property) => {
                        self.needs.groups.entry(*index).or_default().insert(property.clone());
                        self.require_event_column(join::group_column(*index));
                    }
                    JoinedColumnKey::Session(field) => sessions::require_field(field, self, attr)?,
                    JoinedColumnKey::InCohort(cohort) => cohort::compile(*cohort, self, attr)?,
                }
            }
        }
        Ok(())
    }

    fn require_event_column(&mut self, key: ColumnKey) {
        self.needs.scan.columns.insert(key);
    }

    /// Makes the scan cover events of a name, or of any.
    pub(crate) fn include_event(&mut self, event: Option<&String>) {
        match (event, &mut self.needs.scan.events) {
            (Some(name), EventSelection::Named(names)) => {
                names.insert(name.clone());
            }
            (Some(_), EventSelection::All) => {}
            (None, events) => *events = EventSelection::All,
        }
    }

    /// What `ask` asks for is put into a scan of its own: that scan, and what is joined to its rows.
    pub(crate) fn in_separate_scan<T>(
        &mut self,
        ask: impl FnOnce(&mut Self) -> CalcResult<T>,
    ) -> CalcResult<(ScanRequest, BTreeSet<JoinedColumnKey>, T)> {
        let outer =
            (std::mem::replace(&mut self.needs.scan, empty_scan()), std::mem::take(&mut self.needs.facts));
        let asked = ask(self)?;
        let scan = std::mem::replace(&mut self.needs.scan, outer.0);
        let facts = std::mem::replace(&mut self.needs.facts, outer.1);
        Ok((scan, facts, asked))
    }
}

/// The scan of no event.
fn empty_scan() -> ScanRequest {
    let events = EventSelection::Named(BTreeSet::new());
    ScanRequest { events, from: Micros::MAX, to: Micros::MIN, columns: BTreeSet::new(), arrivals: false }
}
