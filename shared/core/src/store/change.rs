//! What a transaction does to each item, said once: the SDK is told in expressions, a database of this process as it is.
//!
//! Must stay true: the changes of a transaction concern different items, and their conditions are judged on the items as
//! they were before all of it.

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update};

use super::StoreError;
use super::item::{Attributes, COUNT, EDGES, Item, Key, LAST, PK, ROWS, USED, VERSION, number};
use super::parts::pack;
use super::table::{Guard, VersionBump, Write};

/// One item of a transaction: what is done to it, and when all of it may be done.
#[derive(Debug, Clone)]
pub struct Change {
    /// Which item.
    pub key: Key,
    /// What is done.
    pub action: Action,
    /// What has to be true of it.
    pub when: Vec<Condition>,
}

/// What is done to an item.
#[derive(Debug, Clone)]
pub enum Action {
    /// It becomes this, keys included.
    Put(Attributes),
    /// It goes.
    Delete,
    /// Nothing.
    Check,
    /// Numbers are added, which start at 0, and set. The item is made if it is not there.
    Count {
        /// What is added to which attribute.
        add: Vec<(&'static str, i64)>,
        /// What which attribute becomes.
        set: Vec<(&'static str, i64)>,
    },
}

/// What has to be true of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// There is none.
    Absent,
    /// There is one.
    Present,
    /// This attribute is this number.
    Is(&'static str, i64),
    /// This attribute is this number, or there is no such attribute.
    IsOrUnset(&'static str, i64),
    /// This attribute is at most this number, or there is no such attribute.
    AtMostOrUnset(&'static str, i64),
}

impl Guard {
    fn condition(self) -> Option<Condition> {
        match self {
            Guard::None => None,
            Guard::Absent => Some(Condition::Absent),
            Guard::Present => Some(Condition::Present),
            Guard::Version(version) => {
                Some(Condition::Is(VERSION, i64::try_from(version).unwrap_or(i64::MAX)))
            }
            Guard::CountAtMost(most) => Some(Condition::AtMostOrUnset(COUNT, most)),
        }
    }
}

/// What `writes` come to. Parts of items come last, so that the position of a failed condition is that of its write.
pub(super) fn changes(writes: &[Write]) -> Result<Vec<Change>, StoreError> {
    let (mut changes, mut parts) = (Vec::with_capacity(writes.len()), Vec::new());
    for write in writes {
        changes.push(change(write, &mut parts)?);
    }
    changes.extend(parts);
    Ok(changes)
}

fn change(write: &Write, parts: &mut Vec<Change>) -> Result<Change, StoreError> {
    let one = |key: &Key, action, guard: Guard| Change {
        key: key.clone(),
        action,
        when: guard.condition().into_iter().collect(),
    };
    Ok(match write {
        Write::Put(item, guard) => {
            let packed = pack(item)?;
            for part in packed.parts {
                parts.push(one(&Item::key_of(&part)?, Action::Put(part), Guard::None));
            }
            parts.extend(packed.surplus.iter().map(|key| one(key, Action::Delete, Guard::None)));
            one(&item.key, Action::Put(packed.head), *guard)
        }
        Write::Delete(key, guard) => one(key, Action::Delete, *guard),
        Write::Check(key, Guard::None) => one(key, Action::Check, Guard::Present),
        Write::Check(key, guard) => one(key, Action::Check, *guard),
        Write::Add(key, by) => {
            one(key, Action::Count { add: vec![(COUNT, *by)], set: Vec::new() }, Guard::None)
        }
        Write::BumpVersion(key, raise) => raising(key, *raise),
        Write::SetFeedBytes(key, at, used) => Change {
            key: key.clone(),
            action: Action::Count { add: Vec::new(), set: vec![(USED, *used)] },
            when: vec![Condition::Is(COUNT, *at)],
        },
    })
}

fn raising(key: &Key, raise: VersionBump) -> Change {
    let sums = [(ROWS, raise.when.rows), (EDGES, raise.when.edges), (COUNT, raise.when.number)];
    // Before the first write there is no row, and all of them are 0.
    let seen = |(name, seen): (&'static str, Option<i64>)| match seen? {
        0 => Some(Condition::IsOrUnset(name, 0)),
        seen => Some(Condition::Is(name, seen)),
    };
    let mut add = vec![(COUNT, 1), (ROWS, raise.by.rows), (EDGES, raise.by.edges)];
    let mut set = vec![(LAST, raise.by.last)];
    match raise.used {
        Some(used) => set.push((USED, used)),
        None if raise.by.used != 0 => add.push((USED, raise.by.used)),
        None => {}
    }
    let room = raise.when.used_at_most.map(|most| Condition::AtMostOrUnset(USED, most));
    let when = sums.into_iter().filter_map(seen).chain(room).collect();
    Change { key: key.clone(), action: Action::Count { add, set }, when }
}

/// Names and values that an expression uses.
#[derive(Default)]
struct Used {
    names: Vec<(String, String)>,
    values: Vec<(String, AttributeValue)>,
}

impl Used {
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

impl Condition {
    fn expression(self, used: &mut Used) -> String {
        match self {
            Condition::Absent => format!("attribute_not_exists({})", used.name(PK)),
            Condition::Present => format!("attribute_exists({})", used.name(PK)),
            Condition::Is(name, value) => format!("{} = {}", used.name(name), used.value(value)),
            Condition::IsOrUnset(name, value) => {
                let (name, value) = (used.name(name), used.value(value));
                format!("(attribute_not_exists({name}) OR {name} = {value})")
            }
            Condition::AtMostOrUnset(name, value) => {
                let (name, value) = (used.name(name), used.value(value));
                format!("(attribute_not_exists({name}) OR {name} <= {value})")
            }
        }
    }
}

impl Change {
    /// The change as the SDK is told it.
    pub(super) fn to_sdk(&self, table: &str) -> Result<TransactWriteItem, StoreError> {
        self.built(table).map_err(|error| StoreError::Failed(error.to_string()))
    }

    fn built(&self, table: &str) -> Result<TransactWriteItem, BuildError> {
        let mut used = Used::default();
        let conditions: Vec<String> = self.when.iter().map(|it| it.expression(&mut used)).collect();
        let condition = (!conditions.is_empty()).then(|| conditions.join(" AND "));
        let built = TransactWriteItem::builder();
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
            Action::Put(item) => {
                let put = Put::builder().set_item(Some(item.clone())).set_condition_expression(condition);
                built.put(with_condition!(put).build()?)
            }
            Action::Delete => {
                let delete = Delete::builder().set_key(key()).set_condition_expression(condition);
                built.delete(with_condition!(delete).build()?)
            }
            Action::Check => {
                let check = ConditionCheck::builder().set_key(key()).set_condition_expression(condition);
                built.condition_check(with_condition!(check).build()?)
            }
            Action::Count { add, set } => {
                let added = clause("ADD", " ", add, &mut used);
                let expression = [added, clause("SET", " = ", set, &mut used)].concat();
                let update = Update::builder().set_key(key()).set_condition_expression(condition);
                built.update(with_condition!(update).update_expression(expression.trim_end()).build()?)
            }
        }
        .build())
    }
}

fn clause(word: &str, between: &str, numbers: &[(&'static str, i64)], used: &mut Used) -> String {
    if numbers.is_empty() {
        return String::new();
    }
    let each =
        numbers.iter().map(|(name, value)| format!("{}{between}{}", used.name(name), used.value(*value)));
    format!("{word} {} ", each.collect::<Vec<_>>().join(", "))
}
