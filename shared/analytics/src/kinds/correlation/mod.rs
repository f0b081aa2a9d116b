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
use serde_json::{Map, Value, json};

use super::insight::{InsightQuery, RegisteredKind};
use super::{Endpoint, KindDescription, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter, unsupported};
use crate::definitions::DefinitionIds;
use crate::query::{CommonFields, Series};
use calculation::CompiledCorrelation;
pub use calculation::CorrelationPoint;
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
            job_form: "correlation",
            empty_result: || json!({"events": [], "skewed": false}),
            has_timezone: false,
            ..Endpoint::new("funnel/correlation")
        },
        parse_filters: query::parse,
    };
}
