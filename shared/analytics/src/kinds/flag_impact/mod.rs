//! Flag impact: how a metric differs between the persons that saw the variants of a flag.
//!
//! `query` is the parsed query: a flag, what counts as exposure, and the metric, which is a funnel or a series of a trend.
//! `calculation` finds who was exposed to which variant and what they did then; `crate::inference` has the statistics.
//!
//! It has no query node and no endpoint below `insights/`: requests name a stored flag, so the endpoint is one of flags, and
//! writes the flag's variants and split into the query. So cached results, background jobs and links to people work as for
//! every other kind, and a result is calculated again after the flag was changed.

mod calculation;
mod describe;
mod dialects;
mod flag;
pub mod limits;
mod metric;
mod query;
mod table;

use pennon_filters::CalcResult;
use pennon_filters::dates::range::{DateRange, Rounding};
use serde_json::{Map, Value};

use super::insight::{InsightQuery, RegisteredKind};
use super::{Endpoint, KindDescription, TableRows};
use crate::clickhouse::{EventSelect, StatementWriter, unsupported};
use crate::definitions::DefinitionIds;
use crate::query::{CommonFields, Series};
use calculation::CompiledFlagImpact;
pub use calculation::ImpactPoint;
pub use flag::{FlagUnderTest, FlagVariant};
pub use metric::{Metric, TrendMetric, TrendValue};
pub use query::{Exposure, FlagImpactQuery, InferenceMethod};

/// The path of people, below `persons/`.
const PERSONS_PATH: &str = "flag_impact";

impl InsightQuery for FlagImpactQuery {
    fn common(&self) -> &CommonFields {
        self.metric.common()
    }

    fn series(&self) -> &[Series] {
        self.metric.series()
    }

    fn rounding(&self) -> Rounding {
        Rounding { interval: self.common().interval, exact: false, cut_minutes: true }
    }

    fn direct_references(&self) -> DefinitionIds {
        self.metric.direct_references()
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
        Err(unsupported("the impact of a flag"))
    }
}

impl RegisteredKind for FlagImpactQuery {
    type Compiled = CompiledFlagImpact;

    const DESCRIPTION: KindDescription = KindDescription {
        node: None,
        insight_names: &[],
        endpoint: Endpoint { requires_series: true, ..Endpoint::new(PERSONS_PATH) },
        parse_filters: dialects::parse_filters,
    };

    const HAS_RESULT_ENDPOINT: bool = false;
}
