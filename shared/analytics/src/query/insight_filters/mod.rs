//! Insight filters: the flat dialect of queries, with the lists `events` and `actions`.
//!
//! Older API requests, the `filters` of saved insights and the parameters of people links use it. Must stay true: parsing
//! what [`serialize`] writes gives the same query again, so that a people link selects the population of its number.

pub mod parse;
pub mod serialize;
