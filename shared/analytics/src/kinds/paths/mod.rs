//! Paths: what people do one after the other within a session, as numbered steps, and how often one step follows another.
//!
//! `query` is the parsed query, `dialects` its two forms in requests, `funnel_paths` its restriction to a funnel step,
//! `calculation` its numbers. Terms: an event is named by an *item*; a *step* is an item at its number in a session; a
//! *passage* is one step after another in one session; an *edge* is all passages between two steps.

mod calculation;
mod describe;
mod dialects;
mod funnel_paths;
pub mod limits;
mod path_key;
mod query;
mod raw_query;
mod table;

use pennon_filters::CalcResult;
use pennon_filters::dates::Interval;
use pennon_filters::dates::range::{DateRange, Rounding};
use serde_json::{Map, Value};

use super::insight::{InsightQuery, RegisteredKind};
use super::{Endpoint, KindDescription, NodeDescription, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter, unsupported};
use crate::definitions::DefinitionIds;
use crate::query::CommonFields;
use calculation::CompiledPaths;
pub use calculation::PathPoint;
pub use funnel_paths::{FunnelPathType, FunnelPaths};
pub use path_key::PathKey;
pub use query::{CleaningFilter, EventType, PathsQuery, PeopleKeys};

/// Validates the path cleaning filters of a project.
pub fn validate_cleaning_filters(filters: &[Value]) -> CalcResult<()> {
    calculation::validate_cleaning_filters(filters)
}

/// The value of `insight` in filters of paths.
const INSIGHT_NAME: &str = "PATHS";
/// The value of `kind` in nodes of paths.
const NODE_KIND: &str = "PathsQuery";

impl InsightQuery for PathsQuery {
    fn common(&self) -> &CommonFields {
        &self.common
    }

    fn rounding(&self) -> Rounding {
        Rounding { interval: Interval::Day, exact: false, cut_minutes: false }
    }

    fn needs_earliest_event(&self) -> bool {
        self.common.dates.needs_earliest()
            || self.funnel.as_ref().is_some_and(|funnel| funnel.source.needs_earliest_event())
    }

    fn uses_test_account_filters(&self) -> bool {
        self.common.filter_test_accounts
            || self.funnel.as_ref().is_some_and(|funnel| funnel.source.uses_test_account_filters())
    }

    fn uses_path_cleaning_filters(&self) -> bool {
        self.uses_project_cleaning
    }

    fn direct_references(&self) -> DefinitionIds {
        let mut references = self.common.direct_references(&[]);
        if let Some(funnel) = &self.funnel {
            let source = funnel.source.direct_references();
            references.actions.extend(source.actions);
            references.cohorts.extend(source.cohorts);
        }
        references
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
        Err(unsupported("paths"))
    }
}

impl RegisteredKind for PathsQuery {
    type Compiled = CompiledPaths;

    const DESCRIPTION: KindDescription = KindDescription {
        node: Some(NodeDescription {
            kind: NODE_KIND,
            saved: dialects::SAVED_NODE,
            parse: dialects::parse_node,
        }),
        insight_names: &[INSIGHT_NAME],
        endpoint: Endpoint::new("path"),
        parse_filters: dialects::parse_filters,
    };
}
