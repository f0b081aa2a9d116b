//! Lists: filter and sort the summary rows, then fetch the records of one page.
//!
//! Must stay true: the order is total (ties are broken by id), so pages neither repeat nor skip; a list reads two pages of rows
//! and one batch of records at a time, however many records there are.

use std::cmp::Ordering;

use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, PartitionQuery, StoreError, Table};

use super::{ListedResource, SummaryRow, key, row_backfill};
use crate::Insights;
use crate::limits;

/// A page of a list.
#[derive(Debug)]
pub struct ListPage<R> {
    /// The caller and the project.
    pub access: Access,
    /// Offset and limit.
    pub page: Page,
    /// The number of records on all pages.
    pub count: usize,
    /// The records of the page, in order.
    pub records: Vec<R>,
}

/// The requested page of the rows that `filter` keeps, in the order of `compare`.
pub async fn fetch_page<R: ListedResource>(
    state: &Insights,
    call: &Call,
    scope: &'static str,
    filter: impl FnOnce(&mut Vec<SummaryRow>) -> ApiResult<()>,
    compare: impl Fn(&SummaryRow, &SummaryRow) -> Ordering,
) -> ApiResult<ListPage<R>> {
    let (access, mut rows) = access_and_rows::<R>(state, call, scope).await?;
    if let Some(search) = search(call)? {
        rows.retain(|row| row.matches_search(&search));
    }
    filter(&mut rows)?;
    rows.sort_by(|left, right| compare(left, right).then(left.id.cmp(&right.id)));
    let page = Page::of(call);
    let record_keys: Vec<Key> =
        page.slice(&rows).iter().map(|row| key::<R>(access.project.id, row.id)).collect();
    let items = state.app.store.records.batch_get(&record_keys).await?;
    let records = items.iter().flatten().map(Item::body).collect::<Result<Vec<R>, StoreError>>()?;
    Ok(ListPage { access, page, count: rows.len(), records })
}

/// The search text of a list, in lower case.
fn search(call: &Call) -> ApiResult<Option<String>> {
    let text = call.query_value("search").unwrap_or("").trim();
    if text.chars().count() > limits::SEARCH_CHARS {
        let detail = format!("Ensure this field has no more than {} characters.", limits::SEARCH_CHARS);
        return Err(ApiError::invalid("max_length", detail, Some("search")));
    }
    Ok((!text.is_empty()).then(|| text.to_lowercase()))
}

/// The project, and its rows.
///
/// Where the path has the id of the project, the rows are prefetched in parallel with the API key. They are only used if the
/// key has access to the project.
async fn access_and_rows<R: ListedResource>(
    state: &Insights,
    call: &Call,
    scope: &'static str,
) -> ApiResult<(Access, Vec<SummaryRow>)> {
    let records = &state.app.store.records;
    let path_id = call.id("project_id").filter(|_| call.credential().is_some());
    let prefetch = async {
        match path_id {
            Some(project) => Some(fetch_rows::<R>(records, project).await),
            None => None,
        }
    };
    let (access, prefetched) = tokio::join!(state.app.project(call, scope, |_| []), prefetch);
    let (access, []) = access?;
    let project = access.project.id;
    let stored = match prefetched {
        Some(rows) if path_id == Some(project) => rows?,
        _ => fetch_rows::<R>(records, project).await?,
    };
    Ok((access, complete::<R>(stored, records, project).await?))
}

/// The rows of one kind.
struct StoredRows {
    rows: Vec<SummaryRow>,
    /// Whether each record is known to have its row.
    are_complete: bool,
}

/// `stored`, or the rows after a backfill. The marker of the backfill may be missing then, if nothing can be written.
async fn complete<R: ListedResource>(
    stored: StoredRows,
    records: &Table,
    project: ProjectId,
) -> Result<Vec<SummaryRow>, StoreError> {
    if stored.are_complete {
        return Ok(stored.rows);
    }
    row_backfill::backfill_rows::<R>(records, project).await?;
    Ok(fetch_rows::<R>(records, project).await?.rows)
}

async fn fetch_rows<R: ListedResource>(
    records: &Table,
    project: ProjectId,
) -> Result<StoredRows, StoreError> {
    let mut items = records.query(PartitionQuery::partition(keys::records_pk(project, R::ROWS))).await?;
    let complete_marker = keys::summary_rows_complete_marker(project, R::ROWS);
    let are_complete = items.pop_if(|last| last.key == complete_marker).is_some();
    Ok(StoredRows { rows: items.iter().map(Item::body).collect::<Result<_, _>>()?, are_complete })
}

/// All rows of the kind. Backfills them if necessary.
pub async fn rows<R: ListedResource>(records: &Table, project: ProjectId) -> ApiResult<Vec<SummaryRow>> {
    let stored = fetch_rows::<R>(records, project).await?;
    Ok(complete::<R>(stored, records, project).await?)
}
