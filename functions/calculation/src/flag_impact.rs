//! `POST P/feature_flags/{id}/impact/`: how a metric differs between the persons that saw the variants of a flag.
//!
//! Must stay true: the flag is read before the query is parsed, and its variants and its split are part of the query and of
//! its cache key; results are cached and calculated in the background as those of `query/`.

use axum::extract::State;
use axum::response::Response;
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, sized};
use pennon_core::store::keys::{self, RecordKind};
use pennon_filters::CalcResult;
use pennon_flag_rules::Flag;
use pennon_flag_rules::conditions::{filter_view as view, filters};
use serde_json::{Value, json};

use crate::calculator::{CacheScope, KeyedQuery, QueryOrigin, QueryRequest};
use crate::csv;
use crate::errors::engine_error;
use crate::format::{ResponseFormat, csv_response, into_response};
use crate::query_node::{READ_QUERIES, envelope, parse_refresh};
use crate::request::query_id;
use crate::source::QuerySource;
use crate::{Calculation, QueryResponse};

const READ_FLAGS: &str = "feature_flag:read";

/// The fields of a body that are part of the query.
const QUERY_FIELDS: [&str; 8] = [
    "query",
    "dateRange",
    "exposure",
    "exposure_event",
    "method",
    "confidence_level",
    "minimum_sample",
    "control",
];

/// The query about the impact of `flag` with the fields of a body, and its source for a background calculation.
pub fn flag_impact_query(flag: &Flag, body: &Fields) -> CalcResult<(Query, QuerySource)> {
    let mut impact: Fields = QUERY_FIELDS
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), body.get(name)?.clone())))
        .collect();
    impact.insert("flag".to_owned(), describe_flag(flag));
    let request: Fields = std::iter::once(("impact".to_owned(), Value::Object(impact))).collect();
    match InsightKind::FlagImpact.parse_request(&request)? {
        ParsedQuery::Query(query) => Ok((query, QuerySource::Request(InsightKind::FlagImpact, request))),
        // The parser never gives them.
        ParsedQuery::Empty | ParsedQuery::OtherKind(_) => {
            Err(pennon_filters::CalcError::invalid("query", "The metric needs an event or action in series."))
        }
    }
}

/// `POST P/feature_flags/{id}/impact/`
pub async fn calculate(State(state): State<Calculation>, call: Call) -> Response {
    let result = respond(&state, &call).await;
    into_response(&call, result)
}

async fn respond(state: &Calculation, call: &Call) -> ApiResult<Response> {
    let id = call.id("id");
    let (access, items) = state
        .app
        .authorize_project_with(call, READ_FLAGS, |project| {
            id.map(|id| keys::record(project, RecordKind::Flag, id)).into_iter().collect()
        })
        .await?;
    access.caller.require(READ_QUERIES)?;
    let format = ResponseFormat::of(call)?;
    let flag = items.into_iter().next().flatten().ok_or_else(ApiError::not_found)?.body::<Flag>()?;
    if flag.deleted {
        return Err(ApiError::not_found());
    }
    let fields = call.json_fields()?;
    let (query, source) = flag_impact_query(&flag, &fields).map_err(engine_error)?;
    let keyed = KeyedQuery::new(query, CacheScope::Request, None).with_source(source);
    let refresh = parse_refresh(call, &fields);
    let query_id = query_id(call, Some(&fields))?;
    let deadline = state.calculator.deadline();
    let project = &access.project;
    let stored = state.calculator.read(project, &[&keyed]).await?;
    let request = QueryRequest {
        project,
        keyed: &keyed,
        stored: stored.stored.first().and_then(Option::as_ref),
        tracked: stored.tracked.first().and_then(Option::as_ref),
        known: &stored.known,
        now: call.now,
        deadline,
        origin: QueryOrigin { query_id: query_id.as_deref(), ..QueryOrigin::default() },
    };
    let response = state.calculator.respond(&request, refresh).await?;
    match format {
        ResponseFormat::Json => sized(&call.headers, &envelope(&response, &keyed.key, project.id)),
        ResponseFormat::Csv => csv_response(csv::table(&table(&keyed.query, &response))),
    }
}

/// The table of a result, numbers as numbers; empty while it is calculated in the background.
fn table(query: &Query, response: &QueryResponse) -> Vec<Vec<Value>> {
    let Some(calculated) = &response.calculated else { return Vec::new() };
    let cell = |text: String| match text.parse::<serde_json::Number>() {
        Ok(number) => Value::Number(number),
        Err(_) => Value::String(text),
    };
    let rows = query.table(&calculated.result).into_iter();
    rows.map(|row| row.into_iter().map(cell).collect()).collect()
}

/// What a query about the impact of a flag holds of the flag.
fn describe_flag(flag: &Flag) -> Value {
    let default = filters::default_filters();
    let filters = if flag.filters.is_empty() { &default } else { &flag.filters };
    let named = view::variants(filters);
    let (variants, no_split_reason) = if named.is_empty() {
        match boolean_share(filters) {
            Ok(share) => (
                json!([
                    {"key": "false", "share": 100.0 - share},
                    {"key": "true", "share": share},
                ]),
                None,
            ),
            Err(reason) => (json!([{"key": "false"}, {"key": "true"}]), Some(reason.to_owned())),
        }
    } else {
        let variant = |variant: &Value| json!({"key": view::text(variant, "key").unwrap_or_default(), "share": view::rollout(variant)});
        let assigned = view::groups(filters).iter().find_map(view::condition_variant);
        let reason = assigned.map(|variant| {
            format!("A release condition of the flag assigns the variant {variant}, so its split says less about the persons.")
        });
        (named.iter().map(variant).collect(), reason)
    };
    json!({
        "key": flag.key,
        "group_type_index": view::aggregation_index(filters),
        "variants": variants,
        "no_split_reason": no_split_reason,
    })
}

/// The share of persons, in percent, for whom a flag without variants is on; or why its rollout does not determine that.
fn boolean_share(filters: &Fields) -> Result<f64, &'static str> {
    match view::groups(filters) {
        [only] if view::properties(only).is_empty() && view::all_conditions(filters).count() == 1 => {
            Ok(view::rollout(only).unwrap_or(100.0).clamp(0.0, 100.0))
        }
        _ => Err(
            "The flag has no variants, and its release conditions are several or depend on properties, so its rollout \
                  does not say how many persons should see true.",
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn described(filters: Value) -> Value {
        let flag = json!({"id": 1, "key": "f", "filters": filters, "active": true, "created_at": "2024-01-01T00:00:00Z",
            "updated_at": "2024-01-01T00:00:00Z", "version": 1});
        describe_flag(&serde_json::from_value(flag).unwrap())
    }

    #[test]
    fn variants_have_their_shares_unless_a_condition_assigns_one() {
        let variants =
            json!([{"key": "control", "rollout_percentage": 50}, {"key": "test", "rollout_percentage": 50}]);
        let of = |group: Value| described(json!({"groups": [group], "multivariate": {"variants": variants}}));
        let shares = json!([{"key": "control", "share": 50.0}, {"key": "test", "share": 50.0}]);
        let plain = of(json!({"properties": [], "rollout_percentage": 20}));
        assert_eq!((&plain["variants"], &plain["no_split_reason"]), (&shares, &Value::Null));
        let assigned = of(json!({"properties": [], "variant": "test"}));
        assert!(assigned["no_split_reason"].as_str().unwrap().contains("variant test"));
    }

    #[test]
    fn the_rollout_of_a_single_condition_is_the_share_of_true() {
        let shares = |groups: Value| described(json!({"groups": groups}))["variants"].clone();
        let split = |on: f64| json!([{"key": "false", "share": 100.0 - on}, {"key": "true", "share": on}]);
        assert_eq!(shares(json!([{"properties": [], "rollout_percentage": 30}])), split(30.0));
        assert_eq!(shares(json!([{}])), split(100.0));
        let unknown = json!([{"key": "false"}, {"key": "true"}]);
        assert_eq!(shares(json!([{"rollout_percentage": 30}, {"rollout_percentage": 40}])), unknown);
        assert_eq!(shares(json!([{"properties": [{"key": "a", "value": "b"}]}])), unknown);
        assert_eq!(described(json!({}))["variants"], split(100.0));
    }
}
