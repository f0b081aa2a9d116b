//! `GET P/feature_flags/evaluation_reasons/`: the values of all flags for a person, and why.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, GATEWAY_BYTES_MAX, deliver};
use pennon_engine::flag::evaluate::Evaluation;
use serde_json::{Map, Value, json as object};

use crate::Flags;
use crate::persons::one::{Opened, flag_of, groups_parameter, open, values};

/// Shows the flags by key.
pub async fn evaluation_reasons(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let opened = open(&flags, &call).await?;
    let distinct_id = distinct_id(&call, &opened)?;
    let groups = groups_parameter(&call)?;
    let wanted = wanted_keys(&call);
    let values = values(&flags, &call, opened, &distinct_id, &groups).await?;
    let mut shown = Map::new();
    for value in &values {
        let key = &flag_of(value).key;
        if wanted.is_empty() || wanted.contains(key.as_str()) {
            shown.insert(key.clone(), reasons(&value.1));
        }
    }
    deliver(&call.headers, Value::Object(shown).to_string().into_bytes()).ok_or_else(|| {
        let detail = format!(
            "The answer is larger than the {GATEWAY_BYTES_MAX} bytes that it can have. Ask for some of the flags with \
             flag_keys."
        );
        ApiError::invalid("invalid_input", detail, None)
    })
}

/// The id of the request, or of the owner of the key.
fn distinct_id(call: &Call, opened: &Opened) -> ApiResult<String> {
    match call.query_value("distinct_id") {
        None => Ok(opened.access.caller.user().distinct_id.clone()),
        Some(id) if id.trim().is_empty() => {
            Err(ApiError::invalid("blank", "This field may not be blank.", Some("distinct_id")))
        }
        Some(id) => Ok(id.to_owned()),
    }
}

/// The keys that the caller limits the answer to; none is no limit.
fn wanted_keys(call: &Call) -> BTreeSet<&str> {
    let lists = call.query().iter().filter(|(name, _)| name == "flag_keys" || name == "flag_keys[]");
    let keys = lists.flat_map(|(_, list)| list.split(','));
    keys.map(str::trim).filter(|key| !key.is_empty()).collect()
}

fn reasons(evaluation: &Evaluation) -> Value {
    object!({
        "value": evaluation.value.to_json(),
        "evaluation": {
            "reason": evaluation.reason.as_str(),
            "condition_index": evaluation.condition_index,
            "description": evaluation.description(),
        },
    })
}
