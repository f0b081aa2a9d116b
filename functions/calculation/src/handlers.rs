//! Funnels and trends asked for directly.
//!
//! Must stay true: a key is judged before a question is; a stored result comes in the round trip that finds key and
//! project.

use axum::extract::State;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use chrono::NaiveDate;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, link, sized};
use pennon_engine::{CalcError, Parsed, unbox_breakdown};
use serde_json::{Value, json as object};

use crate::calculator::{Asked, AskedBy, Purpose, Question, days};
use crate::csv;
use crate::errors::{out_of_time, refusal};
use crate::format::{Format, shaped, table};
use crate::request::{self, Endpoint, Request};
use crate::{Calculation, Refresh};

pub(crate) const READ_INSIGHTS: &str = "insight:read";
/// How many series fill a page where the request does not say.
const SERIES_OF_A_PAGE: usize = 25;

/// `GET` and `POST P/insights/funnel/`
pub async fn funnel(State(state): State<Calculation>, call: Call) -> Response {
    let answer = answer(&state, &call, Endpoint::Funnel).await;
    shaped(
        &call,
        answer.and_then(|answered| {
            let Answered { mut body, request, .. } = answered;
            unbox_breakdown(&request.merged, &mut body["result"]);
            match Format::of(&call)? {
                Format::Json => sized(&call.headers, &body),
                Format::Csv => table(csv::flat(&body)),
            }
        }),
    )
}

/// `GET` and `POST P/insights/trend/`
pub async fn trend(State(state): State<Calculation>, call: Call) -> Response {
    let answer = answer(&state, &call, Endpoint::Trend).await;
    shaped(
        &call,
        answer.and_then(|answered| match Format::of(&call)? {
            Format::Json => {
                let mut body = answered.body;
                let series = body["result"].as_array().map_or(0, Vec::len);
                body["next"] = object!(next(&call, series));
                sized(&call.headers, &body)
            }
            Format::Csv => exported(&call, &answered),
        }),
    )
}

/// `GET` and `POST P/insights/funnel/correlation/`
pub async fn correlation(State(state): State<Calculation>, call: Call) -> Response {
    let answer = answer(&state, &call, Endpoint::Correlation).await;
    shaped(
        &call,
        answer.and_then(|Answered { body, .. }| {
            let body = object!({
                "result": body["result"], "last_refresh": body["last_refresh"], "is_cached": body["is_cached"],
            });
            match Format::of(&call)? {
                Format::Json => sized(&call.headers, &body),
                Format::Csv => table(csv::flat(&body)),
            }
        }),
    )
}

/// An answer before it has its form.
struct Answered {
    body: Value,
    request: Request,
    /// The days of the range, where the question has one; without the first where the range begins with the events.
    days: Option<(Option<NaiveDate>, NaiveDate)>,
}

async fn answer(state: &Calculation, call: &Call, endpoint: Endpoint) -> ApiResult<Answered> {
    let read = request::read(call, endpoint);
    let asked = read.as_ref().ok().and_then(asked);
    let (access, found) = state
        .app
        .project_with(call, READ_INSIGHTS, |id| asked.iter().flat_map(|asked| asked.keys(id)).collect())
        .await?;
    Format::of(call)?;
    let request = read?;
    let project = &access.project;
    let asked = match (&request.parsed, asked) {
        (Parsed::OtherKind(kind), _) => return Err(refusal(CalcError::unsupported("insight", kind))),
        (_, Some(asked)) => asked,
        _ if call.method == Method::POST && endpoint != Endpoint::Correlation => {
            return Err(ApiError::invalid("required", "This field is required.", Some("events")));
        }
        _ => {
            let result = match endpoint {
                Endpoint::Correlation => object!({"events": [], "skewed": false}),
                Endpoint::Funnel | Endpoint::Trend => object!([]),
            };
            let body = envelope(result, &project.timezone, timestamp(call.now), false);
            return Ok(Answered { body, request, days: None });
        }
    };
    let deadline = state.calculator.deadline();
    let query_id = request.query_id.as_deref();
    let read = state.calculator.read_after(project, &asked, found).await?;
    let question = Question {
        project,
        asked: &asked,
        stored: read.stored.first().and_then(Option::as_ref),
        tracked: read.tracked.first().and_then(Option::as_ref),
        known: &read.known,
        now: call.now,
        deadline,
        by: AskedBy { query_id, comes_again: true, ..AskedBy::default() },
    };
    // These endpoints always answer with a result: what is not fresh is calculated.
    let refresh = if request.refresh.mode.is_forced() { Refresh::ForceBlocking } else { Refresh::Blocking };
    let shown = state.calculator.answer(&question, refresh).await?;
    // It goes on in the background, and the same request finds its result.
    let shown = match (shown.calculated, shown.status.and_then(|status| status.failed_with())) {
        (Some(calculated), _) => calculated,
        (None, Some(message)) => return Err(ApiError::invalid("invalid_input", message, None)),
        (None, None) => return Err(out_of_time()),
    };
    let body = envelope(shown.result, &shown.timezone, timestamp(shown.last_refresh), shown.is_cached);
    Ok(Answered { body, request, days: Some(days(project, &asked.query, call.now)?) })
}

fn envelope(result: Value, timezone: &str, last_refresh: String, is_cached: bool) -> Value {
    object!({"result": result, "timezone": timezone, "last_refresh": last_refresh, "is_cached": is_cached})
}

/// The series of a trend as a file.
fn exported(call: &Call, answered: &Answered) -> ApiResult<Response> {
    let said = |name: &str| call.query_value(name).filter(|text| !text.is_empty());
    let mut text = Vec::new();
    let insight = said("export_insight_id");
    if let Some(id) = insight.filter(|id| id.chars().all(|letter| letter.is_ascii_alphanumeric())) {
        text.extend(format!("{}/insights/{id}/\n", call.url.origin).into_bytes());
    }
    text.extend(csv::series(&answered.body["result"]));
    let days = match answered.days {
        Some((Some(from), to)) => format!(" ({from} - {to})"),
        Some((None, to)) => format!(" (up until {to})"),
        None => String::new(),
    };
    let name = format!("attachment; filename=\"{}{days}.csv\"", csv::slug(said("export_name")));
    let mut response = table(text)?;
    if let Ok(name) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// The question of a request.
pub(crate) fn asked(request: &Request) -> Option<Asked> {
    let Parsed::Query(query) = &request.parsed else { return None };
    let asked = Asked::new(query.clone(), Purpose::Request, request.invalidation_key.as_deref());
    Some(asked.sent_as(request.source.clone()))
}

/// The link to the next page of a trend's series, when this one is full.
fn next(call: &Call, series: usize) -> Option<String> {
    let number = |name| call.query_value(name).and_then(|text: &str| text.trim().parse::<usize>().ok());
    let limit = number("breakdown_limit").filter(|limit| *limit > 0).unwrap_or(SERIES_OF_A_PAGE);
    let offset = number("offset").unwrap_or(0).saturating_add(limit);
    // An answer has all series whatever the offset, so whoever follows the links comes to an end.
    (series >= offset).then(|| link(call, &[("offset", Some(offset.to_string()))]))
}
