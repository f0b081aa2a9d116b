//! The fields of a paths query in a request, not parsed yet. Both dialects are read to them.

use crate::kinds::funnels::FunnelsQuery;
use crate::query::{Field, RawCommon};

/// The unparsed fields of a paths query.
#[derive(Debug, Clone)]
pub struct RawPaths<'a> {
    pub common: RawCommon<'a>,
    pub event_types: Field<'a>,
    pub expression: Field<'a>,
    pub exclude_events: Field<'a>,
    pub path_replacements: Field<'a>,
    pub cleaning_filters: Field<'a>,
    pub groupings: Field<'a>,
    pub start_point: Field<'a>,
    pub end_point: Field<'a>,
    pub step_limit: Field<'a>,
    pub edge_limit: Field<'a>,
    pub min_edge_weight: Field<'a>,
    pub max_edge_weight: Field<'a>,
    pub start_key: Field<'a>,
    pub end_key: Field<'a>,
    pub dropoff_key: Field<'a>,
    pub funnel: Option<RawFunnelPaths<'a>>,
}

/// The unparsed fields of paths around a funnel.
#[derive(Debug, Clone)]
pub struct RawFunnelPaths<'a> {
    pub path_type: Field<'a>,
    pub step: Field<'a>,
    pub source: FunnelsQuery,
}
