//! Whether the definitions feed has room for a cohort's new rules.
//!
//! Must stay true: rules that make the feed larger than it may be are refused as far as the feed that was made last tells; a
//! project whose feed nobody asks for has none, and none of its cohorts is refused. Rules that are packed no longer than those
//! before them never are.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::gzip;
use pennon_core::model::{FEED_BYTES_MAX, FEED_ROOM, FeedForm, FeedHead};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Raise, Table};
use serde_json::json;

use super::record::CohortRecord;
use super::uses::Uses;

/// How many times rules may come in the feed before anybody counts: sent once, and spelled out in conditions.
const TIMES: usize = 20;

/// 400 where the feed has no room for a cohort that is stored as `before` and is to be `after`. For whoever writes cohorts otherwise
/// than over HTTP.
pub async fn require_feed_room(
    records: &Table,
    project: ProjectId,
    before: &CohortRecord,
    after: &CohortRecord,
) -> ApiResult<()> {
    Room::of(Some(before), after).require(records, project, after.id).await
}

/// What of the room is taken without looking closer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// None is asked for.
    Nothing,
    /// Some, if it is there.
    Some,
    /// More than there ever is.
    TooMuch,
}

/// What rules may take of the feed's room.
#[derive(Debug, Clone, Default)]
pub struct Room {
    before: Option<String>,
    after: Option<String>,
}

impl Room {
    /// For the change of `before`; none where it leaves the rules, or there is no cohort yet, which no flag can name.
    pub fn of(before: Option<&CohortRecord>, after: &CohortRecord) -> Room {
        let rules = |cohort: &CohortRecord| {
            let has_rules = !cohort.deleted && !cohort.is_static;
            has_rules.then(|| json!([cohort.filters, cohort.groups]).to_string())
        };
        let Some(before) = before else { return Room::default() };
        let (before, after) = (rules(before), rules(after));
        if before == after { Room::default() } else { Room { before, after } }
    }

    /// Has `raise` take it, as far as there is room without looking closer.
    pub fn take(&self, raise: &mut Raise) -> Taken {
        let Some(after) = &self.after else { return Taken::Nothing };
        let more = i64::try_from(after.len().saturating_mul(TIMES)).unwrap_or(i64::MAX);
        if more > FEED_ROOM {
            return Taken::TooMuch;
        }
        raise.by.used = more;
        raise.when.used_at_most = Some(FEED_ROOM - more);
        Taken::Some
    }

    /// 400 where the feed that was made last would be too large with the rules.
    pub async fn require(&self, records: &Table, project: ProjectId, id: u64) -> ApiResult<()> {
        let packed = |rules: &Option<String>| rules.as_ref().map_or(0, |rules| gzip(rules.as_bytes()).len());
        let more = packed(&self.after).saturating_sub(packed(&self.before));
        let Some(head) = records.get(&keys::feed_head(project)).await?.filter(|_| more > 0) else {
            return Ok(());
        };
        let head: FeedHead = head.body()?;
        let times = Uses::of(records, project, id).await?.named_by;
        let is_full =
            |form: &FeedForm, more: usize| form.place.is_none() || form.packed + more > FEED_BYTES_MAX;
        if times == 0 || !is_full(&head.sent, more) && !is_full(&head.flattened, more.saturating_mul(times)) {
            return Ok(());
        }
        let detail = format!(
            "With these rules the definitions of this project's flags would be larger than an answer can be: at most \
             {FEED_BYTES_MAX} bytes compressed. {times} flags name this cohort."
        );
        Err(ApiError::invalid("invalid_input", detail, Some("filters")))
    }
}
