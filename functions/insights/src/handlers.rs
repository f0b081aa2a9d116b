//! Reading one insight, and the deletion that is none.

use axum::extract::State;
use axum::response::Response;
use pennon_calculation::require_json;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::store::Key;

use crate::listing::is_true;
use crate::numbers::{self, Wish};
use crate::record::Insight;
use crate::shown::{self, Viewer};
use crate::{Insights, overrides, store};

pub(crate) const READ: &str = "insight:read";
pub(crate) const WRITE: &str = "insight:write";
const ALLOWED: &str = "GET, HEAD, OPTIONS, PATCH";

/// `GET P/insights/{id}/`
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let number = call.id("id");
    let wanted = |project| number.iter().map(|id| store::key(project, *id)).collect::<Vec<Key>>();
    let (access, found) = state.app.project_with(&call, READ, wanted).await?;
    require_json(&call)?;
    let record = found.into_iter().next().flatten().ok_or_else(ApiError::not_found)?;
    let insight: Insight = record.body()?;
    if insight.deleted {
        return Err(ApiError::not_found());
    }
    let (refresh, explicit) = numbers::wanted(&call)?;
    let over = overrides::of(&call)?;
    let viewer = Viewer::new(&access, &call, explicit);
    if call.query_value("basic").is_some_and(is_true) {
        return Ok(json(shown::short(&insight, &viewer)));
    }
    let insight = over.map_or_else(|| insight.clone(), |over| overrides::apply(&insight, &over));
    let wish = Wish { project: &access.project, refresh, now: call.now };
    let numbers = state.numbers(&insight, wish).await?;
    Ok(json(shown::full(&insight, &numbers, &viewer)))
}

/// `DELETE P/insights/{id}/`: not served, whether or not there is such an insight.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    state.app.project(&call, WRITE, |_| []).await?;
    Err(ApiError::method_not_allowed(call.method.as_str(), ALLOWED).without_body())
}
