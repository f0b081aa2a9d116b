//! The answers of `/flags` and `/decide`, in their four shapes.
//!
//! Must stay true: strict decoders read them, so nothing is in them beyond the contract; names, conditions and stored
//! properties never are.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, accepts_gzip, gzip, json_text};
use pennon_core::ids::new_uuid;
use pennon_engine::flag::evaluate::{CompiledFlag, Evaluation};
use serde::Serialize;
use serde::ser::Serializer;
use serde_json::Value;
use uuid::Uuid;

use super::configuration::Configuration;
use super::records::RecordTemplates;
use super::version::{Shape, Version};
use axum::http::StatusCode;

/// Largest answer, as text.
const ANSWER_BYTES_MAX: usize = 4_500_000;
/// Answers from this length on are packed where the client takes that.
const PACK_FROM_BYTES: usize = 1024;
/// Room for what stands before the records of an answer.
const OPENING_BYTES: usize = 64;

/// Flags of an answer with their evaluations, in the order of their keys.
pub type Evaluations<'a> = [(&'a CompiledFlag, Evaluation)];

/// What all answers to a request have in common.
#[derive(Debug, Clone)]
pub struct Envelope {
    version: Version,
    request_id: String,
    evaluated_at: i64,
}

impl Envelope {
    /// The envelope of the answer to `call`.
    pub fn new(version: Version, call: &Call) -> Self {
        let named = call.headers.get("x-request-id").and_then(|id| id.to_str().ok());
        let named = named.and_then(|id| Uuid::parse_str(id.trim()).ok());
        Self {
            version,
            request_id: named.unwrap_or_else(new_uuid).to_string(),
            evaluated_at: call.now.timestamp_millis(),
        }
    }

    /// The text of an answer without flags.
    pub fn answer_without_flags(&self) -> Result<Vec<u8>, serde_json::Error> {
        self.text(&RecordTemplates::default(), &[], false)
    }

    /// The text of an answer of a project whose quota is used up.
    pub fn over_quota(&self) -> Result<Vec<u8>, serde_json::Error> {
        self.text(&RecordTemplates::default(), &[], true)
    }

    /// The text of an answer with these flags, which are of the evaluator of the templates.
    pub fn answer(
        &self,
        templates: &RecordTemplates,
        flags: &Evaluations<'_>,
    ) -> Result<Vec<u8>, serde_json::Error> {
        self.text(templates, flags, false)
    }

    fn text(
        &self,
        templates: &RecordTemplates,
        flags: &Evaluations<'_>,
        is_over_quota: bool,
    ) -> Result<Vec<u8>, serde_json::Error> {
        // Its members stand beside the flags.
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
            Shape::Records => {
                let mut text =
                    Vec::with_capacity(templates.estimate_bytes(flags.len()) + common.len() + OPENING_BYTES);
                text.extend_from_slice(
                    format!(r#"{{"errorsWhileComputingFlags":{failed},"flags":{{"#).as_bytes(),
                );
                templates.write(flags, &mut text)?;
                text.push(b'}');
                text
            }
            Shape::Values => {
                let payload = |(flag, evaluation): &'_ (&'_ CompiledFlag, Evaluation)| {
                    Some((flag.key.to_string(), flag.payload(&evaluation.value)?.to_owned()))
                };
                let feature_flag_payloads = Some(Entries(evaluated.filter_map(payload).collect()));
                unclosed(&ValueFields {
                    errors_while_computing_flags: Some(failed),
                    feature_flags: Entries(values.collect()),
                    feature_flag_payloads,
                })?
            }
            Shape::OnValues => unclosed(&ValueFields::of(Entries(on.collect())))?,
            Shape::OnKeys => unclosed(&ValueFields::of(on.map(|(key, _)| key).collect::<Vec<_>>()))?,
        };
        text.push(b',');
        text.extend_from_slice(&common[1..]);
        Ok(text)
    }
}

/// The fields that answers of all shapes have.
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

/// The other fields of an answer without records.
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
    /// Those of the versions that know flags that are on, and nothing else.
    fn of(feature_flags: F) -> Self {
        Self { errors_while_computing_flags: None, feature_flags, feature_flag_payloads: None }
    }
}

/// Pairs as a JSON object, in their order.
struct Entries<K, V>(Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for Entries<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// The text of a JSON object without its last brace, to which more fields can be added.
fn unclosed(object: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec(object)?;
    text.pop();
    Ok(text)
}

/// 200 with a JSON text, packed where it is worth it and the client takes that; 500 where it is larger than an answer can be.
pub fn deliver(headers: &HeaderMap, text: Vec<u8>, cache_control: &'static str) -> ApiResult<Response> {
    if text.len() > ANSWER_BYTES_MAX {
        let cause = format!("an evaluation has {} bytes, at most {ANSWER_BYTES_MAX} are sent", text.len());
        return Err(ApiError::internal(&cause));
    }
    let is_packed = text.len() >= PACK_FROM_BYTES && accepts_gzip(headers);
    let mut response = json_text(StatusCode::OK, if is_packed { gzip(&text) } else { text });
    let answer = response.headers_mut();
    answer.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
    answer.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_packed {
        answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// A JSON text of a value that is JSON already.
pub fn text_of(value: &impl Serialize) -> ApiResult<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| ApiError::internal(&error))
}

/// The value of a payload.
pub fn payload_value(payload: &str) -> Option<Value> {
    serde_json::from_str(payload).ok().filter(|value: &Value| !value.is_null())
}
