//! Retention: how many actors start in each period, and how many of them return in the periods after it.
//!
//! `query` is the parsed query, `dialects` its two forms in requests, `periods` the rows of its result, `calculation` its
//! numbers.

mod calculation;
mod describe;
mod dialects;
pub mod limits;
mod options;
mod periods;
mod query;
mod raw_query;
mod table;

use chrono::DateTime;
use chrono_tz::Tz;
use pennon_filters::CalcResult;
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
use crate::scan::Partition;
pub use calculation::RetentionPoint;
use calculation::{CompiledRetention, RetentionCounts};
pub use options::{Aggregation, AggregationType, RetentionType, TimeWindowMode};
pub use query::RetentionQuery;

/// The value of `insight` in filters of retention.
const INSIGHT_NAME: &str = "RETENTION";

impl InsightQuery for RetentionQuery {
    fn common(&self) -> &CommonFields {
        &self.common
    }

    /// The event or action that starts, then the one that returns.
    fn series(&self) -> &[Series] {
        self.entities.as_slice()
    }

    fn rounding(&self) -> Rounding {
        Rounding { interval: self.common.interval, exact: false, cut_minutes: false }
    }

    /// The range has whole periods, and without a start as many as there are columns.
    fn resolve_range(&self, project: &ProjectContext, now: DateTime<Tz>) -> CalcResult<DateRange> {
        periods::resolve_range(&self.common.dates, (self.rounding(), self.total_intervals), project, now)
    }

    fn direct_references(&self) -> DefinitionIds {
        self.common.direct_references(self.entities.as_slice())
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
        Err(unsupported("retention"))
    }
}

impl RegisteredKind for RetentionQuery {
    type Compiled = CompiledRetention;

    const DESCRIPTION: KindDescription = KindDescription {
        node: Some(NodeDescription {
            kind: "RetentionQuery",
            saved: dialects::SAVED_NODE,
            parse: dialects::parse_node,
        }),
        insight_names: &[INSIGHT_NAME],
        endpoint: Endpoint {
            path: "retention",
            persons_path: "retention",
            job_form: "retention",
            requires_series: false,
            empty_result: || json!([]),
            adapt_result: |_, _| {},
            has_timezone: true,
            is_paged: false,
            csv_rows: None,
            people_page: PeoplePage::Appearances,
        },
        parse_filters: dialects::parse_filters,
    };

    fn compile(
        &self,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<CompiledRetention> {
        CompiledRetention::new(self, project, range, compiler)
    }

    fn parse_data_point(&self, request: &Map<String, Value>) -> CalcResult<RetentionPoint> {
        calculation::parse_point(self, request)
    }
}

impl CompiledInsight for CompiledRetention {
    type Partial = RetentionCounts;
    type DataPoint = RetentionPoint;

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<RetentionCounts> {
        self.count_partition(partition, work)
    }

    fn merge(left: RetentionCounts, right: RetentionCounts) -> RetentionCounts {
        left.merge(right)
    }

    fn finish(&self, merged: RetentionCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        self.build_result(&merged, work)
    }

    fn people(
        &self,
        partition: &Partition,
        point: &RetentionPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}
