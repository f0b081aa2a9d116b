//! Checks whether the feed stays within its size limit after a change, when the recorded upper bound is not conclusive.
//!
//! Must stay true: a change that does not make a flag longer is never refused, so that a project above the limit can be
//! reduced.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::{FEED_BYTES_LIMIT, Project};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{StoreError, Write};
use pennon_flag_rules::Flag;

use super::build::build_with_change;
use super::responses::would_be_too_large;
use crate::Flags;
use crate::store::{
    FeedGrowth, FlagRows, FlagWriteOutcome, ProjectVersion, StoredFlag, load_verified_rows, max_growth,
};

/// Decides before each attempt of a write whether the feed has to be measured.
#[derive(Debug, Default)]
pub struct FeedSizeCheck {
    /// Whether the last attempt may have been refused because the recorded size reaches the limit.
    must_measure: bool,
}

impl FeedSizeCheck {
    /// The growth of the feed when `record` replaces `before`: `estimated`, unless it may not fit.
    pub async fn growth(
        &self,
        flags: &Flags,
        project: &Project,
        before: Option<&StoredFlag>,
        record: &Flag,
        estimated: FeedGrowth,
    ) -> ApiResult<FeedGrowth> {
        if !self.must_measure && !estimated.exceeds_limit() {
            return Ok(estimated);
        }
        let version = before.map_or(0, |before| before.version) + 1;
        let changed = StoredFlag { flag: record.clone(), version };
        check_feed_size(flags, project, before, &changed, estimated).await
    }

    /// Notes the outcome of an attempt.
    pub fn note_outcome(&mut self, outcome: &FlagWriteOutcome) {
        self.must_measure = *outcome == FlagWriteOutcome::ProjectVersionConflict;
    }
}

/// The feed growth when `changed` replaces `before`: `estimated` if that fits, otherwise the measured size of a feed
/// built with the change; 400 when that is too large. One round trip, or those of building a feed.
async fn check_feed_size(
    flags: &Flags,
    project: &Project,
    before: Option<&StoredFlag>,
    changed: &StoredFlag,
    estimated: FeedGrowth,
) -> ApiResult<FeedGrowth> {
    let (project, group_types) = (project.id, project.group_types.clone());
    let row = flags.app.store.records.get(&keys::project_version(project)).await?;
    let version = ProjectVersion::from_item(row.as_ref());
    let length = record_bytes(changed)?;
    let old = before.map(|before| &before.flag);
    if let FeedGrowth::Estimated { beside } = estimated
        && version.sums.used + max_growth(old, &changed.flag, length, beside) <= FEED_BYTES_LIMIT
    {
        return Ok(estimated);
    }
    let rows = load_verified_rows(flags, project, version).await?;
    let built = build_with_change(flags, project, &rows, changed.clone(), length, group_types).await?;
    let used = built.used_bytes;
    let grows = match before.filter(|before| !before.flag.deleted) {
        Some(before) => length > record_bytes(before)?,
        None => true,
    };
    if used > FEED_BYTES_LIMIT && grows {
        return Err(would_be_too_large());
    }
    Ok(FeedGrowth::Measured { number: rows.version.number, used })
}

fn record_bytes(stored: &StoredFlag) -> ApiResult<usize> {
    Ok(serde_json::to_string(&stored.flag).map_err(|error| ApiError::internal(&error))?.len())
}

/// Corrects the feed size that is recorded in the version of `rows` to the measured size `used`, when the difference
/// matters: the measured size is larger and above half of the limit, or so much smaller that writes would soon be
/// measured needlessly.
pub async fn correct_recorded_size(
    flags: &Flags,
    project: ProjectId,
    rows: &FlagRows,
    used: i64,
) -> Result<(), StoreError> {
    let recorded = rows.version.sums.used;
    let is_too_high = recorded > FEED_BYTES_LIMIT / 2 && used < recorded - FEED_BYTES_LIMIT / 4;
    let is_too_low = used > FEED_BYTES_LIMIT / 2 && recorded < used;
    if !rows.is_verified || !(is_too_high || is_too_low) {
        return Ok(());
    }
    let write = Write::SetFeedBytes(keys::project_version(project), rows.version.number, used);
    match flags.app.store.records.transact(vec![write]).await {
        // A concurrent write happened; the next feed corrects the size.
        Err(StoreError::Condition { .. }) => Ok(()),
        other => other,
    }
}
