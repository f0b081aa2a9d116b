//! The fields of a trends query in a request, not parsed yet. Both dialects are read to them.

use crate::query::{Field, RawCommon};

/// The unparsed fields of a trend.
#[derive(Debug, Clone)]
pub struct RawTrends<'a> {
    pub common: RawCommon<'a>,
    pub display: Field<'a>,
    pub compare: Field<'a>,
    pub compare_to: Field<'a>,
    pub formula: Field<'a>,
    /// A list of formulas as strings; takes precedence over `formula`.
    pub formulas: Field<'a>,
    /// A list of formulas as objects, which may have names; takes precedence over `formulas`.
    pub formula_nodes: Field<'a>,
    pub smoothing_intervals: Field<'a>,
    pub conversion_goal: Field<'a>,
}
