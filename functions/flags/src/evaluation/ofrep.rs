//! The OpenFeature Remote Evaluation Protocol (OFREP 0.3).
//!
//! Must stay true: a body contains no time, so the same flags for the same context have the same ETag in every process;
//! a flag without a value has no `value` field, so that the client uses its code default.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, empty, json_text};
use pennon_flag_rules::definitions::{etag, matches};
use pennon_flag_rules::evaluate::{CompiledFlag, Evaluation, EvaluationReason, FlagValue};
use serde_json::{Map, Value, json as object};

use super::body;
use super::handlers::{SelectionOptions, evaluate_selected, needs_events};
use super::project::{CompiledProject, open_project};
use super::request::EvaluationRequest;
use super::response::{Evaluations, deliver, parse_payload, to_json_bytes};
use crate::Flags;

/// Seconds after which a client may retry for a project whose quota is used up.
const QUOTA_RETRY_SECONDS: &str = "3600";

/// An error response of the protocol.
struct OfrepError {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

impl OfrepError {
    fn bad_request(code: &'static str, detail: impl Into<String>) -> OfrepError {
        OfrepError { status: StatusCode::BAD_REQUEST, code, detail: detail.into() }
    }

    /// The response; for a single flag it contains the requested key.
    fn into_response(self, key: Option<&str>) -> Response {
        let mut body = object!({"errorCode": self.code, "errorDetails": self.detail});
        if let Some(key) = key {
            body["key"] = key.into();
        }
        let mut response = json_text(self.status, body.to_string());
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(QUOTA_RETRY_SECONDS));
        }
        response
    }
}

/// A result, or an error response of the protocol.
type OfrepResult<T> = Result<T, OfrepError>;

/// `POST /ofrep/v1/evaluate/flags`: all flags.
pub async fn evaluate_all(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let write = |_: &CompiledProject, evaluations: &Evaluations<'_>| {
        let all: Vec<Value> = evaluations.iter().map(|(flag, evaluation)| entry(flag, evaluation)).collect();
        object!({"metadata": {"flags": all.len()}, "flags": all})
    };
    let body = match evaluate_request(&flags, &call, None, write).await? {
        Ok(body) => to_json_bytes(&body)?,
        Err(error) => return Ok(error.into_response(None)),
    };
    let current_etag = etag(&String::from_utf8_lossy(&body));
    let if_none_match = call.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = match if_none_match.is_some_and(|if_none_match| matches(if_none_match, &current_etag))
    {
        true => empty(StatusCode::NOT_MODIFIED),
        false => deliver(&call.headers, body, "private, no-cache")?,
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&current_etag) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

/// `POST /ofrep/v1/evaluate/flags/{key}`: one flag.
pub async fn evaluate_one(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let key = call.param("key").to_owned();
    let requested_key = key.clone();
    let write = move |_: &CompiledProject, evaluations: &Evaluations<'_>| {
        let found = evaluations.iter().find(|(flag, _)| *flag.key == *requested_key);
        found.map(|(flag, evaluation)| (entry(flag, evaluation), evaluation.is_failure()))
    };
    let error = match evaluate_request(&flags, &call, Some(&key), write).await? {
        Ok(Some((entry, false))) => return deliver(&call.headers, to_json_bytes(&entry)?, "no-store"),
        Ok(Some((entry, true))) => {
            let detail = entry["errorDetails"].as_str().unwrap_or_default().to_owned();
            OfrepError { status: StatusCode::INTERNAL_SERVER_ERROR, code: "GENERAL", detail }
        }
        Ok(None) => {
            let detail = format!("There is no flag with the key {key:?} for this caller.");
            OfrepError { status: StatusCode::NOT_FOUND, code: "FLAG_NOT_FOUND", detail }
        }
        Err(error) => error,
    };
    Ok(error.into_response(Some(&key)))
}

/// Evaluates the flags of a request, or only the flag `key`.
async fn evaluate_request<T: Send + 'static>(
    flags: &Flags,
    call: &Call,
    key: Option<&str>,
    write: impl FnOnce(&CompiledProject, &Evaluations<'_>) -> T + Send + 'static,
) -> ApiResult<OfrepResult<T>> {
    let api_key = call.headers.get("x-api-key").and_then(|value| value.to_str().ok());
    let api_key = api_key.map(str::trim).filter(|token| !token.is_empty()).map(str::to_owned);
    let token = call.bearer().or(api_key).ok_or_else(ApiError::not_authenticated)?;
    let options = SelectionOptions { with_inactive: true };
    let request = parse_request(call).map(|mut request| {
        request.flag_keys = key.map(|key| [key.to_owned()].into());
        request
    });
    let needs = |project: &CompiledProject| {
        request.as_ref().is_ok_and(|request| needs_events(call, project, request, options))
    };
    let authenticated = open_project(flags, &token, needs).await?;
    let request = match request {
        Ok(request) => request,
        Err(error) => return Ok(Err(error)),
    };
    if authenticated.project.settings.feature_flag_quota_exhausted {
        let detail = "The project's feature flag quota is used up.".to_owned();
        return Ok(Err(OfrepError { status: StatusCode::TOO_MANY_REQUESTS, code: "GENERAL", detail }));
    }
    evaluate_selected(flags, call, authenticated, request, options, write).await.map(Ok)
}

/// Parses a body with an evaluation context.
fn parse_request(call: &Call) -> OfrepResult<EvaluationRequest> {
    let mut fields = body::parse_fields(call).map_err(|error| OfrepError {
        status: error.status(),
        code: "PARSE_ERROR",
        detail: error.detail().to_owned(),
    })?;
    let Some(Value::Object(mut context)) = fields.remove("context") else {
        return Err(OfrepError::bad_request("INVALID_CONTEXT", "context must be an object."));
    };
    let distinct_id = match context.remove("targetingKey") {
        Some(Value::String(key)) if !key.is_empty() => key,
        Some(Value::Number(key)) => key.to_string(),
        None | Some(Value::Null | Value::String(_)) => {
            let detail = "targetingKey is missing. Set it to the distinct id of the person.";
            return Err(OfrepError::bad_request("TARGETING_KEY_MISSING", detail));
        }
        Some(_) => {
            return Err(OfrepError::bad_request(
                "INVALID_CONTEXT",
                "targetingKey must be a string or a number.",
            ));
        }
    };
    EvaluationRequest::parse_context(&distinct_id, context)
        .map_err(|error| OfrepError::bad_request("INVALID_CONTEXT", error.detail()))
}

/// A flag in the format of the protocol.
fn entry(flag: &CompiledFlag, evaluation: &Evaluation) -> Value {
    if evaluation.is_failure() {
        return object!({"key": &*flag.key, "errorCode": "GENERAL", "errorDetails": evaluation.description()});
    }
    let value = &evaluation.value;
    let payload = flag.payload(value);
    let mut metadata = Map::from_iter([
        ("id".to_owned(), flag.id.into()),
        ("version".to_owned(), flag.version.into()),
        ("reason".to_owned(), evaluation.reason.as_str().into()),
    ]);
    metadata.extend(evaluation.condition_index.map(|index| ("condition_index".to_owned(), index.into())));
    metadata.extend(payload.map(|payload| ("payload".to_owned(), payload.into())));
    let variant = match value {
        FlagValue::Variant(key) => key.to_string(),
        other => other.is_on().to_string(),
    };
    let shown_value = match value {
        _ if evaluation.reason == EvaluationReason::Disabled => None,
        _ if flag.is_remote_configuration => payload.and_then(parse_payload),
        FlagValue::Variant(key) if flag.has_variants() => Some(Value::from(&**key)),
        _ if flag.has_variants() => None,
        _ => Some(value.is_on().into()),
    };
    let mut entry = object!({
        "key": &*flag.key, "variant": variant, "reason": flag.open_feature_reason(evaluation).as_str(),
        "metadata": metadata,
    });
    if let Some(shown_value) = shown_value {
        entry["value"] = shown_value;
    }
    entry
}
