//! Funnels: how many actors reach each step of a sequence, and how long it takes them.
//!
//! `query` is the parsed query, `dialects` its two forms in requests, `calculation` its numbers.
//!
//! Correlations and paths are built on funnels. They use the fields and traits of [`FunnelsQuery`], `from_insight_filters`,
//! `from_query_node`, and `for_each_outcome` and `dropped_before` of the compiled funnel, nothing else.

mod calculation;
mod clickhouse;
mod describe;
mod dialects;
mod exclusions;
pub mod limits;
mod options;
mod query;
mod raw_query;
mod table;
mod window;

use pennon_filters::CalcResult;
use pennon_filters::dates::range::{DateRange, Rounding};
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value, json};

use super::insight::{CompiledInsight, InsightQuery, RegisteredKind};
use super::{Endpoint, KindDescription, NodeDescription, PeoplePage, QueryOutput, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter};
use crate::compiler::Compiler;
use crate::definitions::DefinitionIds;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::{CommonFields, Series};
use crate::scan::Partition;
pub(super) use calculation::CompiledFunnel;
use calculation::FunnelRows;
pub use calculation::{ActorOutcome, FunnelPoint, unwrap_single_breakdown_values};
pub use exclusions::Exclusion;
pub use options::{Attribution, FirstTime, FunnelVizType, StepOptions, StepOrder};
pub use query::FunnelsQuery;
pub use window::{ConversionWindow, WindowUnit};

/// The value of `insight` in filters of funnels.
const INSIGHT_NAME: &str = "FUNNELS";

impl FunnelsQuery {
    /// Parses the funnel of insight filters; `None` without steps.
    pub(super) fn from_insight_filters(request: &Map<String, Value>) -> CalcResult<Option<Self>> {
        dialects::parse_funnel_filters(request)
    }

    /// Parses the funnel of a query node; `None` without steps.
    pub(super) fn from_query_node(node: &Map<String, Value>) -> CalcResult<Option<Self>> {
        dialects::parse_funnel_node(node)
    }
}

impl InsightQuery for FunnelsQuery {
    fn common(&self) -> &CommonFields {
        &self.common
    }

    fn series(&self) -> &[Series] {
        &self.series
    }

    fn rounding(&self) -> Rounding {
        Rounding { interval: self.common.interval, exact: false, cut_minutes: true }
    }

    fn direct_references(&self) -> DefinitionIds {
        self.common
            .direct_references(self.series.iter().chain(self.exclusions.iter().map(|entry| &entry.series)))
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
        table::rows(self, result)
    }

    fn select_sql(&self, writer: &mut StatementWriter<'_>, range: &DateRange) -> CalcResult<EventSelect> {
        Ok(EventSelect { sql: clickhouse::select(writer, self)?, from: range.from, to: range.to })
    }
}

impl RegisteredKind for FunnelsQuery {
    type Compiled = CompiledFunnel;

    const DESCRIPTION: KindDescription = KindDescription {
        node: Some(NodeDescription {
            kind: "FunnelsQuery",
            saved: dialects::SAVED_NODE,
            parse: dialects::parse_node,
        }),
        insight_names: &[INSIGHT_NAME],
        endpoint: Endpoint {
            path: "funnel",
            persons_path: "funnel",
            job_form: "funnel",
            requires_series: true,
            empty_result: || json!([]),
            adapt_result: unwrap_single_breakdown_values,
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
    ) -> CalcResult<CompiledFunnel> {
        CompiledFunnel::new(self, project, range, compiler)
    }

    fn parse_data_point(&self, request: &Map<String, Value>) -> CalcResult<FunnelPoint> {
        calculation::parse_point(self, request)
    }
}

impl CompiledInsight for CompiledFunnel {
    type Partial = FunnelRows;
    type DataPoint = FunnelPoint;

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<FunnelRows> {
        self.count_partition(partition, work)
    }

    fn merge(left: FunnelRows, right: FunnelRows) -> FunnelRows {
        left.merge(right)
    }

    fn finish(&self, merged: FunnelRows, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        Ok(QueryOutput { result: self.build_result(merged, work)?, has_more: None })
    }

    fn people(
        &self,
        partition: &Partition,
        point: &FunnelPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}
