//! Whether a feed has room for a change, where what is counted beside the version does not say so.
//!
//! Must stay true: a change that makes no flag longer is never refused, so that a project which is too large can be made
//! smaller.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::FEED_ROOM;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{StoreError, Write};

use super::answer::would_be_too_large;
use super::build::with_change;
use crate::Flags;
use crate::store::{Room, Rows, Stored, Version, added, proven};

/// What `changed` takes of the room in the place of `before`: `estimated` where that fits, else what the feed with it
/// is measured to take; 400 where that is too much. One round trip, or those of making a feed.
pub async fn measured(
    flags: &Flags,
    project: ProjectId,
    group_types: &[String],
    before: Option<&Stored>,
    changed: &Stored,
    estimated: Room,
) -> ApiResult<Room> {
    let row = flags.app.store.records.get(&keys::project_version(project)).await?;
    let version = Version::of(row.as_ref());
    let length = length(changed)?;
    let old = before.map(|before| &before.flag);
    if let Room::Estimated { beside } = estimated
        && version.sums.used + added(old, &changed.flag, length, beside) <= FEED_ROOM
    {
        return Ok(estimated);
    }
    let rows = proven(flags, project, version).await?;
    let types = group_types.to_vec();
    let used = with_change(flags, project, &rows, changed.clone(), length, types).await?.used;
    let grows = match before.filter(|before| !before.flag.deleted) {
        Some(before) => length > self::length(before)?,
        None => true,
    };
    if used > FEED_ROOM && grows {
        return Err(would_be_too_large());
    }
    Ok(Room::Measured { number: rows.version.number, used })
}

fn length(stored: &Stored) -> ApiResult<usize> {
    Ok(serde_json::to_string(&stored.flag).map_err(|error| ApiError::internal(&error))?.len())
}

/// Sets what the version of `rows` says is used to what the feed made from them takes, where the difference matters: when it
/// takes more and half of the room, or so much less that writes would soon be measured for nothing.
pub async fn correct(flags: &Flags, project: ProjectId, rows: &Rows, used: i64) -> Result<(), StoreError> {
    let said = rows.version.sums.used;
    let is_too_much = said > FEED_ROOM / 2 && used < said - FEED_ROOM / 4;
    let is_too_little = used > FEED_ROOM / 2 && said < used;
    if !rows.proven || !(is_too_much || is_too_little) {
        return Ok(());
    }
    let set = Write::SetFeedBytes(keys::project_version(project), rows.version.number, used);
    match flags.app.store.records.transact(vec![set]).await {
        // Another write came meanwhile; the next feed corrects it.
        Err(StoreError::Condition { .. }) => Ok(()),
        other => other,
    }
}
