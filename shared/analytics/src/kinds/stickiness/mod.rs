//! Stickiness: how many actors did something in exactly so many intervals of a range, or in at least so many.
//!
//! `query` is the parsed query, `dialects` its two forms in requests, `calculation` its numbers.

mod calculation;
mod clickhouse;
mod clickhouse_rows;
mod describe;
mod dialects;
pub mod limits;
mod query;
mod raw_query;
mod table;

use pennon_filters::CalcResult;
use pennon_filters::dates::range::DateRange;
use serde_json::{Map, Value};

use super::insight::{InsightQuery, LegacyRequests, RegisteredKind};
use super::{Endpoint, KindDescription, NodeDescription, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter};
use crate::query::insight_filters::serialize::filters_with_node;
use crate::query::{CommonFields, Series};
use calculation::CompiledStickiness;
pub use calculation::StickinessPoint;
pub use query::{COMPUTED_AS, CountComparison, Criterion, SeriesActor, StickinessQuery};

/// The value of `insight` in filters of stickiness.
const INSIGHT_NAME: &str = "STICKINESS";
/// The kind of its query nodes.
const NODE_KIND: &str = "StickinessQuery";
/// The path of its endpoints, below `insights/` and `persons/`.
const PATH: &str = "stickiness";

impl InsightQuery for StickinessQuery {
    fn common(&self) -> &CommonFields {
        &self.common
    }

    fn series(&self) -> &[Series] {
        &self.series
    }

    fn canonical_node(&self) -> Value {
        dialects::canonical_node(self)
    }

    fn to_insight_filters(&self) -> Map<String, Value> {
        filters_with_node(INSIGHT_NAME, dialects::to_node(self))
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
        endpoint: Endpoint { requires_series: true, ..Endpoint::new(PATH) },
        parse_filters: dialects::parse_filters,
    };

    const LEGACY_REQUESTS: LegacyRequests =
        LegacyRequests { shared_path: Some("trend"), are_marked: dialects::are_marked };
}
