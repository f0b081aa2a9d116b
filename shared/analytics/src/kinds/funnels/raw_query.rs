//! The fields of a funnels query in a request, not parsed yet. Both dialects are read to them.

use serde_json::Value;

use crate::query::{Field, RawCommon, RawSeries};

/// The unparsed fields of a funnel.
#[derive(Debug, Clone)]
pub struct RawFunnels<'a> {
    pub common: RawCommon<'a>,
    pub display: Field<'a>,
    pub viz_type: Field<'a>,
    pub order_type: Field<'a>,
    pub window_interval: Field<'a>,
    pub window_days: Field<'a>,
    pub window_unit: Field<'a>,
    pub exclusions: Vec<RawExclusion<'a>>,
    pub from_step: Field<'a>,
    pub to_step: Field<'a>,
    pub bin_count: Field<'a>,
    pub attribution_type: Field<'a>,
    pub attribution_value: Field<'a>,
    /// Limit of breakdown values if the request sets none.
    pub default_limit: usize,
    pub aggregate_by_hogql: Field<'a>,
    /// Set only if groups are counted instead of persons.
    pub group_type: Field<'a>,
    /// Comparison with an earlier period, which funnels reject.
    pub compare: Field<'a>,
}

/// An exclusion, not parsed yet.
#[derive(Debug, Clone)]
pub struct RawExclusion<'a> {
    pub series: RawSeries<'a>,
    pub from_step: Option<Value>,
    pub to_step: Option<Value>,
}
