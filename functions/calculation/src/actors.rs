//! The actors behind the numbers of a result: the target of the links in results.
//!
//! Must stay true: a link holds the query of its number and the selector of the number, so the list has as many actors as
//! the number counts.

use axum::response::Response;
use pennon_analytics::kinds::PeoplePage;
use pennon_analytics::{InsightKind, ParsedQuery};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, link, sized};
use pennon_filters::CalcError;
use serde_json::{Value, json as object};

use crate::Calculation;
use crate::calculator::{ActorJson, ListedActor, QueryOrigin, QueryRequest};
use crate::errors::engine_error;
use crate::handlers::keyed_query;
use crate::persons::READ_PERSONS;
use crate::request;

/// `GET` and `POST P/persons/<path of the kind>/`
pub async fn list(state: Calculation, call: Call, kind: InsightKind) -> ApiResult<Response> {
    let request = request::parse_people(&call, kind);
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
    let page = match kind.description().endpoint.people_page {
        PeoplePage::People => {
            let people: Vec<ActorJson> = actors.actors.into_iter().map(|listed| listed.actor).collect();
            object!({
                "results": [{"people": people, "count": people.len()}],
                "next": (after < actors.total).then(|| at(after)),
                "previous": (offset > 0).then(|| at(offset.saturating_sub(limit))),
                "initial": at(0),
                "total_count": actors.total,
                // Every actor that counts is listed.
                "missing_persons": 0,
                "last_refresh": pennon_core::clock::timestamp(call.now),
                "is_cached": false,
            })
        }
        PeoplePage::Appearances => object!({
            "result": actors.actors.into_iter().map(with_appearances).collect::<Vec<_>>(),
            "next": (after < actors.total).then(|| at(after)),
            "previous": (offset > 0).then(|| at(offset.saturating_sub(limit))),
            "total_count": actors.total,
            "missing_persons": 0,
        }),
    };
    sized(&call.headers, &page)
}

/// An actor with the columns in which it counts, as 0 and 1.
fn with_appearances(listed: ListedActor) -> Value {
    let appearances: Vec<u8> = listed.appearances.into_iter().map(u8::from).collect();
    let count = appearances.iter().filter(|appears| **appears == 1).count();
    object!({"person": listed.actor, "appearance_count": count, "appearances": appearances})
}
