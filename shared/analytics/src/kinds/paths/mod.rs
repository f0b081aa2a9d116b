//! Paths: what people do one after the other within a session, as numbered steps, and how often one step follows another.
//!
//! `query` is the parsed query, `dialects` its two forms in requests, `funnel_paths` its restriction to a funnel step,
//! `calculation` its numbers. Terms: an event is named by an *item*; a *step* is an item at its number in a session; a
//! *passage* is one step after another in one session; an *edge* is all passages between two steps.

mod calculation;
mod describe;
mod dialects;
mod funnel_paths;
pub mod limits;
mod path_key;
mod query;
mod raw_query;
mod table;

use pennon_filters::CalcResult;
use pennon_filters::dates::Interval;
use pennon_filters::dates::range::{DateRange, Rounding};
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value, json};

use super::insight::{CompiledInsight, InsightQuery, RegisteredKind};
use super::{Endpoint, KindDescription, NodeDescription, PeoplePage, QueryOutput, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter, unsupported};
use crate::compiler::Compiler;
use crate::definitions::DefinitionIds;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::{CommonFields, Series};
use crate::scan::{ActorKind, Partition};
pub use calculation::PathPoint;
use calculation::{CompiledPaths, PassageCounts};
pub use funnel_paths::{FunnelPathType, FunnelPaths};
pub use path_key::PathKey;
pub use query::{CleaningFilter, EventType, PathsQuery, PeopleKeys};

/// Validates the path cleaning filters of a project.
pub fn validate_cleaning_filters(filters: &[Value]) -> CalcResult<()> {
    calculation::validate_cleaning_filters(filters)
}

/// The value of `insight` in filters of paths.
const INSIGHT_NAME: &str = "PATHS";
/// The value of `kind` in nodes of paths.
const NODE_KIND: &str = "PathsQuery";

impl InsightQuery for PathsQuery {
    fn common(&self) -> &CommonFields {
        &self.common
    }

    fn series(&self) -> &[Series] {
        &[]
    }

    fn rounding(&self) -> Rounding {
        Rounding { interval: Interval::Day, exact: false, cut_minutes: false }
    }

    fn needs_earliest_event(&self) -> bool {
        self.common.dates.needs_earliest()
            || self.funnel.as_ref().is_some_and(|funnel| funnel.source.needs_earliest_event())
    }

    fn uses_test_account_filters(&self) -> bool {
        self.common.filter_test_accounts
            || self.funnel.as_ref().is_some_and(|funnel| funnel.source.uses_test_account_filters())
    }

    fn uses_path_cleaning_filters(&self) -> bool {
        self.uses_project_cleaning
    }

    fn direct_references(&self) -> DefinitionIds {
        let mut references = self.common.direct_references(&[]);
        if let Some(funnel) = &self.funnel {
            let source = funnel.source.direct_references();
            references.actions.extend(source.actions);
            references.cohorts.extend(source.cohorts);
        }
        references
    }

    fn canonical_node(&self) -> Value {
        dialects::canonical_node(self)
    }

    fn to_insight_filters(&self) -> Map<String, Value> {
        dialects::to_insight_filters(self)
    }

    fn describe(&self) -> String {
        describe::describe(self)
    }

    fn table(&self, result: &Value) -> TableRows {
        table::rows(result)
    }

    fn select_sql(&self, _writer: &mut StatementWriter<'_>, _range: &DateRange) -> CalcResult<EventSelect> {
        Err(unsupported("paths"))
    }
}

impl RegisteredKind for PathsQuery {
    type Compiled = CompiledPaths;

    const DESCRIPTION: KindDescription = KindDescription {
        node: Some(NodeDescription {
            kind: NODE_KIND,
            saved: dialects::SAVED_NODE,
            parse: dialects::parse_node,
        }),
        insight_names: &[INSIGHT_NAME],
        endpoint: Endpoint {
            path: "path",
            persons_path: "path",
            job_form: "path",
            requires_series: false,
            empty_result: || json!([]),
            adapt_result: |_, _| {},
            has_timezone: true,
            is_paged: false,
            csv_rows: None,
            people_page: PeoplePage::People,
        },
        parse_filters: dialects::parse_filters,
    };

    fn compile(
        &self,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<CompiledPaths> {
        CompiledPaths::new(self, project, range, compiler)
    }

    fn parse_data_point(&self, request: &Map<String, Value>) -> CalcResult<PathPoint> {
        calculation::parse_point(self, request)
    }
}

impl CompiledInsight for CompiledPaths {
    type Partial = PassageCounts;
    type DataPoint = PathPoint;

    fn actor_kind(&self, _point: &PathPoint) -> Option<ActorKind> {
        Some(ActorKind::Persons)
    }

    fn relate_partitions(
        &self,
        partitions: Vec<Partition>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Partition>> {
        self.relate_funnel_actors(partitions, work)
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<PassageCounts> {
        self.count_partition(partition, work)
    }

    fn merge(left: PassageCounts, right: PassageCounts) -> PassageCounts {
        left.merge(right)
    }

    fn finish(&self, merged: PassageCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        Ok(QueryOutput { result: self.build_result(&merged, work)?, has_more: None })
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
