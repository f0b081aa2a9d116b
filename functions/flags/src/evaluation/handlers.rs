//! Handlers of `/flags` and `/decide`, and of the other endpoints that posthog-js calls.

use std::cell::Cell;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json};
use pennon_filters::CancellationToken;
use pennon_flag_rules::evaluate::{Runtime, Selection, Sender, SlowSearches};
use serde_json::{Value, json as object};

use super::body;
use super::configuration::ProjectConfiguration;
use super::project::{AuthenticatedProject, CompiledProject, open_project, store_unavailable};
use super::request::EvaluationRequest;
use super::response::{Evaluations, ResponseEnvelope, deliver};
use super::response_version::{EvaluationRoute, ResponseVersion};
use super::subject::{SubjectData, load_stored_data, stores_override};
use crate::Flags;
use crate::persons::scan::REQUEST_TIMEOUT;

/// Requests for more flags, or with larger bodies, are evaluated on a blocking thread; so are those that run a slow
/// regular expression search, until they are done or cancelled.
const INLINE_FLAGS_MAX: usize = 2000;
const INLINE_BODY_BYTES_MAX: usize = 64 << 10;
/// How long the project of a token is cached for configuration requests.
const CONFIGURATION_CACHE_TTL: Duration = Duration::from_secs(60);

/// `POST /flags`: evaluates flags.
pub async fn evaluate(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    respond(&flags, &call, EvaluationRoute::Flags).await
}

/// `POST /decide`: evaluates flags for older SDKs.
pub async fn decide(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    respond(&flags, &call, EvaluationRoute::Decide).await
}

/// `GET /flags`: no flags, only the configuration.
pub async fn no_flags(call: Call) -> ApiResult<Response> {
    respond_without_flags(&call, EvaluationRoute::Flags)
}

/// `GET /decide`: the same for older SDKs.
pub async fn no_decision(call: Call) -> ApiResult<Response> {
    respond_without_flags(&call, EvaluationRoute::Decide)
}

fn respond_without_flags(call: &Call, route: EvaluationRoute) -> ApiResult<Response> {
    let version = ResponseVersion { with_configuration: true, ..ResponseVersion::of(route, call) };
    let text =
        ResponseEnvelope::new(version, call).encode_without_flags().map_err(|e| ApiError::internal(&e))?;
    deliver(&call.headers, text, "no-store")
}

async fn respond(flags: &Flags, call: &Call, route: EvaluationRoute) -> ApiResult<Response> {
    let envelope = ResponseEnvelope::new(ResponseVersion::of(route, call), call);
    let fields = body::parse_fields(call)?;
    let token = token(&fields, call)?;
    let request = EvaluationRequest::parse(fields);
    let needs = |project: &CompiledProject| {
        let request = request.as_ref().ok().filter(|request| !request.disable_flags);
        request.is_some_and(|request| needs_events(call, project, request, SelectionOptions::default()))
    };
    let authenticated = open_project(flags, &token, needs).await?;
    let request = request?;
    let encoding_error = |error: serde_json::Error| ApiError::internal(&error);
    let text = if request.disable_flags {
        envelope.encode_without_flags().map_err(encoding_error)?
    } else if authenticated.project.settings.feature_flag_quota_exhausted {
        envelope.encode_over_quota().map_err(encoding_error)?
    } else {
        let write = move |project: &CompiledProject, evaluations: &Evaluations<'_>| {
            envelope.encode(&project.records, evaluations)
        };
        evaluate_selected(flags, call, authenticated, request, SelectionOptions::default(), write)
            .await?
            .map_err(encoding_error)?
    };
    deliver(&call.headers, text, "no-store")
}

/// Selection options that are not part of [`EvaluationRequest`].
#[derive(Debug, Clone, Copy, Default)]
pub struct SelectionOptions {
    /// Whether to include inactive flags.
    pub with_inactive: bool,
}

/// The sender of a call, as the call describes it; it determines which flags are returned.
struct CallerContext {
    runtime: Runtime,
    only_surveys: bool,
    now: chrono::DateTime<chrono::Utc>,
}

impl CallerContext {
    fn of(call: &Call, request: &EvaluationRequest) -> Self {
        let text = |name: header::HeaderName| call.headers.get(name).and_then(|value| value.to_str().ok());
        let is_there = |name: &str| call.headers.contains_key(name);
        let runtime = Runtime::of(Sender {
            user_agent: text(header::USER_AGENT).unwrap_or_default(),
            stated: request.runtime.as_deref(),
            has_browser_headers: ["origin", "referer", "sec-fetch-mode", "sec-fetch-site"]
                .into_iter()
                .any(is_there),
        });
        let only_surveys = call
            .query_value("only_evaluate_survey_feature_flags")
            .is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"));
        Self { runtime, only_surveys, now: call.now }
    }

    fn selection<'a>(&self, request: &'a EvaluationRequest, options: SelectionOptions) -> Selection<'a> {
        Selection {
            runtime: self.runtime,
            only_surveys: self.only_surveys,
            with_inactive: options.with_inactive,
            keys: request.flag_keys.as_ref().map(|keys| keys.iter().map(String::as_str).collect()),
        }
    }
}

/// Whether the evaluation needs stored properties of the person or of a group, and so reads events of the project.
pub fn needs_events(
    call: &Call,
    project: &CompiledProject,
    request: &EvaluationRequest,
    options: SelectionOptions,
) -> bool {
    if project.settings.feature_flag_quota_exhausted {
        return false;
    }
    let plan = project.evaluator.select(&CallerContext::of(call, request).selection(request, options));
    let lookups = SubjectData::of(project, request).lookups(&plan, request, call.now);
    lookups.person || !lookups.groups.is_empty()
}

/// Evaluates the selected flags and passes the evaluations to `write`, which encodes the response.
pub async fn evaluate_selected<T: Send + 'static>(
    flags: &Flags,
    call: &Call,
    authenticated: AuthenticatedProject,
    request: EvaluationRequest,
    options: SelectionOptions,
    write: impl FnOnce(&CompiledProject, &Evaluations<'_>) -> T + Send + 'static,
) -> ApiResult<T> {
    let AuthenticatedProject { project, waiting_blocks } = authenticated;
    let caller = CallerContext::of(call, &request);
    let plan = project.evaluator.select(&caller.selection(&request, options));
    let subject_data = SubjectData::of(&project, &request);
    let lookups = subject_data.lookups(&plan, &request, call.now);
    let subject_data = if lookups.is_empty() && !stores_override(&project, &request) {
        subject_data
    } else {
        load_stored_data(flags, &project, &request, &lookups, subject_data, waiting_blocks, call.now).await
    };
    if plan.len() <= INLINE_FLAGS_MAX && call.bytes().len() <= INLINE_BODY_BYTES_MAX {
        let is_slow = Cell::new(false);
        let evaluations = subject_data.evaluate(&plan, &request, caller.now, SlowSearches::Detect(&is_slow));
        if !is_slow.get() {
            return Ok(write(&project, &evaluations));
        }
    }
    drop(plan);
    let cancellation = CancellationToken::default();
    let _cancel_on_drop = cancellation.cancel_on_drop();
    let result = tokio::task::spawn_blocking(move || {
        let plan = project.evaluator.select(&caller.selection(&request, options));
        let slow = SlowSearches::UntilCancelled(&cancellation);
        write(&project, &subject_data.evaluate(&plan, &request, caller.now, slow))
    });
    let result = tokio::time::timeout(REQUEST_TIMEOUT, result).await.map_err(|_| ApiError::busy(1))?;
    result.map_err(|e| ApiError::internal(&e))
}

/// The project token in the body, the query string, or the `Authorization` header.
fn token(fields: &Fields, call: &Call) -> ApiResult<String> {
    for name in ["token", "api_key", "$token"] {
        match fields.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::String(token)) if token.is_empty() => {}
            Some(Value::String(token)) => return Ok(token.clone()),
            Some(_) => {
                let detail = format!("{name} must be a string.");
                return Err(ApiError::invalid("invalid_input", detail, Some(name)));
            }
        }
    }
    let query = ["token", "api_key"].into_iter().filter_map(|name| call.query_value(name));
    let token = query.into_iter().find(|token| !token.is_empty()).map(str::to_owned);
    token.or_else(|| call.bearer()).ok_or_else(ApiError::not_authenticated)
}

/// `GET /array/{token}/config`: the configuration as JSON.
pub async fn config(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let token = require_known_token(&flags, &call).await?;
    Ok(cacheable(json(ProjectConfiguration::of(token)), None))
}

/// `GET /array/{token}/config.js`: the configuration as a script.
pub async fn config_script(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let token = require_known_token(&flags, &call).await?;
    let script = ProjectConfiguration::of(token).script();
    Ok(cacheable(script.into_response(), Some("application/javascript; charset=utf-8")))
}

/// The token in the path; 404 when no project has it.
async fn require_known_token<'a>(flags: &Flags, call: &'a Call) -> ApiResult<&'a str> {
    let token = call.param("token");
    let project = flags.app.tokens.project_within(&flags.app.store, token, CONFIGURATION_CACHE_TTL).await;
    match project.map_err(store_unavailable)? {
        Some(_) => Ok(token),
        None => Err(ApiError::not_found()),
    }
}

fn cacheable(mut response: Response, content_type: Option<&'static str>) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    if let Some(content_type) = content_type {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

/// `GET /api/surveys`: always empty.
pub async fn surveys(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    require_token(&flags, &call).await?;
    Ok(json(object!({"surveys": []})))
}

/// `GET /api/early_access_features`: always empty.
pub async fn early_access_features(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    require_token(&flags, &call).await?;
    Ok(json(object!({"earlyAccessFeatures": []})))
}

async fn require_token(flags: &Flags, call: &Call) -> ApiResult<()> {
    let token = call.query_value("token").filter(|token| !token.is_empty());
    let token = token.ok_or_else(ApiError::not_authenticated)?;
    let project = flags.app.tokens.project(&flags.app.store, token).await;
    project.map_err(store_unavailable)?.map(|_| ()).ok_or_else(ApiError::bad_token)
}
