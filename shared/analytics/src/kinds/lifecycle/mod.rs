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
use pennon_filters::dates::range::DateRange;
use serde_json::{Map, Value};

use super::insight::{InsightQuery, LegacyRequests, RegisteredKind};
use super::{Endpoint, KindDescription, NodeDescription, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter, unsupported};
use crate::query::insight_filters::serialize::filters_with_node;
use crate::query::{CommonFields, Series};
use calculation::CompiledLifecycle;
pub use calculation::LifecyclePoint;
pub use query::{LifecycleQuery, LifecycleStatus};

/// The value of `insight` in filters of lifecycles.
const INSIGHT_NAME: &str = "LIFECYCLE";
/// The kind of its query nodes.
const NODE_KIND: &str = "LifecycleQuery";
/// The path of its endpoints, below `insights/` and `persons/`.
const PATH: &str = "lifecycle";

impl InsightQuery for LifecycleQuery {
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
        endpoint: Endpoint { requires_series: true, ..Endpoint::new(PATH) },
        parse_filters: dialects::parse_filters,
    };

    const LEGACY_REQUESTS: LegacyRequests =
        LegacyRequests { shared_path: Some("trend"), are_marked: dialects::are_marked };
}
