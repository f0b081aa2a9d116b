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
use pennon_filters::dates::range::DateRange;
use serde_json::{Map, Value};

use super::insight::{InsightQuery, RegisteredKind};
use super::{Endpoint, KindDescription, NodeDescription, PeoplePage, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter, unsupported};
use crate::project::ProjectContext;
use crate::query::{CommonFields, Series};
use calculation::CompiledRetention;
pub use calculation::RetentionPoint;
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

    /// The range has whole periods, and without a start as many as there are columns.
    fn resolve_range(&self, project: &ProjectContext, now: DateTime<Tz>) -> CalcResult<DateRange> {
        periods::resolve_range(&self.common.dates, (self.rounding(), self.total_intervals), project, now)
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
        endpoint: Endpoint { people_page: PeoplePage::Appearances, ..Endpoint::new("retention") },
        parse_filters: dialects::parse_filters,
    };
}
