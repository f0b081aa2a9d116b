//! Items by their place in a partition: the how-manieth they are, without their bodies.
//!
//! Must stay true: what is passed over is not kept, so that a place far inside costs time but no memory.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, Select};

use super::item::{PK, SK};
use super::{Key, StoreError, Table};

/// The items of a partition between two sort keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pk: String,
    between: Option<(String, String)>,
}

impl Span {
    /// All items of partition `pk`.
    pub fn partition(pk: impl Into<String>) -> Span {
        Span { pk: pk.into(), between: None }
    }

    /// Only those whose sort key is `first`, `last` or lies between them.
    #[must_use]
    pub fn between(mut self, first: impl Into<String>, last: impl Into<String>) -> Span {
        self.between = Some((first.into(), last.into()));
        self
    }
}

/// From which end places count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// From the smallest sort key.
    First,
    /// From the largest.
    Last,
}

impl Table {
    /// The keys of at most `limit` items of `span`, after passing over `skip`, in their order from `end`.
    pub async fn keys(
        &self,
        span: &Span,
        end: End,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<Key>, StoreError> {
        let mut keys = Vec::new();
        let (mut seen, wanted) = (0, skip.saturating_add(limit));
        let mut start = None;
        while seen < wanted {
            let page = self
                .places(span)
                .scan_index_forward(end == End::First)
                .projection_expression("#p, #s")
                .expression_attribute_names("#s", SK)
                .set_exclusive_start_key(start)
                .limit(i32::try_from(wanted - seen).unwrap_or(i32::MAX))
                .send()
                .await?;
            for mut found in page.items.unwrap_or_default() {
                if seen >= skip {
                    keys.push(key(&mut found)?);
                }
                seen += 1;
            }
            start = page.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                break;
            }
        }
        Ok(keys)
    }

    /// How many items `span` has.
    pub async fn count(&self, span: &Span) -> Result<usize, StoreError> {
        let (mut count, mut start) = (0, None);
        loop {
            let call = self.places(span).select(Select::Count).set_exclusive_start_key(start);
            let page = call.send().await?;
            count += usize::try_from(page.count).unwrap_or(0);
            start = page.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                return Ok(count);
            }
        }
    }

    fn places(&self, span: &Span) -> QueryFluentBuilder {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let call = self
            .client
            .query()
            .table_name(&*self.name)
            .consistent_read(true)
            .expression_attribute_names("#p", PK)
            .expression_attribute_values(":p", text(&span.pk));
        match &span.between {
            None => call.key_condition_expression("#p = :p"),
            Some((first, last)) => call
                .key_condition_expression("#p = :p AND #s BETWEEN :first AND :last")
                .expression_attribute_names("#s", SK)
                .expression_attribute_values(":first", text(first))
                .expression_attribute_values(":last", text(last)),
        }
    }
}

fn key(found: &mut super::item::Attributes) -> Result<Key, StoreError> {
    let mut take = |name| match found.remove(name) {
        Some(AttributeValue::S(text)) => Ok(text),
        _ => Err(StoreError::Corrupt(format!("an item without {name}"))),
    };
    Ok(Key { pk: take(PK)?, sk: take(SK)? })
}
