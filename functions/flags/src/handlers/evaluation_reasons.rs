//! `GET P/feature_flags/evaluation_reasons/`: the values of all flags for a person, with the reason of each.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, GATEWAY_BYTES_MAX, deliver};
use pennon_flag_rules::evaluate::Evaluation;
use serde_json::{Map, Value, json as object};

use crate::Flags;
use crate::persons::flag_values::{
    AuthorizedProject, authorize, evaluate_flags, flag_of, parse_groups_parameter,
};

/// Returns the values and reasons by flag key.
pub async fn evaluation_reasons(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let authorized = authorize(&flags, &call).await?;
    let distinct_id = distinct_id(&call, &authorized)?;
    let groups = parse_groups_parameter(&call)?;
    let requested = requested_keys(&call);
    let values = evaluate_flags(&flags, &call, authorized, &distinct_id, &groups).await?;
    let mut by_key = Map::new();
    for value in &values {
        let key = &flag_of(value).key;
        if requested.is_empty() || requested.contains(key.as_str()) {
            by_key.insert(key.clone(), reasons(&value.1));
        }
    }
    deliver(&call.headers, Value::Object(by_key).to_string().into_bytes()).ok_or_else(|| {
        let detail = format!(
            "The response is larger than {GATEWAY_BYTES_MAX} bytes. Select fewer flags with flag_keys."
        );
        ApiError::invalid("invalid_input", detail, None)
    })
}

/// The distinct id in the query, or that of the user who owns the API key.
fn distinct_id(call: &Call, authorized: &AuthorizedProject) -> ApiResult<String> {
    match call.query_value("distinct_id") {
        None => Ok(authorized.access.caller.user().distinct_id.clone()),
        Some(id) if id.trim().is_empty() => {
            Err(ApiError::invalid("blank", "This field may not be blank.", Some("distinct_id")))
        }
        Some(id) => Ok(id.to_owned()),
    }
}

/// The keys that the response is limited to; empty means no limit.
fn requested_keys(call: &Call) -> BTreeSet<&str> {
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
