//! The live flags that depend on other flags. They are checked before a flag is disabled or deleted.
//!
//! Must stay true: like the summary rows, they are verified with the checksum in the project's version, so they may be
//! read in parallel with it; a write whose validation depends on them checks that the checksum is unchanged.

use futures::future::try_join;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, PartitionQuery, QueryPage, StoreError, Table};
use pennon_flag_rules::FlagRow;

use super::ProjectVersion;
use super::rows::decode_row;

/// How many times rows and version are read before the caller gets 503.
const MAX_ATTEMPTS: u32 = 8;

/// The live flags of a project that depend on others.
#[derive(Debug)]
pub struct DependentFlags {
    /// Their rows.
    pub rows: Vec<FlagRow>,
    /// The checksum of the rows, verified against the project's version.
    pub checksum: i64,
}

/// Prefetches the first page of the rows (at most 1 MB), before authorization is known.
pub async fn prefetch_dependents(records: &Table, project: ProjectId) -> Result<QueryPage, StoreError> {
    records.page(&dependents_query(project), None).await
}

/// Loads all rows. `version` was just read, and `prefetched` in parallel with it.
pub async fn load_dependents(
    records: &Table,
    project: ProjectId,
    version: ProjectVersion,
    prefetched: Option<QueryPage>,
) -> Result<DependentFlags, StoreError> {
    let mut checksum = version.sums.edges;
    let mut items = match prefetched {
        Some(page) => finish_prefetch(records, project, page).await?,
        None => records.query(dependents_query(project)).await?,
    };
    for _ in 0..MAX_ATTEMPTS {
        let rows = items.iter().map(decode_row).collect::<Result<Vec<_>, _>>()?;
        if rows.iter().map(FlagRow::checksum).sum::<i64>() == checksum {
            return Ok(DependentFlags { rows, checksum });
        }
        // A concurrent write happened between reading the version and the rows.
        let version_key = keys::project_version(project);
        let (item, reread) =
            try_join(records.get(&version_key), records.query(dependents_query(project))).await?;
        (checksum, items) = (ProjectVersion::from_item(item.as_ref()).sums.edges, reread);
    }
    Err(StoreError::Conflict)
}

async fn finish_prefetch(
    records: &Table,
    project: ProjectId,
    page: QueryPage,
) -> Result<Vec<Item>, StoreError> {
    let QueryPage { mut items, mut next } = page;
    while next.is_some() {
        let page = records.page(&dependents_query(project), next).await?;
        items.extend(page.items);
        next = page.next;
    }
    Ok(items)
}

fn dependents_query(project: ProjectId) -> PartitionQuery {
    PartitionQuery::partition(keys::dependents_pk(project))
}
