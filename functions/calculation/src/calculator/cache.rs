//! The result cache, in the records table.
//!
//! Must stay true: a cache key depends on the query alone, so that the result can be fetched in the same round trip as
//! the project; a cached result is used only if the project's settings equal those that it was calculated with, no event
//! was erased since its calculation started, and not before the instant that it was calculated for. A result never
//! replaces a later one. A result that does not fit into an item is an object ([`super::large_results`]); a failed write
//! to the cache fails no request.

use chrono::{DateTime, Duration, Utc};
use pennon_analytics::Query;
use pennon_analytics::refresh::cache_target_age;
use pennon_core::clock::{Clock, timestamp};
use pennon_core::model::Project;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, StoreError, WriteCondition};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Calculator, QueryResult};

/// Time to live of a cached result.
pub(super) const RESULT_TTL: Duration = Duration::days(7);
/// Part of every cache key: raise it when the meaning of queries or the shape of results changes, so that no result of an
/// earlier release is found.
const CACHE_KEY_VERSION: u32 = 1;
const KEY_PREFIX: &str = "cache_";
/// How far a result may be in the future: clock skew between machines, and requests that overtake each other.
const CLOCK_SKEW_MAX: Duration = Duration::minutes(1);

/// Which queries share cached results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheScope {
    /// Saved insights and query nodes: equal queries share a result.
    Saved,
    /// Calculation endpoints, which have results of their own.
    Request,
}

/// Reference to the object of a result that is not in its item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResultObjectRef {
    /// Name of the object, unique among the objects of a cache key.
    pub(super) id: String,
    /// SHA-256 of the object.
    pub(super) digest: String,
    /// Length of the JSON text in bytes, uncompressed.
    pub(super) bytes: usize,
}

/// The cache key of a query's result. `invalidation` is part of it.
pub fn cache_key(scope: CacheScope, query: &Query, invalidation: Option<&str>) -> String {
    let scope = match scope {
        CacheScope::Saved => "saved",
        CacheScope::Request => "request",
    };
    let name = json!([CACHE_KEY_VERSION, scope, query.normalised(), invalidation]).to_string();
    format!("{KEY_PREFIX}{}", digest(&name))
}

/// The row of a result.
pub(super) fn result_key(project: ProjectId, cache_key: &str) -> Key {
    keys::result(project, cache_key)
}

pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A result as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedResult {
    /// [`settings_digest`] of the project settings that it depends on.
    #[serde(rename = "settings")]
    settings_digest: String,
    /// Null where the result is in an object.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) result: Value,
    #[serde(rename = "elsewhere", default, skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ResultObjectRef>,
    has_more: Option<bool>,
    hogql: String,
    timezone: String,
    last_refresh: DateTime<Utc>,
    next_allowed_client_refresh: DateTime<Utc>,
    /// Absent in results of earlier releases.
    #[serde(default)]
    cache_target_age: Option<DateTime<Utc>>,
}

impl CachedResult {
    /// Decodes an item; `None` where there is no item, or one that this release cannot read.
    pub fn from_item(item: Option<&Item>) -> Option<CachedResult> {
        item?
            .body()
            .inspect_err(|error| tracing::warn!(%error, "a cached result cannot be decoded and is ignored"))
            .ok()
    }

    /// Whether it was calculated with the current [`settings_digest`], has not expired, and is not in the future.
    pub(crate) fn is_valid_for(&self, settings_digest: &str, now: DateTime<Utc>) -> bool {
        let age = now - self.last_refresh;
        self.settings_digest == settings_digest && (-CLOCK_SKEW_MAX..=RESULT_TTL).contains(&age)
    }

    /// The result, if it [`is_valid_for`](CachedResult::is_valid_for) the current settings. Call
    /// [`Calculator::load_result`] first.
    pub(crate) fn to_calculated(
        &self,
        settings_digest: &str,
        query: &Query,
        now: DateTime<Utc>,
    ) -> Option<QueryResult> {
        self.is_valid_for(settings_digest, now).then(|| QueryResult {
            result: self.result.clone(),
            has_more: self.has_more,
            hogql: self.hogql.clone(),
            timezone: self.timezone.clone(),
            last_refresh: self.last_refresh,
            cache_target_age: cache_target_age(query, self.last_refresh),
            next_allowed_client_refresh: self.next_allowed_client_refresh,
            is_cached: true,
        })
    }

    /// The body of `POST P/query/`, without a check of the project's current settings: for clients that poll the status of
    /// its calculation.
    pub(crate) fn to_json(&self, cache_key: &str) -> Value {
        json!({
            "results": self.result,
            "timezone": self.timezone,
            "is_cached": true,
            "last_refresh": timestamp(self.last_refresh),
            "cache_target_age": self.cache_target_age.map(timestamp),
            "next_allowed_client_refresh": timestamp(self.next_allowed_client_refresh),
            "cache_key": cache_key,
            "hasMore": self.has_more,
            "hogql": self.hogql,
            "query_status": null,
        })
    }

    /// Bytes of the result's JSON text where it is in an object; 0 where it is in the item.
    pub fn object_bytes(&self) -> usize {
        self.object_ref.as_ref().map_or(0, |object| object.bytes)
    }

    /// Whether the result is an empty list.
    pub fn is_empty(&self) -> bool {
        self.result.as_array().is_some_and(Vec::is_empty)
    }
}

/// Digest of the project settings that a query's result depends on. `definitions` is the digest of the actions and cohorts
/// that it refers to, `erasures` the number of erasures of events so far.
pub(crate) fn settings_digest(project: &Project, query: &Query, definitions: &str, erasures: i64) -> String {
    let filters = query.uses_test_account_filters().then_some(&project.test_account_filters);
    let mut settings = json!([
        project.timezone,
        project.week_start_day.unwrap_or(0),
        project.group_types,
        project.aggregate_users_by_distinct_id,
        filters,
        definitions,
        erasures,
    ]);
    // Appended only where it matters, so that the digests of other queries stay as earlier releases wrote them.
    if let (true, Value::Array(settings)) = (query.uses_path_cleaning_filters(), &mut settings) {
        settings.push(json!(project.path_cleaning_filters));
    }
    digest(&settings.to_string())
}

impl Calculator {
    /// The item of a result. Its counter is the instant of the calculation; write it with [`WriteCondition::CountAtMost`] of that, so
    /// that it never replaces a later result.
    pub(crate) async fn result_item(
        &self,
        project: ProjectId,
        settings_digest: String,
        cache_key: &str,
        calculated: &QueryResult,
    ) -> Result<Item, StoreError> {
        let stored = CachedResult {
            settings_digest,
            result: calculated.result.clone(),
            object_ref: None,
            has_more: calculated.has_more,
            hogql: calculated.hogql.clone(),
            timezone: calculated.timezone.clone(),
            last_refresh: calculated.last_refresh,
            next_allowed_client_refresh: calculated.next_allowed_client_refresh,
            cache_target_age: Some(calculated.cache_target_age),
        };
        // The machine's clock, not the service's: DynamoDB expires items by it.
        let expires_at = (Clock::Running.now(None) + RESULT_TTL).timestamp();
        // An attribute of its own, so that a condition can compare it.
        let count = stored.last_refresh.timestamp_micros();
        let item = self.encode_and_upload(project, cache_key, stored).await?;
        Ok(Item { count, ..item.expiring(expires_at) })
    }

    /// Writes a result to the cache, unless a later one is there. A failure is logged only.
    pub(super) async fn store_result(
        &self,
        project: &Project,
        settings_digest: String,
        cache_key: &str,
        calculated: &QueryResult,
    ) {
        let written = match self.result_item(project.id, settings_digest, cache_key, calculated).await {
            Ok(item) => {
                let count = item.count;
                self.records.put(item, WriteCondition::CountAtMost(count)).await
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => {}
            Err(StoreError::Condition { .. }) => {
                tracing::debug!(project = project.id, key = cache_key, "a later result is already cached")
            }
            Err(StoreError::TooLarge) => {
                tracing::debug!(project = project.id, key = cache_key, "the result is too large to be cached")
            }
            Err(error) => {
                tracing::warn!(project = project.id, key = cache_key, %error, "the result could not be cached")
            }
        }
    }
}

#[cfg(test)]
mod tests;
