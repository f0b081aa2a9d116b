//! Reading the items of a partition in order, whole or page by page.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;

use super::byte_limited_read::take_within_bytes;
use super::item::{Attributes, Item, Key, PK, SK};
use super::local_backend::{BackendFuture, PartitionPage, PartitionRange};
use super::{StoreError, Table};

/// Which items of a partition a query yields, in order of their sort keys.
#[derive(Debug, Clone)]
pub struct Query {
    pk: String,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
    bytes: Option<usize>,
    descending: bool,
}

impl Query {
    /// All items of partition `pk`.
    pub fn partition(pk: impl Into<String>) -> Query {
        Query { pk: pk.into(), prefix: None, after: None, limit: None, bytes: None, descending: false }
    }

    /// Only those whose sort key starts with `prefix`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Query {
        self.prefix = Some(prefix.into());
        self
    }

    /// Only those that come after sort key `sk`, which starts with the prefix, in the order that is asked for.
    #[must_use]
    pub fn after(mut self, sk: impl Into<String>) -> Query {
        self.after = Some(sk.into());
        self
    }

    /// At most `limit` of them.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Query {
        self.limit = Some(limit);
        self
    }

    /// Stops with the body that takes those read beyond this many bytes together.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Query {
        self.bytes = Some(bytes);
        self
    }

    /// Largest sort key first.
    #[must_use]
    pub fn descending(mut self) -> Query {
        self.descending = true;
        self
    }
}

/// A part of what a query names.
#[derive(Debug)]
pub struct Page {
    /// Its items.
    pub items: Vec<Item>,
    /// Where the next page starts; none after the last one.
    pub next: Option<PageStart>,
}

/// Where a page starts.
#[derive(Debug, Clone)]
pub struct PageStart(Attributes);

impl Table {
    /// All items that `query` names.
    pub async fn query(&self, query: Query) -> Result<Vec<Item>, StoreError> {
        let mut items = Vec::new();
        let mut bytes = 0;
        let mut start = None;
        loop {
            let left = query.limit.map(|limit| limit - items.len());
            let most = query.bytes.map(|most| most.saturating_sub(bytes));
            let page = self.query_page(&query, left, most, start).await?;
            bytes += page.items.iter().map(|item| item.text.len() + item.bytes.len()).sum::<usize>();
            items.extend(page.items);
            start = page.next;
            let enough = query.limit.is_some_and(|limit| items.len() >= limit)
                || query.bytes.is_some_and(|most| bytes > most);
            if start.is_none() || enough {
                return Ok(items);
            }
        }
    }

    /// One page of what `query` names: at most 1 MB, and where the next page starts, if there is more.
    pub async fn page(&self, query: &Query, start: Option<PageStart>) -> Result<Page, StoreError> {
        self.query_page(query, query.limit, None, start).await
    }

    async fn query_page(
        &self,
        query: &Query,
        limit: Option<usize>,
        most: Option<usize>,
        start: Option<PageStart>,
    ) -> Result<Page, StoreError> {
        let start = start.or_else(|| {
            let after = Key::new(query.pk.clone(), query.after.clone()?);
            Some(PageStart(after.attributes()))
        });
        let local_page = match self.local_page(query, limit, start.as_ref()) {
            Some(pending) => pending.await,
            None => None,
        };
        let (items, next) = match local_page {
            Some(found) => {
                let last = found.items.last().filter(|_| found.more).map(Item::key_of).transpose()?;
                (found.items, last.as_ref().map(Key::attributes))
            }
            None => {
                let answer = self.called(query, limit, start).send().await?;
                (answer.items.unwrap_or_default(), answer.last_evaluated_key)
            }
        };
        let first = take_within_bytes(items, most.unwrap_or(usize::MAX))?;
        let next = next.filter(|key| first.is_complete && !key.is_empty());
        Ok(Page { items: self.completed(first.items).await?, next: next.map(PageStart) })
    }

    fn called(&self, query: &Query, limit: Option<usize>, start: Option<PageStart>) -> QueryFluentBuilder {
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

    /// The page as a database of this process has it, if there is one.
    fn local_page(
        &self,
        query: &Query,
        limit: Option<usize>,
        start: Option<&PageStart>,
    ) -> Option<BackendFuture<'_, PartitionPage>> {
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
