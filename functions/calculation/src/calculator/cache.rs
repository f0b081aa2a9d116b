//! Results kept in the records table.
//!
//! Must stay true: a result is found by the text of its question alone, so that it can be read in the same round trip
//! as the project, and used only if the project's settings are those that it was calculated with, no event was erased
//! since it began to be calculated, and never before the instant that it was calculated for. A result never takes the
//! place of a later one. What does not fit into an item lies in an object ([`super::large`]); failing to keep a result
//! fails no request.

use chrono::{DateTime, Duration, Utc};
use pennon_core::clock::{Clock, timestamp};
use pennon_core::model::Project;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Item, Key, StoreError};
use pennon_engine::Query;
use pennon_engine::query::cache_target_age;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::large::Elsewhere;
use super::{Calculated, Calculator};

/// How long a result is kept.
pub(super) const KEPT: Duration = Duration::days(7);
/// Part of every key: raised when the meaning of questions or the shape of results changes.
const FORMAT: u32 = 1;
const KEY_PREFIX: &str = "cache_";
/// Clocks of machines differ by less than this, and requests overtake each other by less.
const AHEAD: Duration = Duration::minutes(1);

/// Who shares results with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Saved insights and query nodes: equal questions share a result.
    Saved,
    /// Calculation endpoints, which keep results of their own.
    Request,
}

/// The name of a question's result. `invalidation` tells equal questions apart.
pub fn cache_key(purpose: Purpose, query: &Query, invalidation: Option<&str>) -> String {
    let purpose = match purpose {
        Purpose::Saved => "saved",
        Purpose::Request => "request",
    };
    let name = json!([FORMAT, purpose, query.normalised(), invalidation]).to_string();
    format!("{KEY_PREFIX}{}", digest(&name))
}

/// Where a result lies in the table.
pub(super) fn result_key(project: ProjectId, cache_key: &str) -> Key {
    keys::result(project, cache_key)
}

pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A result as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Digest of the project settings that it depends on.
    settings: String,
    /// Nothing where it lies in an object.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) result: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) elsewhere: Option<Elsewhere>,
    has_more: Option<bool>,
    hogql: String,
    timezone: String,
    last_refresh: DateTime<Utc>,
    next_allowed_client_refresh: DateTime<Utc>,
    /// Absent in results of earlier releases.
    #[serde(default)]
    cache_target_age: Option<DateTime<Utc>>,
}

impl Stored {
    /// The result that an item holds; none where there is no item, or one that this release cannot read.
    pub fn read(item: Option<&Item>) -> Option<Stored> {
        item?.body().inspect_err(|error| tracing::warn!(%error, "a stored result is passed over")).ok()
    }

    /// Whether it was calculated with the present [`settings`], is not too old, and not of the future.
    pub(crate) fn is_of(&self, settings: &str, now: DateTime<Utc>) -> bool {
        let age = now - self.last_refresh;
        self.settings == settings && (-AHEAD..=KEPT).contains(&age)
    }

    /// The result, if it [`is_of`](Stored::is_of) the present settings. [`Calculator::whole`] comes before.
    pub(crate) fn of(&self, settings: &str, query: &Query, now: DateTime<Utc>) -> Option<Calculated> {
        self.is_of(settings, now).then(|| Calculated {
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

    /// As `POST P/query/` answers it, whatever the project's settings are now: for those who asked for its calculation.
    pub(crate) fn shown(&self, key: &str) -> Value {
        json!({
            "results": self.result,
            "timezone": self.timezone,
            "is_cached": true,
            "last_refresh": timestamp(self.last_refresh),
            "cache_target_age": self.cache_target_age.map(timestamp),
            "next_allowed_client_refresh": timestamp(self.next_allowed_client_refresh),
            "cache_key": key,
            "hasMore": self.has_more,
            "hogql": self.hogql,
            "query_status": null,
        })
    }

    /// Bytes of the result's JSON text where it lies in an object; 0 where it is here.
    pub fn bytes_elsewhere(&self) -> usize {
        self.elsewhere.as_ref().map_or(0, Elsewhere::bytes)
    }

    /// Whether it holds no row at all.
    pub fn is_empty(&self) -> bool {
        self.result.as_array().is_some_and(Vec::is_empty)
    }
}

/// The settings of a project on which a question's answer depends; `definitions` tells those of the actions and cohorts
/// that it refers to, `erasures` how often events were erased.
pub(crate) fn settings(project: &Project, query: &Query, definitions: &str, erasures: i64) -> String {
    let filters = query.common().filter_test_accounts.then_some(&project.test_account_filters);
    let settings = json!([
        project.timezone,
        project.week_start_day.unwrap_or(0),
        project.group_types,
        project.aggregate_users_by_distinct_id,
        filters,
        definitions,
        erasures,
    ]);
    digest(&settings.to_string())
}

impl Calculator {
    /// The item that keeps a result. Its counter is the instant of the calculation, so that the store can compare it: it is
    /// written where [`Guard::CountAtMost`] that.
    pub(crate) async fn result_item(
        &self,
        project: ProjectId,
        settings: String,
        key: &str,
        calculated: &Calculated,
    ) -> Result<Item, StoreError> {
        let stored = Stored {
            settings,
            result: calculated.result.clone(),
            elsewhere: None,
            has_more: calculated.has_more,
            hogql: calculated.hogql.clone(),
            timezone: calculated.timezone.clone(),
            last_refresh: calculated.last_refresh,
            next_allowed_client_refresh: calculated.next_allowed_client_refresh,
            cache_target_age: Some(calculated.cache_target_age),
        };
        // DynamoDB removes items by the machine's clock, whatever clock the service is told to have.
        let expires_at = (Clock::Running.now(None) + KEPT).timestamp();
        // Beside the body, so that the store can compare it.
        let count = stored.last_refresh.timestamp_micros();
        let item = self.packed(project, key, stored).await?;
        Ok(Item { count, ..item.expiring(expires_at) })
    }

    /// Keeps a result, unless a later one is kept.
    pub(super) async fn store(
        &self,
        project: &Project,
        settings: String,
        key: &str,
        calculated: &Calculated,
    ) {
        let kept = match self.result_item(project.id, settings, key, calculated).await {
            Ok(item) => {
                let count = item.count;
                self.records.put(item, Guard::CountAtMost(count)).await
            }
            Err(error) => Err(error),
        };
        match kept {
            Ok(()) => {}
            Err(StoreError::Condition { .. }) => {
                tracing::debug!(project = project.id, key, "a later result is kept")
            }
            Err(StoreError::TooLarge) => {
                tracing::debug!(project = project.id, key, "the result is too large to be kept")
            }
            Err(error) => tracing::warn!(project = project.id, key, %error, "the result could not be kept"),
        }
    }
}

#[cfg(test)]
mod tests;
