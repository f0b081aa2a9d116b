//! Creating and changing insights.
//!
//! Must stay true: a body is judged, and what it asks to calculate is calculated, before anything is written; a change
//! that others overtook is judged again on what they left.

use axum::extract::State;
use axum::response::Response;
use pennon_calculation::require_json;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, created, json};
use pennon_core::ids;
use pennon_core::store::keys::{self, Counter};
use pennon_core::store::{Item, Key, StoreError};
use serde_json::Value;

use crate::handlers::WRITE;
use crate::input::InsightInput;
use crate::numbers::{self, Wish};
use crate::record::{Insight, id_of_count};
use crate::shown::{self, Viewer};
use crate::{Insights, limits, store};

/// Letters and digits of a short id.
const SHORT_ID_CHARS: usize = 8;
/// Seconds after which a change that was overtaken too often may be tried again.
const RETRY_AFTER_SECONDS: u32 = 1;

/// `POST P/insights/`
pub async fn create(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, WRITE, |_| []).await?;
    require_json(&call)?;
    let input = InsightInput::parse(&call.json_fields()?)?;
    let (refresh, explicit) = numbers::wanted(&call)?;
    let user = access.caller.user();
    let draft = Insight::create(0, String::new(), &input, user, call.now);
    let wish = Wish { project: &access.project, refresh, now: call.now };
    let numbers = state.numbers(&draft, wish).await?;

    let records = &state.app.store.records;
    let count = records.increment(&keys::counter(Counter::Insight), 1).await?;
    let id = id_of_count(u64::try_from(count).map_err(|error| ApiError::internal(&error))?);
    for _ in 0..limits::WRITE_TRIES {
        let insight = Insight { id, short_id: ids::random_text(SHORT_ID_CHARS), ..draft.clone() };
        match records.transact(store::creation(&access, &insight, call.now)?).await {
            Ok(()) => {
                return Ok(created(shown::full(&insight, &numbers, &Viewer::new(&access, &call, explicit))));
            }
            Err(error) if error.is_condition(store::SHORT_ID_WRITE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ApiError::busy(RETRY_AFTER_SECONDS))
}

/// `PATCH P/insights/{id}/`
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let number = call.id("id");
    let wanted = |project| number.iter().map(|id| store::key(project, *id)).collect::<Vec<Key>>();
    let (access, found) = state.app.project_with(&call, WRITE, wanted).await?;
    let mut found = found.into_iter().next().flatten();
    for _ in 0..limits::WRITE_TRIES {
        let item = found.ok_or_else(ApiError::not_found)?;
        match try_update(&state, &call, &access, &item).await? {
            Some(answer) => return Ok(json(answer)),
            None => found = state.app.store.records.get(&item.key).await?,
        }
    }
    Err(ApiError::busy(RETRY_AFTER_SECONDS))
}

/// Judges and writes the change of the insight in `item`; none when others wrote it since it was read.
async fn try_update(state: &Insights, call: &Call, access: &Access, item: &Item) -> ApiResult<Option<Value>> {
    let before: Insight = item.body()?;
    let fields = call.json_fields();
    if before.deleted && !fields.as_ref().is_ok_and(restores) {
        return Err(ApiError::not_found());
    }
    require_json(call)?;
    let input = InsightInput::parse(&fields?)?;
    let (refresh, explicit) = numbers::wanted(call)?;
    let after = before.apply(&input, access.caller.user(), call.now);
    let wish = Wish { project: &access.project, refresh, now: call.now };
    let numbers = state.numbers(&after, wish).await?;
    let writes = store::change(access, item.version, &before, &after, call.now)?;
    match state.app.store.records.transact(writes).await {
        Ok(()) => Ok(Some(shown::full(&after, &numbers, &Viewer::new(access, call, explicit)))),
        Err(StoreError::Condition { index: store::RECORD_WRITE }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a body brings a deleted insight back: only the JSON value false does.
fn restores(fields: &Fields) -> bool {
    fields.get("deleted") == Some(&Value::Bool(false))
}
