//! `GET P/feature_flags/local_evaluation/` and its two routes without a project: the flag definitions that SDKs
//! evaluate locally.

use axum::extract::State;
use axum::response::Response;
use pennon_core::http::Call;
use pennon_flag_rules::definitions::CohortForm;

use crate::Flags;
use crate::local_evaluation::{error_response, poll};

/// The documented route and the route of older SDKs: cohorts are included with `send_cohorts`.
pub async fn local_evaluation(State(flags): State<Flags>, call: Call) -> Response {
    let send_cohorts = call.query_value("send_cohorts").map(str::to_ascii_lowercase);
    let form = match send_cohorts.as_deref() {
        None | Some("false" | "0") => CohortForm::Flattened,
        Some(_) => CohortForm::Sent,
    };
    poll(&flags, &call, form).await.unwrap_or_else(error_response)
}

/// The route of newer SDKs: cohorts are always included.
pub async fn flag_definitions(State(flags): State<Flags>, call: Call) -> Response {
    poll(&flags, &call, CohortForm::Sent).await.unwrap_or_else(error_response)
}
