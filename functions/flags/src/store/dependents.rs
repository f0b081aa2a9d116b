//! Which live flags depend on others: what is asked before a flag is switched off or deleted.
//!
//! Must stay true: the rows are proven like the summary rows, by the sum beside the project's version, so they are read
//! beside it; a write whose judgement rests on them demands that the sum is still the same.

use futures::future::try_join;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Page, Query, StoreError, Table};
use pennon_engine::flag::FlagRow;

use super::Version;
use super::rows::read;

/// How often the rows are read together with the version before the caller is told to come back.
const TRIES: u32 = 8;

/// The live flags of a project that depend on others.
#[derive(Debug)]
pub struct Dependents {
    /// Their rows.
    pub rows: Vec<FlagRow>,
    /// What their stamps add up to, and the project's version said so.
    pub sum: i64,
}

/// The start of the rows, read before it is known whether the key opens the project: at most 1 MB.
pub async fn first_dependents(records: &Table, project: ProjectId) -> Result<Page, StoreError> {
    records.page(&partition(project), None).await
}

/// All of the rows. `version` was read a moment ago, and `first` beside it.
pub async fn dependents(
    records: &Table,
    project: ProjectId,
    version: Version,
    first: Option<Page>,
) -> Result<Dependents, StoreError> {
    let mut sum = version.sums.edges;
    let mut items = match first {
        Some(page) => rest(records, project, page).await?,
        None => records.query(partition(project)).await?,
    };
    for _ in 0..TRIES {
        let rows = items.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if rows.iter().map(FlagRow::stamp).sum::<i64>() == sum {
            return Ok(Dependents { rows, sum });
        }
        // Something was written between the version and the rows.
        let row = keys::project_version(project);
        let (item, again) = try_join(records.get(&row), records.query(partition(project))).await?;
        (sum, items) = (Version::of(item.as_ref()).sums.edges, again);
    }
    Err(StoreError::Conflict)
}

async fn rest(records: &Table, project: ProjectId, page: Page) -> Result<Vec<Item>, StoreError> {
    let Page { mut items, mut next } = page;
    while next.is_some() {
        let page = records.page(&partition(project), next).await?;
        items.extend(page.items);
        next = page.next;
    }
    Ok(items)
}

fn partition(project: ProjectId) -> Query {
    Query::partition(keys::dependents_pk(project))
}
