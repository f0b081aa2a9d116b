//! Lists: rows are filtered and ordered, and the records of one page are read.
//!
//! Must stay true: the order is total (ties go by number), so pages neither repeat nor skip; a list reads two pages of
//! rows and one batch of records at a time, however many records there are.

use std::cmp::Ordering;

use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, Query, StoreError, Table};

use super::{Resource, Row, key, whole};
use crate::Insights;
use crate::limits;

/// A page of a list.
#[derive(Debug)]
pub struct Found<R> {
    /// Who asks, and in which project.
    pub access: Access,
    /// The page.
    pub page: Page,
    /// How many there are in all.
    pub count: usize,
    /// Those of the page, in order.
    pub records: Vec<R>,
}

/// The page that a request asks for, of the records that `fits` lets through, in the order of `compare`.
pub async fn page_of<R: Resource>(
    state: &Insights,
    call: &Call,
    scope: &'static str,
    fits: impl FnOnce(&mut Vec<Row>) -> ApiResult<()>,
    compare: impl Fn(&Row, &Row) -> Ordering,
) -> ApiResult<Found<R>> {
    let (access, mut rows) = access_and_rows::<R>(state, call, scope).await?;
    if let Some(search) = search(call)? {
        rows.retain(|row| row.mentions(&search));
    }
    fits(&mut rows)?;
    rows.sort_by(|left, right| compare(left, right).then(left.id.cmp(&right.id)));
    let page = Page::of(call);
    let wanted: Vec<Key> = page.slice(&rows).iter().map(|row| key::<R>(access.project.id, row.id)).collect();
    let items = state.app.store.records.batch_get(&wanted).await?;
    let records = items.iter().flatten().map(Item::body).collect::<Result<Vec<R>, StoreError>>()?;
    Ok(Found { access, page, count: rows.len(), records })
}

/// The text that a list is searched for, in lower case.
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
/// Where the path names the project by its number, the rows are read beside the key and not after it; nothing of them
/// is shown unless the key opens the project.
async fn access_and_rows<R: Resource>(
    state: &Insights,
    call: &Call,
    scope: &'static str,
) -> ApiResult<(Access, Vec<Row>)> {
    let records = &state.app.store.records;
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let early = async {
        match named {
            Some(project) => Some(stored::<R>(records, project).await),
            None => None,
        }
    };
    let (access, early) = tokio::join!(state.app.project(call, scope, |_| []), early);
    let (access, []) = access?;
    let project = access.project.id;
    let found = match early {
        Some(early) if named == Some(project) => early?,
        _ => stored::<R>(records, project).await?,
    };
    let rows = match found {
        Some(rows) => rows,
        None => {
            whole::complete::<R>(records, project).await?;
            stored::<R>(records, project).await?.unwrap_or_default()
        }
    };
    Ok((access, rows))
}

/// The rows of the kind; none where not every record has one yet.
async fn stored<R: Resource>(records: &Table, project: ProjectId) -> Result<Option<Vec<Row>>, StoreError> {
    let mut items = records.query(Query::partition(keys::records_pk(project, R::ROWS))).await?;
    let mark = keys::rows_are_whole(project, R::ROWS);
    match items.pop() {
        Some(last) if last.key == mark => items.iter().map(Item::body).collect::<Result<_, _>>().map(Some),
        _ => Ok(None),
    }
}

/// All rows of the kind, complete.
pub async fn rows<R: Resource>(records: &Table, project: ProjectId) -> ApiResult<Vec<Row>> {
    if let Some(rows) = stored::<R>(records, project).await? {
        return Ok(rows);
    }
    whole::complete::<R>(records, project).await?;
    Ok(stored::<R>(records, project).await?.unwrap_or_default())
}
