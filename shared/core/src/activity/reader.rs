//! Reads the activity log of a scope, and of one item, for the activity endpoints.
//!
//! Must stay true: reads before the caller is authorized are bounded, and returned only after authorization succeeds; reading
//! a page takes the same number of steps wherever it is in the log, except for skipping entries of its own day.

use axum::response::Response;
use futures::future::try_join_all;

use super::page_ranges::{Day, MonthRange, month_ranges};
use super::page_request::PageRequest;
use super::{LIMIT_DEFAULT, READ};
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::http::Call;
use crate::store::keys::{self, ProjectId};
use crate::store::{ByteLimitedRead, Item, Key, KeyRange, PartitionQuery, RangeEnd, StoreError, Table};

/// Maximum entries, and bytes of entries, that are prefetched before the caller is authorized.
const PREFETCH_ENTRIES_MAX: usize = 10 * LIMIT_DEFAULT;
const PREFETCH_BYTES_MAX: usize = 1_000_000;
/// Number of an item's pointers that are read at once; the length of a shorter log is known from them.
const POINTERS_PER_READ: usize = 1000;
/// Maximum bytes of entries that are read for one response, without the last one: more would exceed the gateway's limit even
/// when compressed.
const READ_BYTES_MAX: usize = 16_000_000;
/// Number of entries in the first batch of reads by key; each further batch is three times as large.
const FIRST_BATCH_ENTRIES: usize = 100;

/// The log of all items of `scope`, including deleted ones.
pub async fn list_scope_entries(app: &App, call: &Call, scope: &str) -> ApiResult<Response> {
    let page = PageRequest::parse(call);
    let path_project = call.id("project_id").filter(|_| call.credential().is_some());
    let log = |project| ScopeLog { records: &app.store.records, project, scope };
    let prefetch = async {
        match (path_project, &page) {
            (Some(project), Ok(page)) => Some(log(project).prefetch(call, page).await),
            _ => None,
        }
    };
    let (access, prefetched) = tokio::join!(app.project(call, READ, |_| []), prefetch);
    let (access, []) = access?;
    let page = page?;
    let log = log(access.project.id);
    let (days, newest) = match prefetched {
        Some(prefetched) if path_project == Some(access.project.id) => prefetched?,
        _ => (log.days().await?, None),
    };
    let total = days.iter().map(|day| day.count).sum();
    let ranges = month_ranges(&days, page.skip()..page.skip().saturating_add(page.limit));
    let entries = log.entries(&ranges, newest).await?;
    page.response(call, total, &entries)
}

/// Prefetched entries of the newest month.
struct NewestMonth {
    month: String,
    entries: Vec<Item>,
}

struct ScopeLog<'a> {
    records: &'a Table,
    project: ProjectId,
    scope: &'a str,
}

impl ScopeLog<'_> {
    /// Fetches the days, and for the first page the newest entries of this month.
    async fn prefetch(
        &self,
        call: &Call,
        page: &PageRequest,
    ) -> Result<(Vec<Day>, Option<NewestMonth>), StoreError> {
        let month = call.now.format("%Y-%m").to_string();
        let newest = async {
            if page.skip() > 0 || page.limit > PREFETCH_ENTRIES_MAX {
                return Ok(None);
            }
            let query = self.month(&month).limit(page.limit).bytes(PREFETCH_BYTES_MAX);
            let entries = self.records.query(query).await?;
            Ok(Some(NewestMonth { month: month.clone(), entries }))
        };
        tokio::try_join!(self.days(), newest)
    }

    /// The days that have entries, newest first.
    async fn days(&self) -> Result<Vec<Day>, StoreError> {
        let query = PartitionQuery::partition(keys::activity_days_pk(self.project, self.scope)).descending();
        let days = self.records.query(query).await?.into_iter();
        let day = |item: Item| Day { count: usize::try_from(item.count).unwrap_or(0), day: item.key.sk };
        Ok(days.map(day).collect())
    }

    fn month(&self, month: &str) -> PartitionQuery {
        PartitionQuery::partition(keys::activity_month_pk(self.project, self.scope, month)).descending()
    }

    /// Fetches the entries of `ranges` in order, or the first of them if they exceed [`READ_BYTES_MAX`].
    async fn entries(
        &self,
        ranges: &[MonthRange],
        newest: Option<NewestMonth>,
    ) -> Result<ByteLimitedRead, StoreError> {
        let prefetched = |range: &MonthRange| {
            let newest = newest.as_ref()?;
            let is_same = range.is_newest && range.month == newest.month;
            newest.entries.get(..range.take).filter(|_| is_same).map(<[Item]>::to_vec)
        };
        let reads = ranges.iter().map(|range| async {
            match prefetched(range) {
                Some(entries) => Ok(RangeRead::Entries(entries)),
                None => self.read_range(range, READ_BYTES_MAX / ranges.len()).await,
            }
        });
        let range_reads = try_join_all(reads).await?;
        let keys = range_reads.iter().flat_map(RangeRead::keys).cloned().collect::<Vec<Key>>();
        let read = fetch_entries(self.records, &keys).await?;
        let mut rest = read.items.into_iter();
        let mut entries = Vec::new();
        for range_read in range_reads {
            match range_read {
                RangeRead::Entries(items) => entries.extend(items),
                RangeRead::Keys(keys) => {
                    let from = entries.len();
                    entries.extend(rest.by_ref().take(keys.len()));
                    if !read.is_complete && entries.len() < from + keys.len() {
                        break;
                    }
                }
            }
        }
        Ok(ByteLimitedRead { items: entries, is_complete: read.is_complete })
    }

    /// Reads the newest entries of a month directly; of other ranges only the keys, so that skipped entries are not transferred,
    /// nor those beyond `bytes_max`.
    async fn read_range(&self, range: &MonthRange, bytes_max: usize) -> Result<RangeRead, StoreError> {
        if range.is_newest {
            let query = self.month(&range.month).limit(range.take).bytes(bytes_max);
            let entries = self.records.query(query).await?;
            if entries.len() >= range.take {
                return Ok(RangeRead::Entries(entries));
            }
        }
        let first = range.from.as_ref().unwrap_or(&range.month);
        let key_range = KeyRange::partition(keys::activity_month_pk(self.project, self.scope, &range.month))
            .between(first, format!("{}~", range.to));
        let mut keys = self.records.keys(&key_range, range.end, range.skip, range.take).await?;
        if range.end == RangeEnd::First {
            keys.reverse();
        }
        Ok(RangeRead::Keys(keys))
    }
}

/// The entries of a range, or their keys.
enum RangeRead {
    Entries(Vec<Item>),
    Keys(Vec<Key>),
}

impl RangeRead {
    fn keys(&self) -> &[Key] {
        match self {
            RangeRead::Entries(_) => &[],
            RangeRead::Keys(keys) => keys,
        }
    }
}

/// The log of the item with the path parameter `id`, whose record has the key `record(project, id)`; 404 without a body if
/// there is no record or `exists` rejects it.
pub async fn list_item_entries(
    app: &App,
    call: &Call,
    scope: &str,
    record: impl Fn(ProjectId, u64) -> Key,
    exists: impl Fn(&Item) -> ApiResult<bool>,
) -> ApiResult<Response> {
    let id = call.id("id");
    let records = &app.store.records;
    let pointers = |project, id| {
        let range = KeyRange::partition(keys::activity_of_item_pk(project, scope, id));
        async move {
            let first = records.keys(&range, RangeEnd::Last, 0, POINTERS_PER_READ + 1).await;
            first.map(|first| Pointers { range, first })
        }
    };
    let path_project = call.id("project_id").filter(|_| call.credential().is_some());
    let prefetch = async {
        match path_project.zip(id) {
            Some((project, id)) => Some(pointers(project, id).await),
            None => None,
        }
    };
    let record_keys = |project| id.map(|id| record(project, id)).into_iter().collect();
    let (access, prefetched) = tokio::join!(app.authorize_project_with(call, READ, record_keys), prefetch);
    let (access, items) = access?;
    let (Some(id), Some(item)) = (id, items.into_iter().flatten().next()) else {
        return Err(ApiError::not_found().without_body());
    };
    if !exists(&item)? {
        return Err(ApiError::not_found().without_body());
    }
    let page_request = PageRequest::parse(call)?;
    let project = access.project.id;
    let pointers = match prefetched {
        Some(prefetched) if path_project == Some(project) => prefetched?,
        _ => pointers(project, id).await?,
    };
    let (total, page) = pointers.page(records, &page_request).await?;
    let entry_key = |pointer: Key| Key::new(keys::activity_month_pk(project, scope, &pointer.sk), pointer.sk);
    let keys = page.into_iter().map(entry_key).collect::<Vec<Key>>();
    let entries = fetch_entries(records, &keys).await?;
    page_request.response(call, total, &entries)
}

/// The pointers of an item's log.
struct Pointers {
    range: KeyRange,
    /// The newest pointers; all of them, unless there are more than [`POINTERS_PER_READ`].
    first: Vec<Key>,
}

impl Pointers {
    /// The length of the log, and the pointers of a page.
    async fn page(self, records: &Table, request: &PageRequest) -> Result<(usize, Vec<Key>), StoreError> {
        let (skip, limit) = (request.skip(), request.limit);
        let known = self.first.len();
        let total = if known > POINTERS_PER_READ { records.count(&self.range).await? } else { known };
        let take = limit.min(total.saturating_sub(skip));
        let page = if take == 0 {
            Vec::new()
        } else if skip + take <= known {
            self.first.into_iter().skip(skip).take(take).collect()
        } else if skip <= total / 2 {
            records.keys(&self.range, RangeEnd::Last, skip, take).await?
        } else {
            let mut page = records.keys(&self.range, RangeEnd::First, total - skip - take, take).await?;
            page.reverse();
            page
        };
        Ok((total, page))
    }
}

/// Fetches the entries at `keys` in their order, or the first of them if they exceed [`READ_BYTES_MAX`].
async fn fetch_entries(records: &Table, keys: &[Key]) -> Result<ByteLimitedRead, StoreError> {
    let mut entries = Vec::with_capacity(keys.len());
    let (mut bytes_left, mut rest, mut batch_size) = (READ_BYTES_MAX, keys, FIRST_BATCH_ENTRIES);
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(batch_size.min(rest.len()));
        let read = records.batch_get_within_bytes(batch, bytes_left).await?;
        let bytes: usize = read.items.iter().map(|entry| entry.text.len()).sum();
        entries.extend(read.items);
        if !read.is_complete || bytes > bytes_left {
            return Ok(ByteLimitedRead { items: entries, is_complete: read.is_complete && later.is_empty() });
        }
        (bytes_left, rest, batch_size) = (bytes_left - bytes, later, batch_size * 3);
    }
    Ok(ByteLimitedRead { items: entries, is_complete: true })
}
