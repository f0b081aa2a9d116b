//! Lifecycles: for each period, how many active actors are new, came back from the period before or after a pause, and how many
//! stayed away.
//!
//! `query` is the parsed query, `dialects` its two forms in requests, `calculation` its numbers.

mod calculation;
mod describe;
mod dialects;
pub mod limits;
mod query;
mod raw_query;
mod table;

use pennon_filters::CalcResult;
use pennon_filters::dates::range::{DateRange, Rounding};
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value, json};

use super::insight::{CompiledInsight, InsightQuery, LegacyRequests, RegisteredKind};
use super::{Endpoint, KindDescription, NodeDescription, PeoplePage, QueryOutput, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter, unsupported};
use crate::compiler::Compiler;
use crate::definitions::DefinitionIds;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::{CommonFields, Series};
use crate::scan::Partition;
pub use calculation::LifecyclePoint;
use calculation::{CompiledLifecycle, LifecycleCounts};
pub use query::{LifecycleQuery, LifecycleStatus};

/// The value of `insight` in filters of lifecycles.
const INSIGHT_NAME: &str = "LIFECYCLE";
/// The kind of its query nodes.
const NODE_KIND: &str = "LifecycleQuery";
/// The path of people, below `persons/`.
const PERSONS_PATH: &str = "lifecycle";

impl InsightQuery for LifecycleQuery {
    fn common(&self) -> &CommonFields {
        &self.common
    }

    fn series(&self) -> &[Series] {
        &self.series
    }

    fn rounding(&self) -> Rounding {
        Rounding { interval: self.common.interval, exact: false, cut_minutes: false }
    }

    fn direct_references(&self) -> DefinitionIds {
        self.common.direct_references(&self.series)
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
        Err(unsupported(
            "a lifecycle, because the files of events lack the recorded creation times of persons",
        ))
    }
}

impl RegisteredKind for LifecycleQuery {
    type Compiled = CompiledLifecycle;

    const DESCRIPTION: KindDescription = KindDescription {
        node: Some(NodeDescription {
            kind: NODE_KIND,
            saved: dialects::SAVED_NODE,
            parse: dialects::parse_node,
        }),
        insight_names: &[INSIGHT_NAME],
        endpoint: Endpoint {
            path: "lifecycle",
            persons_path: PERSONS_PATH,
            job_form: "lifecycle",
            requires_series: true,
            empty_result: || json!([]),
            adapt_result: |_, _| {},
            has_timezone: true,
            is_paged: false,
            csv_rows: None,
            people_page: PeoplePage::People,
        },
        parse_filters: dialects::parse_filters,
    };

    const LEGACY_REQUESTS: LegacyRequests =
        LegacyRequests { shared_path: Some("trend"), are_marked: dialects::are_marked };

    fn compile(
        &self,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<CompiledLifecycle> {
        CompiledLifecycle::new(self, project, range, compiler)
    }

    fn parse_data_point(&self, request: &Map<String, Value>) -> CalcResult<LifecyclePoint> {
        calculation::parse_point(request)
    }
}

impl CompiledInsight for CompiledLifecycle {
    type Partial = LifecycleCounts;
    type DataPoint = LifecyclePoint;

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<LifecycleCounts> {
        self.count_partition(partition, work)
    }

    fn merge(left: LifecycleCounts, right: LifecycleCounts) -> LifecycleCounts {
        left.merge(right)
    }

    fn finish(&self, merged: LifecycleCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        self.build_result(merged, work)
    }

    fn people(
        &self,
        partition: &Partition,
        point: &LifecyclePoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}
