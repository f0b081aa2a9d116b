//! The people behind the numbers: where the links in answers lead.
//!
//! Must stay true: a link is the question that its number answers, and the choice of the number; so there are as many
//! people as the number says.

use axum::extract::State;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, link, sized};
use pennon_engine::{CalcError, Parsed};
use serde_json::json as object;

use crate::Calculation;
use crate::calculator::{AskedBy, Question};
use crate::errors::refusal;
use crate::handlers::asked;
use crate::persons::READ_PERSONS;
use crate::request::{self, Endpoint};

/// `GET` and `POST P/persons/funnel/`
pub async fn funnel(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    page(&state, &call, Endpoint::Funnel).await
}

/// `GET` and `POST P/persons/funnel/correlation/`
pub async fn correlation(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    page(&state, &call, Endpoint::Correlation).await
}

/// `GET` and `POST P/persons/trends/`
pub async fn trends(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    page(&state, &call, Endpoint::Trend).await
}

async fn page(state: &Calculation, call: &Call, endpoint: Endpoint) -> ApiResult<Response> {
    let read = request::read(call, endpoint);
    let asked = read.as_ref().ok().and_then(asked);
    let (access, found) = state
        .app
        .project_with(call, READ_PERSONS, |id| asked.iter().flat_map(|asked| asked.keys(id)).collect())
        .await?;
    let request = read?;
    let asked = match (&request.parsed, asked) {
        (_, Some(asked)) => asked,
        (Parsed::OtherKind(kind), _) => return Err(refusal(CalcError::unsupported("insight", kind))),
        _ => return Err(ApiError::invalid("required", "This field is required.", Some("events"))),
    };
    let selector = asked.query.selector(&request.merged).map_err(refusal)?;
    let deadline = state.calculator.deadline();
    let read = state.calculator.read_after(&access.project, &asked, found).await?;
    let question = Question {
        project: &access.project,
        asked: &asked,
        stored: None,
        tracked: None,
        known: &read.known,
        now: call.now,
        deadline,
        by: AskedBy::default(),
    };
    let Page { limit, offset } = Page::of(call);
    let found = state.calculator.people(&question, selector, limit, offset).await?;
    let at = |offset: usize| {
        link(
            call,
            &[("limit", Some(limit.to_string())), ("offset", (offset > 0).then(|| offset.to_string()))],
        )
    };
    let after = offset.saturating_add(limit);
    let page = object!({
        "results": [{"people": found.people, "count": found.people.len()}],
        "next": (after < found.total).then(|| at(after)),
        "previous": (offset > 0).then(|| at(offset.saturating_sub(limit))),
        "initial": at(0),
        "total_count": found.total,
        // Everybody who counts is shown.
        "missing_persons": 0,
        "last_refresh": pennon_core::clock::timestamp(call.now),
        "is_cached": false,
    });
    sized(&call.headers, &page)
}
