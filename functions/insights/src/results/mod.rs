//! The results of insights: parses the query of a stored insight, and returns a cached or a calculated result.
//!
//! [`Insights::insight_result`] and [`Insights::insight_results`] are the door. `overrides` changes the query for one response,
//! `response` formats insights with their results, `redaction` removes what a sharing token may not show, `cancel` stops a
//! calculation, [`saved`] finds a query for the command line.
//!
//! Must stay true: a list calculates equal queries once, and one that fails does not fail the list; for a single insight,
//! a failed calculation is the error of the request; an insight that cannot be calculated has no result and, in modes that
//! calculate, a status with the reason.

pub mod cancel;
pub mod overrides;
pub mod redaction;
pub mod response;
pub mod saved;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use pennon_analytics::ParsedQuery;
use pennon_analytics::kinds::unsupported_kind;
use pennon_calculation::calculator::{CacheScope, KeyedQuery, QueryOrigin, QueryRequest};
use pennon_calculation::query_state::{Failure, QueryStatus};
use pennon_calculation::{
    CachedResult, QUERY_ID, QueryResponse, QueryResult, QuerySource, RefreshMode, RefreshParam, engine_error,
    query_id,
};
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::model::Project;
use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value};

use crate::insight::Insight;
use crate::{Insights, limits};

/// The query of an insight, as it was sent.
fn source(insight: &Insight) -> QuerySource {
    match &insight.query {
        Some(node) => QuerySource::Node(node.clone()),
        None => QuerySource::Filters(insight.filters.clone()),
    }
}

/// Parses the query of an insight.
pub(crate) fn parse_query(insight: &Insight) -> CalcResult<ParsedQuery> {
    source(insight).parse()
}

/// The query of an insight, as far as it can be calculated.
#[derive(Debug)]
enum ParsedInsight {
    /// The insight has no query.
    Empty,
    /// A query that can be calculated.
    Query(Box<KeyedQuery>),
    /// A kind of query that is not supported.
    UnsupportedKind(String),
    /// A query that the engine rejects.
    Invalid(CalcError),
}

impl ParsedInsight {
    fn new(insight: &Insight, refresh: RefreshMode) -> ParsedInsight {
        let source = source(insight);
        match source.parse() {
            Ok(ParsedQuery::Query(query)) => {
                let query = KeyedQuery::new(query, CacheScope::Saved, None).with_source(source);
                ParsedInsight::Query(Box::new(KeyedQuery { ignores_cache: refresh.is_forced(), ..query }))
            }
            Ok(ParsedQuery::Empty) => ParsedInsight::Empty,
            Ok(ParsedQuery::OtherKind(kind)) => ParsedInsight::UnsupportedKind(kind),
            Err(error) => ParsedInsight::Invalid(error),
        }
    }

    fn key(&self) -> Option<&String> {
        match self {
            ParsedInsight::Query(query) => Some(&query.key),
            _ => None,
        }
    }
}

/// The result of an insight, or the status of its calculation.
#[derive(Debug, Clone, Default)]
pub struct InsightResult {
    /// The result, if there is one.
    pub calculated: Option<QueryResult>,
    /// The cache key of the result.
    pub key: Option<String>,
    /// The status of a background calculation, or why there is no result in a mode that calculates.
    pub status: Option<QueryStatus>,
}

/// How a request uses the results of insights.
#[derive(Debug, Clone, Copy)]
pub struct ResultRequest<'a> {
    /// The project whose events are read.
    pub project: &'a Project,
    /// When to calculate.
    pub refresh: RefreshMode,
    /// The instant of the request.
    pub now: DateTime<Utc>,
    /// The client's own id of the calculation.
    pub query_id: Option<&'a str>,
    /// The dashboard that the insights are shown on.
    pub dashboard_id: Option<u64>,
}

impl<'a> ResultRequest<'a> {
    /// Of the request `call`, with the mode `refresh`.
    pub fn new(call: &'a Call, project: &'a Project, refresh: RefreshMode) -> ResultRequest<'a> {
        let query_id = call.query_value(QUERY_ID).filter(|id| !id.is_empty());
        ResultRequest { project, refresh, now: call.now, query_id, dashboard_id: None }
    }

    fn requested_by(&self, insight: &Insight) -> QueryOrigin<'a> {
        QueryOrigin {
            query_id: self.query_id,
            // An insight that is being created has the id 0.
            insight_id: Some(insight.id).filter(|id| *id > 0),
            dashboard_id: self.dashboard_id,
            retries_on_503: false,
        }
    }

    fn failed_status(&self, insight: &Insight, key: Option<&String>, failure: Failure) -> QueryStatus {
        let id = self.query_id.map(str::to_owned).or_else(|| key.cloned());
        let id = id.unwrap_or_else(|| format!("insight_{}", insight.id));
        QueryStatus::failed(id, failure, self.now)
    }
}

/// The parameter `refresh` of a request, and whether it was sent. Validates the client query id.
pub fn parse_refresh(call: &Call) -> ApiResult<(RefreshMode, bool)> {
    query_id(call, None)?;
    let refresh = RefreshParam::parse(call.query_value("refresh"), None);
    Ok((refresh.mode, refresh.is_explicit))
}

/// The refresh mode for a reader: a sharing token does not permit forced calculations.
pub(crate) fn permitted_refresh(access: &Access, refresh: RefreshMode) -> RefreshMode {
    match refresh {
        RefreshMode::ForceBlocking if access.is_shared_link() => RefreshMode::Blocking,
        RefreshMode::ForceAsync if access.is_shared_link() => RefreshMode::Async,
        other => other,
    }
}

impl Insights {
    /// The result of one insight. A failed calculation is the error.
    pub async fn insight_result(
        &self,
        insight: &Insight,
        request: ResultRequest<'_>,
    ) -> ApiResult<InsightResult> {
        let deadline = self.calculator.deadline();
        let parsed = ParsedInsight::new(insight, request.refresh);
        let key = parsed.key().cloned();
        let response = match &parsed {
            ParsedInsight::Query(query) => {
                let stored = self.calculator.read(request.project, &[query]).await?;
                let query_request = QueryRequest {
                    project: request.project,
                    keyed: query,
                    stored: stored.stored.first().and_then(Option::as_ref),
                    tracked: stored.tracked.first().and_then(Option::as_ref),
                    known: &stored.known,
                    now: request.now,
                    deadline,
                    origin: request.requested_by(insight),
                };
                Box::pin(self.calculator.respond(&query_request, request.refresh)).await?
            }
            ParsedInsight::Invalid(error) if request.refresh.waits() => {
                return Err(engine_error(error.clone()));
            }
            other => {
                let failure = other.failure(&request);
                let status = failure.map(|failure| request.failed_status(insight, key.as_ref(), failure));
                QueryResponse { calculated: None, status }
            }
        };
        Ok(InsightResult { calculated: response.calculated, key, status: response.status })
    }

    /// The results of the insights of a page, in their order. All share the deadline of one request. 400 where their cached
    /// results exceed [`limits::PAGE_RESULT_BYTES`].
    pub async fn insight_results(
        &self,
        insights: &[Insight],
        request: ResultRequest<'_>,
    ) -> ApiResult<Vec<InsightResult>> {
        Box::pin(self.try_insight_results(insights, request)).await?.map_err(|fitting| {
            let detail =
                format!("The response is too large. The largest limit that may fit here is {fitting}.");
            ApiError::invalid("invalid_input", detail, Some("limit"))
        })
    }

    /// As [`Insights::insight_results`], for as many of the first insights as fit.
    pub async fn fitting_insight_results(
        &self,
        insights: &[Insight],
        request: ResultRequest<'_>,
    ) -> ApiResult<Vec<InsightResult>> {
        let mut first = insights;
        loop {
            match Box::pin(self.try_insight_results(first, request)).await? {
                Ok(results) => return Ok(results),
                // Fewer each time, because it is the number of those that come before one that does not fit.
                Err(fitting) => first = first.get(..fitting).unwrap_or_default(),
            }
        }
    }

    /// The results, or how many of the first insights fit.
    async fn try_insight_results(
        &self,
        insights: &[Insight],
        request: ResultRequest<'_>,
    ) -> ApiResult<Result<Vec<InsightResult>, usize>> {
        let deadline = self.calculator.deadline();
        let parsed: Vec<ParsedInsight> =
            insights.iter().map(|insight| ParsedInsight::new(insight, request.refresh)).collect();
        // Insights with equal queries share one calculation, that of the first of them.
        let mut queries = BTreeMap::new();
        for (insight, one) in insights.iter().zip(&parsed) {
            if let ParsedInsight::Query(query) = one {
                queries.entry(&query.key).or_insert((insight, &**query));
            }
        }
        let distinct: Vec<(&Insight, &KeyedQuery)> = queries.into_values().collect();
        let queries: Vec<&KeyedQuery> = distinct.iter().map(|(_, query)| *query).collect();
        let stored = Box::pin(self.calculator.read(request.project, &queries)).await?;
        let sizes: BTreeMap<&str, usize> = queries
            .iter()
            .zip(&stored.stored)
            .map(|(query, cached)| {
                (query.key.as_str(), cached.as_ref().map_or(0, CachedResult::object_bytes))
            })
            .collect();
        let fitting = count_fitting_results(
            parsed.iter().map(|parsed| parsed.key().and_then(|key| sizes.get(key.as_str())).copied()),
        );
        if fitting < insights.len() {
            return Ok(Err(fitting));
        }
        let query_requests: Vec<QueryRequest<'_>> = distinct
            .iter()
            .enumerate()
            .map(|(at, (insight, query))| QueryRequest {
                project: request.project,
                keyed: query,
                stored: stored.stored.get(at).and_then(Option::as_ref),
                tracked: stored.tracked.get(at).and_then(Option::as_ref),
                known: &stored.known,
                now: request.now,
                deadline,
                origin: request.requested_by(insight),
            })
            .collect();
        let responses = Box::pin(self.calculator.respond_all(&query_requests, request.refresh)).await;
        let responses: BTreeMap<&str, ApiResult<QueryResponse>> =
            queries.iter().map(|query| query.key.as_str()).zip(responses).collect();
        let results = insights.iter().zip(&parsed).map(|(insight, one)| {
            let key = one.key().cloned();
            let (calculated, failure) = match key.as_deref().and_then(|key| responses.get(key)) {
                Some(Ok(response)) => {
                    return InsightResult {
                        calculated: response
                            .calculated
                            .as_ref()
                            .map(|it| it.with_result(without_links(&it.result))),
                        status: response.status.clone(),
                        key,
                    };
                }
                Some(Err(error)) => (None, Some(failure_of(error))),
                None => (None, one.failure(&request)),
            };
            let status = failure.map(|failure| request.failed_status(insight, key.as_ref(), failure));
            InsightResult { calculated, key, status }
        });
        Ok(Ok(results.collect()))
    }
}

/// How many of the first cached results of a page are within [`limits::PAGE_RESULT_BYTES`]; at least one of any. `sizes` are
/// the bytes of each, if known.
fn count_fitting_results(sizes: impl Iterator<Item = Option<usize>>) -> usize {
    let (mut bytes, mut fitting) = (0, 0);
    for size in sizes {
        bytes += size.unwrap_or(0);
        // A single result is read whatever its size.
        if bytes > limits::PAGE_RESULT_BYTES && fitting > 0 {
            break;
        }
        fitting += 1;
    }
    fitting
}

/// The series field with the links to persons, and the one with the reason why there are none.
const LINKS: &str = "persons_urls";
const LINKS_OMITTED: &str = "persons_urls_omitted";
const OMITTED_IN_LISTS: &str =
    "Lists of insights and dashboards contain no links to people. For links, get the insight by its id.";

/// The result without `persons_urls`, which are most of its text. Each series that had them gets the reason.
fn without_links(result: &Value) -> Value {
    let row = |row: &Value| match row {
        Value::Object(fields) => {
            let others = fields.iter().filter(|(name, _)| *name != LINKS);
            let mut kept: Map<String, Value> =
                others.map(|(name, value)| (name.clone(), value.clone())).collect();
            if fields.contains_key(LINKS) && !fields.contains_key(LINKS_OMITTED) {
                kept.insert(LINKS_OMITTED.to_owned(), OMITTED_IN_LISTS.into());
            }
            Value::Object(kept)
        }
        other => other.clone(),
    };
    match result {
        Value::Array(rows) => Value::Array(rows.iter().map(row).collect()),
        other => other.clone(),
    }
}

impl ParsedInsight {
    /// Why there is no result, in a mode that calculates.
    fn failure(&self, request: &ResultRequest<'_>) -> Option<Failure> {
        let message = match self {
            ParsedInsight::UnsupportedKind(kind) => {
                unsupported_kind("query", kind, &request.project.id.to_string()).detail
            }
            ParsedInsight::Invalid(error) => error.detail.clone(),
            ParsedInsight::Empty | ParsedInsight::Query(..) => return None,
        };
        request.refresh.calculates().then_some(Failure { message: Some(message) })
    }
}

fn failure_of(error: &ApiError) -> Failure {
    let may_be_shown = !error.status().is_server_error() || error.status().as_u16() == 503;
    Failure { message: may_be_shown.then(|| error.detail().to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_of_the_first_results_as_fit_are_read_and_one_of_any_size() {
        let most = limits::PAGE_RESULT_BYTES;
        for (sizes, fitting) in [
            (vec![], 0),
            (vec![None, None], 2),
            (vec![Some(most), None, Some(0)], 3),
            (vec![Some(most), Some(1)], 1),
            (vec![Some(1), Some(most - 1), Some(1)], 2),
            (vec![Some(most + 1), None], 1),
            (vec![Some(most + 1)], 1),
        ] {
            assert_eq!(count_fitting_results(sizes.iter().copied()), fitting, "{sizes:?}");
        }
    }
}
