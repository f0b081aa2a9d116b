//! The calculation endpoints, one for each kind of insight.
//!
//! Must stay true: the key is authenticated before the query is validated; a cached result is fetched in the round trip
//! that finds the key and the project.

use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use chrono::NaiveDate;
use pennon_analytics::{InsightKind, ParsedQuery};
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, link, sized};
use pennon_filters::CalcError;
use serde_json::{Value, json as object};

use crate::calculator::{CacheScope, KeyedQuery, QueryOrigin, QueryRequest, range_days};
use crate::csv;
use crate::errors::{engine_error, timeout_error};
use crate::format::{ResponseFormat, csv_response, into_response};
use crate::request::{self, Request};
use crate::{Calculation, RefreshMode};

pub(crate) const READ_INSIGHTS: &str = "insight:read";
/// Default number of series of a page.
const SERIES_PER_PAGE: usize = 25;

/// `GET` and `POST P/insights/<path of the kind>/`
pub async fn insight(state: Calculation, call: Call, kind: InsightKind) -> Response {
    let result = calculate(&state, &call, kind).await;
    into_response(&call, result.and_then(|result| format_result(&call, kind, result)))
}

fn format_result(call: &Call, kind: InsightKind, result: EndpointResult) -> ApiResult<Response> {
    let EndpointResult { mut body, request, range_days } = result;
    let kind = kind.of_request(&request.merged);
    let endpoint = &kind.description().endpoint;
    (endpoint.adapt_result)(&request.merged, &mut body["result"]);
    if !endpoint.has_timezone
        && let Some(fields) = body.as_object_mut()
    {
        fields.shift_remove("timezone");
    }
    match (ResponseFormat::of(call)?, endpoint.csv_rows) {
        (ResponseFormat::Json, _) => {
            if endpoint.is_paged {
                let series = body["result"].as_array().map_or(0, Vec::len);
                body["next"] = object!(next_link(call, series));
            } else if kind.legacy_requests().shared_path.is_some() {
                // Clients of the shared endpoint expect the field.
                body["next"] = Value::Null;
            }
            sized(&call.headers, &body)
        }
        (ResponseFormat::Csv, Some(rows)) => named_csv(call, &rows(&body["result"]), range_days),
        (ResponseFormat::Csv, None) => csv_response(csv::flatten_json(&body)),
    }
}

/// The body of a response before it is formatted, and its request.
struct EndpointResult {
    body: Value,
    request: Request,
    /// The range, if the request has a query.
    range_days: Option<RangeDays>,
}

async fn calculate(state: &Calculation, call: &Call, kind: InsightKind) -> ApiResult<EndpointResult> {
    let endpoint = &kind.description().endpoint;
    let request = request::parse(call, kind);
    let query = request.as_ref().ok().and_then(keyed_query);
    let (access, items) = state
        .app
        .authorize_project_with(call, READ_INSIGHTS, |id| {
            query.iter().flat_map(|query| query.keys(id)).collect()
        })
        .await?;
    ResponseFormat::of(call)?;
    let request = request?;
    let project = &access.project;
    let query = match (&request.parsed, query) {
        (ParsedQuery::OtherKind(kind), _) => {
            return Err(engine_error(CalcError::unsupported("insight", kind)));
        }
        (_, Some(query)) => query,
        _ if call.method == Method::POST && endpoint.requires_series => {
            return Err(ApiError::invalid("required", "This field is required.", Some("events")));
        }
        _ => {
            let result = (endpoint.empty_result)();
            let body = envelope(result, &project.timezone, timestamp(call.now), false);
            return Ok(EndpointResult { body, request, range_days: None });
        }
    };
    let deadline = state.calculator.deadline();
    let query_id = request.query_id.as_deref();
    let stored = state.calculator.complete_prefetch(project, &query, items).await?;
    let query_request = QueryRequest {
        project,
        keyed: &query,
        stored: stored.stored.first().and_then(Option::as_ref),
        tracked: stored.tracked.first().and_then(Option::as_ref),
        known: &stored.known,
        now: call.now,
        deadline,
        origin: QueryOrigin { query_id, retries_on_503: true, ..QueryOrigin::default() },
    };
    // These endpoints always return a result: a stale one is calculated again.
    let refresh =
        if request.refresh.mode.is_forced() { RefreshMode::ForceBlocking } else { RefreshMode::Blocking };
    let response = state.calculator.respond(&query_request, refresh).await?;
    // Without a result and a failure, the calculation continues in the background, and a retry finds its result.
    let calculated =
        match (response.calculated, response.status.and_then(|status| status.into_error_message())) {
            (Some(calculated), _) => calculated,
            (None, Some(message)) => return Err(ApiError::invalid("invalid_input", message, None)),
            (None, None) => return Err(timeout_error()),
        };
    let body = envelope(
        calculated.result,
        &calculated.timezone,
        timestamp(calculated.last_refresh),
        calculated.is_cached,
    );
    Ok(EndpointResult { body, request, range_days: Some(range_days(project, &query.query, call.now)?) })
}

fn envelope(result: Value, timezone: &str, last_refresh: String, is_cached: bool) -> Value {
    object!({"result": result, "timezone": timezone, "last_refresh": last_refresh, "is_cached": is_cached})
}

/// The first and last day of a range; no first day where the range begins with the earliest event.
type RangeDays = (Option<NaiveDate>, NaiveDate);

/// The rows of a result as a CSV file with a name.
fn named_csv(call: &Call, rows: &[Vec<Value>], range_days: Option<RangeDays>) -> ApiResult<Response> {
    let parameter = |name: &str| call.query_value(name).filter(|text| !text.is_empty());
    let mut text = Vec::new();
    let insight = parameter("export_insight_id");
    if let Some(id) = insight.filter(|id| id.chars().all(|letter| letter.is_ascii_alphanumeric())) {
        text.extend(format!("{}/insights/{id}/\n", call.url.origin).into_bytes());
    }
    text.extend(csv::table(rows));
    let days = match range_days {
        Some((Some(from), to)) => format!(" ({from} - {to})"),
        Some((None, to)) => format!(" (up until {to})"),
        None => String::new(),
    };
    let name = format!("attachment; filename=\"{}{days}.csv\"", csv::slug(parameter("export_name")));
    let mut response = csv_response(text)?;
    if let Ok(name) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// The query of a request; `None` where it has none.
pub(crate) fn keyed_query(request: &Request) -> Option<KeyedQuery> {
    let ParsedQuery::Query(query) = &request.parsed else { return None };
    let keyed = KeyedQuery::new(query.clone(), CacheScope::Request, request.invalidation_key.as_deref());
    Some(keyed.with_source(request.source.clone()))
}

/// The link to the next page of a trend's series, if this one is full.
fn next_link(call: &Call, series: usize) -> Option<String> {
    let number = |name| call.query_value(name).and_then(|text: &str| text.trim().parse::<usize>().ok());
    let limit = number("breakdown_limit").filter(|limit| *limit > 0).unwrap_or(SERIES_PER_PAGE);
    let offset = number("offset").unwrap_or(0).saturating_add(limit);
    // A response has all series whatever the offset, so the chain of links ends.
    (series >= offset).then(|| link(call, &[("offset", Some(offset.to_string()))]))
}
