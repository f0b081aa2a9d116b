//! Keys of a partition by offset, without the items' bodies.
//!
//! Must stay true: skipped keys are not kept, so that a large offset costs time but no memory.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, Select};
use futures::future::BoxFuture;

use super::item::{PK, SK};
use super::{Key, StoreError, Table};

/// The keys of a partition, all or between two sort keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pk: String,
    between: Option<(String, String)>,
}

impl KeyRange {
    /// All items of partition `pk`.
    pub fn partition(pk: impl Into<String>) -> KeyRange {
        KeyRange { pk: pk.into(), between: None }
    }

    /// Only sort keys from `first` to `last`, both included.
    #[must_use]
    pub fn between(mut self, first: impl Into<String>, last: impl Into<String>) -> KeyRange {
        self.between = Some((first.into(), last.into()));
        self
    }
}

/// The end from which offsets count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeEnd {
    /// The smallest sort key.
    First,
    /// The largest sort key.
    Last,
}

impl Table {
    /// Reads the keys of at most `limit` items of `range`, after skipping `skip`, in order from `end`.
    pub fn keys<'a>(
        &'a self,
        range: &'a KeyRange,
        end: RangeEnd,
        skip: usize,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Key>, StoreError>> {
        Box::pin(async move {
            let mut keys = Vec::new();
            let (mut read, total) = (0, skip.saturating_add(limit));
            let mut start = None;
            while read < total {
                let page = self
                    .range_query(range)
                    .scan_index_forward(end == RangeEnd::First)
                    .projection_expression("#p, #s")
                    .expression_attribute_names("#s", SK)
                    .set_exclusive_start_key(start)
                    .limit(i32::try_from(total - read).unwrap_or(i32::MAX))
                    .send()
                    .await?;
                for mut item in page.items.unwrap_or_default() {
                    if read >= skip {
                        keys.push(take_key(&mut item)?);
                    }
                    read += 1;
                }
                start = page.last_evaluated_key.filter(|key| !key.is_empty());
                if start.is_none() {
                    break;
                }
            }
            Ok(keys)
        })
    }

    /// Counts the items of `range`.
    pub fn count<'a>(&'a self, range: &'a KeyRange) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(async move {
            let (mut count, mut start) = (0, None);
            loop {
                let call = self.range_query(range).select(Select::Count).set_exclusive_start_key(start);
                let page = call.send().await?;
                count += usize::try_from(page.count).unwrap_or(0);
                start = page.last_evaluated_key.filter(|key| !key.is_empty());
                if start.is_none() {
                    return Ok(count);
                }
            }
        })
    }

    fn range_query(&self, range: &KeyRange) -> QueryFluentBuilder {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let call = self
            .client
            .query()
            .table_name(&*self.name)
            .consistent_read(true)
            .expression_attribute_names("#p", PK)
            .expression_attribute_values(":p", text(&range.pk));
        match &range.between {
            None => call.key_condition_expression("#p = :p"),
            Some((first, last)) => call
                .key_condition_expression("#p = :p AND #s BETWEEN :first AND :last")
                .expression_attribute_names("#s", SK)
                .expression_attribute_values(":first", text(first))
                .expression_attribute_values(":last", text(last)),
        }
    }
}

fn take_key(item: &mut super::item::Attributes) -> Result<Key, StoreError> {
    let mut take = |name| match item.remove(name) {
        Some(AttributeValue::S(text)) => Ok(text),
        _ => Err(StoreError::Corrupt(format!("an item without {name}"))),
    };
    Ok(Key { pk: take(PK)?, sk: take(SK)? })
}
