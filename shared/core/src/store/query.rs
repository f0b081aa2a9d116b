//! Queries the items of a partition in order, completely or by page.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use futures::future::BoxFuture;

use super::byte_limited_read::take_within_bytes;
use super::item::{Attributes, Item, Key, PK, SK};
use super::local_backend::{BackendFuture, PartitionPage, PartitionRange};
use super::{StoreError, Table};

/// A query of one partition, in order of the sort keys.
#[derive(Debug, Clone)]
pub struct PartitionQuery {
    pk: String,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
    bytes: Option<usize>,
    descending: bool,
}

impl PartitionQuery {
    /// All items of partition `pk`.
    pub fn partition(pk: impl Into<String>) -> PartitionQuery {
        PartitionQuery {
            pk: pk.into(),
            prefix: None,
            after: None,
            limit: None,
            bytes: None,
            descending: false,
        }
    }

    /// Only sort keys that start with `prefix`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> PartitionQuery {
        self.prefix = Some(prefix.into());
        self
    }

    /// Only items after the sort key `sk`, in the order of the query. `sk` must start with the prefix.
    #[must_use]
    pub fn after(mut self, sk: impl Into<String>) -> PartitionQuery {
        self.after = Some(sk.into());
        self
    }

    /// At most `limit` items.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> PartitionQuery {
        self.limit = Some(limit);
        self
    }

    /// Stops with the item whose body makes the total exceed this number of bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> PartitionQuery {
        self.bytes = Some(bytes);
        self
    }

    /// Largest sort key first.
    #[must_use]
    pub fn descending(mut self) -> PartitionQuery {
        self.descending = true;
        self
    }
}

/// A page of a query.
#[derive(Debug)]
pub struct QueryPage {
    /// Its items.
    pub items: Vec<Item>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<PageStart>,
}

/// A cursor: the start of a page.
#[derive(Debug, Clone)]
pub struct PageStart(Attributes);

impl Table {
    /// Fetches all items of `query`.
    pub async fn query(&self, query: PartitionQuery) -> Result<Vec<Item>, StoreError> {
        let mut items = Vec::new();
        let mut bytes = 0;
        let mut start = None;
        loop {
            let items_left = query.limit.map(|limit| limit - items.len());
            let bytes_left = query.bytes.map(|bytes_max| bytes_max.saturating_sub(bytes));
            let page = self.query_page(&query, items_left, bytes_left, start).await?;
            bytes += page.items.iter().map(|item| item.text.len() + item.bytes.len()).sum::<usize>();
            items.extend(page.items);
            start = page.next;
            let is_enough = query.limit.is_some_and(|limit| items.len() >= limit)
                || query.bytes.is_some_and(|bytes_max| bytes > bytes_max);
            if start.is_none() || is_enough {
                return Ok(items);
            }
        }
    }

    /// Fetches one page of `query`, at most 1 MB.
    pub async fn page(
        &self,
        query: &PartitionQuery,
        start: Option<PageStart>,
    ) -> Result<QueryPage, StoreError> {
        self.query_page(query, query.limit, None, start).await
    }

    fn query_page<'a>(
        &'a self,
        query: &'a PartitionQuery,
        limit: Option<usize>,
        bytes_max: Option<usize>,
        start: Option<PageStart>,
    ) -> BoxFuture<'a, Result<QueryPage, StoreError>> {
        Box::pin(async move {
            let start = start.or_else(|| {
                let after = Key::new(query.pk.clone(), query.after.clone()?);
                Some(PageStart(after.attributes()))
            });
            let local_page = match self.local_page(query, limit, start.as_ref()) {
                Some(pending) => pending.await.transpose()?,
                None => None,
            };
            let (items, next) = match local_page {
                Some(page) => {
                    let last = page.items.last().filter(|_| page.more).map(Item::key_of).transpose()?;
                    (page.items, last.as_ref().map(Key::attributes))
                }
                None => {
                    let output = self.sdk_query(query, limit, start).send().await?;
                    (output.items.unwrap_or_default(), output.last_evaluated_key)
                }
            };
            let first = take_within_bytes(items, bytes_max.unwrap_or(usize::MAX))?;
            let next = next.filter(|key| first.is_complete && !key.is_empty());
            Ok(QueryPage { items: self.load_parts(first.items).await?, next: next.map(PageStart) })
        })
    }

    fn sdk_query(
        &self,
        query: &PartitionQuery,
        limit: Option<usize>,
        start: Option<PageStart>,
    ) -> QueryFluentBuilder {
        let mut call = self
            .client
            .query()
            .table_name(&*self.name)
            .consistent_read(true)
            .scan_index_forward(!query.descending)
            .expression_attribute_names("#p", PK)
            .expression_attribute_values(":p", string(&query.pk))
            .set_exclusive_start_key(start.map(|start| start.0));
        call = match &query.prefix {
            None => call.key_condition_expression("#p = :p"),
            Some(prefix) => call
                .key_condition_expression("#p = :p AND begins_with(#s, :s)")
                .expression_attribute_names("#s", SK)
                .expression_attribute_values(":s", string(prefix)),
        };
        call.set_limit(limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX)))
    }

    /// The page from the local backend, if there is one.
    fn local_page(
        &self,
        query: &PartitionQuery,
        limit: Option<usize>,
        start: Option<&PageStart>,
    ) -> Option<BackendFuture<'_, Result<PartitionPage, StoreError>>> {
        let local = self.local_backend.as_ref()?;
        let after = start.map(|start| Item::key_of(&start.0)).transpose().ok()?;
        let range = PartitionRange {
            pk: query.pk.clone(),
            prefix: query.prefix.clone(),
            after: after.map(|key| key.sk),
            limit,
            descending: query.descending,
        };
        Some(local.page(&self.name, range))
    }
}

fn string(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}
