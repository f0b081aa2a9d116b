//! The size limit of the flag definitions feed, for a cohort's new rules.
//!
//! Must stay true: rules that would make the feed too large are rejected, by the size of the latest feed; a project whose feed
//! was never requested has none, and its cohorts are never rejected; neither are rules that are not larger when compressed
//! than those before.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::gzip;
use pennon_core::model::{FEED_BYTES_LIMIT, FEED_BYTES_MAX, FeedForm, FeedHead};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Table, VersionBump};
use serde_json::json;

use super::flag_references::FlagReferences;
use super::record::CohortRecord;

/// Assumed copies of the rules in the feed, for the estimate: one as sent, the others flattened into conditions of flags.
const ASSUMED_COPIES: usize = 20;

/// 400 where the change of a cohort from `before` to `after` would make the feed too large. For writers other than the HTTP API.
pub async fn require_feed_fits(
    records: &Table,
    project: ProjectId,
    before: &CohortRecord,
    after: &CohortRecord,
) -> ApiResult<()> {
    FeedSizeEstimate::new(Some(before), after).require(records, project, after.id).await
}

/// A reservation of feed size by the estimate, without an exact measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedReservation {
    /// The rules do not change.
    NotNeeded,
    /// Reserved, if the condition of the write holds.
    Conditional,
    /// The estimate exceeds the limit.
    TooLarge,
}

/// Estimate of how much a change of rules adds to the feed.
#[derive(Debug, Clone, Default)]
pub struct FeedSizeEstimate {
    before: Option<String>,
    after: Option<String>,
}

impl FeedSizeEstimate {
    /// For the change from `before` to `after`. Empty where the rules do not change, and for a new cohort, which no flag can
    /// refer to.
    pub fn new(before: Option<&CohortRecord>, after: &CohortRecord) -> FeedSizeEstimate {
        let rules = |cohort: &CohortRecord| {
            let has_rules = !cohort.deleted && !cohort.is_static;
            has_rules.then(|| json!([cohort.filters, cohort.groups]).to_string())
        };
        let Some(before) = before else { return FeedSizeEstimate::default() };
        let (before, after) = (rules(before), rules(after));
        if before == after { FeedSizeEstimate::default() } else { FeedSizeEstimate { before, after } }
    }

    /// Adds the reservation and its condition to the write of the project version.
    pub fn reserve(&self, raise: &mut VersionBump) -> FeedReservation {
        let Some(after) = &self.after else { return FeedReservation::NotNeeded };
        let more = i64::try_from(after.len().saturating_mul(ASSUMED_COPIES)).unwrap_or(i64::MAX);
        if more > FEED_BYTES_LIMIT {
            return FeedReservation::TooLarge;
        }
        raise.by.used = more;
        raise.when.used_at_most = Some(FEED_BYTES_LIMIT - more);
        FeedReservation::Conditional
    }

    /// 400 where the latest feed would be too large with the new rules.
    pub async fn require(&self, records: &Table, project: ProjectId, id: u64) -> ApiResult<()> {
        let compressed =
            |rules: &Option<String>| rules.as_ref().map_or(0, |rules| gzip(rules.as_bytes()).len());
        let more = compressed(&self.after).saturating_sub(compressed(&self.before));
        let Some(head) = records.get(&keys::feed_head(project)).await?.filter(|_| more > 0) else {
            return Ok(());
        };
        let head: FeedHead = head.body()?;
        let times = FlagReferences::fetch(records, project, id).await?.flag_count;
        let is_full =
            |form: &FeedForm, more: usize| form.place.is_none() || form.packed + more > FEED_BYTES_MAX;
        if times == 0 || !is_full(&head.sent, more) && !is_full(&head.flattened, more.saturating_mul(times)) {
            return Ok(());
        }
        let detail = format!(
            "With these rules the definitions of this project's flags would be larger than a response can be: at most \
             {FEED_BYTES_MAX} bytes compressed. {times} flags name this cohort."
        );
        Err(ApiError::invalid("invalid_input", detail, Some("filters")))
    }
}
