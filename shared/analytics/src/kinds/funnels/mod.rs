//! Funnels: how many actors reach each step of a sequence, and how long it takes them.
//!
//! `query` is the parsed query, `dialects` its two forms in requests, `calculation` its numbers.
//!
//! Correlations and paths are built on funnels. They use the fields and traits of [`FunnelsQuery`], `from_insight_filters`,
//! `from_query_node`, and `for_each_outcome` and `dropped_before` of the compiled funnel, nothing else.

mod calculation;
mod clickhouse;
mod clickhouse_rows;
mod describe;
mod dialects;
mod exclusions;
pub mod limits;
mod options;
mod query;
mod raw_query;
mod step_numbers;
mod table;
mod window;

use pennon_filters::CalcResult;
use pennon_filters::dates::range::{DateRange, Rounding};
use serde_json::{Map, Value};

use super::insight::{InsightQuery, RegisteredKind};
use super::{Endpoint, KindDescription, NodeDescription, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter};
use crate::definitions::DefinitionIds;
use crate::query::{CommonFields, Series};
pub(super) use calculation::CompiledFunnel;
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
            requires_series: true,
            adapt_result: unwrap_single_breakdown_values,
            ..Endpoint::new("funnel")
        },
        parse_filters: dialects::parse_filters,
    };
}
