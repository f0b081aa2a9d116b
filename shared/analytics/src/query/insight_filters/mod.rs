//! Insight filters: the flat dialect of queries, with the lists `events` and `actions`.
//!
//! Older API requests, the `filters` of saved insights and the parameters of people links use it. Must stay true: parsing
//! what [`serialize`] writes gives the same query again, so that a people link selects the population of its number.

pub(super) mod parse;
pub(super) mod serialize;

/// Link parameter: `aggregation_group_type_index` 0 means the group type with index 0, as in query nodes. Without it, 0
/// means persons.
const GROUPS_FROM_ZERO: &str = "aggregation_group_types_from_zero";
