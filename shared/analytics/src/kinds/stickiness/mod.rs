//! Stickiness: how many actors did something in exactly so many intervals of a range, or in at least so many.
//!
//! `query` is the parsed query, `dialects` its two forms in requests, `calculation` its numbers.

mod calculation;
mod clickhouse;
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
use crate::clickhouse::{EventSelect, StatementWriter};
use crate::compiler::Compiler;
use crate::definitions::DefinitionIds;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::{CommonFields, Series};
use crate::scan::{ActorKind, Partition};
pub use calculation::StickinessPoint;
use calculation::{CompiledStickiness, StickinessCounts};
pub use query::{COMPUTED_AS, CountComparison, Criterion, SeriesActor, StickinessQuery};

/// The value of `insight` in filters of stickiness.
const INSIGHT_NAME: &str = "STICKINESS";
/// The kind of its query nodes.
const NODE_KIND: &str = "StickinessQuery";
/// The path of people, below `persons/`.
const PERSONS_PATH: &str = "stickiness";

impl InsightQuery for StickinessQuery {
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

    fn select_sql(&self, writer: &mut StatementWriter<'_>, range: &DateRange) -> CalcResult<EventSelect> {
        let sql = clickhouse::select(writer, self, range)?;
        Ok(EventSelect { sql, from: range.first, to: range.to })
    }
}

impl RegisteredKind for StickinessQuery {
    type Compiled = CompiledStickiness;

    const DESCRIPTION: KindDescription = KindDescription {
        node: Some(NodeDescription {
            kind: NODE_KIND,
            saved: dialects::SAVED_NODE,
            parse: dialects::parse_node,
        }),
        insight_names: &[INSIGHT_NAME],
        endpoint: Endpoint {
            path: "stickiness",
            persons_path: PERSONS_PATH,
            job_form: "stickiness",
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
    ) -> CalcResult<CompiledStickiness> {
        CompiledStickiness::new(self, project, range, compiler)
    }

    fn parse_data_point(&self, request: &Map<String, Value>) -> CalcResult<StickinessPoint> {
        calculation::parse_point(self, request)
    }
}

impl CompiledInsight for CompiledStickiness {
    type Partial = StickinessCounts;
    type DataPoint = StickinessPoint;

    fn actor_kind(&self, point: &StickinessPoint) -> Option<ActorKind> {
        Some(self.series_actor_kind(point.series))
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<StickinessCounts> {
        self.count_partition(partition, work)
    }

    fn merge(left: StickinessCounts, right: StickinessCounts) -> StickinessCounts {
        left.merge(right)
    }

    fn finish(&self, merged: StickinessCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        self.build_result(merged, work)
    }

    fn people(
        &self,
        partition: &Partition,
        point: &StickinessPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}
