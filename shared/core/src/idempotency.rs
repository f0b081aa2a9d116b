//! Creating once: a create that is sent again with the same `Idempotency-Key` makes nothing, and is answered as the first.
//!
//! A row under the hash of the caller's API key and the header's text says what was created, and by which request. It is
//! written in the transaction that creates the record, so there is a row exactly where there is a record, whoever dies when.
//! Two that are sent at once both try; the row lets one of them through, and the other answers with what that one made. A
//! row is kept for a day at least. After the draft "The Idempotency-Key HTTP Header Field" of the IETF: another request
//! under the same key is a 422.
//!
//! Must stay true: a key of somebody else never leads to a record; who may not see what was created is not shown it.

use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::auth::hash_key;
use crate::clock::Clock;
use crate::error::{ApiError, ApiResult};
use crate::http::Call;
use crate::store::keys;
use crate::store::{Guard, Item, Key, StoreError, Write};

/// The header.
const HEADER: &str = "Idempotency-Key";
/// Longest text of the header.
pub const BYTES_MAX: usize = 255;
/// What an answer says that was given before.
const REPLAYED: &str = "Idempotent-Replayed";
/// How long a row is kept.
const KEPT_SECONDS: i64 = 24 * 3600;

/// What was created under a key.
#[derive(Debug, Serialize, Deserialize)]
struct Made {
    /// The digest of the request.
    request: String,
    /// The record, as paths name it.
    id: String,
}

/// What a request says of itself.
struct Once {
    row: Key,
    request: String,
}

impl Once {
    /// None where the request has no such header, or no API key.
    fn of(call: &Call) -> ApiResult<Option<Once>> {
        let Some(text) = call.headers.get(HEADER) else { return Ok(None) };
        let is_printable =
            |text: &&str| !text.is_empty() && text.bytes().all(|byte| (32..127).contains(&byte));
        let text = text.to_str().ok().filter(is_printable).filter(|text| text.len() <= BYTES_MAX);
        let wrong = || {
            let detail = format!("Ensure this header has 1 to {BYTES_MAX} printable ASCII characters.");
            ApiError::invalid("invalid_input", detail, Some(HEADER))
        };
        let text = text.ok_or_else(wrong)?;
        let Some(credential) = call.credential() else { return Ok(None) };
        let row = keys::once(&hash_key(&format!("{}\n{text}", hash_key(&credential.key))));
        let path = call.url.path.trim_end_matches('/');
        let mut request = format!("{} {path}\n", call.method).into_bytes();
        request.extend_from_slice(call.bytes());
        Ok(Some(Once { row, request: crate::auth::hash_bytes(&request) }))
    }

    /// What was created already; 422 where another request did.
    async fn made(&self, app: &App) -> ApiResult<Option<String>> {
        let Some(item) = app.store.records.get(&self.row).await? else { return Ok(None) };
        let made: Made = item.body()?;
        if made.request != self.request {
            let detail = "This key was used for another request.";
            return Err(ApiError::unprocessable(detail, HEADER));
        }
        Ok(Some(made.id))
    }
}

/// The write that notes that `call` creates the record `id`, for the transaction that does; none where it does not ask to.
pub fn idempotency_write(call: &Call, id: impl std::fmt::Display) -> ApiResult<Option<Write>> {
    let Some(once) = Once::of(call)? else { return Ok(None) };
    let made = Made { request: once.request, id: id.to_string() };
    let item: Result<Item, StoreError> = Item::new(once.row, &made);
    // The store forgets by the machine's clock, whatever clock the service is told to have.
    let until = Clock::Running.now(None).timestamp() + KEPT_SECONDS;
    Ok(Some(Write::Put(item?.expiring(until), Guard::Absent)))
}

/// Answers with `create`, which writes what [`idempotency_write`] gives it with the record; or, where the record was created before,
/// as `retrieve` does, which gets the call with the record's id as the parameter `id`.
pub async fn create_idempotently<
    C: Future<Output = ApiResult<Response>>,
    R: Future<Output = ApiResult<Response>>,
>(
    app: &App,
    call: Call,
    create: impl FnOnce(Call) -> C,
    retrieve: impl FnOnce(Call) -> R,
) -> ApiResult<Response> {
    let Some(once) = Once::of(&call)? else { return Box::pin(create(call)).await };
    let mut made = once.made(app).await?;
    if made.is_none() {
        match Box::pin(create(call.clone())).await {
            Ok(answer) => return Ok(answer),
            // Perhaps because another one was faster.
            Err(error) => made = Some(once.made(app).await?.ok_or(error)?),
        }
    }
    let mut call = call.with_param("id", &made.unwrap_or_default());
    call.method = Method::GET;
    let mut answer = Box::pin(retrieve(call)).await?;
    *answer.status_mut() = StatusCode::CREATED;
    answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(answer)
}
