//! The responses of `/flags` and `/decide`, in four shapes.
//!
//! Must stay true: strict decoders read them, so they contain only fields of the contract; names, conditions and stored
//! properties are never included.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, accepts_gzip, gzip, json_text};
use pennon_core::ids::new_uuid;
use pennon_core::limits::evaluation::RESPONSE_BYTES_MAX;
use pennon_flag_rules::evaluate::{CompiledFlag, Evaluation};
use serde::Serialize;
use serde::ser::Serializer;
use serde_json::Value;
use uuid::Uuid;

use super::configuration::Configuration;
use super::records::RecordTemplates;
use super::response_version::{ResponseShape, ResponseVersion};
use axum::http::StatusCode;

/// Responses from this size on are compressed if the client accepts gzip.
const GZIP_MIN_BYTES: usize = 1024;
/// Bytes before the records of a response.
const PREFIX_BYTES: usize = 64;

/// The flags of a response with their evaluations, sorted by key.
pub type Evaluations<'a> = [(&'a CompiledFlag, Evaluation)];

/// The fields that all responses to a request share.
#[derive(Debug, Clone)]
pub struct ResponseEnvelope {
    version: ResponseVersion,
    request_id: String,
    evaluated_at: i64,
}

impl ResponseEnvelope {
    /// The envelope for `call`.
    pub fn new(version: ResponseVersion, call: &Call) -> Self {
        let request_id = call.headers.get("x-request-id").and_then(|id| id.to_str().ok());
        let request_id = request_id.and_then(|id| Uuid::parse_str(id.trim()).ok());
        Self {
            version,
            request_id: request_id.unwrap_or_else(new_uuid).to_string(),
            evaluated_at: call.now.timestamp_millis(),
        }
    }

    /// The response without flags.
    pub fn encode_without_flags(&self) -> Result<Vec<u8>, serde_json::Error> {
        self.encode_flags(&RecordTemplates::default(), &[], false)
    }

    /// The response of a project whose quota is used up.
    pub fn encode_over_quota(&self) -> Result<Vec<u8>, serde_json::Error> {
        self.encode_flags(&RecordTemplates::default(), &[], true)
    }

    /// The response with these flags, which belong to the evaluator of the templates.
    pub fn encode(
        &self,
        templates: &RecordTemplates,
        flags: &Evaluations<'_>,
    ) -> Result<Vec<u8>, serde_json::Error> {
        self.encode_flags(templates, flags, false)
    }

    fn encode_flags(
        &self,
        templates: &RecordTemplates,
        flags: &Evaluations<'_>,
        is_over_quota: bool,
    ) -> Result<Vec<u8>, serde_json::Error> {
        // Its fields are siblings of the flags.
        let common = serde_json::to_vec(&CommonFields {
            request_id: &self.request_id,
            evaluated_at: self.evaluated_at,
            quota_limited: is_over_quota.then_some(["feature_flags"]),
            configuration: self.version.with_configuration.then(Configuration::default),
        })?;
        let failed = flags.iter().any(|(_, evaluation)| evaluation.is_failure());
        let evaluated = flags.iter().filter(|(_, evaluation)| !evaluation.is_failure());
        let values = evaluated.clone().map(|(flag, evaluation)| (&*flag.key, &evaluation.value));
        let on = values.clone().filter(|(_, value)| value.is_on());
        let mut text = match self.version.shape {
            ResponseShape::Records => {
                let mut text =
                    Vec::with_capacity(templates.estimate_bytes(flags.len()) + common.len() + PREFIX_BYTES);
                text.extend_from_slice(
                    format!(r#"{{"errorsWhileComputingFlags":{failed},"flags":{{"#).as_bytes(),
                );
                templates.write(flags, &mut text)?;
                text.push(b'}');
                text
            }
            ResponseShape::Values => {
                let payload = |(flag, evaluation): &'_ (&'_ CompiledFlag, Evaluation)| {
                    Some((flag.key.to_string(), flag.payload(&evaluation.value)?.to_owned()))
                };
                let feature_flag_payloads = Some(Entries(evaluated.filter_map(payload).collect()));
                encode_unclosed(&ValueFields {
                    errors_while_computing_flags: Some(failed),
                    feature_flags: Entries(values.collect()),
                    feature_flag_payloads,
                })?
            }
            ResponseShape::OnValues => encode_unclosed(&ValueFields::of(Entries(on.collect())))?,
            ResponseShape::OnKeys => {
                encode_unclosed(&ValueFields::of(on.map(|(key, _)| key).collect::<Vec<_>>()))?
            }
        };
        text.push(b',');
        text.extend_from_slice(&common[1..]);
        Ok(text)
    }
}

/// The fields of all shapes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CommonFields<'a> {
    request_id: &'a str,
    evaluated_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_limited: Option<[&'static str; 1]>,
    #[serde(flatten)]
    configuration: Option<Configuration>,
}

/// The other fields of the shapes without records.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValueFields<F> {
    #[serde(skip_serializing_if = "Option::is_none")]
    errors_while_computing_flags: Option<bool>,
    feature_flags: F,
    #[serde(skip_serializing_if = "Option::is_none")]
    feature_flag_payloads: Option<Entries<String, String>>,
}

impl<F> ValueFields<F> {
    /// The fields of the shapes that list enabled flags only.
    fn of(feature_flags: F) -> Self {
        Self { errors_while_computing_flags: None, feature_flags, feature_flag_payloads: None }
    }
}

/// Key-value pairs as a JSON object, in their order.
struct Entries<K, V>(Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for Entries<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Encodes a JSON object without its closing brace, so that fields can be appended.
fn encode_unclosed(object: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec(object)?;
    text.pop();
    Ok(text)
}

/// 200 with a JSON body, gzip-compressed from 1 KiB on if the client accepts it; 500 when it is too large.
pub fn deliver(headers: &HeaderMap, text: Vec<u8>, cache_control: &'static str) -> ApiResult<Response> {
    if text.len() > RESPONSE_BYTES_MAX {
        let cause = format!("an evaluation has {} bytes, at most {RESPONSE_BYTES_MAX} are sent", text.len());
        return Err(ApiError::internal(&cause));
    }
    let is_gzip = text.len() >= GZIP_MIN_BYTES && accepts_gzip(headers);
    let mut response = json_text(StatusCode::OK, if is_gzip { gzip(&text) } else { text });
    let response_headers = response.headers_mut();
    response_headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
    response_headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_gzip {
        response_headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Encodes a value as JSON.
pub fn to_json_bytes(value: &impl Serialize) -> ApiResult<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| ApiError::internal(&error))
}

/// Parses a payload; `None` for null and invalid JSON.
pub fn parse_payload(payload: &str) -> Option<Value> {
    serde_json::from_str(payload).ok().filter(|value: &Value| !value.is_null())
}
