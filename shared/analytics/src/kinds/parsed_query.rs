//! What the parsers of all kinds return.

use super::Query;

/// Result of parsing a request, stored filters or a query node.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one value per request")]
pub enum ParsedQuery {
    /// A supported query.
    Query(Query),
    /// A query without series. The endpoint decides between an empty result and an error.
    Empty,
    /// A query kind that insights can store but that cannot be calculated; its name, such as `HogQLQuery`.
    OtherKind(String),
}
