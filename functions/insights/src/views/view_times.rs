//! When insights were last viewed: by each user, and by any user.
//!
//! Must stay true: a view raises two rows to its time, without a transaction, so that any number of users can view an insight
//! concurrently; a row only increases, so the later of two views wins in any order of arrival.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use futures::future::try_join_all;
use pennon_core::store::keys::{self, ProjectId, VIEW_SHARDS};
use pennon_core::store::{Item, Key, PartitionQuery, StoreError, Table};

/// The latest view of each insight by any user.
pub type ViewTimes = BTreeMap<u64, DateTime<Utc>>;

/// Records that a user views an insight.
pub async fn record(
    records: &Table,
    project: ProjectId,
    user: u64,
    insight: u64,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let at = now.timestamp_micros();
    let (own, any) = (keys::viewed(project, user, insight), keys::views(project, insight));
    futures::future::try_join(records.raise(&own, at), records.raise(&any, at)).await?;
    Ok(())
}

/// The latest views of these insights.
pub async fn fetch(records: &Table, project: ProjectId, insights: &[u64]) -> Result<ViewTimes, StoreError> {
    let keys: Vec<Key> = insights.iter().map(|insight| keys::views(project, *insight)).collect();
    Ok(records.batch_get(&keys).await?.iter().flatten().filter_map(view).collect())
}

/// The latest views of all insights.
pub async fn fetch_all(records: &Table, project: ProjectId) -> Result<ViewTimes, StoreError> {
    let shards = (0..VIEW_SHARDS)
        .map(|shard| records.query(PartitionQuery::partition(keys::views_pk(project, shard))));
    Ok(try_join_all(shards).await?.iter().flatten().filter_map(view).collect())
}

/// The insights that a user has viewed, the latest first.
pub async fn list_viewed_by(records: &Table, project: ProjectId, user: u64) -> Result<Vec<u64>, StoreError> {
    let rows = records.query(PartitionQuery::partition(keys::viewed_pk(project, user))).await?;
    let mut views: Vec<(u64, DateTime<Utc>)> = rows.iter().filter_map(view).collect();
    views.sort_unstable_by_key(|(insight, at)| Reverse((*at, *insight)));
    Ok(views.into_iter().map(|(insight, _)| insight).collect())
}

fn view(row: &Item) -> Option<(u64, DateTime<Utc>)> {
    Some((row.key.sk.parse().ok()?, DateTime::from_timestamp_micros(row.count)?))
}
