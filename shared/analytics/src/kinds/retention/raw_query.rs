//! The fields of a retention query in a request, not parsed yet. Both dialects are read to them.

use crate::query::{Field, RawCommon};

/// The unparsed fields of a retention query.
#[derive(Debug, Clone)]
pub struct RawRetention<'a> {
    pub common: RawCommon<'a>,
    pub target: Field<'a>,
    pub returning: Field<'a>,
    pub period: Field<'a>,
    pub total_intervals: Field<'a>,
    /// The number of columns where the request sets none.
    pub default_intervals: usize,
    pub retention_type: Field<'a>,
    pub minimum_occurrences: Field<'a>,
    pub cumulative: Field<'a>,
    pub brackets: Field<'a>,
    pub time_window_mode: Field<'a>,
    pub aggregation_type: Field<'a>,
    pub aggregation_property: Field<'a>,
    pub aggregation_property_type: Field<'a>,
    /// The group type to count; without a value persons are counted.
    pub group_type: Field<'a>,
}
