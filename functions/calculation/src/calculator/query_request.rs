//! A query with everything that its response depends on.

use chrono::{DateTime, Utc};
use pennon_core::model::Project;
use tokio::time::Instant;

use super::{CachedResult, DefinitionLookup, KeyedQuery};
use crate::query_state::VersionedQueryState;

/// A query with everything that its response depends on.
#[derive(Debug, Clone, Copy)]
pub struct QueryRequest<'a> {
    /// The project whose events are read.
    pub project: &'a Project,
    /// The query and its cache key.
    pub keyed: &'a KeyedQuery,
    /// Its cached result, if any.
    pub stored: Option<&'a CachedResult>,
    /// The state of its background calculation, if any.
    pub tracked: Option<&'a VersionedQueryState>,
    /// The definitions that it refers to. Fetched before any event is read.
    pub known: &'a DefinitionLookup,
    /// The instant of the request.
    pub now: DateTime<Utc>,
    /// The deadline of the request, see [`Calculator::deadline`].
    pub deadline: Instant,
    /// The request that it belongs to.
    pub origin: QueryOrigin<'a>,
}

/// The request that a query belongs to.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueryOrigin<'a> {
    /// The client's own id of the calculation.
    pub query_id: Option<&'a str>,
    /// The insight that the query is part of.
    pub insight_id: Option<u64>,
    /// The dashboard that the insight is shown on.
    pub dashboard_id: Option<u64>,
    /// The endpoint returns results only: a client whose query takes too long gets 503 and sends the same request again
    /// later. A cached result that is empty is calculated again.
    pub retries_on_503: bool,
}
