//! The actors behind the numbers of a result: the target of the links in results.
//!
//! Must stay true: a link holds the query of its number and the selector of the number, so the list has as many actors as
//! the number counts.

use axum::response::Response;
use pennon_analytics::{InsightKind, ParsedQuery};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, link, sized};
use pennon_filters::CalcError;
use serde_json::json as object;

use crate::Calculation;
use crate::calculator::{QueryOrigin, QueryRequest};
use crate::errors::engine_error;
use crate::handlers::keyed_query;
use crate::persons::READ_PERSONS;
use crate::request;

/// `GET` and `POST P/persons/<path of the kind>/`
pub async fn list(state: Calculation, call: Call, kind: InsightKind) -> ApiResult<Response> {
    let request = request::parse(&call, kind);
    let query = request.as_ref().ok().and_then(keyed_query);
    let (access, items) = state
        .app
        .authorize_project_with(&call, READ_PERSONS, |id| {
            query.iter().flat_map(|query| query.keys(id)).collect()
        })
        .await?;
    let request = request?;
    let query = match (&request.parsed, query) {
        (_, Some(query)) => query,
        (ParsedQuery::OtherKind(kind), _) => {
            return Err(engine_error(CalcError::unsupported("insight", kind)));
        }
        _ => return Err(ApiError::invalid("required", "This field is required.", Some("events"))),
    };
    let point = query.query.data_point(&request.merged).map_err(engine_error)?;
    let deadline = state.calculator.deadline();
    let stored = state.calculator.complete_prefetch(&access.project, &query, items).await?;
    let query_request = QueryRequest {
        project: &access.project,
        keyed: &query,
        stored: None,
        tracked: None,
        known: &stored.known,
        now: call.now,
        deadline,
        origin: QueryOrigin::default(),
    };
    let Page { limit, offset } = Page::of(&call);
    let actors = state.calculator.actors(&query_request, point, limit, offset).await?;
    let at = |offset: usize| {
        link(
            &call,
            &[("limit", Some(limit.to_string())), ("offset", (offset > 0).then(|| offset.to_string()))],
        )
    };
    let after = offset.saturating_add(limit);
    let page = object!({
        "results": [{"people": actors.actors, "count": actors.actors.len()}],
        "next": (after < actors.total).then(|| at(after)),
        "previous": (offset > 0).then(|| at(offset.saturating_sub(limit))),
        "initial": at(0),
        "total_count": actors.total,
        // Every actor that counts is listed.
        "missing_persons": 0,
        "last_refresh": pennon_core::clock::timestamp(call.now),
        "is_cached": false,
    });
    sized(&call.headers, &page)
}
