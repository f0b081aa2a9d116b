//! Correlation: which events and properties correlate with converting in a funnel.
//!
//! `query` is the parsed query, a funnel with a kind of factors; `calculation` ranks the factors.

mod calculation;
mod describe;
pub mod limits;
mod query;
mod table;

use pennon_filters::CalcResult;
use pennon_filters::dates::range::{DateRange, Rounding};
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value, json};

use super::insight::{CompiledInsight, InsightQuery, RegisteredKind};
use super::{Endpoint, KindDescription, PeoplePage, QueryOutput, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter, unsupported};
use crate::compiler::Compiler;
use crate::definitions::DefinitionIds;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::{CommonFields, Series};
use crate::scan::Partition;
pub use calculation::CorrelationPoint;
use calculation::{CompiledCorrelation, CorrelationCounts};
pub use query::{CorrelationQuery, Factor};

impl InsightQuery for CorrelationQuery {
    fn common(&self) -> &CommonFields {
        &self.funnel.common
    }

    fn series(&self) -> &[Series] {
        &self.funnel.series
    }

    fn rounding(&self) -> Rounding {
        self.funnel.rounding()
    }

    fn direct_references(&self) -> DefinitionIds {
        self.funnel.direct_references()
    }

    fn canonical_node(&self) -> Value {
        let mut node = self.funnel.canonical_node();
        node["kind"] = json!("FunnelCorrelationQuery");
        node["correlation"] = json!(self.correlation_fields());
        node
    }

    fn to_insight_filters(&self) -> Map<String, Value> {
        let mut filters = self.funnel.to_insight_filters();
        filters.extend(self.correlation_fields());
        filters
    }

    fn describe(&self) -> String {
        describe::describe(self)
    }

    fn table(&self, result: &Value) -> TableRows {
        table::rows(result)
    }

    fn select_sql(&self, _writer: &mut StatementWriter<'_>, _range: &DateRange) -> CalcResult<EventSelect> {
        Err(unsupported("a correlation"))
    }
}

impl RegisteredKind for CorrelationQuery {
    type Compiled = CompiledCorrelation;

    const DESCRIPTION: KindDescription = KindDescription {
        // Nodes of correlations are stored, but not calculated.
        node: None,
        insight_names: &[],
        endpoint: Endpoint {
            path: "funnel/correlation",
            persons_path: "funnel/correlation",
            job_form: "correlation",
            requires_series: false,
            empty_result: || json!({"events": [], "skewed": false}),
            adapt_result: |_, _| {},
            has_timezone: false,
            is_paged: false,
            csv_rows: None,
            people_page: PeoplePage::People,
        },
        parse_filters: query::parse,
    };

    fn compile(
        &self,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<CompiledCorrelation> {
        CompiledCorrelation::new(self, project, range, compiler)
    }

    fn parse_data_point(&self, request: &Map<String, Value>) -> CalcResult<CorrelationPoint> {
        calculation::parse_point(self, request)
    }
}

impl CompiledInsight for CompiledCorrelation {
    type Partial = CorrelationCounts;
    type DataPoint = CorrelationPoint;

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<CorrelationCounts> {
        self.count_partition(partition, work)
    }

    fn merge(left: CorrelationCounts, right: CorrelationCounts) -> CorrelationCounts {
        left.merge(right)
    }

    fn finish(&self, merged: CorrelationCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        Ok(QueryOutput { result: self.build_result(merged, work)?, has_more: None })
    }

    fn people(
        &self,
        partition: &Partition,
        point: &CorrelationPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}
