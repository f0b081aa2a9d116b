//! Trends: a count or statistic of events for each time bucket, or one over the whole range.
//!
//! `query` is the parsed query, `dialects` its two forms in requests, `calculation` its numbers.

mod calculation;
mod clickhouse;
mod clickhouse_rows;
mod describe;
mod dialects;
mod formula;
mod formulas;
pub mod limits;
mod query;
mod raw_query;
mod table;

use pennon_filters::CalcResult;
use pennon_filters::dates::Interval;
use pennon_filters::dates::range::{DateRange, Rounding};
use serde_json::{Map, Value};

use super::insight::{InsightQuery, RegisteredKind};
use super::{Endpoint, KindDescription, NodeDescription, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter};
use crate::query::{CommonFields, Math, Series, UniqueBy};
use crate::scan::ActorKind;
use calculation::CompiledTrend;
pub use calculation::TrendPoint;
pub use formula::Formula;
pub use formulas::NamedFormula;
pub use query::{Display, TrendsQuery};

/// The value of `insight` in filters of trends.
pub(super) const INSIGHT_NAME: &str = "TRENDS";

impl InsightQuery for TrendsQuery {
    fn common(&self) -> &CommonFields {
        &self.common
    }

    fn series(&self) -> &[Series] {
        &self.series
    }

    /// Totals are rounded by days, a single number not at all.
    fn rounding(&self) -> Rounding {
        Rounding {
            interval: if self.display.is_total() { Interval::Day } else { self.common.interval },
            exact: self.display == Display::BoldNumber,
            cut_minutes: false,
        }
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
        let sql = clickhouse::select(writer, self, range)?;
        Ok(EventSelect { sql, from: range.from.min(range.first), to: range.to })
    }
}

impl RegisteredKind for TrendsQuery {
    type Compiled = CompiledTrend;

    const DESCRIPTION: KindDescription = KindDescription {
        node: Some(NodeDescription {
            kind: "TrendsQuery",
            saved: dialects::SAVED_NODE,
            parse: dialects::parse_node,
        }),
        insight_names: &[INSIGHT_NAME, "SESSIONS"],
        endpoint: Endpoint {
            persons_path: "trends",
            requires_series: true,
            is_paged: true,
            csv_rows: Some(table::csv_rows),
            ..Endpoint::new("trend")
        },
        parse_filters: dialects::parse_filters,
    };

    fn counted_groups(&self, point: &TrendPoint) -> Option<ActorKind> {
        match self.series.get(point.series)?.math {
            Math::Unique(UniqueBy::Group(index)) | Math::Rolling(_, UniqueBy::Group(index)) => {
                Some(ActorKind::Groups(index))
            }
            _ => None,
        }
    }
}
