//! A planned query with everything that its parts depend on, if it is split.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use pennon_analytics::{Plan, Query};
use pennon_core::model::Project;
use tokio::time::Instant;

use crate::calculator::QueryDefinitions;
use crate::source::QuerySource;

/// A planned query, which may be split.
#[derive(Clone, Copy)]
pub(crate) struct PlannedQuery<'a> {
    pub project: &'a Project,
    pub query: &'a Query,
    /// The query as it was sent.
    pub source: Option<&'a QuerySource>,
    pub plan: &'a Arc<Plan>,
    pub used: &'a QueryDefinitions,
    pub now: DateTime<Utc>,
    /// The time of the earliest event, if the query needs it.
    pub earliest: Option<i64>,
    pub deadline: Instant,
}
