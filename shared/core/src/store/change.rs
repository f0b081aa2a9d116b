//! The changes of a transaction in a form that both the SDK (as expressions) and a local backend (directly) execute.
//!
//! Must stay true: the changes of a transaction have different keys, and their conditions are evaluated on the items as they
//! were before the transaction.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update};

use super::StoreError;
use super::item::{Attributes, COUNT, EDGES, Item, Key, LAST, PK, ROWS, USED, VERSION, number};
use super::item_parts::encode;
use super::table::{VersionBump, Write, WriteCondition};

/// One item of a transaction: an action, and conditions for the whole transaction.
#[derive(Debug, Clone)]
pub struct ItemChange {
    /// The item's key.
    pub key: Key,
    /// The action.
    pub action: ItemAction,
    /// Conditions that must hold for the item.
    pub when: Vec<ItemCondition>,
}

/// An action on an item.
#[derive(Debug, Clone)]
pub enum ItemAction {
    /// Replace it with these attributes, which include the key.
    Put(Attributes),
    /// Delete it.
    Delete,
    /// Only check the conditions.
    Check,
    /// Add to attributes, which start at 0, and set others. Creates the item if it does not exist.
    Count {
        /// Attributes and the numbers to add.
        add: Vec<(&'static str, i64)>,
        /// Attributes and their new values.
        set: Vec<(&'static str, i64)>,
    },
}

/// A condition on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemCondition {
    /// The item does not exist.
    Absent,
    /// The item exists.
    Present,
    /// The attribute equals the number.
    Is(&'static str, i64),
    /// The attribute equals the number or does not exist.
    IsOrUnset(&'static str, i64),
    /// The attribute is at most the number or does not exist.
    AtMostOrUnset(&'static str, i64),
}

impl WriteCondition {
    fn condition(self) -> Option<ItemCondition> {
        match self {
            WriteCondition::None => None,
            WriteCondition::Absent => Some(ItemCondition::Absent),
            WriteCondition::Present => Some(ItemCondition::Present),
            WriteCondition::Version(version) => {
                Some(ItemCondition::Is(VERSION, i64::try_from(version).unwrap_or(i64::MAX)))
            }
            WriteCondition::CountAtMost(most) => Some(ItemCondition::AtMostOrUnset(COUNT, most)),
        }
    }
}

/// Translates `writes` to changes. The parts of items come last, so that the index of a failed condition is that of its write.
pub(super) fn changes(writes: &[Write]) -> Result<Vec<ItemChange>, StoreError> {
    let (mut changes, mut parts) = (Vec::with_capacity(writes.len()), Vec::new());
    for write in writes {
        changes.push(change(write, &mut parts)?);
    }
    changes.extend(parts);
    Ok(changes)
}

fn change(write: &Write, parts: &mut Vec<ItemChange>) -> Result<ItemChange, StoreError> {
    let new_change = |key: &Key, action, guard: WriteCondition| ItemChange {
        key: key.clone(),
        action,
        when: guard.condition().into_iter().collect(),
    };
    Ok(match write {
        Write::Put(item, guard) => {
            let encoded = encode(item)?;
            for part in encoded.parts {
                parts.push(new_change(&Item::key_of(&part)?, ItemAction::Put(part), WriteCondition::None));
            }
            parts.extend(
                encoded.surplus.iter().map(|key| new_change(key, ItemAction::Delete, WriteCondition::None)),
            );
            new_change(&item.key, ItemAction::Put(encoded.head), *guard)
        }
        Write::Delete(key, guard) => new_change(key, ItemAction::Delete, *guard),
        Write::Check(key, WriteCondition::None) => {
            new_change(key, ItemAction::Check, WriteCondition::Present)
        }
        Write::Check(key, guard) => new_change(key, ItemAction::Check, *guard),
        Write::Add(key, by) => new_change(
            key,
            ItemAction::Count { add: vec![(COUNT, *by)], set: Vec::new() },
            WriteCondition::None,
        ),
        Write::BumpVersion(key, bump) => version_bump(key, *bump),
        Write::SetFeedBytes(key, at, used) => ItemChange {
            key: key.clone(),
            action: ItemAction::Count { add: Vec::new(), set: vec![(USED, *used)] },
            when: vec![ItemCondition::Is(COUNT, *at)],
        },
    })
}

fn version_bump(key: &Key, bump: VersionBump) -> ItemChange {
    let expected = [(ROWS, bump.when.rows), (EDGES, bump.when.edges), (COUNT, bump.when.number)];
    // Before the first write the row does not exist, and all its numbers count as 0.
    let condition = |(name, value): (&'static str, Option<i64>)| match value? {
        0 => Some(ItemCondition::IsOrUnset(name, 0)),
        value => Some(ItemCondition::Is(name, value)),
    };
    let mut add = vec![(COUNT, 1), (ROWS, bump.by.rows), (EDGES, bump.by.edges)];
    let mut set = vec![(LAST, bump.by.last)];
    match bump.used {
        Some(used) => set.push((USED, used)),
        None if bump.by.used != 0 => add.push((USED, bump.by.used)),
        None => {}
    }
    let max_feed_bytes = bump.when.used_at_most.map(|most| ItemCondition::AtMostOrUnset(USED, most));
    let when = expected.into_iter().filter_map(condition).chain(max_feed_bytes).collect();
    ItemChange { key: key.clone(), action: ItemAction::Count { add, set }, when }
}

/// The attribute names and values of an expression.
#[derive(Default)]
struct ExpressionAttributes {
    names: Vec<(String, String)>,
    values: Vec<(String, AttributeValue)>,
}

impl ExpressionAttributes {
    fn name(&mut self, name: &str) -> String {
        let placeholder = format!("#{name}");
        self.names.push((placeholder.clone(), name.to_owned()));
        placeholder
    }

    fn value(&mut self, value: i64) -> String {
        let placeholder = format!(":v{}", self.values.len());
        self.values.push((placeholder.clone(), number(value)));
        placeholder
    }
}

impl ItemCondition {
    fn expression(self, used: &mut ExpressionAttributes) -> String {
        match self {
            ItemCondition::Absent => format!("attribute_not_exists({})", used.name(PK)),
            ItemCondition::Present => format!("attribute_exists({})", used.name(PK)),
            ItemCondition::Is(name, value) => format!("{} = {}", used.name(name), used.value(value)),
            ItemCondition::IsOrUnset(name, value) => {
                let (name, value) = (used.name(name), used.value(value));
                format!("(attribute_not_exists({name}) OR {name} = {value})")
            }
            ItemCondition::AtMostOrUnset(name, value) => {
                let (name, value) = (used.name(name), used.value(value));
                format!("(attribute_not_exists({name}) OR {name} <= {value})")
            }
        }
    }
}

/// The conditions of a change as one expression of the SDK.
pub(super) struct ConditionExpression {
    /// `None` without a condition.
    pub text: Option<String>,
    /// Placeholders of attribute names.
    pub names: HashMap<String, String>,
    /// Placeholders of values.
    pub values: HashMap<String, AttributeValue>,
}

impl ItemChange {
    /// The conditions, for a call that writes only this item.
    pub(super) fn condition_expression(&self) -> ConditionExpression {
        let mut used = ExpressionAttributes::default();
        let text = self.condition_text(&mut used);
        ConditionExpression {
            text,
            names: used.names.into_iter().collect(),
            values: used.values.into_iter().collect(),
        }
    }

    fn condition_text(&self, used: &mut ExpressionAttributes) -> Option<String> {
        let conditions: Vec<String> = self.when.iter().map(|it| it.expression(used)).collect();
        (!conditions.is_empty()).then(|| conditions.join(" AND "))
    }

    /// The change as a transaction item of the SDK.
    pub(super) fn to_sdk(&self, table: &str) -> Result<TransactWriteItem, StoreError> {
        self.build(table).map_err(|error| StoreError::Failed(error.to_string()))
    }

    fn build(&self, table: &str) -> Result<TransactWriteItem, BuildError> {
        let mut used = ExpressionAttributes::default();
        let condition = self.condition_text(&mut used);
        let builder = TransactWriteItem::builder();
        // The builders have no common trait.
        macro_rules! with_condition {
            ($builder:expr) => {{
                let mut builder = $builder.table_name(table);
                for (placeholder, name) in used.names {
                    builder = builder.expression_attribute_names(placeholder, name);
                }
                for (placeholder, value) in used.values {
                    builder = builder.expression_attribute_values(placeholder, value);
                }
                builder
            }};
        }
        let key = || Some(self.key.attributes());
        Ok(match &self.action {
            ItemAction::Put(item) => {
                let put = Put::builder().set_item(Some(item.clone())).set_condition_expression(condition);
                builder.put(with_condition!(put).build()?)
            }
            ItemAction::Delete => {
                let delete = Delete::builder().set_key(key()).set_condition_expression(condition);
                builder.delete(with_condition!(delete).build()?)
            }
            ItemAction::Check => {
                let check = ConditionCheck::builder().set_key(key()).set_condition_expression(condition);
                builder.condition_check(with_condition!(check).build()?)
            }
            ItemAction::Count { add, set } => {
                let added = clause("ADD", " ", add, &mut used);
                let expression = [added, clause("SET", " = ", set, &mut used)].concat();
                let update = Update::builder().set_key(key()).set_condition_expression(condition);
                builder.update(with_condition!(update).update_expression(expression.trim_end()).build()?)
            }
        }
        .build())
    }
}

fn clause(
    keyword: &str,
    separator: &str,
    numbers: &[(&'static str, i64)],
    used: &mut ExpressionAttributes,
) -> String {
    if numbers.is_empty() {
        return String::new();
    }
    let each =
        numbers.iter().map(|(name, value)| format!("{}{separator}{}", used.name(name), used.value(*value)));
    format!("{keyword} {} ", each.collect::<Vec<_>>().join(", "))
}
