//! The properties of conditions and the criteria of cohorts, compiled into tests of a subject.
//!
//! Must stay true: a property of the wrong shape is met by nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    Cohorts, FlagValue,
    cohorts::CohortTest,
    compile::Compiler,
    context::Known,
    predicate::{Given, Predicate},
};
use crate::flag::{filter_view as view, references};

/// What a group's own key is called among its properties.
pub const GROUP_KEY: &str = "$group_key";

/// A compiled property of a condition.
#[derive(Debug, Clone)]
pub enum Leaf {
    /// Nothing meets it.
    Never,
    /// A property of the person.
    Person { key: String, predicate: Predicate },
    /// A property of the group of this type.
    Group { index: u32, key: String, predicate: Predicate },
    /// The key of the group of this type.
    GroupKey { index: u32, predicate: Predicate },
    /// Membership in a cohort.
    Member { cohort: CohortTest, negated: bool },
    /// The value of another flag.
    Flag { flag: usize, expected: Expected },
}

/// What another flag's value has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// On or off.
    On(bool),
    /// On with this variant.
    Variant(String),
}

impl Leaf {
    /// A property of a flag's condition; `flags` are the indexes of flags by id, `own_index` the flag's group type.
    pub fn property(
        property: &Value,
        flags: &BTreeMap<i64, usize>,
        own_index: Option<u32>,
        cohorts: &Cohorts,
        compiler: &Compiler,
    ) -> Self {
        match view::text(property, "type") {
            Some("flag") => Self::flag(property, flags).unwrap_or(Self::Never),
            Some("group") => Self::group(property, own_index, compiler).unwrap_or(Self::Never),
            _ => Self::criterion(property, cohorts, compiler),
        }
    }

    /// A criterion of a cohort, or a property of a flag's condition on a person or a cohort.
    pub fn criterion(property: &Value, cohorts: &Cohorts, compiler: &Compiler) -> Self {
        if references::is_cohort(property) {
            return Self::member(property, cohorts);
        }
        match view::text(property, "type") {
            Some("person") | None => Self::person(property, compiler).unwrap_or(Self::Never),
            Some(_) => Self::Never,
        }
    }

    fn person(property: &Value, compiler: &Compiler) -> Option<Self> {
        let key = view::text(property, "key")?.to_owned();
        Some(Self::Person { key, predicate: predicate(property, compiler)? })
    }

    /// A property of a group; its type is the one stated, else that of the flag.
    pub fn group(property: &Value, own_index: Option<u32>, compiler: &Compiler) -> Option<Self> {
        let index = match property.get("group_type_index").filter(|index| !index.is_null()) {
            Some(index) => u32::try_from(index.as_u64()?).ok()?,
            None => own_index?,
        };
        let (key, predicate) = (view::text(property, "key")?, predicate(property, compiler)?);
        Some(match key {
            GROUP_KEY => Self::GroupKey { index, predicate },
            key => Self::Group { index, key: key.to_owned(), predicate },
        })
    }

    fn member(property: &Value, cohorts: &Cohorts) -> Self {
        let not_in = match view::operator(property) {
            "in" | "exact" => false,
            "not_in" => true,
            _ => return Self::Never,
        };
        let negation = property.get("negation").and_then(Value::as_bool).unwrap_or(false);
        Self::Member { cohort: cohorts.test(references::cohort_id(property)), negated: not_in != negation }
    }

    fn flag(property: &Value, flags: &BTreeMap<i64, usize>) -> Option<Self> {
        let expected = match property.get("value")? {
            Value::Bool(on) => Expected::On(*on),
            Value::String(variant) => Expected::Variant(variant.clone()),
            _ => return None,
        };
        Some(Self::Flag { flag: *flags.get(&references::flag_id(property)?)?, expected })
    }

    /// Whether it is met. None: there is nothing to compare with.
    pub fn holds(&self, known: &Known<'_>) -> Option<bool> {
        let subject = known.subject;
        let (now, slow) = (subject.now, subject.slow_searches);
        match self {
            Self::Never => None,
            Self::Person { key, predicate } => {
                predicate.holds(subject.properties.get(key).map(Given::from), now, slow)
            }
            Self::Group { index, key, predicate } => {
                let group = subject.groups.get(index);
                predicate.holds(group.and_then(|group| group.properties.get(key)).map(Given::from), now, slow)
            }
            Self::GroupKey { index, predicate } => {
                predicate.holds(subject.groups.get(index).map(|group| Given::Text(group.key)), now, slow)
            }
            Self::Member { cohort, negated } => {
                let member = match cohort {
                    CohortTest::Static(id) => subject.static_cohorts.contains(id),
                    CohortTest::Dynamic(index) => known.members.contains(*index),
                    CohortTest::Empty => false,
                };
                Some(member != *negated)
            }
            Self::Flag { flag, expected } => {
                let value = known.value(*flag);
                Some(match expected {
                    Expected::On(on) => value.is_on() == *on,
                    Expected::Variant(variant) => {
                        matches!(value, FlagValue::Variant(key) if **key == **variant)
                    }
                })
            }
        }
    }

    /// Adds the dynamic cohort that it asks about.
    pub fn add_cohorts(&self, dynamic: &mut BTreeSet<usize>) {
        if let Self::Member { cohort: CohortTest::Dynamic(index), .. } = self {
            dynamic.insert(*index);
        }
    }
}

fn predicate(property: &Value, compiler: &Compiler) -> Option<Predicate> {
    Predicate::new(view::operator(property), property.get("value"), compiler)
}
