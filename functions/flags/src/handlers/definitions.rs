//! `GET P/feature_flags/local_evaluation/` and its two names without a project: the definitions that SDKs evaluate.

use axum::extract::State;
use axum::response::Response;
use pennon_core::http::Call;
use pennon_engine::flag::definitions::CohortForm;

use crate::Flags;
use crate::definitions::{failed, poll};

/// The documented route and the older SDKs' one: cohorts are sent if asked for.
pub async fn local_evaluation(State(flags): State<Flags>, call: Call) -> Response {
    let asked = call.query_value("send_cohorts").map(str::to_ascii_lowercase);
    let form = match asked.as_deref() {
        None | Some("false" | "0") => CohortForm::Flattened,
        Some(_) => CohortForm::Sent,
    };
    poll(&flags, &call, form).await.unwrap_or_else(failed)
}

/// The newer SDKs' route: cohorts are always sent.
pub async fn definitions(State(flags): State<Flags>, call: Call) -> Response {
    poll(&flags, &call, CohortForm::Sent).await.unwrap_or_else(failed)
}
