//! The `Idempotency-Key` header: a create request that is retried with the same key creates nothing and gets the record of
//! the first one.
//!
//! A row under the hash of the API key and the header's value stores a digest of the request and the id of the record. It
//! is written in the transaction that creates the record, so the row exists exactly if the record does, wherever the
//! process crashes. Of two concurrent requests one transaction succeeds, and the other request returns its record. A row is
//! kept for at least a day. Follows the IETF draft "The Idempotency-Key HTTP Header Field": a different request with the
//! same key is a 422.
//!
//! Must stay true: another API key's idempotency keys never match; the record is returned only to a caller who may read it.

use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::auth::hash_key;
use crate::clock::Clock;
use crate::error::{ApiError, ApiResult};
use crate::http::Call;
use crate::store::keys;
use crate::store::{Item, Key, StoreError, Write, WriteCondition};

/// The request header.
const HEADER: &str = "Idempotency-Key";
/// Maximum length of the header.
pub const BYTES_MAX: usize = 255;
/// Response header of a repeated request.
const REPLAYED_HEADER: &str = "Idempotent-Replayed";
/// Time to live of a row.
const TTL_SECONDS: i64 = 24 * 3600;

/// The body of a row.
#[derive(Debug, Serialize, Deserialize)]
struct IdempotencyRecord {
    /// The digest of the request.
    request: String,
    /// The id of the created record, as in paths.
    id: String,
}

/// The idempotency key of a request and its digest.
struct IdempotentRequest {
    row: Key,
    digest: String,
}

impl IdempotentRequest {
    /// `None` if the request has no such header, or no API key. 400 for an invalid header.
    fn parse(call: &Call) -> ApiResult<Option<IdempotentRequest>> {
        let Some(text) = call.headers.get(HEADER) else { return Ok(None) };
        let is_printable =
            |text: &&str| !text.is_empty() && text.bytes().all(|byte| (32..127).contains(&byte));
        let text = text.to_str().ok().filter(is_printable).filter(|text| text.len() <= BYTES_MAX);
        let invalid = || {
            let detail = format!("Ensure this header has 1 to {BYTES_MAX} printable ASCII characters.");
            ApiError::invalid("invalid_input", detail, Some(HEADER))
        };
        let text = text.ok_or_else(invalid)?;
        let Some(credential) = call.credential() else { return Ok(None) };
        let row = keys::once(&hash_key(&format!("{}\n{text}", hash_key(&credential.key))));
        let path = call.url.path.trim_end_matches('/');
        let mut request = format!("{} {path}\n", call.method).into_bytes();
        request.extend_from_slice(call.bytes());
        Ok(Some(IdempotentRequest { row, digest: crate::auth::hash_bytes(&request) }))
    }

    /// The id of the record that was created already; 422 if a different request created it.
    async fn find_created(&self, app: &App) -> ApiResult<Option<String>> {
        let Some(item) = app.store.records.get(&self.row).await? else { return Ok(None) };
        let created: IdempotencyRecord = item.body()?;
        if created.request != self.digest {
            let detail = "This key was used for another request.";
            return Err(ApiError::unprocessable(detail, HEADER));
        }
        Ok(Some(created.id))
    }
}

/// The row of `call`, to be written in the transaction that creates the record `id`; `None` without the header.
pub fn idempotency_write(call: &Call, id: impl std::fmt::Display) -> ApiResult<Option<Write>> {
    let Some(request) = IdempotentRequest::parse(call)? else { return Ok(None) };
    let record = IdempotencyRecord { request: request.digest, id: id.to_string() };
    let item: Result<Item, StoreError> = Item::new(request.row, &record);
    // DynamoDB expires items by the real time, even if the service runs with a frozen clock.
    let expires_at = Clock::Running.now(None).timestamp() + TTL_SECONDS;
    Ok(Some(Write::Put(item?.expiring(expires_at), WriteCondition::Absent)))
}

/// Calls `create`, which must write the row of [`idempotency_write`] in its transaction. If the record was created before,
/// calls `retrieve` instead, with the record's id as the path parameter `id`, and responds with 201.
pub async fn create_idempotently<
    C: Future<Output = ApiResult<Response>>,
    R: Future<Output = ApiResult<Response>>,
>(
    app: &App,
    call: Call,
    create: impl FnOnce(Call) -> C,
    retrieve: impl FnOnce(Call) -> R,
) -> ApiResult<Response> {
    let Some(request) = IdempotentRequest::parse(&call)? else { return Box::pin(create(call)).await };
    let mut created = request.find_created(app).await?;
    if created.is_none() {
        match Box::pin(create(call.clone())).await {
            Ok(response) => return Ok(response),
            // A concurrent request may have created the record.
            Err(error) => created = Some(request.find_created(app).await?.ok_or(error)?),
        }
    }
    let mut call = call.with_param("id", &created.unwrap_or_default());
    call.method = Method::GET;
    let mut response = Box::pin(retrieve(call)).await?;
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    Ok(response)
}
