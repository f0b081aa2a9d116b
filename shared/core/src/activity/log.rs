//! Answers of the activity endpoints: the log of a scope, and the log of one item.
//!
//! Must stay true: what is read before the key is known to open the project is bounded, and shown only if it does; a
//! page is read in as many steps wherever it lies in the log, but for entries of its own day that are passed over.

use axum::response::Response;
use futures::future::try_join_all;

use super::page::Wanted;
use super::places::{Day, Stretch, stretches};
use super::{LIMIT_DEFAULT, READ};
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::http::Call;
use crate::store::keys::{self, ProjectId};
use crate::store::{ByteLimitedRead, End, Item, Key, Query, Span, StoreError, Table};

/// Entries, and bytes of them, that are read before the key is known to open the project.
const EARLY_ENTRIES_MAX: usize = 10 * LIMIT_DEFAULT;
const EARLY_BYTES_MAX: usize = 1_000_000;
/// Pointers of an item's log that are read at once; a log that has no more is counted by them.
const POINTERS_AT_ONCE: usize = 1000;
/// Most bytes of entries that are read for one answer, but for the last of them: more would hardly go through a gateway,
/// packed or not.
const READ_BYTES_MAX: usize = 16_000_000;
/// Entries that are read by their keys at first; each further step reads three times as many.
const ENTRIES_AT_FIRST: usize = 100;

/// The log of all items of `scope`, those that are gone included.
pub async fn scope_log(app: &App, call: &Call, scope: &str) -> ApiResult<Response> {
    let wanted = Wanted::of(call);
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let log = |project| ScopeLog { records: &app.store.records, project, scope };
    let early = async {
        match (named, &wanted) {
            (Some(project), Ok(wanted)) => Some(log(project).early(call, wanted).await),
            _ => None,
        }
    };
    let (access, early) = tokio::join!(app.project(call, READ, |_| []), early);
    let (access, []) = access?;
    let wanted = wanted?;
    let log = log(access.project.id);
    let (days, newest) = match early {
        Some(early) if named == Some(access.project.id) => early?,
        _ => (log.days().await?, None),
    };
    let total = days.iter().map(|day| day.count).sum();
    let stretches = stretches(&days, wanted.skip()..wanted.skip().saturating_add(wanted.limit));
    let entries = log.entries(&stretches, newest).await?;
    wanted.answer(call, total, &entries)
}

/// Entries of the newest month, read before it is known how many are wanted of it.
struct Newest {
    month: String,
    entries: Vec<Item>,
}

struct ScopeLog<'a> {
    records: &'a Table,
    project: ProjectId,
    scope: &'a str,
}

impl ScopeLog<'_> {
    /// The days, and for the first page the newest entries of this month.
    async fn early(&self, call: &Call, wanted: &Wanted) -> Result<(Vec<Day>, Option<Newest>), StoreError> {
        let month = call.now.format("%Y-%m").to_string();
        let newest = async {
            if wanted.skip() > 0 || wanted.limit > EARLY_ENTRIES_MAX {
                return Ok(None);
            }
            let query = self.month(&month).limit(wanted.limit).bytes(EARLY_BYTES_MAX);
            let entries = self.records.query(query).await?;
            Ok(Some(Newest { month: month.clone(), entries }))
        };
        tokio::try_join!(self.days(), newest)
    }

    /// The days that have entries, newest first.
    async fn days(&self) -> Result<Vec<Day>, StoreError> {
        let query = Query::partition(keys::activity_days_pk(self.project, self.scope)).descending();
        let days = self.records.query(query).await?.into_iter();
        let day = |item: Item| Day { count: usize::try_from(item.count).unwrap_or(0), day: item.key.sk };
        Ok(days.map(day).collect())
    }

    fn month(&self, month: &str) -> Query {
        Query::partition(keys::activity_month_pk(self.project, self.scope, month)).descending()
    }

    /// The entries of `stretches`, one after the other, or the first of them where they are too many bytes.
    async fn entries(
        &self,
        stretches: &[Stretch],
        newest: Option<Newest>,
    ) -> Result<ByteLimitedRead, StoreError> {
        let known = |stretch: &Stretch| {
            let newest = newest.as_ref()?;
            let is_it = stretch.is_newest && stretch.month == newest.month;
            newest.entries.get(..stretch.take).filter(|_| is_it).map(<[Item]>::to_vec)
        };
        let found = stretches.iter().map(|stretch| async {
            match known(stretch) {
                Some(entries) => Ok(Found::Entries(entries)),
                None => self.find(stretch, READ_BYTES_MAX / stretches.len()).await,
            }
        });
        let found = try_join_all(found).await?;
        let wanted = found.iter().flat_map(Found::keys).cloned().collect::<Vec<Key>>();
        let read = entries_at(self.records, &wanted).await?;
        let mut rest = read.items.into_iter();
        let mut entries = Vec::new();
        for part in found {
            match part {
                Found::Entries(found) => entries.extend(found),
                Found::Keys(keys) => {
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

    /// The newest entries of a month are read where they lie; of others the keys are found first, so that those that
    /// are passed over are not carried here, nor those beyond `most` bytes.
    async fn find(&self, stretch: &Stretch, most: usize) -> Result<Found, StoreError> {
        if stretch.is_newest {
            let query = self.month(&stretch.month).limit(stretch.take).bytes(most);
            let entries = self.records.query(query).await?;
            if entries.len() >= stretch.take {
                return Ok(Found::Entries(entries));
            }
        }
        let first = stretch.from.as_ref().unwrap_or(&stretch.month);
        let span = Span::partition(keys::activity_month_pk(self.project, self.scope, &stretch.month))
            .between(first, format!("{}~", stretch.to));
        let mut keys = self.records.keys(&span, stretch.end, stretch.skip, stretch.take).await?;
        if stretch.end == End::First {
            keys.reverse();
        }
        Ok(Found::Keys(keys))
    }
}

enum Found {
    Entries(Vec<Item>),
    Keys(Vec<Key>),
}

impl Found {
    fn keys(&self) -> &[Key] {
        match self {
            Found::Entries(_) => &[],
            Found::Keys(keys) => keys,
        }
    }
}

/// The log of the item that the path names as `id`, whose record lies at `record`; 404 without a body where there is no
/// record or `is_there` does not count it.
pub async fn item_log(
    app: &App,
    call: &Call,
    scope: &str,
    record: impl Fn(ProjectId, u64) -> Key,
    is_there: impl Fn(&Item) -> ApiResult<bool>,
) -> ApiResult<Response> {
    let id = call.id("id");
    let records = &app.store.records;
    let pointers = |project, id| {
        let span = Span::partition(keys::activity_of_item_pk(project, scope, id));
        async move {
            let first = records.keys(&span, End::Last, 0, POINTERS_AT_ONCE + 1).await;
            first.map(|first| Pointers { span, first })
        }
    };
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let early = async {
        match named.zip(id) {
            Some((project, id)) => Some(pointers(project, id).await),
            None => None,
        }
    };
    let wanted = |project| id.map(|id| record(project, id)).into_iter().collect();
    let (access, early) = tokio::join!(app.project_with(call, READ, wanted), early);
    let (access, found) = access?;
    let (Some(id), Some(item)) = (id, found.into_iter().flatten().next()) else {
        return Err(ApiError::not_found().without_body());
    };
    if !is_there(&item)? {
        return Err(ApiError::not_found().without_body());
    }
    let wanted = Wanted::of(call)?;
    let project = access.project.id;
    let pointers = match early {
        Some(early) if named == Some(project) => early?,
        _ => pointers(project, id).await?,
    };
    let (total, page) = pointers.page(records, &wanted).await?;
    let entry = |pointer: Key| Key::new(keys::activity_month_pk(project, scope, &pointer.sk), pointer.sk);
    let keys = page.into_iter().map(entry).collect::<Vec<Key>>();
    let entries = entries_at(records, &keys).await?;
    wanted.answer(call, total, &entries)
}

/// The pointers of an item's log.
struct Pointers {
    span: Span,
    /// The newest of them; all, unless there are more than [`POINTERS_AT_ONCE`].
    first: Vec<Key>,
}

impl Pointers {
    /// How many there are, and those of a page.
    async fn page(self, records: &Table, wanted: &Wanted) -> Result<(usize, Vec<Key>), StoreError> {
        let (skip, limit) = (wanted.skip(), wanted.limit);
        let known = self.first.len();
        let total = if known > POINTERS_AT_ONCE { records.count(&self.span).await? } else { known };
        let take = limit.min(total.saturating_sub(skip));
        let page = if take == 0 {
            Vec::new()
        } else if skip + take <= known {
            self.first.into_iter().skip(skip).take(take).collect()
        } else if skip <= total / 2 {
            records.keys(&self.span, End::Last, skip, take).await?
        } else {
            let mut page = records.keys(&self.span, End::First, total - skip - take, take).await?;
            page.reverse();
            page
        };
        Ok((total, page))
    }
}

/// The entries at `keys`, in their order, or the first of them where they are too many bytes for one answer.
async fn entries_at(records: &Table, keys: &[Key]) -> Result<ByteLimitedRead, StoreError> {
    let mut entries = Vec::with_capacity(keys.len());
    let (mut left, mut rest, mut step) = (READ_BYTES_MAX, keys, ENTRIES_AT_FIRST);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(step.min(rest.len()));
        let read = records.batch_get_within_bytes(now, left).await?;
        let bytes: usize = read.items.iter().map(|entry| entry.text.len()).sum();
        entries.extend(read.items);
        if !read.is_complete || bytes > left {
            return Ok(ByteLimitedRead { items: entries, is_complete: read.is_complete && later.is_empty() });
        }
        (left, rest, step) = (left - bytes, later, step * 3);
    }
    Ok(ByteLimitedRead { items: entries, is_complete: true })
}
